#include "io/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "support/errors.h"

namespace linnet {
namespace {

ByteWriter some_values() {
  ByteWriter writer;
  writer.add(std::uint8_t{0xfe});
  writer.add(std::int64_t{-2});
  writer.add(0.5);
  writer.add(std::span<const std::int32_t>(std::array{3, -1, 4}));
  return writer;
}

TEST(Bytes, ReaderTakesWhatTheWriterAdded) {
  const ByteWriter writer = some_values();
  EXPECT_EQ(writer.bytes().size(), 1u + 8 + 8 + 12);
  ByteReader reader(writer.bytes(), "bytes");
  EXPECT_EQ(reader.take<std::uint8_t>(), 0xfe);
  EXPECT_EQ(reader.take<std::int64_t>(), -2);  // not aligned
  EXPECT_EQ(reader.take<double>(), 0.5);
  EXPECT_TRUE(reader.take<double>(0).empty());
  EXPECT_EQ(reader.take<std::int32_t>(2), (std::vector<std::int32_t>{3, -1}));
  EXPECT_EQ(reader.rest(), 4u);
  EXPECT_EQ(reader.take_bytes(4)[0], std::byte{4});
  EXPECT_EQ(reader.rest(), 0u);
  EXPECT_TRUE(reader.take_bytes(0).empty());
}

TEST(Bytes, ValuesAreLittleEndian) {
  ByteWriter writer;
  writer.add(std::uint32_t{0x04030201});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(writer.bytes()[i], static_cast<std::byte>(i + 1));
}

TEST(Bytes, TruncationIsASentenceAndTakesNothing) {
  const ByteWriter writer = some_values();
  const std::span<const std::byte> bytes(writer.bytes());
  ByteReader reader(bytes.first(7), "states", "file.bin");
  const std::string expected = "[states] file.bin: expected 1 more values of 8 bytes, got 7 bytes";
  EXPECT_EQ(error_of([&] { reader.take<std::int64_t>(); }), expected);
  EXPECT_EQ(reader.rest(), 7u);
  EXPECT_EQ(error_of([&] { ByteReader(bytes.first(7), "states").take_bytes(8); }),
            "[states] expected 8 more values of 1 bytes, got 7 bytes");
  // The product of the last two exceeds 64 bits. No memory is taken for any of them.
  for (const std::uint64_t count : {std::uint64_t{2}, std::uint64_t{1} << 61, std::uint64_t{1} << 62,
                                    std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_NE(error_of([&] { reader.take<std::int32_t>(count); }).find("more values of 4 bytes"),
              std::string::npos);
    EXPECT_EQ(reader.rest(), 7u);
  }
}

}  // namespace
}  // namespace linnet
