#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

/// The text without the blanks around it.
std::string_view without_blanks(std::string_view text, const char* blanks = " \t");

/// The parts of a list between its commas, without blanks around them. An empty list has none.
std::vector<std::string> comma_separated(std::string_view list);

/// The numbers of such a list; nothing where a part is no whole number in least … most.
std::optional<std::vector<std::int64_t>> whole_numbers(std::string_view list, std::int64_t least,
                                                       std::int64_t most);

/// The same for numbers that may have a fraction.
std::optional<std::vector<double>> numbers(std::string_view list, double least, double most);

}  // namespace linnet
