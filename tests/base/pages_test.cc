#include "base/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace linnet {
namespace {

TEST(SharedPages, PiecesAreZeroedAlignedAndApart) {
  std::vector<SharedPages> pieces;
  for (const std::size_t bytes : {1, 63, 64, 65, 700'000, 1'400'000, 3'000'000, 5})
    pieces.emplace_back(bytes);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::byte* data = pieces[i].data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    EXPECT_TRUE(std::all_of(data, data + pieces[i].bytes(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(data, pieces[i].bytes(), static_cast<std::byte>(i + 1));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::byte* data = pieces[i].data();
    EXPECT_TRUE(
        std::all_of(data, data + pieces[i].bytes(), [&](std::byte b) { return b == std::byte(i + 1); }));
  }
}

TEST(SharedPages, SmallPiecesShareAChunkThatOutlivesTheFirst) {
  SharedPages first(1000), second(1000);
  EXPECT_EQ(second.data() - first.data(), 1024);
  std::fill_n(second.data(), 1000, std::byte{7});
  first = SharedPages();
  SharedPages third(1000);
  EXPECT_EQ(third.data() - second.data(), 1024);
  EXPECT_EQ(second.data()[999], std::byte{7});
  EXPECT_EQ(third.data()[0], std::byte{0});
}

TEST(SharedPages, NothingIsAPieceToo) {
  EXPECT_EQ(SharedPages().bytes(), 0u);
  EXPECT_EQ(SharedPages(0).bytes(), 0u);
}

}  // namespace
}  // namespace linnet
