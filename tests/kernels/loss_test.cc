#include "kernels/loss.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/samples.h"
#include "kernels/targets.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t categories) {
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < rows; ++i)
    targets.push_back(i % 5 == 3 ? -1 : static_cast<std::int32_t>((i * 7 + i / 3) % categories));
  return targets;
}

TEST(CategoricalLoss, MatchesDoublePrecisionOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t rows : {0, 1, 65}) {
      for (const std::int64_t n : {1, 2, 10, 63, 64, 65, 257}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << n);
        Tensor logits = normal({rows, n}, 1, 3), nll = Tensor::of<float>({rows}),
               gradient = normal({rows, n}, 2);
        const auto targets = some_targets(rows, n);
        std::vector<double> expected, expected_gradient;
        std::vector<std::uint8_t> correct(static_cast<std::size_t>(rows)), expected_correct;
        for (std::int64_t i = 0; i < rows; ++i) {
          const float* row = logits.view<float>().at(i);
          const std::int32_t target = targets[static_cast<std::size_t>(i)];
          double sum = 0;
          for (std::int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<double>(row[j]));
          expected.push_back(target < 0 ? 0 : std::log(sum) - row[target]);
          expected_correct.push_back(target >= 0 && std::max_element(row, row + n) == row + target);
          for (std::int64_t j = 0; j < n; ++j)
            expected_gradient.push_back(
                target < 0 ? 0 : 0.7 * (std::exp(static_cast<double>(row[j])) / sum - (j == target)));
        }
        categorical_loss(any_context(), nll.span<float>(), gradient.view<float>(), logits.view<float>(),
                         targets, 0.7f, correct);
        EXPECT_LT(mixed_error(nll.span<float>(), expected), 1e-6);
        EXPECT_LT(mixed_error(gradient.span<float>(), expected_gradient), 1e-6);
        EXPECT_EQ(correct, expected_correct);
        // In place, and without a gradient.
        Tensor again = Tensor::of<float>({rows});
        categorical_loss(any_context(), again.span<float>(), {}, logits.view<float>(), targets, 0.7f);
        EXPECT_TRUE(same_bits(again.span<float>(), nll.span<float>()));
        categorical_loss(any_context(), again.span<float>(), logits.view<float>(), logits.view<float>(),
                         targets, 0.7f);
        EXPECT_TRUE(same_bits(again.span<float>(), nll.span<float>()));
        EXPECT_TRUE(same_bits(logits.span<float>(), gradient.span<float>()));
      }
    }
  });
}

TEST(CategoricalLoss, StandsLargeLogitsAndKeepsNaNInItsRow) {
  for_every_target([] {
    Tensor logits = normal({4, 20}, 1), nll = Tensor::of<float>({4}), gradient = Tensor::of<float>({4, 20});
    for (std::int64_t j = 0; j < 20; ++j) logits.view<float>()(0, j) = 1e30f * static_cast<float>(j - 10);
    logits.view<float>()(2, 19) = nan;
    const std::vector<std::int32_t> targets = {19, 4, 5, 6};
    std::vector<std::uint8_t> correct(4);
    categorical_loss(any_context(), nll.span<float>(), gradient.view<float>(), logits.view<float>(), targets,
                     1, correct);
    EXPECT_EQ(nll.span<float>()[0], 0);
    EXPECT_TRUE(std::isnan(nll.span<float>()[2]));
    EXPECT_EQ(correct[2], 0);
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 20; ++j) ASSERT_EQ(std::isnan(gradient.view<float>()(i, j)), i == 2);
  });
}

TEST(SoftmaxRows, MatchesDoublePrecisionOnEveryTarget) {
  for_every_target([] {
    for (const float size : {0.3f, 1.0f, 10.0f}) {
      for (const std::int64_t n : {1, 15, 64, 257}) {
        Tensor logits = normal({30, n}, 1), y = Tensor::of<float>({30, n});
        for (float& logit : logits.span<float>()) logit *= size;
        std::vector<double> expected;
        for (std::int64_t i = 0; i < 30; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < n; ++j) sum += std::exp(double{logits.view<float>()(i, j)});
          for (std::int64_t j = 0; j < n; ++j)
            expected.push_back(std::exp(double{logits.view<float>()(i, j)}) / sum);
        }
        softmax_rows(any_context(), y.view<float>(), logits.view<float>());
        EXPECT_LT(relative_error(y.span<float>(), expected), 5e-6);
      }
    }
  });
}

// log P(value) in double, with the CDF differences written down as in the paper.
double mixture_log_likelihood(const double* parameters, int components, int value, int levels) {
  const double x = 2.0 * value / (levels - 1) - 1, half = 1.0 / (levels - 1);
  double sum = 0, weights = 0;
  for (int k = 0; k < components; ++k) {
    const double scale = std::exp(-std::max(parameters[2 * components + k], -7.0));
    const auto cdf = [&](double at) {
      return 1 / (1 + std::exp(-(at - parameters[components + k]) * scale));
    };
    const double upper = value == levels - 1 ? 1 : cdf(x + half), lower = value == 0 ? 0 : cdf(x - half);
    const double weight = std::exp(parameters[k]);
    weights += weight;
    sum += weight * (upper - lower);
  }
  return std::log(sum / weights);
}

// Parameters near enough to the values for plain CDF differences to be exact.
Tensor mixture_parameters(std::int64_t rows, std::int64_t components, std::span<const std::int32_t> targets,
                          std::int64_t levels) {
  Tensor parameters = normal({rows, 3 * components}, 1);
  for (std::int64_t i = 0; i < rows; ++i) {
    const double place =
        2.0 * std::max(targets[static_cast<std::size_t>(i)], 0) / static_cast<double>(levels - 1) - 1;
    for (std::int64_t k = 0; k < components; ++k) {
      float& mean = parameters.view<float>()(i, components + k);
      float& scale = parameters.view<float>()(i, 2 * components + k);
      mean = static_cast<float>(place) + 0.1f * mean;
      scale = -2 + scale;
    }
  }
  return parameters;
}

TEST(LogisticMixtureLoss, MatchesDoublePrecisionOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t levels : {2, 16, 256}) {
      for (const std::int64_t components : {1, 3, 10, 17}) {
        for (const std::int64_t rows : {0, 1, 300}) {
          SCOPED_TRACE(testing::Message()
                       << rows << " rows, " << components << " components, " << levels << " levels");
          auto targets = some_targets(rows, levels);
          if (rows > 10) targets[5] = 0, targets[6] = static_cast<std::int32_t>(levels - 1);
          Tensor parameters = mixture_parameters(rows, components, targets, levels);
          Tensor nll = Tensor::of<float>({rows}), gradient = normal({rows, 3 * components}, 2);
          logistic_mixture_loss(any_context(), nll.span<float>(), gradient.view<float>(),
                                parameters.view<float>(), targets, levels, 0.5f);
          std::vector<double> expected, expected_gradient;
          for (std::int64_t i = 0; i < rows; ++i) {
            const float* row = parameters.view<float>().at(i);
            std::vector<double> p(row, row + 3 * components);
            const int value = targets[static_cast<std::size_t>(i)];
            const auto loss = [&] {
              if (value < 0) return 0.0;
              return -mixture_log_likelihood(p.data(), static_cast<int>(components), value,
                                             static_cast<int>(levels));
            };
            expected.push_back(loss());
            for (double& parameter : p) {
              constexpr double h = 1e-6;
              const double at = parameter;
              parameter = at + h;
              const double above = loss();
              parameter = at - h;
              const double below = loss();
              parameter = at;
              expected_gradient.push_back(0.5 * (above - below) / (2 * h));
            }
          }
          EXPECT_LT(mixed_error(nll.span<float>(), expected), 5e-6);
          EXPECT_LT(mixed_error(gradient.span<float>(), expected_gradient), 1e-4);
        }
      }
    }
  });
}

TEST(LogisticMixtureLoss, ProbabilitiesAddUpToOne) {
  for_every_target([] {
    Tensor one = normal({1, 30}, 7);
    one.view<float>()(0, 20) = -9;  // clamped
    one.view<float>()(0, 21) = 2;
    Tensor parameters = Tensor::of<float>({256, 30}), nll = Tensor::of<float>({256});
    std::vector<std::int32_t> targets;
    for (std::int64_t i = 0; i < 256; ++i) {
      std::copy_n(one.span<float>().data(), 30, parameters.view<float>().at(i));
      targets.push_back(static_cast<std::int32_t>(i));
    }
    logistic_mixture_loss(any_context(), nll.span<float>(), {}, parameters.view<float>(), targets, 256, 1);
    double sum = 0;
    for (const float loss : nll.span<float>()) sum += std::exp(-static_cast<double>(loss));
    EXPECT_NEAR(sum, 1, 2e-6);
  });
}

TEST(LogisticMixtureLoss, IsFiniteFarAwayAndFlatBelowTheClamp) {
  for_every_target([] {
    // A component 1.5 away at the least scale: log P is about −1645, far below what a CDF difference
    // resolves.
    Tensor parameters = Tensor::of<float>({1, 3}), nll = Tensor::of<float>({1}),
           gradient = Tensor::of<float>({1, 3});
    parameters.view<float>()(0, 1) = 1.0f;
    parameters.view<float>()(0, 2) = -8;
    const std::vector<std::int32_t> targets = {64};
    logistic_mixture_loss(any_context(), nll.span<float>(), gradient.view<float>(), parameters.view<float>(),
                          targets, 256, 1);
    const double x = 2 * 64.0 / 255 - 1, h = 1 / 255.0, scale = std::exp(7.0);
    const double expected = -((x + h - 1) * scale + std::log1p(-std::exp(-2 * h * scale)));
    EXPECT_NEAR(nll.span<float>()[0], expected, 1e-6 * expected);
    EXPECT_NEAR(gradient.span<float>()[0], 0, 1e-6);
    EXPECT_NEAR(gradient.span<float>()[1], scale, 1e-5 * scale);
    EXPECT_EQ(gradient.span<float>()[2], 0);
  });
}

// A component so wide that floats do not hold the inverse of its scale weighs nothing.
TEST(LogisticMixtureLoss, IsFiniteBesideAComponentWithoutEnd) {
  for_every_target([] {
    Tensor parameters = Tensor::of<float>({1, 6}), nll = Tensor::of<float>({1}),
           gradient = Tensor::of<float>({1, 6});
    parameters.view<float>()(0, 4) = 90;
    parameters.view<float>()(0, 5) = -2;
    const std::vector<std::int32_t> targets = {100};
    logistic_mixture_loss(any_context(), nll.span<float>(), gradient.view<float>(), parameters.view<float>(),
                          targets, 256, 1);
    EXPECT_TRUE(std::isfinite(nll.span<float>()[0]));
    for (const float number : gradient.span<float>()) EXPECT_TRUE(std::isfinite(number));
    EXPECT_EQ(gradient.view<float>()(0, 4), 0);
    EXPECT_NE(gradient.view<float>()(0, 5), 0);
  });
}

TEST(LogisticMixtureLoss, KeepsNaNInItsRowAndDoesNotDependOnThreads) {
  const auto targets = some_targets(1000, 256);
  Tensor parameters = mixture_parameters(1000, 10, targets, 256);
  parameters.view<float>()(501, 24) = nan;
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    Context context(threads);
    Tensor nll = Tensor::of<float>({1000}), gradient = Tensor::of<float>({1000, 30});
    logistic_mixture_loss(context, nll.span<float>(), gradient.view<float>(), parameters.view<float>(),
                          targets, 256, 1);
    for (std::int64_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(std::isnan(*nll.view<float>().at(i)), i == 501);
      ASSERT_EQ(std::isnan(gradient.view<float>()(i, 0)), i == 501);
    }
    std::vector<float> all(gradient.span<float>().begin(), gradient.span<float>().end());
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first));
  }
}

}  // namespace
}  // namespace linnet::kernels
