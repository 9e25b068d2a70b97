#include "io/digest.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "io/temporary_folder.h"

namespace linnet {
namespace {

TEST(Digest, IsXxh3AsOthersComputeIt) {
  // Of xxHash 0.8.4: no bytes, and bytes of each of its ways to treat short and long ones.
  EXPECT_EQ(digest_of(std::string_view()), "2d06800538d394c2");
  EXPECT_EQ(digest_of("Linnet"), "075324dc3f3cb739");
  EXPECT_EQ(digest_of("0123456789abcdef"), "64439946d8fa212d");
  for (const auto& [size, expected] : {std::pair(100, "004e4f921a64bd1c"),
                                       {200, "f42a8864feaf0703"},
                                       {1000, "d33dd80b46f60e50"},
                                       {100'000, "39cf9d035d60ad58"}}) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(i % 256);
    EXPECT_EQ(digest_of(bytes), expected) << size;
  }
}

TEST(Digest, DoesNotDependOnThePieces) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 1024, 3'000'001}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    const std::string whole = digest_of(bytes);
    EXPECT_EQ(whole.size(), 16u);
    for (const std::size_t piece : {std::size_t{1000}, size / 2 + 1}) {
      Digest digest;
      for (std::size_t begin = 0; begin < size; begin += piece)
        digest.add(std::string_view(bytes).substr(begin, piece));
      EXPECT_EQ(digest.text(), whole) << size << " bytes in pieces of " << piece;
    }
    EXPECT_EQ(digest_of_file(folder.file("file", bytes)), whole) << size;
  }
}

}  // namespace
}  // namespace linnet
