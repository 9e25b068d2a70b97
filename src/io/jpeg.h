#pragma once

#include <filesystem>

#include "io/image.h"

namespace linnet {

/// Reads a JPEG file of at most 2^25 pixels and 500 scans: grey ones with one channel, colour with three,
/// with the rows as they are stored; a rotation that Exif asks for is not made. Bytes that belong to nothing
/// are passed over. Throws Error when it has more pixels or scans, inks instead of colours (CMYK), is
/// truncated, damaged or no JPEG file; UsageError where Linnet was built without libjpeg-turbo.
Image read_jpeg(const std::filesystem::path& path);

/// The size and the channels of a JPEG file as `read_jpeg` gives it, without its pixels. Throws as
/// `read_jpeg` does, but decodes no pixels.
Image read_jpeg_header(const std::filesystem::path& path);

}  // namespace linnet
