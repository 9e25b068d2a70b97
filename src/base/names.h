#pragma once

#include <span>
#include <string>
#include <string_view>

namespace linnet {

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) from `name`: for "did
/// you mean". Empty when there are no candidates or even the best one differs in more than half of its
/// letters.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace linnet
