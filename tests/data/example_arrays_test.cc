// Examples in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "linnet/dataset.h"
#include "support/errors.h"

namespace linnet {
namespace {

using testing::HasSubstr;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Read {
  std::vector<std::int32_t> tokens, targets, source;
  std::vector<float> values, value_targets;
  std::int64_t label;
};

Read read(const Dataset& data, std::int64_t index) {
  Read found;
  const auto steps = static_cast<std::size_t>(data.length());
  found.tokens.resize(steps * data.fields().size());
  found.targets.resize(found.tokens.size());
  found.values.resize(steps * static_cast<std::size_t>(data.columns()));
  found.value_targets.resize(steps * static_cast<std::size_t>(data.target_columns()));
  found.source.resize(static_cast<std::size_t>(data.source_length()));
  found.label = data.read(index, found.tokens, found.targets);
  data.read_values(index, found.values, found.value_targets);
  data.read_source(index, found.source);
  return found;
}

/// The same numbers, NaN at the same places.
void expect_same(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(found[i])) << i;
    else
      EXPECT_EQ(found[i], expected[i]) << i;
}

using Tokens = std::vector<std::int32_t>;

TEST(ExampleArrays, AreTokensWithPaddingAndLabels) {
  const Tokens tokens = {1, 2, 3, 4, 0, 9};
  const auto data = make_dataset(
      {.tokens = {tokens.data(), {2, 3}}, .lengths = {3, 2}, .labels = {1, 0}, .class_names = {"no", "yes"}});
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->length(), 3);
  EXPECT_EQ(data->vocabulary(), 5);  // that of the steps that are no padding
  EXPECT_EQ(data->classes(), 2);
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(data->columns(), 0);
  EXPECT_EQ(image_shape(*data).height, 0);
  EXPECT_EQ(data->steps(1), 2);
  const Read second = read(*data, 1);
  EXPECT_EQ(second.tokens, (Tokens{4, 0, -1}));
  EXPECT_EQ(second.targets, second.tokens);
  EXPECT_EQ(second.label, 0);
  EXPECT_EQ(read(*data, 0).label, 1);
}

TEST(ExampleArrays, CountWholeStepsOrSingleFields) {
  const Tokens tokens = {1, 5, 2, 6, 3, 7, 0, 4};  // [2, 2, 2]
  const std::vector<float> values = {1, 2, 3, 4};  // [2, 2, 1]
  const std::vector<std::uint8_t> steps = {0, 1, 1, 1}, fields = {0, 1, 1, 1, 1, 0, 1, 1};
  ExampleArrays arrays{.tokens = {tokens.data(), {2, 2, 2}},
                       .values = {values.data(), {2, 2, 1}},
                       .counted = {steps.data(), {2, 2}},
                       .fields = {4, 9}};
  const Read by_steps = read(*make_dataset(arrays), 0);
  EXPECT_EQ(by_steps.tokens, (Tokens{1, 5, 2, 6}));
  EXPECT_EQ(by_steps.targets, (Tokens{-1, -1, 2, 6}));
  expect_same(by_steps.values, {1, 2});
  expect_same(by_steps.value_targets, {nan, 2});
  arrays.counted = {fields.data(), {2, 2, 2}};
  const auto by_fields = make_dataset(arrays);
  EXPECT_EQ(by_fields->fields(), (std::vector<std::int64_t>{4, 9}));
  EXPECT_EQ(read(*by_fields, 0).targets, (Tokens{-1, 5, 2, 6}));
  EXPECT_EQ(read(*by_fields, 1).targets, (Tokens{3, -1, 0, 4}));
  expect_same(read(*by_fields, 0).value_targets, {1, 2});
}

TEST(ExampleArrays, AreInputsWithOutputs) {
  const std::vector<float> values = {1, 2, 3, 4, nan, 6, 7, 8}, outputs = {10, 20, nan, 40};
  ExampleArrays arrays{.values = {values.data(), {2, 2, 2}},
                       .lengths = {2, 1},
                       .value_targets = {outputs.data(), {2, 2, 1}},
                       .column_names = {"left", "right"}};
  const auto data = make_dataset(arrays);
  EXPECT_TRUE(data->paired());
  EXPECT_EQ(data->vocabulary(), 0);
  EXPECT_EQ(data->columns(), 2);
  EXPECT_EQ(data->target_columns(), 1);
  EXPECT_EQ(data->column_names(), (std::vector<std::string>{"left", "right"}));
  EXPECT_EQ(data->column_statistics().mean, (std::vector<double>{2, 4}));
  EXPECT_EQ(data->column_statistics().deviation, (std::vector<double>{1, std::sqrt(8 / 3.0)}));
  EXPECT_EQ(data->target_statistics().mean, (std::vector<double>{15}));
  EXPECT_EQ(data->target_statistics().deviation, (std::vector<double>{5}));
  const Read second = read(*data, 1);
  expect_same(second.values, {nan, 6, nan, nan});
  expect_same(second.value_targets, {nan, nan});
  arrays.paired = false;
  EXPECT_FALSE(make_dataset(arrays)->paired());
}

TEST(ExampleArrays, HaveSources) {
  const Tokens tokens = {1, 2, 3, 0}, source = {7, 1, 99, 2, 3, 4};
  const auto data = make_dataset(
      {.tokens = {tokens.data(), {2, 2}}, .source = {source.data(), {2, 3}}, .source_lengths = {2, 3}});
  EXPECT_EQ(data->source_length(), 3);
  EXPECT_EQ(data->source_vocabulary(), 8);
  EXPECT_EQ(read(*data, 0).source, (Tokens{7, 1, -1}));
  EXPECT_EQ(read(*data, 1).source, (Tokens{2, 3, 4}));
}

TEST(ExampleArrays, AreWindowsOverOneSequence) {
  std::vector<float> series(100);
  std::iota(series.begin(), series.end(), 0.0f);
  Tokens tokens(50);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto data = make_dataset(
      {.tokens = {tokens.data(), {45, 6}, {1, 1}}, .values = {series.data(), {45, 6, 2}, {2, 2, 1}}});
  EXPECT_EQ(data->vocabulary(), 50);
  EXPECT_EQ(read(*data, 44).tokens, (Tokens{44, 45, 46, 47, 48, 49}));
  expect_same(read(*data, 3).values, {6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  // Of the sequence, where every step counts once: with those of the windows the deviation is 26.2.
  EXPECT_EQ(data->column_statistics().mean, (std::vector<double>{49, 50}));
  EXPECT_NEAR(data->column_statistics().deviation[0], std::sqrt(4 * (50 * 50 - 1) / 12.0), 1e-9);
}

TEST(ExampleArrays, KeepTheirOwner) {
  auto memory = std::make_shared<Tokens>(Tokens{1, 0, 1, 1});
  const std::weak_ptr<Tokens> watched = memory;
  std::shared_ptr<const Dataset> selected =
      select_examples(make_dataset({.tokens = {memory->data(), {2, 2}}, .owner = memory}), {1});
  memory.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(read(*selected, 0).tokens, (Tokens{1, 1}));
  selected.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(ExampleArrays, ArePackedWhereTheyAreShort) {
  const Tokens tokens = {1, 2, 3, 4, 1, 0, 0, 0, 2, 2, 2, 0};
  const auto packed = pack_examples(make_dataset({.tokens = {tokens.data(), {3, 4}}, .lengths = {4, 1, 3}}));
  EXPECT_EQ(packed->size(), 2);
  EXPECT_EQ(read(*packed, 1).tokens, (Tokens{2, 2, 2, 1}));
}

TEST(ExampleArrays, ThatDoNotFitAreRefused) {
  const Tokens tokens = {0, 1, 2, 3, 4, 5};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6}, infinite = {1, INFINITY, 2, 3, 4, 5},
                           unknown = {nan, 1, nan, 2, nan, 3};
  const std::vector<std::uint8_t> counted(6, 1);
  const View<const std::int32_t> two{tokens.data(), {2, 3}};
  const View<const float> numbers{values.data(), {2, 3, 1}};
  const auto refused = [](ExampleArrays arrays, const char* part) {
    EXPECT_THAT(error_of<UsageError>([&] { make_dataset(std::move(arrays)); }), HasSubstr(part));
  };
  refused({}, "tokens or values, got neither");
  refused({.tokens = {nullptr, {2, 3}}}, "null pointer");
  refused({.tokens = {tokens.data(), {0, 3}}}, "none of them 0, got [0, 3]");
  refused({.tokens = {tokens.data(), {6}}}, "tokens [examples, steps]");
  refused({.tokens = two, .fields = {5}}, "tokens in 0 … 4, got 5");
  refused({.tokens = two, .fields = {6, 6}}, "each of 1 fields, got 2");
  refused({.tokens = two, .fields = {-1}}, "at least 0, got -1");
  refused({.tokens = two, .lengths = {3}}, "lengths for 2 examples, got 1");
  refused({.tokens = two, .lengths = {3, 4}}, "lengths in 1 … 3, got 4");
  refused({.tokens = two, .labels = {0, -1}}, "labels in 0 … 1048575, got -1");
  refused({.tokens = two, .labels = {0, std::numeric_limits<std::int64_t>::max()}}, "labels in 0 … 1048575");
  refused({.tokens = two, .labels = {0, 2}, .class_names = {"a", "b"}}, "labels in 0 … 1, got 2");
  refused({.tokens = two, .labels = {0, 1}, .classes = 2, .class_names = {"a"}}, "names of 2 classes, got 1");
  refused({.tokens = two, .classes = -1}, "classes in 0 … 1048576, got -1");
  refused({.tokens = two, .values = {values.data(), {3, 2, 1}}}, "values of 2 examples and 3 steps");
  refused({.values = {infinite.data(), {2, 3, 1}}}, "finite values or NaN, got infinity");
  refused({.values = {unknown.data(), {1, 3, 2}}}, "every column of the values, got NaN alone");
  refused({.values = numbers, .value_targets = {unknown.data(), {1, 3, 2}}}, "value_targets of 2 examples");
  refused({.values = numbers, .value_targets = {infinite.data(), {2, 3, 1}}}, "finite value_targets");
  refused({.values = numbers, .column_names = {"a", "b"}}, "names of 1 columns, got 2");
  refused({.values = numbers, .fields = {3}}, "no fields without tokens");
  refused({.values = numbers, .image = {1, 3, 1}}, "tokens for pictures");
  refused({.tokens = two, .image = {2, 3, 1}},
          "pictures of 3 pixels and channels as the tokens, got 2 × 3 × 1");
  refused({.tokens = two, .image = {1, 1, 2}}, "got 1 × 1 × 2");
  refused({.tokens = two, .counted = {counted.data(), {2, 2}}}, "counted of 2 examples and 3 steps");
  refused({.tokens = {tokens.data(), {1, 1, 6}}, .counted = {counted.data(), {1, 1, 2}}},
          "counted of whole steps or of 6 fields, got 2");
  const std::vector<std::uint8_t> one_alone = {1, 0, 0, 0, 0, 1};
  refused({.tokens = two, .lengths = {3, 2}, .counted = {one_alone.data(), {2, 3}}},
          "a step that counts in each example, got none in example 1");
  refused({.tokens = two, .source = {tokens.data(), {3, 2}}}, "a source for each of 2 examples, got 3");
  refused({.tokens = two, .source = {tokens.data(), {2, 3}}, .source_vocabulary = 5},
          "tokens of a source in 0 … 4");
  refused({.tokens = two, .source = {tokens.data(), {2, 3}}, .source_lengths = {0, 1}},
          "source_lengths in 1 … 3");
  refused({.tokens = two, .source_lengths = {1, 1}}, "expected a source");
  EXPECT_THAT(error_of<UsageError>([] { pack_examples(nullptr); }), HasSubstr("got none"));
  EXPECT_THAT(error_of<UsageError>([&] { pack_examples(make_dataset({.values = numbers})); }),
              HasSubstr("1 real numbers"));
  EXPECT_THAT(
      error_of<UsageError>([&] { pack_examples(make_dataset({.tokens = two, .value_targets = numbers})); }),
      HasSubstr("1 real numbers"));
  EXPECT_THAT(error_of<UsageError>([&] { pack_examples(make_dataset({.tokens = two, .source = two})); }),
              HasSubstr("without sources to pack"));
  EXPECT_THAT(error_of<UsageError>([&] { pack_examples(pack_examples(make_dataset({.tokens = two}))); }),
              HasSubstr("one sequence per example"));
}

}  // namespace
}  // namespace linnet
