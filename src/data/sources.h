#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

/// The parts of a list between its commas, without blanks around them. An empty list has none.
std::vector<std::string> comma_separated(std::string_view list);

/// The files of a list of paths with commas between them. A path of an existing file is one file, whatever
/// commas it has.
std::vector<std::filesystem::path> files_of(const std::string& list);

}  // namespace linnet
