#include "io/jpeg.h"

#include "base/fail.h"

#ifdef LINNET_TURBOJPEG
#include <turbojpeg.h>

#include <string>
#include <string_view>

#include "io/file.h"

namespace linnet {
namespace {

constexpr std::size_t most_header_bytes = 65'536;  // of files without long comments or profiles

class Decoder {
 public:
  Decoder() : handle_(tjInitDecompress()) {
    if (handle_ == nullptr) fail<OutOfMemoryError>("read_jpeg", "expected memory for a decoder, got none");
  }
  ~Decoder() { tjDestroy(handle_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Whether the file's header is among these bytes, its first ones.
  bool read_header(std::string_view bytes) {
    int width = 0, height = 0, sampling = 0;
    // Its result is also one of success where there are tables alone, and of failure where it warns.
    tjDecompressHeader3(handle_, data_of(bytes), bytes.size(), &width, &height, &sampling, &colours_);
    header_ = {.width = width, .height = height, .channels = colours_ == TJCS_GRAY ? 1 : 3, .pixels = {}};
    return width > 0 && height > 0;
  }

  /// Of the header that was read.
  const Image& checked_header(const std::filesystem::path& path) const {
    if (colours_ == TJCS_CMYK || colours_ == TJCS_YCCK)
      fail("read_jpeg", "{}: expected grey or colour, got the four inks of a printer (CMYK)", path.string());
    if (header_.width > most_image_pixels / header_.height)
      fail("read_jpeg", "{}: expected at most {} pixels, got {} × {}", path.string(), most_image_pixels,
           header_.width, header_.height);
    return header_;
  }

  Image read_pixels(const std::filesystem::path& path, std::string_view bytes) {
    Image image = checked_header(path);
    image.pixels.resize(static_cast<std::size_t>(image.width * image.height * image.channels));
    if (tjDecompress2(handle_, data_of(bytes), bytes.size(), image.pixels.data(),
                      static_cast<int>(image.width), 0, static_cast<int>(image.height),
                      image.channels == 1 ? TJPF_GRAY : TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0 &&
        !is_harmless())
      fail("read_jpeg", "{}: expected a whole JPEG file, got one that is damaged ({})", path.string(),
           message());
    return image;
  }

 private:
  std::string message() const { return tjGetErrorStr2(handle_); }

  static const unsigned char* data_of(std::string_view bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }

  /// Cameras and editors leave bytes between two parts of a file, which cost no pixel.
  bool is_harmless() const {
    return tjGetErrorCode(handle_) == TJERR_WARNING &&
           message().find("extraneous bytes") != std::string::npos;
  }

  tjhandle handle_;
  Image header_;
  int colours_ = 0;
};

[[noreturn]] void refuse(const std::filesystem::path& path) {
  fail("read_jpeg", "{}: expected a JPEG file, got none", path.string());
}

}  // namespace

Image read_jpeg(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  Decoder decoder;
  if (!decoder.read_header(bytes)) refuse(path);
  return decoder.read_pixels(path, bytes);
}

Image read_jpeg_header(const std::filesystem::path& path) {
  Decoder decoder;
  if (!decoder.read_header(read_start(path, most_header_bytes)) && !decoder.read_header(read_file(path)))
    refuse(path);
  return decoder.checked_header(path);
}

}  // namespace linnet

#else

namespace linnet {

Image read_jpeg(const std::filesystem::path& path) { return read_jpeg_header(path); }

Image read_jpeg_header(const std::filesystem::path& path) {
  fail<UsageError>(
      "read_jpeg",
      "expected Linnet to be built with libjpeg-turbo (libturbojpeg0-dev) for {}, got it without",
      path.string());
}

}  // namespace linnet

#endif
