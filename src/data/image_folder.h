#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The PNG and JPEG files of a folder, known by their extensions (io/image.h).
struct ImageFolder {
  struct File {
    std::filesystem::path path;
    std::size_t label = 0;  ///< index into `classes`
  };
  std::vector<std::string> classes;  ///< names of the sub-folders with images, sorted by their bytes
  std::vector<File> files;           ///< by class, sorted by their names
};

/// Lists the images in the sub-folders of a folder, or those in the folder itself where there are no such
/// sub-folders: they have no classes. Neither have images that `source` names instead of a folder, as
/// data/files.h says. Throws Error where there are none, or both.
ImageFolder list_images(const std::string& source);

/// Whether `list_images` would find any.
bool has_images(const std::filesystem::path& folder);

/// The kind "images" of open_datasets, its options checked.
Datasets open_images(const DataOptions& options, const Parts& parts);

}  // namespace linnet
