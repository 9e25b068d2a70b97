#include "training/optimiser.h"

#include <gtest/gtest.h>

#include "support/contexts.h"
#include "support/parameters.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 121;

constexpr Schedule every_schedule[] = {Schedule::constant, Schedule::cosine, Schedule::step,
                                       Schedule::inverse_sqrt};

TrainingOptions scheduled(Schedule schedule, std::int64_t warmup) {
  TrainingOptions options;
  options.schedule = schedule;
  options.steps = 1000;
  options.warmup = warmup;
  options.learning_rate = 0.02;
  options.final_rate = 0.25;
  options.step_at = 600;
  return options;
}

TEST(LearningRate, WarmsUpLinearlyToTheHighest) {
  for (const Schedule schedule : every_schedule) {
    const TrainingOptions options = scheduled(schedule, 100);
    for (const std::int64_t step : {1, 7, 50, 99, 100})
      EXPECT_NEAR(learning_rate(options, step), 0.02 * static_cast<double>(step) / 100, 2e-4)
          << static_cast<int>(schedule) << ", " << step;
    EXPECT_NEAR(learning_rate(options, 80) - learning_rate(options, 40), 0.02 * 0.4, 1e-12);
    EXPECT_NEAR(learning_rate(options, 100), 0.02, 1e-12) << static_cast<int>(schedule);
  }
}

TEST(LearningRate, ConstantStays) {
  for (const std::int64_t step : {1, 2, 500, 1000})
    EXPECT_EQ(learning_rate(scheduled(Schedule::constant, 0), step), 0.02) << step;
}

TEST(LearningRate, CosineFallsFromTheHighestToItsShareAtTheEnd) {
  for (const std::int64_t warmup : {0, 100}) {
    const TrainingOptions options = scheduled(Schedule::cosine, warmup);
    const double low = 0.25 * 0.02;
    EXPECT_NEAR(learning_rate(options, 1000), low, 1e-12);
    EXPECT_NEAR(learning_rate(options, (1000 + warmup) / 2), (0.02 + low) / 2, 2e-5);
    EXPECT_NEAR(learning_rate(options, warmup + (1000 - warmup) / 4),
                low + (0.02 - low) * (1 + std::sqrt(0.5)) / 2, 2e-5);
    for (std::int64_t step = warmup + 2; step <= 1000; ++step)
      ASSERT_LT(learning_rate(options, step), learning_rate(options, step - 1)) << step;
  }
}

TEST(LearningRate, StepFallsOnce) {
  const TrainingOptions options = scheduled(Schedule::step, 0);
  EXPECT_EQ(learning_rate(options, 1), 0.02);
  EXPECT_EQ(learning_rate(options, 600), 0.02);
  EXPECT_NEAR(learning_rate(options, 601), 0.005, 1e-15);
  EXPECT_NEAR(learning_rate(options, 1000), 0.005, 1e-15);
}

TEST(LearningRate, InverseSquareRootHalvesWithFourTimesTheUpdates) {
  const TrainingOptions options = scheduled(Schedule::inverse_sqrt, 100);
  EXPECT_NEAR(learning_rate(options, 101), 0.02 * std::sqrt(100.0 / 101), 1e-15);
  EXPECT_NEAR(learning_rate(options, 400), 0.01, 1e-15);
  EXPECT_NEAR(learning_rate(options, 6400), 0.0025, 1e-15);
  TrainingOptions longer = options;
  longer.steps = 10'000;
  EXPECT_EQ(learning_rate(longer, 777), learning_rate(options, 777)) << "does not depend on the end";
  EXPECT_NEAR(learning_rate(scheduled(Schedule::inverse_sqrt, 0), 1), 0.02, 1e-15);
  EXPECT_NEAR(learning_rate(scheduled(Schedule::inverse_sqrt, 0), 4), 0.01, 1e-15);
}

TEST(LearningRate, IsFiniteForRunsThatAreAllWarmUp) {
  for (const Schedule schedule : every_schedule)
    for (const std::int64_t warmup : {999, 1000, 1001, 5000})
      for (const std::int64_t step : {1, 500, 999, 1000}) {
        const double rate = learning_rate(scheduled(schedule, warmup), step);
        EXPECT_TRUE(rate >= 0 && rate <= 0.02 + 1e-12)
            << static_cast<int>(schedule) << ", " << warmup << ", " << step << ": " << rate;
      }
}

/// One number's course under AdamW or RAdam, in double precision.
class ScalarOptimiser {
 public:
  ScalarOptimiser(const TrainingOptions& options, bool decay) : options_(options), decay_(decay) {}

  double update(double parameter, double gradient, double rate, double t) {
    const double b1 = options_.beta1, b2 = options_.beta2;
    m_ = b1 * m_ + (1 - b1) * gradient;
    v_ = b2 * v_ + (1 - b2) * gradient * gradient;
    const double mean = m_ / (1 - std::pow(b1, t)), root = std::sqrt(v_ / (1 - std::pow(b2, t)));
    double step = mean / (root + options_.epsilon);
    if (options_.optimiser == OptimiserKind::radam) {  // Liu et al. 2020, algorithm 2
      const double limit = 2 / (1 - b2) - 1;
      const double length = limit - 2 * t * std::pow(b2, t) / (1 - std::pow(b2, t));
      if (length > 5)  // ε as PyTorch has it
        step = mean * std::sqrt(1 - std::pow(b2, t)) / (std::sqrt(v_) + options_.epsilon) *
               std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
      else
        step = mean;
    }
    return parameter - rate * (step + (decay_ ? options_.weight_decay * parameter : 0));
  }

 private:
  TrainingOptions options_;
  bool decay_;
  double m_ = 0, v_ = 0;
};

TEST(Optimiser, FollowsItsPaperAndDecaysMatricesAlone) {
  for (const OptimiserKind kind : {OptimiserKind::adamw, OptimiserKind::radam})
    for (const std::int64_t width : {1, 37, 20'001}) {
      SCOPED_TRACE(testing::Message()
                   << static_cast<int>(kind) << ", " << width << " numbers, seed " << seed);
      ParameterTable table;
      table.add("matrix", {1, width}, constant(0), true);
      table.add("bias", {width}, constant(0), false);
      TrainingOptions options;
      options.optimiser = kind;
      options.schedule = Schedule::constant;
      options.learning_rate = 0.01;
      options.weight_decay = 0.1;
      options.beta2 = 0.99;
      Optimiser optimiser(table, options);
      Tensor values = random_values(table, seed), gradients = Tensor::of<float>({table.size()});
      reference::Parameters expected = by_name(table, values.span<float>());
      std::map<std::string, std::vector<ScalarOptimiser>> scalars;
      for (const auto& row : table.rows())
        scalars[row.name].assign(static_cast<std::size_t>(row.count),
                                 ScalarOptimiser(options, row.weight_decay));
      for (std::int64_t t = 1; t <= 9; ++t) {
        const float factor = t % 2 == 0 ? 0.5f : 1;
        for (const auto& row : table.rows()) {
          const auto numbers = normals(row.count, seed + static_cast<std::uint64_t>(t), 0.3);
          std::ranges::copy(numbers, row.place.of(gradients.span<float>()).data());
          for (std::size_t i = 0; i < numbers.size(); ++i)
            expected[row.name][i] = scalars[row.name][i].update(expected[row.name][i], factor * numbers[i],
                                                                0.01, static_cast<double>(t));
        }
        optimiser.update(any_context(), values.span<float>(), gradients.span<float>(), factor,
                         learning_rate(options, t), t);
      }
      const reference::Parameters actual = by_name(table, values.span<float>());
      for (const auto& [name, numbers] : expected)
        EXPECT_LT(relative_error(actual.at(name), numbers), 1e-6) << name;
      expect_padding_is_zero(table, values.span<float>());
    }
}

}  // namespace
}  // namespace linnet
