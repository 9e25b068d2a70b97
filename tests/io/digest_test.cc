#include "io/digest.h"

#include <gtest/gtest.h>

#include "io/temporary_folder.h"

namespace linnet {
namespace {

TEST(Digest, IsXxh3AsOthersComputeIt) {
  // Of the reference implementation's own tests: no bytes, seed 0.
  EXPECT_EQ(digest_of(std::string_view()), "2d06800538d394c2");
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
