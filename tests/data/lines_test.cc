#include "data/lines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/pairs.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Example {
  std::int64_t label = 0;
  std::vector<std::int32_t> tokens, targets;
};

Example example(const Dataset& set, std::int64_t index) {
  Example result;
  result.tokens.resize(static_cast<std::size_t>(set.length()));
  result.targets.resize(result.tokens.size());
  result.label = set.read(index, result.tokens, result.targets);
  return result;
}

// Twelve lines, the tenth of which is held out.
std::string twelve_lines() {
  std::string text;
  for (int i = 0; i < 12; ++i) text += fmt::format("{}\t{}x\n", i % 2 == 0 ? "red" : "blue", i);
  return text;
}

TEST(Lines, AreBytesWithLabelsSortedByName) {
  const TemporaryFolder folder;
  const DataOptions options{.kind = "lines",
                            .path = folder.file("lines.tsv", "\r\n" + twelve_lines() + "amber\ta\tb\r\n"),
                            .length = 3};
  const Datasets data = open_datasets(options);
  EXPECT_EQ(data.training->classes(), 3);
  EXPECT_EQ(data.training->vocabulary(), 256);
  EXPECT_EQ(data.training->size(), 12);
  ASSERT_EQ(data.validation->size(), 1);
  const Example first = example(*data.training, 0);
  EXPECT_EQ(first.label, 2);
  EXPECT_THAT(first.tokens, ElementsAre('0', 'x', -1));
  EXPECT_EQ(first.targets, first.tokens);
  EXPECT_EQ(example(*data.training, 1).label, 1);
  EXPECT_EQ(example(*data.training, 11).label, 0);
  EXPECT_THAT(example(*data.training, 11).tokens, ElementsAre('a', '\t', 'b'));
  EXPECT_EQ(example(*data.validation, 0).label, 1);
  EXPECT_THAT(example(*data.validation, 0).tokens, ElementsAre('9', 'x', -1));
  EXPECT_EQ(example(*open_dataset(options, Split::validation), 0).label, 1);
}

TEST(Lines, MayBeginWithAByteOrderMark) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets(
      {.kind = "lines", .path = folder.file("lines.tsv", "\xef\xbb\xbf" + twelve_lines()), .length = 3});
  EXPECT_THAT(data.training->class_names(), ElementsAre("blue", "red"));
  EXPECT_EQ(example(*data.training, 0).label, 1);
}

TEST(Lines, OfThePathThatGiveTheirLabelsAloneMayBeFew) {
  const TemporaryFolder folder;
  DataOptions options{.kind = "lines", .path = folder.file("few.tsv", "red\ta\nblue\tb\n"), .length = 3};
  options.test = folder.file("test.tsv", "red\tc\n");
  EXPECT_EQ(example(*open_dataset(options, Split::test), 0).label, 1);
  EXPECT_THAT(error_of([&] { open_dataset(options, Split::training); }), HasSubstr("at least 10 lines"));
}

TEST(Lines, AreCutAfterTheLengthAndMayHaveNoLabels) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets(
      {.kind = "lines", .path = folder.file("lines.tsv", twelve_lines()), .length = 1, .labels = false});
  EXPECT_EQ(data.training->classes(), 0);
  EXPECT_EQ(example(*data.training, 3).label, -1);
  EXPECT_THAT(example(*data.training, 3).tokens, ElementsAre('3'));
}

TEST(Lines, OfOtherFilesHaveTheLabelsOfThePath) {
  const TemporaryFolder folder;
  DataOptions options{.kind = "lines", .path = folder.file("train.tsv", twelve_lines()), .length = 4};
  options.validation = folder.file("valid.tsv", "red\tone\n");
  options.test = folder.file("test.tsv", "red\ttwo\nblue\tone\n");
  EXPECT_EQ(open_datasets(options).training->size(), 12);
  for (const Split split : {Split::validation, Split::test}) {
    const auto set = open_dataset(options, split);
    EXPECT_EQ(set->classes(), 2);
    EXPECT_EQ(example(*set, 0).label, 1);
  }
  options.test = folder.file("test.tsv", "red\ttwo\ngreen\tone\n");
  EXPECT_THAT(error_of([&] { open_dataset(options, Split::test); }),
              AllOf(HasSubstr("test.tsv"), HasSubstr("2 labels"), HasSubstr("\"green\" in line 2")));
}

TEST(Lines, WithNamesOfLabelsMayHaveNone) {
  const TemporaryFolder folder;
  DataOptions options{.kind = "lines", .path = folder / "missing.tsv", .length = 4};
  options.test = folder.file("new.tsv", "red\ttwo\nno label\n\ta\tb\nblue\tone\n");
  options.class_names = {"red", "blue", "grey"};
  const auto set = open_dataset(options, Split::test);
  EXPECT_EQ(set->classes(), 3);
  EXPECT_EQ(set->class_names(), options.class_names);
  for (const auto& [index, label] : {std::pair(0, 0), {1, -1}, {2, -1}, {3, 1}})
    EXPECT_EQ(example(*set, index).label, label) << index;
  EXPECT_THAT(example(*set, 1).tokens, ElementsAre('n', 'o', ' ', 'l'));
  EXPECT_THAT(example(*set, 2).tokens, ElementsAre('a', '\t', 'b', -1));
  options.test = folder.file("new.tsv", "red\ttwo\ngreen\tone\n");
  EXPECT_THAT(error_of([&] { open_dataset(options, Split::test); }),
              AllOf(HasSubstr("3 labels of the model (red, blue, grey)"), HasSubstr("\"green\" in line 2")));
  options.test = folder.file("new.tsv", "red\t\n");
  EXPECT_THAT(error_of([&] { open_dataset(options, Split::test); }), HasSubstr("got no text"));
  const auto given = unlabelled_texts({"a\nb", "longer"}, options);
  EXPECT_EQ(given->size(), 2);
  EXPECT_EQ(given->classes(), 3);
  EXPECT_EQ(example(*given, 0).label, -1);
  EXPECT_THAT(example(*given, 0).tokens, ElementsAre('a', '\n', 'b', -1));
}

TEST(Lines, NameWhatIsWrongAndItsLine) {
  const TemporaryFolder folder;
  for (const char* kind : {"lines", "pairs"}) {
    const auto refusal = [&](std::string_view text) {
      return error_of([&] {
        open_datasets({.kind = kind, .path = folder.file("lines.tsv", text).string(), .length = 9});
      });
    };
    EXPECT_THAT(refusal("a\tb\n\nno tab\n"), AllOf(HasSubstr("lines.tsv"), HasSubstr("line 3, got no tab")));
    EXPECT_THAT(refusal(""), HasSubstr("got none"));
    EXPECT_THAT(refusal("a\tb\n"), AllOf(HasSubstr("at least 10"), HasSubstr("got 1")));
    EXPECT_THAT(refusal(std::string_view("a\tb\n\0", 5)), AllOf(HasSubstr("binary"), HasSubstr("byte 4")));
    EXPECT_THAT(error_of<UsageError>([&] { open_datasets({.kind = kind, .path = "x"}); }),
                HasSubstr("length"));
    EXPECT_THAT(error_of<UsageError>([&] { open_datasets({.kind = kind, .length = 9}); }), HasSubstr("path"));
  }
  const auto refusal = [&](std::string_view text) {
    return error_of([&] {
      open_datasets({.kind = "lines", .path = folder.file("lines.tsv", text).string(), .length = 9});
    });
  };
  EXPECT_THAT(refusal("a\tb\n\tb\n"), HasSubstr("line 2, got no label"));
  EXPECT_THAT(refusal("a\tb\na\t\n"), HasSubstr("line 2, got no text"));
}

TEST(Pairs, CountTheTargetAndTheEndAlone) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 10; ++i) text += fmt::format("{}b\tcd\n", i);
  text += "\te\nfghi\t\n";
  const Datasets data = open_datasets({.kind = "pairs", .path = folder.file("pairs.tsv", text), .length = 7});
  EXPECT_EQ(data.training->vocabulary(), 258);
  EXPECT_EQ(data.training->size(), 11);
  const Example first = example(*data.training, 0);
  EXPECT_EQ(first.label, -1);
  EXPECT_THAT(first.tokens, ElementsAre('0', 'b', 256, 'c', 'd', 257, -1));
  EXPECT_THAT(first.targets, ElementsAre(-1, -1, -1, 'c', 'd', 257, -1));
  EXPECT_THAT(example(*data.training, 9).tokens, ElementsAre(256, 'e', 257, -1, -1, -1, -1));
  EXPECT_THAT(example(*data.training, 10).targets, ElementsAre(-1, -1, -1, -1, -1, 257, -1));
  EXPECT_THAT(example(*data.validation, 0).tokens, ElementsAre('9', 'b', 256, 'c', 'd', 257, -1));
}

TEST(Pairs, WithASourceLengthAreTwoSequences) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 10; ++i) text += fmt::format("{}b\tcd\n", i);
  const auto path = folder.file("pairs.tsv", text);
  const Datasets data = open_datasets({.kind = "pairs", .path = path, .length = 4, .source_length = 3});
  EXPECT_EQ(data.training->length(), 4);
  EXPECT_EQ(data.training->source_length(), 3);
  EXPECT_EQ(data.training->source_vocabulary(), 256);
  const Example first = example(*data.training, 0);
  EXPECT_THAT(first.tokens, ElementsAre('c', 'd', 257, -1));
  EXPECT_THAT(first.targets, ElementsAre('c', 'd', 257, -1));
  std::vector<std::int32_t> source(3);
  data.training->read_source(0, source);
  EXPECT_THAT(source, ElementsAre('0', 'b', -1));
  const auto refusal = [&](std::string_view lines, std::int64_t length) {
    return error_of([&] {
      open_datasets({.kind = "pairs",
                     .path = folder.file("refused.tsv", lines).string(),
                     .length = length,
                     .source_length = 3});
    });
  };
  EXPECT_THAT(refusal("abc\tx\nabcd\tx\n", 4),
              HasSubstr("data.source_length = 3 tokens, got one of 4 in line 2"));
  EXPECT_THAT(refusal("abc\txyz\n", 3),
              HasSubstr("targets of at most data.length = 3 tokens, end included, got one of 4"));
  EXPECT_THAT(refusal("abc\tx\n\tx\n", 4), HasSubstr("a source in line 2, got none"));
}

TEST(Pairs, RefusesPairsThatAreTooLongAndSeveralTabs) {
  const TemporaryFolder folder;
  const auto refusal = [&](std::string_view text) {
    return error_of([&] {
      open_datasets({.kind = "pairs", .path = folder.file("pairs.tsv", text).string(), .length = 5});
    });
  };
  EXPECT_THAT(refusal("a\tbb\nab\tcd\nabc\tdef\n"),
              AllOf(HasSubstr("at most data.length = 5"), HasSubstr("one of 8 in line 3")));
  EXPECT_THAT(refusal("a\tb\tc\n"), HasSubstr("one tab in line 1, got several"));
  for (const char* kind : {"pairs", "reverse"})
    EXPECT_THAT(
        error_of<UsageError>([&] {
          open_datasets({.kind = kind, .path = folder / "pairs.tsv", .length = 50, .source_length = -1});
        }),
        HasSubstr("data.source_length of at least 0, got -1"));
}

}  // namespace
}  // namespace linnet
