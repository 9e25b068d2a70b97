#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The PNG files of a folder, known by the extension .png.
struct ImageFolder {
  struct File {
    std::filesystem::path path;
    std::size_t label = 0;  ///< index into `classes`
  };
  std::vector<std::string> classes;  ///< names of the sub-folders with PNG files, sorted by their bytes
  std::vector<File> files;           ///< by class, sorted by their names
};

/// Lists the PNG files in the sub-folders of a folder, or those in the folder itself where there are no such
/// sub-folders: they have no classes. Neither have PNG files that `source` names instead of a folder, as
/// data/files.h says. Throws Error where there are none, or both.
ImageFolder list_images(const std::string& source);

/// Whether `list_images` would find any.
bool has_images(const std::filesystem::path& folder);

/// The kind "images" of open_datasets, its options checked.
Datasets open_images(const DataOptions& options, const Parts& parts);

}  // namespace linnet
