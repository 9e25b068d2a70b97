#pragma once

#include <span>
#include <string>
#include <string_view>

namespace linnet {

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) from `name`: for "did
/// you mean". Empty when there are no candidates or even the best one differs in more than half of its
/// letters.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Whether a byte of UTF-8 continues the character of the byte before it.
constexpr bool is_utf8_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// The text as an error quotes it: whole where it has at most `most` bytes, else its first characters and its
/// size, "abc… (2000000 bytes)".
std::string shortened(std::string_view text, std::size_t most = 100);

/// The text with ASCII's capital letters made small.
std::string in_small_letters(std::string_view text);

}  // namespace linnet
