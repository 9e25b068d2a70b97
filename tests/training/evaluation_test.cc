// What evaluations take for steps, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "linnet/training.h"
#include "support/contexts.h"
#include "support/runs.h"

namespace linnet {
namespace {

using testing::HasSubstr;

/// One column, of which the last steps are not known.
class Numbers final : public Dataset {
 public:
  Numbers(std::int64_t steps, std::vector<std::string> names) : steps_(steps), names_(std::move(names)) {}
  std::int64_t size() const override { return 3; }
  std::int64_t length() const override { return 6; }
  std::int64_t vocabulary() const override { return 0; }
  std::int64_t classes() const override { return 2; }
  std::int64_t columns() const override { return 1; }
  ColumnStatistics column_statistics() const override { return {{0}, {1}}; }
  std::vector<std::string> column_names() const override { return names_; }
  std::int64_t first_column(std::int64_t index) const override { return index; }
  std::int64_t steps(std::int64_t index) const override {
    return steps_ > 0 ? steps_ : Dataset::steps(index);
  }
  std::int64_t read(std::int64_t index, std::span<std::int32_t>, std::span<std::int32_t>) const override {
    return index % 2;
  }
  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    for (std::int64_t i = 0; i < 6; ++i)
      values[static_cast<std::size_t>(i)] = i < 4 ? static_cast<float>(index + i) : NAN;
    std::ranges::copy(values, targets.begin());
  }

 private:
  std::int64_t steps_;
  std::vector<std::string> names_;
};

TEST(Evaluation, TakesStepsThatAreNotKnownForPaddingOnlyWhereTheDataDo) {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.columns = 1;
  config.objective = Objective::classify;
  config.classes = 2;
  const auto model = random_model(config, 5);
  for (const std::int64_t steps : {0, 4, 6}) {
    const Numbers data(steps, {});
    double bits = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
      std::vector<float> values(6), targets(6);
      data.read_values(i, values, targets);
      const std::int64_t known = steps == 0 ? 4 : steps;
      const Tensor found = model->classify(
          any_context(),
          {.length = known, .values = std::span(values).first(static_cast<std::size_t>(known))});
      bits -= std::log2(found.view<float>()(0, i % 2)) / 3;
    }
    EXPECT_NEAR(evaluate(any_context(), *model, data, 0, 2).bits, bits, 1e-6) << steps;
  }
}

TEST(Evaluation, PredictsFieldsFromThoseBeforeThemWhetherTheyCountOrNot) {
  ModelConfig config = tiny_config();
  config.fields = "5,3";
  const auto model = random_model(config, 5);
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> second;
  for (std::int32_t i = 0; i < 4 * 6; ++i) {
    tokens.insert(tokens.end(), {i * 7 % 5, i * i % 3});
    second.insert(second.end(), {0, 1});
  }
  ExampleArrays arrays{.tokens = {tokens.data(), {4, 6, 2}}, .fields = {5, 3}};
  const auto all = make_dataset(arrays);
  arrays.counted = {second.data(), {4, 6, 2}};
  const auto one = make_dataset(arrays);
  const Evaluation whole = evaluate(any_context(), *model, *all, 0, 3),
                   part = evaluate(any_context(), *model, *one, 0, 3);
  EXPECT_EQ(part.field_bits[1], whole.field_bits[1]);
  EXPECT_EQ(part.bits, whole.field_bits[1]);

  // An update, too, with segments and without.
  for (const std::int64_t segment : {0, 2, 5}) {
    TrainingOptions options = tiny_options();
    options.segment = segment;
    Trainer trainer(any_context(), config, options, model);
    EXPECT_NEAR(trainer.step(*one, std::vector<std::int64_t>{0, 1, 2, 3}).bits, part.bits, 1e-5 * part.bits);
  }
}

TEST(Evaluation, RefusesColumnsThatHaveNoName) {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.columns = 1;
  const auto model = random_model(config, 5);
  EXPECT_NO_THROW(evaluate(any_context(), *model, Numbers(6, {"a", "b", "c"}), 0, 3));
  EXPECT_THAT(error_of<UsageError>([&] {
                evaluate(any_context(), *model, Numbers(6, {"a", "b"}), 0, 3);
              }),
              HasSubstr("[evaluate] expected a first column in 0 … 1, got 2"));
}

TEST(Evaluation, EndsWithWhatItsCallerThrowsBeforeABatch) {
  const Counting set(9, 6, 5);
  const auto model = random_model(tiny_config(), 5);
  int batches = 0;
  const auto two = [&] {
    if (++batches > 2) throw std::runtime_error("enough");
  };
  EXPECT_THROW(evaluate(any_context(), *model, set, 0, 3, false, {}, nullptr, two), std::runtime_error);
  EXPECT_EQ(batches, 3);
}

/// Two sequences in an example, the first of which ends at `end`.
class Packed final : public Counting {
 public:
  explicit Packed(std::int64_t end) : Counting(9, 6, 5), end_(end) {}
  bool packed() const override { return true; }
  std::vector<PackedSequence> read_sequences(std::int64_t index, std::span<std::int32_t> tokens,
                                             std::span<std::int32_t> targets) const override {
    read(index, tokens, targets);
    return {{end_, -1}, {6, -1}};
  }

 private:
  std::int64_t end_;
};

TEST(Evaluation, RefusesPackedSequencesThatEndWhereTheyCannot) {
  const auto model = random_model(tiny_config(), 5);
  EXPECT_NO_THROW(evaluate(any_context(), *model, Packed(2), 0, 3));
  for (const std::int64_t end : {-1, 0, 6, 7, 100000000})
    EXPECT_THAT(error_of<UsageError>([&] { evaluate(any_context(), *model, Packed(end), 0, 3); }),
                HasSubstr("[data] expected sequences that end in"))
        << end;
}

TEST(Evaluation, RefusesBatchesAndNumbersThatCannotBe) {
  const Counting set(9, 6, 5);
  const auto model = random_model(tiny_config(), 5);
  for (const std::int64_t batch : {0, -1})
    EXPECT_THAT(error_of<UsageError>([&] { evaluate(any_context(), *model, set, 0, batch); }),
                HasSubstr("[evaluate] expected a batch of at least 1 example"));
  EXPECT_THAT(error_of<UsageError>([&] { evaluate(any_context(), *model, set, -1, 3); }),
              HasSubstr("[evaluate] expected at least 0 examples"));
}

}  // namespace
}  // namespace linnet
