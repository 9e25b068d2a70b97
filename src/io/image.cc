#include "io/image.h"

#include <string>

#include "io/file.h"
#include "io/jpeg.h"
#include "io/png.h"

namespace linnet {
namespace {

bool is_jpeg(const std::filesystem::path& path) { return read_start(path, 2) == "\xff\xd8"; }

}  // namespace

bool is_image_file(const std::filesystem::path& path) {
  const std::string extension = extension_of(path.string());
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

Image read_image(const std::filesystem::path& path) {
  return is_jpeg(path) ? read_jpeg(path) : read_png(path);
}

Image read_image_header(const std::filesystem::path& path) {
  return is_jpeg(path) ? read_jpeg_header(path) : read_png_header(path);
}

}  // namespace linnet
