#include "data/selection.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "data/series.h"
#include "io/temporary_folder.h"
#include "support/datasets.h"

namespace linnet {
namespace {

std::vector<std::int32_t> tokens_of(const Dataset& data, std::int64_t index) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.length())), targets(tokens.size());
  data.read(index, tokens, targets);
  return tokens;
}

TEST(Selection, HasTheExamplesOfItsIndicesInTheirOrder) {
  const auto whole = std::make_shared<Counting>(9, 6, 5, 3);
  const std::vector<std::int64_t> indices = {8, 0, 0, 5};
  const auto selected = select_examples(whole, indices);
  ASSERT_EQ(selected->size(), 4);
  EXPECT_EQ(selected->length(), 6);
  EXPECT_EQ(selected->vocabulary(), 5);
  EXPECT_EQ(selected->classes(), 3);
  EXPECT_EQ(image_shape(*selected).height, 0);
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    EXPECT_EQ(tokens_of(*selected, i), tokens_of(*whole, index));
    std::vector<std::int32_t> tokens(6), targets(6);
    EXPECT_EQ(selected->read(i, tokens, targets), index % 3);
    EXPECT_EQ(selected->steps(i), whole->steps(index));
  }
  // Of a selection, whose whole lives as long.
  const auto again = select_examples(selected, {3, 1});
  EXPECT_EQ(tokens_of(*again, 0), tokens_of(*whole, 5));
  EXPECT_EQ(&whole_of(*again), whole.get());
  EXPECT_EQ(index_in_whole(*again, 1), 0);
}

TEST(Selection, OfFilesKeepsHowTheyWereRead) {
  const TemporaryFolder folder;
  std::string csv = "date,load,wind\n";
  for (int i = 0; i < 60; ++i)
    csv += std::to_string(i) + "," + std::to_string(i % 7) + ",2." + std::to_string(i % 5) + "\n";
  const std::shared_ptr<const Dataset> whole = open_dataset({.kind = "series",
                                                             .path = folder.file("series.csv", csv).string(),
                                                             .length = 4,
                                                             .columns = "wind,load",
                                                             .split = "0.5,0.8",
                                                             .horizon = 2,
                                                             .columns_apart = true},
                                                            Split::training);
  const auto selected = select_examples(whole, {7, 2});
  EXPECT_EQ(selected->column_names(), whole->column_names());
  EXPECT_EQ(selected->target_columns(), whole->target_columns());
  EXPECT_EQ(selected->applied_statistics().mean, whole->applied_statistics().mean);
  EXPECT_EQ(selected->column_statistics().deviation, whole->column_statistics().deviation);
  EXPECT_EQ(selected->first_column(0), whole->first_column(7));
  ASSERT_TRUE(series_form(*selected).has_value());
  EXPECT_EQ(series_form(*selected)->split, "0.5,0.8");
  std::vector<float> values(4), targets(8), expected(4), expected_targets(8);
  selected->read_values(1, values, targets);
  whole->read_values(2, expected, expected_targets);
  EXPECT_EQ(values, expected);
  EXPECT_EQ(targets, expected_targets);
}

TEST(Selection, RefusesIndicesThatTheDataDoNotHave) {
  const auto whole = std::make_shared<Counting>(9, 6, 5);
  EXPECT_EQ(error_of([&] { select_examples(whole, {}); }), "[dataset] expected at least 1 index, got none");
  EXPECT_EQ(error_of([&] { select_examples(whole, {0, 9}); }), "[dataset] expected indices in 0 … 8, got 9");
  EXPECT_EQ(error_of([&] { select_examples(whole, {-1}); }), "[dataset] expected indices in 0 … 8, got -1");
}

}  // namespace
}  // namespace linnet
