#include "data/reverse_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "data/files.h"
#include "io/file.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

TEST(ReverseTask, TargetsAreTheSourcesBackwards) {
  const Datasets data = open_datasets({.kind = "reverse", .length = 12, .examples = 50, .source_length = 10});
  std::set<std::vector<std::int32_t>> seen;
  for (const auto* part : {data.training.get(), data.validation.get()}) {
    EXPECT_EQ(part->length(), 12);
    EXPECT_EQ(part->source_length(), 10);
    EXPECT_EQ(part->source_vocabulary(), 256);
    for (std::int64_t i = 0; i < part->size(); ++i) {
      std::vector<std::int32_t> source(10), tokens(12), targets(12);
      part->read_source(i, source);
      part->read(i, tokens, targets);
      EXPECT_EQ(tokens, targets);
      EXPECT_EQ(tokens[10], pair_end);
      EXPECT_EQ(tokens[11], -1);
      for (const std::int32_t letter : source) EXPECT_TRUE(letter >= 'a' && letter <= 'z') << letter;
      EXPECT_TRUE(std::equal(source.rbegin(), source.rend(), tokens.begin()));
      EXPECT_TRUE(seen.insert(source).second);
    }
  }
  EXPECT_EQ(seen.size(), 55u);
}

TEST(ReverseTask, AsOneSequenceHasTheSeparatorBetween) {
  const Datasets data = open_datasets({.kind = "reverse", .length = 12, .examples = 3});
  EXPECT_EQ(data.training->source_length(), 0);
  std::vector<std::int32_t> tokens(12), targets(12);
  data.training->read(0, tokens, targets);
  EXPECT_EQ(tokens[5], pair_separator);
  EXPECT_EQ(tokens[11], pair_end);
  EXPECT_EQ(targets[5], -1);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(tokens[i], targets[10 - i]);
}

TEST(ReverseTask, FilesHaveOtherStringsThanTheDataOfTheSameSeed) {
  const TemporaryFolder folder;
  write_reversals(folder / "pairs.tsv", 40, 10, 1);
  write_reversals(folder / "again.tsv", 40, 10, 1);
  write_reversals(folder / "other.tsv", 40, 10, 2);
  EXPECT_EQ(read_file(folder / "pairs.tsv"), read_file(folder / "again.tsv"));
  EXPECT_NE(read_file(folder / "pairs.tsv"), read_file(folder / "other.tsv"));

  std::set<std::string> written;
  for (const TabbedLine& line : read_tabbed_lines(folder / "pairs.tsv", "pairs")) {
    EXPECT_EQ(line.before.size(), 10u);
    EXPECT_EQ(line.after, std::string(line.before.rbegin(), line.before.rend()));
    EXPECT_TRUE(written.insert(line.before).second);
  }
  EXPECT_EQ(written.size(), 40u);
  const Datasets data =
      open_datasets({.kind = "reverse", .length = 11, .examples = 400, .seed = 1, .source_length = 10});
  for (const auto* part : {data.training.get(), data.validation.get()})
    for (std::int64_t i = 0; i < part->size(); ++i) {
      std::vector<std::int32_t> source(10);
      part->read_source(i, source);
      EXPECT_FALSE(written.contains(std::string(source.begin(), source.end()))) << i;
    }
  EXPECT_THROW(write_reversals(folder / "none.tsv", 0, 10, 1), UsageError);
  EXPECT_THROW(write_reversals(folder / "none.tsv", std::int64_t{1} << 40, 10, 1), UsageError);
}

TEST(ReverseTask, LengthsThatDoNotFitAreRefused) {
  const auto refusal = [](const DataOptions& options) -> std::string {
    try {
      open_datasets(options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal({.kind = "reverse", .length = 10, .source_length = 10}),
              testing::HasSubstr("at least 11"));
  EXPECT_THAT(refusal({.kind = "reverse", .length = 3}), testing::HasSubstr("at least 4"));
  EXPECT_THAT(refusal({.kind = "copy", .length = 30, .source_length = 10}),
              testing::HasSubstr("pairs or reverse for data.source_length, got \"copy\""));
}

}  // namespace
}  // namespace linnet
