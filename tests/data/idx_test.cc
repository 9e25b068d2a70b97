#include "data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "io/file.h"
#include "io/temporary_folder.h"
#include "support/gzip.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Shape small_shape = {2, 3, 2};

std::string small_file(const TemporaryFolder& folder) {
  std::vector<std::uint8_t> values(12);
  std::iota(values.begin(), values.end(), 250);  // over 255 to 0
  write_idx(folder / "small", small_shape, values);
  return read_file(folder / "small");
}

TEST(Idx, RoundTripsPlainAndGzipped) {
  const TemporaryFolder folder;
  const std::string bytes = small_file(folder);
  EXPECT_EQ(bytes.substr(0, 16), std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x03\0\0\0\x02", 16));
  folder.file("small.gz", gzipped(bytes));
  for (const char* name : {"small", "small.gz"}) {
    const IdxArray array = read_idx(folder / name);
    EXPECT_EQ(array.shape, small_shape);
    EXPECT_EQ(array.values[0], 250);
    EXPECT_EQ(array.values[11], 5);
  }
  write_idx(folder / "empty", Shape{0, 4}, {});
  EXPECT_EQ(read_idx(folder / "empty").shape, (Shape{0, 4}));
}

TEST(Idx, EveryTruncationAndTrailingByteIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const std::string whole = small_file(folder);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto read = [&] { read_idx(folder.file("cut", whole.substr(0, size))); };
    EXPECT_THAT(error_of(read), AllOf(HasSubstr("cut"), HasSubstr("expected"), HasSubstr("got"))) << size;
    const auto read_gzipped = [&] { read_idx(folder.file("cut.gz", gzipped(whole.substr(0, size)))); };
    EXPECT_THAT(error_of(read_gzipped), HasSubstr("cut.gz")) << size;
  }
  EXPECT_THAT(error_of([&] { read_idx(folder.file("more", whole + "x")); }),
              AllOf(HasSubstr("expected 12 bytes after the header for shape [2, 3, 2], got 13")));
}

TEST(Idx, EveryDamagedHeaderByteIsAnError) {
  const TemporaryFolder folder;
  const std::string whole = small_file(folder);
  for (std::size_t i = 0; i < 16; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THROW(read_idx(folder.file("damaged", damaged)), Error) << i << ' ' << bit;
    }
  }
}

TEST(Idx, SizesThatOverflowAreAnError) {
  const TemporaryFolder folder;
  const std::string huge = std::string("\0\0\x08\x04", 4) + std::string(16, '\xff');
  EXPECT_THAT(error_of([&] { read_idx(folder.file("huge", huge)); }),
              AllOf(HasSubstr("huge"), HasSubstr("2^63")));
  // The product of these extents is 2^64.
  const std::string wraps = std::string("\0\0\x08\x02\x80\0\0\0\x80\0\0\0", 12);
  EXPECT_THROW(read_idx(folder.file("wraps", wraps)), Error);
}

TEST(Idx, WriterRefusesContradictions) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> values(3);
  EXPECT_THROW(write_idx(folder / "file", Shape{4}, values), Error);
  EXPECT_THROW(write_idx(folder / "file", Shape{}, values), Error);
  EXPECT_THROW(write_idx(folder / "file", Shape{-1, -3}, values), Error);
  EXPECT_THROW(write_idx(folder / "file", Shape{0, std::int64_t{1} << 32}, {}), Error);
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace linnet
