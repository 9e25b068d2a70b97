#include "layers/head.h"

#include <gtest/gtest.h>

#include <numeric>

#include "layers/embedding.h"
#include "support/contexts.h"
#include "support/layer_check.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 51;

struct Made {
  bool mixture;
  std::int64_t vocabulary;
  ParameterTable table;
  std::unique_ptr<OutputHead> head;

  /// `components` 0: categorical.
  Made(std::int64_t width, std::int64_t vocabulary, std::int64_t components)
      : mixture(components > 0), vocabulary(vocabulary) {
    head = mixture ? OutputHead::logistic_mixture(table, "head", width, vocabulary, components)
                   : OutputHead::categorical(table, "head", width, vocabulary, nullptr);
  }

  std::vector<double> log_probabilities(std::span<const double> row) const {
    return mixture ? reference::logistics_log_probabilities(row, vocabulary)
                   : reference::categorical_log_probabilities(row);
  }
};

/// Vocabulary and components; 0 components are a categorical head.
const std::pair<std::int64_t, std::int64_t> shapes[] = {{2, 0}, {7, 0}, {257, 0}, {2, 1}, {7, 3}, {256, 10}};

TEST(OutputHead, ProjectionMatchesReferenceWithGradients) {
  for (const auto& [vocabulary, components] : shapes) {
    SCOPED_TRACE(testing::Message() << vocabulary << " tokens, " << components << " components");
    Made made(5, vocabulary, components);
    EXPECT_EQ(made.head->outputs(), components > 0 ? 3 * components : vocabulary);
    EXPECT_EQ(made.head->vocabulary(), vocabulary);
    const Tensor values = random_values(made.table, seed);
    made.head->pack(any_context(), values.span<float>(), true);
    const std::int64_t o = made.head->outputs();
    const LayerUnderTest layer = {
        3, 5,
        [&](auto& y, const auto& x) {
          made.head->forward(any_context(), view(y, {3, o}), view(x, {3, 5}));
        },
        [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
          made.head->backward(any_context(), view(dx, {3, 5}), view(dy, {3, o}), view(x, {3, 5}), gradients);
        },
        [](const auto& x, const auto& p) { return reference::dense(x, p, "head"); }};
    expect_matches_reference(made.table, values.span<float>(), layer, seed);
  }
}

// Rounded shares of several hundred tokens end before 1: what comes last may have none at all.
TEST(OutputHead, DrawsNoTokenOfProbabilityZero) {
  constexpr std::int64_t vocabulary = 700, possible = 500;
  const Made made(1, vocabulary, 0);
  std::vector<float> workspace(vocabulary);
  const float largest = std::nextafter(1.0f, 0.0f);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::vector<float> logits = normals(vocabulary, seed + i);
    std::fill(logits.begin() + possible, logits.end(), -200.0f);
    for (const float u : {0.0f, 0.5f, largest})
      ASSERT_LT(
          made.head->sample(any_context(), view(std::as_const(logits), {1, vocabulary}), u, 0, workspace),
          possible)
          << i << " " << u;
  }
}

TEST(OutputHead, TiedUsesTheFirstRowsOfTheEmbedding) {
  ParameterTable table;
  const Embedding embedding(table, "embedding", {9, 5, 4, Positions::none, true});
  const auto head = OutputHead::categorical(table, "head", 5, 7, &embedding.table());
  EXPECT_EQ(head->outputs(), 7);
  const Tensor values = random_values(table, seed);
  head->pack(any_context(), values.span<float>(), true);
  const LayerUnderTest layer = {
      4, 5,
      [&](auto& y, const auto& x) {
        head->forward(any_context(), view(y, {4, 7}), view(x, {4, 5}));
      },
      [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
        head->backward(any_context(), view(dx, {4, 5}), view(dy, {4, 7}), view(x, {4, 5}), gradients);
      },
      [](const auto& x, const auto& p) {
        reference::Parameters own = p;
        own["head.weight"].assign(p.at("embedding.weight").begin(), p.at("embedding.weight").begin() + 7 * 5);
        return reference::dense(x, own, "head");
      }};
  expect_matches_reference(table, values.span<float>(), layer, seed);
}

/// Rows of a head's numbers: typical ones, and some that lie far outside.
std::vector<float> head_rows(const Made& made, std::int64_t rows) {
  const std::int64_t outputs = made.head->outputs(), third = outputs / 3;
  std::vector<float> result = normals(rows * outputs, seed);
  if (!made.mixture) return result;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < third; ++k) {
      float* numbers = &result[static_cast<std::size_t>(row * outputs)];
      numbers[2 * third + k] -= static_cast<float>(row % 4);  // narrower and narrower logistics
      if (row % 5 == 4) numbers[third + k] *= 3;              // means outside [−1, 1]
    }
  return result;
}

TEST(OutputHead, LossMatchesReferenceWithGradients) {
  for (const auto& [vocabulary, components] : shapes) {
    SCOPED_TRACE(testing::Message() << vocabulary << " tokens, " << components << " components");
    const std::int64_t rows = 65;
    Made made(5, vocabulary, components);
    const std::int64_t outputs = made.head->outputs();
    const std::vector<float> numbers = head_rows(made, rows);
    std::vector<std::int32_t> targets = random_tokens(rows, vocabulary, seed);
    targets[0] = 0;
    targets[1] = static_cast<std::int32_t>(vocabulary - 1);
    targets[2] = targets[64] = -1;

    const auto row_loss = [&](std::span<const double> row, std::int32_t target) {
      return -made.log_probabilities(row)[static_cast<std::size_t>(target)];
    };
    std::vector<float> nll(rows), gradient(numbers.size());
    made.head->loss(any_context(), nll, view(gradient, {rows, outputs}), view(numbers, {rows, outputs}),
                    targets, 0.25f);
    std::vector<double> expected, expected_gradient;
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<double> at = in_double(std::span(numbers).subspan(row * outputs, outputs));
      expected.push_back(targets[row] < 0 ? 0 : row_loss(at, targets[row]));
      for (double& value : at) {
        const double before = value;
        double difference = 0;
        for (const double step : {1e-5, -1e-5}) {
          value = before + step;
          if (targets[row] >= 0) difference += row_loss(at, targets[row]) / (2 * step);
        }
        value = before;
        expected_gradient.push_back(0.25 * difference);
      }
    }
    EXPECT_LT(relative_error(nll, expected), 2e-6);
    EXPECT_LT(relative_error(gradient, expected_gradient), 1e-5);
    EXPECT_EQ(nll[2], 0);
    for (std::int64_t i = 0; i < outputs; ++i)
      EXPECT_EQ(gradient[static_cast<std::size_t>(2 * outputs + i)], 0);

    std::vector<float> alone(rows), in_place = numbers;
    made.head->loss(any_context(), alone, {}, view(numbers, {rows, outputs}), targets, 0.25f);
    EXPECT_TRUE(same_bits(alone, nll));
    made.head->loss(any_context(), alone, view(in_place, {rows, outputs}), view(in_place, {rows, outputs}),
                    targets, 0.25f);
    EXPECT_TRUE(same_bits(alone, nll));
    EXPECT_TRUE(same_bits(in_place, gradient));
  }
}

TEST(OutputHead, ProbabilitiesAddUpToOneAndLogitsGiveThem) {
  for (const auto& [vocabulary, components] : shapes) {
    SCOPED_TRACE(testing::Message() << vocabulary << " tokens, " << components << " components");
    Made made(5, vocabulary, components);
    const std::int64_t outputs = made.head->outputs();
    const std::vector<float> numbers = head_rows(made, 10);
    for (std::size_t row = 0; row < 10; ++row) {
      // One row for every token, so that the loss names every probability.
      std::vector<float> repeated;
      for (std::int64_t v = 0; v < vocabulary; ++v)
        repeated.insert(repeated.end(), &numbers[row * outputs], &numbers[row * outputs] + outputs);
      std::vector<std::int32_t> all(static_cast<std::size_t>(vocabulary));
      std::iota(all.begin(), all.end(), 0);
      std::vector<float> nll(all.size()), logits(all.size());
      made.head->loss(any_context(), nll, {}, view(repeated, {vocabulary, outputs}), all, 1);
      double sum = 0;
      for (const float value : nll) sum += std::exp(-static_cast<double>(value));
      EXPECT_NEAR(sum, 1, 2e-5);

      made.head->logits(any_context(), view(logits, {vocabulary}),
                        View<const float>(&numbers[row * outputs], {outputs}));
      const auto from_logits = reference::categorical_log_probabilities(in_double(logits));
      for (std::size_t v = 0; v < all.size(); ++v)
        EXPECT_NEAR(std::exp(from_logits[v]), std::exp(-static_cast<double>(nll[v])), 2e-5) << "token " << v;
    }
  }
}

TEST(OutputHead, SamplesAsOftenAsTheLossSays) {
  for (const auto& [vocabulary, components] : shapes) {
    SCOPED_TRACE(testing::Message() << vocabulary << " tokens, " << components << " components");
    Made made(5, vocabulary, components);
    const std::int64_t outputs = made.head->outputs();
    const std::vector<float> numbers = head_rows(made, 5);
    // A grid over (u₁, u₂). A token owns one interval of u₁ (categorical) or, in the interval of u₁ that
    // means a component, one of u₂; each interval's count is off by at most one line of the grid.
    const int grid1 = made.mixture ? 1000 : 20000, grid2 = made.mixture ? 1000 : 1;
    const double bound = made.mixture ? static_cast<double>(components + 1) / 1000 : 1.1 / grid1;
    std::vector<float> workspace(static_cast<std::size_t>(std::max<std::int64_t>(vocabulary, outputs)));
    for (std::size_t row = 0; row < 5; ++row) {
      const std::span<const float> own = std::span(numbers).subspan(row * outputs, outputs);
      const auto expected = made.log_probabilities(in_double(own));
      std::vector<std::int64_t> counts(expected.size());
      for (int i = 0; i < grid1; ++i)
        for (int j = 0; j < grid2; ++j) {
          const std::int32_t token = made.head->sample(any_context(), {own.data(), {outputs}},
                                                       (static_cast<float>(i) + 0.5f) / grid1,
                                                       (static_cast<float>(j) + 0.5f) / grid2, workspace);
          ASSERT_GE(token, 0);
          ASSERT_LT(token, vocabulary);
          ++counts[static_cast<std::size_t>(token)];
        }
      for (std::size_t v = 0; v < counts.size(); ++v)
        EXPECT_NEAR(static_cast<double>(counts[v]) / (grid1 * grid2), std::exp(expected[v]), bound)
            << "token " << v;
    }
  }
}

TEST(OutputHead, EveryDrawIsATokenAndEveryLossFiniteInTheExtremes) {
  const float least = 0x1p-24f, most = 1 - 0x1p-24f;
  for (const auto& [vocabulary, components] : shapes) {
    SCOPED_TRACE(testing::Message() << vocabulary << " tokens, " << components << " components");
    Made made(5, vocabulary, components);
    const std::int64_t outputs = made.head->outputs();
    std::vector<float> workspace(static_cast<std::size_t>(std::max<std::int64_t>(vocabulary, outputs)));
    for (const float extreme : {0.0f, 30.0f, -30.0f, 1000.0f, -1000.0f, 3e38f, std::nanf("")}) {
      std::vector<float> row(static_cast<std::size_t>(outputs), extreme), gradient(row.size());
      for (const float u1 : {least, 0.5f, most})
        for (const float u2 : {least, 0.5f, most}) {
          const std::int32_t token =
              made.head->sample(any_context(), view(row, {outputs}), u1, u2, workspace);
          EXPECT_TRUE(token >= 0 && token < vocabulary) << token << " at " << extreme;
        }
      if (!(std::abs(extreme) <= 1000)) continue;
      for (const std::int32_t target : {std::int32_t{0}, static_cast<std::int32_t>(vocabulary - 1)}) {
        std::vector<float> nll(1);
        made.head->loss(any_context(), nll, view(gradient, {1, outputs}), view(row, {1, outputs}),
                        std::span(&target, 1), 1);
        EXPECT_TRUE(std::isfinite(nll[0])) << nll[0] << " at " << extreme;
        for (const float value : gradient) EXPECT_TRUE(std::isfinite(value)) << value << " at " << extreme;
      }
      std::vector<float> logits(static_cast<std::size_t>(vocabulary));
      made.head->logits(any_context(), view(logits, {vocabulary}), view(row, {outputs}));
      for (const float value : logits)
        if (std::abs(extreme) <= 30) {
          EXPECT_TRUE(std::isfinite(value)) << value << " at " << extreme;
        }
    }
  }
}

}  // namespace
}  // namespace linnet
