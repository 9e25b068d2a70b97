#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/little_endian.h"

namespace linnet {

/// What a SentencePiece model does with blanks at the beginning of a text, and with repeated ones.
struct Blanks {
  bool before_text = false;  ///< add_dummy_prefix
  bool once = false;         ///< remove_extra_whitespaces
};

/// A SentencePiece model as its format has it (sentencepiece_model.proto, protocol buffers): token 0 is the
/// unknown one, 1 a control token, 2 … 257 are the bytes, and the pieces follow.
inline std::string sentencepiece_model(const std::vector<std::string>& pieces, Blanks blanks = {}) {
  constexpr char normal = 1, unknown = 2, control = 3, byte = 6;  // types
  const auto block = [](char tag, const std::string& contents) {
    std::string size;
    std::size_t rest = contents.size();
    for (; rest >= 0x80; rest >>= 7) size += static_cast<char>(rest | 0x80);
    return tag + size + static_cast<char>(rest) + contents;
  };
  std::string model;
  const auto add = [&](const std::string& piece, char type) {
    constexpr std::uint32_t minus_one = 0xbf800000;  // its score, as a float
    const LittleEndian score = LittleEndian().text("\x15").add<std::uint32_t>(minus_one);
    model += block('\x0a', block('\x0a', piece) + score.string() + '\x18' + type);
  };
  add("<unk>", unknown);
  add("<s>", control);
  const std::string digits = "0123456789ABCDEF";
  for (const char high : digits)
    for (const char low : digits) add(std::string("<0x") + high + low + '>', byte);
  for (const std::string& piece : pieces) add(piece, normal);
  const std::string byte_fallback = {'\x98', '\x02', 1};
  const std::string normalisation = {'\x18', static_cast<char>(blanks.before_text), '\x20',
                                     static_cast<char>(blanks.once)};
  return model + block('\x12', byte_fallback) + block('\x1a', normalisation);
}

}  // namespace linnet
