#include "data/copy_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/dataset.h"

namespace linnet {
namespace {

TEST(CopyTask, IsAWordTwiceOfWhichTheSecondCounts) {
  for (const std::size_t length : {4u, 5u, 9u, 32u, 128u}) {
    const Random random(7, Draw::synthetic_data);
    std::set<std::size_t> lengths;
    std::set<std::int32_t> symbols;
    for (std::uint64_t index = 0; index < 2000; ++index) {
      std::vector<std::int32_t> tokens(length, 99), targets(length, 99);
      draw_copy(tokens, targets, random, index);
      ASSERT_EQ(tokens[0], 0);
      std::size_t word = 0;
      while (tokens[1 + word] != 0) ++word;
      ASSERT_TRUE(word >= 1 && word <= length / 2 - 1) << word;
      lengths.insert(word);
      for (std::size_t i = 0; i < length; ++i) {
        const bool second = i >= 2 + word && i < 2 + 2 * word;
        const bool first = i >= 1 && i < 1 + word;
        ASSERT_EQ(targets[i], second ? tokens[i] : -1);
        ASSERT_TRUE(!second || tokens[i] == tokens[i - 1 - word]);
        ASSERT_EQ(tokens[i] != 0, first || second);
        symbols.insert(tokens[i]);
      }
    }
    EXPECT_EQ(lengths.size(), length / 2 - 1);
    EXPECT_EQ(symbols.size(), 11u);
    EXPECT_EQ(*symbols.rbegin(), 10);
  }
}

TEST(CopyTask, TrainingAndValidationDiffer) {
  const Datasets data = open_datasets({.kind = "copy", .length = 64, .examples = 50});
  EXPECT_EQ(data.training->size(), 50);
  EXPECT_EQ(data.validation->size(), 5);
  EXPECT_EQ(data.training->vocabulary(), 11);
  EXPECT_EQ(data.training->classes(), 0);
  std::vector<std::int32_t> a(64), b(64), c(64), targets(64);
  EXPECT_EQ(data.training->read(0, a, targets), -1);
  data.validation->read(0, b, targets);
  data.training->read(1, c, targets);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(CopyTask, FileHoldsWhatTheDataSetGives) {
  const TemporaryFolder folder;
  write_copy(folder / "copy.safetensors", 3, 20, 1);
  const Safetensors file = Safetensors::read(folder / "copy.safetensors");
  const Tensor tokens = file.tensor("tokens"), targets = file.tensor("targets");
  EXPECT_EQ(tokens.shape(), (Shape{3, 20}));
  const Datasets data = open_datasets({.kind = "copy", .length = 20, .examples = 3});
  for (std::int64_t i = 0; i < 3; ++i) {
    std::vector<std::int32_t> x(20), y(20);
    data.training->read(i, x, y);
    for (std::int64_t k = 0; k < 20; ++k) {
      EXPECT_EQ(tokens.view<std::int32_t>()(i, k), x[static_cast<std::size_t>(k)]);
      EXPECT_EQ(targets.view<std::int32_t>()(i, k), y[static_cast<std::size_t>(k)]);
    }
  }
  EXPECT_THROW(write_copy(folder / "x", 0, 20, 1), UsageError);
  EXPECT_THROW(write_copy(folder / "x", 1, 3, 1), UsageError);
  EXPECT_THROW(write_copy(folder / "x", std::int64_t{1} << 40, 1 << 30, 1), UsageError);
}

}  // namespace
}  // namespace linnet
