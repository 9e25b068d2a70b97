// Evaluation whose batches several ranks share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "linnet/training.h"
#include "support/datasets.h"
#include "support/models.h"
#include "support/ranks.h"

namespace linnet {
namespace {

/// Steps of tokens of several fields, of real numbers, or of both; some of each do not count.
class Steps final : public Dataset {
 public:
  Steps(const ModelConfig& config, std::vector<std::string> names)
      : config_(config), names_(std::move(names)) {}

  std::int64_t size() const override { return 11; }
  std::int64_t length() const override { return config_.length; }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  std::vector<std::int64_t> fields() const override { return config_.field_sizes(); }
  std::int64_t columns() const override { return config_.columns; }
  std::int64_t target_columns() const override { return config_.target_count(); }
  std::int64_t patch() const override { return config_.patch; }
  bool paired() const override { return config_.objective == Objective::same_step; }
  std::vector<std::string> column_names() const override { return names_; }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const std::vector<std::int64_t> sizes = fields();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto values = sizes[i % sizes.size()];
      tokens[i] = static_cast<std::int32_t>((7 * index + 3 * static_cast<std::int64_t>(i)) % values);
      targets[i] = i % 5 == 3 ? -1 : tokens[i];
    }
    return -1;
  }

  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    const auto wave = [&](std::size_t i) {
      return std::sin(0.37F * static_cast<float>(i) + static_cast<float>(index * index));
    };
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = wave(i);
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = i % 7 == 2 ? std::numeric_limits<float>::quiet_NaN() : wave(i + 1) + 0.1F;
  }

 private:
  ModelConfig config_;
  std::vector<std::string> names_;
};

/// The bits of everything that an evaluation measures.
std::vector<std::uint64_t> bits_of(const Evaluation& e) {
  std::vector<double> numbers = {e.bits,
                                 e.perplexity,
                                 e.accuracy,
                                 e.squared_error,
                                 e.absolute_error,
                                 e.naive_squared_error,
                                 e.naive_absolute_error,
                                 e.seasonal_squared_error,
                                 e.seasonal_absolute_error,
                                 e.exact,
                                 e.non_positive,
                                 e.token_bits,
                                 e.value_nats,
                                 e.input_signal_to_noise,
                                 e.signal_to_noise};
  numbers.insert(numbers.end(), e.field_bits.begin(), e.field_bits.end());
  for (const auto* errors : {&e.column_errors, &e.row_errors})
    for (const Evaluation::NumberErrors& one : *errors)
      numbers.insert(numbers.end(), {one.squared, one.absolute, one.naive_squared, one.naive_absolute});
  std::vector<std::uint64_t> bits;
  for (const double number : numbers) bits.push_back(std::bit_cast<std::uint64_t>(number));
  for (const std::int64_t count : {e.tokens, e.examples, e.numbers})
    bits.push_back(static_cast<std::uint64_t>(count));
  for (const std::int64_t count : e.confusion) bits.push_back(static_cast<std::uint64_t>(count));
  return bits;
}

/// Evaluations of all ranks, with batches of 3 and of 8, have the bits of one process alone.
void expect_same_bits(const ModelConfig& config, const Dataset& data) {
  const auto model = random_model(config, 5);
  for (const std::int64_t batch : {3, 8}) {
    Context alone(1);
    const Evaluation expected = evaluate(alone, *model, data, 0, batch, true);
    EXPECT_GT(expected.bits, 0);
    for (const int size : {1, 2, 3, 4, 7})
      with_ranks(size, [&](Communicator& ranks) {
        Context context(1);
        const Evaluation actual = evaluate(context, *model, data, 0, batch, true, {}, &ranks);
        EXPECT_EQ(bits_of(actual), bits_of(expected))
            << "rank " << ranks.rank() << " of " << size << ", batches of " << batch;
      });
  }
}

TEST(EvaluationOnRanks, OfTokensHasTheBitsOfOneProcess) {
  expect_same_bits(tiny_config(), Counting(11, 6, 5, 0, true));
}

TEST(EvaluationOnRanks, OfSeveralFieldsHasTheBitsOfOneProcess) {
  ModelConfig config = tiny_config();
  config.fields = "5,3,4";
  const Steps data(config, {});
  Context context(1);
  EXPECT_EQ(evaluate(context, *random_model(config, 5), data, 0, 3).field_bits.size(), 3u);
  expect_same_bits(config, data);
}

TEST(EvaluationOnRanks, OfLabelsHasTheBitsOfOneProcess) {
  ModelConfig config = tiny_config();
  config.objective = Objective::classify;
  config.classes = 3;
  const Counting data(11, 6, 5, 3);
  Context context(1);
  EXPECT_EQ(evaluate(context, *random_model(config, 5), data, 0, 3).confusion.size(), 9u);
  expect_same_bits(config, data);
}

TEST(EvaluationOnRanks, OfSeriesHasTheBitsOfOneProcess) {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.columns = 6;
  config.patch = 3;
  const Steps data(config, {"one", "other"});
  Context context(1);
  const Evaluation result = evaluate(context, *random_model(config, 5), data, 0, 3);
  EXPECT_EQ(result.column_errors.size(), 2u);
  EXPECT_EQ(result.row_errors.size(), 3u);
  expect_same_bits(config, data);
}

TEST(EvaluationOnRanks, OfFiltersHasTheBitsOfOneProcess) {
  ModelConfig config = tiny_config();
  config.objective = Objective::same_step;
  config.vocabulary = 0;
  config.columns = 2;
  const Steps data(config, {});
  Context context(1);
  EXPECT_TRUE(std::isfinite(evaluate(context, *random_model(config, 5), data, 0, 3).input_signal_to_noise));
  expect_same_bits(config, data);
}

TEST(EvaluationOnRanks, OfTokensAndNumbersHasTheBitsOfOneProcess) {
  ModelConfig config = tiny_config();
  config.fields = "5,3";
  config.columns = 2;
  const Steps data(config, {});
  Context context(1);
  EXPECT_TRUE(std::isfinite(evaluate(context, *random_model(config, 5), data, 0, 3).value_nats));
  expect_same_bits(config, data);
}

TEST(EvaluationOnRanks, GivesRankZeroTheLossesOfAllTokensInOrder) {
  const auto model = random_model(tiny_config(), 5);
  const Counting data(11, 6, 5, 0, true);
  const auto losses_of = [&](Communicator* ranks) {
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int32_t, double>> losses;
    Context context(1);
    evaluate(
        context, *model, data, 9, 2, false,
        [&](const TokenLoss& loss) {
          losses.emplace_back(loss.example, loss.position, loss.token, loss.nats);
        },
        ranks);
    return losses;
  };
  const auto expected = losses_of(nullptr);
  EXPECT_FALSE(expected.empty());
  for (const int size : {1, 2, 3, 6})
    with_ranks(size, [&](Communicator& ranks) {
      const auto losses = losses_of(&ranks);
      if (ranks.rank() == 0)
        EXPECT_EQ(losses, expected) << size;
      else
        EXPECT_TRUE(losses.empty());
    });
}

/// Counting, with a token outside the vocabulary in one example.
class Damaged final : public Counting {
 public:
  using Counting::Counting;
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const std::int64_t label = Counting::read(index, tokens, targets);
    if (index == 4) tokens[0] = 99;
    return label;
  }
};

TEST(EvaluationOnRanks, AnErrorOfOneRankEndsAll) {
  const auto model = random_model(tiny_config(), 5);
  const Damaged data(11, 6, 5);
  std::atomic<int> speakers = 0, silent = 0;
  with_ranks(3, [&](Communicator& ranks) {
    Context context(1);
    try {
      evaluate(context, *model, data, 0, 3, true, {}, &ranks);
      ADD_FAILURE() << "expected an error on rank " << ranks.rank();
    } catch (const RankFailure& failure) {
      ranks.fail(failure.what());
      ++silent;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("99"));
      speakers += ranks.fail(error.what());
    }
  });
  EXPECT_EQ(speakers, 1);
  EXPECT_EQ(silent, 2);
}

}  // namespace
}  // namespace linnet
