#pragma once

#include <cstdlib>
#include <filesystem>

namespace linnet {

/// The folder of real data sets: LINNET_DATA, or beside the source folder. It may be missing.
inline std::filesystem::path shared_data_folder() {
  if (const char* folder = std::getenv("LINNET_DATA")) return folder;
  return std::filesystem::path(LINNET_SOURCE_FOLDER).parent_path() / "shared" / "data";
}

}  // namespace linnet
