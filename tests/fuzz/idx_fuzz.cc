// An IDX file: as an array, and as the images and the labels of a folder of MNIST. The first byte chooses
// between the bytes as they are, a gzipped file of them, and a deflated stream whose gzip trailer is made
// right.

#include <zlib.h>

#include <array>

#include "base/fail.h"
#include "data/idx.h"
#include "fuzz.h"
#include "io/file.h"
#include "read_examples.h"
#include "support/gzip.h"

namespace linnet::fuzz {
namespace {

constexpr std::string_view gzip_header("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);

/// The deflated stream alone, without the header and the trailer of a gzip file.
std::string deflated(std::string_view bytes) {
  const std::string file = gzipped(bytes);
  constexpr std::size_t trailer = 8;
  return file.substr(gzip_header.size(), file.size() - gzip_header.size() - trailer);
}

/// The stream in a gzip file, with the checksum and the size of what its beginning inflates to.
std::string gzip_of(std::string_view stream_bytes) {
  constexpr std::size_t most = 1 << 16;
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) report("no memory for inflate");
  std::string result(most, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stream_bytes.data()));
  stream.avail_in = static_cast<uInt>(stream_bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  inflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  const std::size_t used = stream.total_in;
  inflateEnd(&stream);
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(result.data()), result.size());
  std::string file = std::string(gzip_header) + std::string(stream_bytes.substr(0, used));
  for (const std::uint64_t value : {std::uint64_t{crc}, std::uint64_t{result.size()}})
    for (int i = 0; i < 4; ++i) file += static_cast<char>(value >> (8 * i));
  return file + std::string(stream_bytes.substr(used));
}

std::string idx_of(std::vector<std::int64_t> shape) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(checked_size(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i % 10);
  const auto path = empty_folder() / "idx";
  write_idx(path, shape, values);
  return read_file(path);
}

}  // namespace

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const std::string bytes = choice % 3 == 0   ? std::string(input)
                            : choice % 3 == 1 ? gzipped(input)
                                              : gzip_of(input);
  const auto& folder = empty_folder();
  const IdxArray array = read_idx(put(folder / "train-images-idx3-ubyte", bytes));
  if (checked_size(array.shape) != std::ssize(array.values))
    report("expected as many values as the shape says");
  const std::int64_t count = array.shape[0];
  try {
    put(folder / "t10k-images.idx3-ubyte", bytes);
    if (array.shape.size() == 1) {
      // Labels, beside images of one pixel.
      const std::int64_t shape[] = {count, 1, 1};
      for (const char* name : {"train-images-idx3-ubyte", "t10k-images.idx3-ubyte"})
        write_idx(folder / name, shape, array.values);
      put(folder / "train-labels-idx1-ubyte.gz", bytes);
      put(folder / "t10k-labels.idx1-ubyte", bytes);
    }
    read_examples(open_datasets({.kind = "mnist",
                                 .path = folder.string(),
                                 .size = choice / 3 % 4,
                                 .levels = 2 + choice % 255,
                                 .labels = array.shape.size() == 1}));
  } catch (const Error&) {
    // Arrays of other sizes are no images.
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{5}, {3, 2}, {4, 5, 6}, {2, 3, 1, 2}, {0}, {20, 3, 3}}) {
    const std::string file = idx_of(shape);
    result.push_back(with_choice(3, file));
    result.push_back(with_choice(4, file));
    result.push_back(with_choice(5, deflated(file)));
  }
  const std::string two = gzip_of(deflated(idx_of({4, 5, 6}).substr(0, 30))),
                    rest = gzip_of(deflated(idx_of({4, 5, 6}).substr(30)));
  result.push_back(with_choice(0, two + rest));
  return result;
}

std::vector<std::string> words() {
  return {std::string(gzip_header), std::string("\0\0\x08\x01", 4), std::string("\0\0\x08\x03", 4),
          "\xff\xff\xff\xff",       std::string("\0\0\0\x01", 4),   "\x80"};
}

}  // namespace linnet::fuzz
