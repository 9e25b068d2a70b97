#include "study/approximation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/contexts.h"
#include "support/errors.h"
#include "support/numbers.h"

namespace linnet {
namespace {

HeadRows normal_head(std::int64_t length, std::int64_t dim, double deviation, bool causal = false) {
  return {.length = length,
          .head_dim = dim,
          .value_dim = 5,
          .causal = causal,
          .q = in_double(normals(length * dim, 1, deviation)),
          .k = in_double(normals(length * dim, 2, deviation)),
          .v = in_double(normals(length * 5, 3))};
}

TEST(Approximation, WeightsErrAsTheClosedFormsSay) {
  const HeadRows head = normal_head(12, 16, 0.35);
  for (const std::string map : {"favor", "favor-trig", "favor-sincos", "favor-hyperbolic"}) {
    const RandomFeatureError error = random_feature_error(
        any_context(), head, map, {.features = 32, .directions = Directions::independent, .seed = 4}, 3000);
    EXPECT_NEAR(error.weights.error / error.predicted, 1, 0.1) << map;
  }
}

TEST(Approximation, WeightsAreUnbiasedAndWhatIsDividedIsNot) {
  const HeadRows head = normal_head(24, 16, 1);
  const RandomFeatureError error =
      random_feature_error(any_context(), head, "favor", {.features = 8, .seed = 1}, 2000);
  EXPECT_LT(error.weights.bias, 0.05 * error.weights.deviation);
  EXPECT_GT(error.attention.bias, 0.1 * error.attention.deviation);
  EXPECT_GT(error.output.bias, 0.1 * error.output.deviation);
  EXPECT_NEAR(error.weights.error, std::hypot(error.weights.bias, error.weights.deviation),
              0.01 * error.weights.error);
  EXPECT_EQ(error.non_positive, 0);
}

TEST(Approximation, WavesHaveDenominatorsBelowZero) {
  const HeadRows head = normal_head(32, 16, 2);
  EXPECT_GT(random_feature_error(any_context(), head, "favor-sincos", {.features = 16}, 8).non_positive,
            0.05);
}

TEST(Approximation, MoreFeaturesErrLessAndThreadsChangeNothing) {
  for (const bool causal : {false, true}) {
    const HeadRows head = normal_head(20, 8, 0.5, causal);
    const RandomFeatureError few = random_feature_error(any_context(), head, "favor", {.features = 16}, 8),
                             many = random_feature_error(any_context(), head, "favor", {.features = 256}, 8);
    EXPECT_LT(many.output.error, 0.5 * few.output.error);
    EXPECT_NEAR(many.predicted, few.predicted / 4, 1e-9 * few.predicted);
    Context one(1);
    EXPECT_EQ(random_feature_error(one, head, "favor", {.features = 16}, 8).output.error, few.output.error);
  }
}

TEST(Approximation, LargeNormsOverflowNothing) {
  const RandomFeatureError error =
      random_feature_error(any_context(), normal_head(8, 64, 12), "favor", {.features = 64}, 4);
  EXPECT_TRUE(std::isfinite(error.output.error));
  EXPECT_TRUE(std::isfinite(error.weights.error));
}

TEST(Approximation, NormsAreThoseOfTheRows) {
  HeadRows head{.length = 2, .head_dim = 4, .value_dim = 1};
  head.q = {3, 0, 0, 4, 3, 0, 0, 4};
  head.k = {2, 0, 0, 0, 2, 0, 0, 0};
  head.v = {1, 1};
  const HeadNorms norms = head_norms(any_context(), head);
  EXPECT_DOUBLE_EQ(norms.query, 5);
  EXPECT_DOUBLE_EQ(norms.key, 2);
  EXPECT_DOUBLE_EQ(norms.largest_logit, 3);
  EXPECT_NEAR(norms.effective_keys, 2, 1e-12);
  head.causal = true;
  EXPECT_NEAR(head_norms(any_context(), head).effective_keys, 1.5, 1e-12);
}

TEST(Approximation, RowsOfSoftmaxSumToOne) {
  for (const bool causal : {false, true}) {
    const std::vector<double> matrix = attention_matrix(any_context(), normal_head(9, 4, 3, causal));
    for (std::int64_t i = 0; i < 9; ++i) {
      EXPECT_NEAR(std::accumulate(matrix.begin() + i * 9, matrix.begin() + (i + 1) * 9, 0.0), 1, 1e-12);
      for (std::int64_t j = i + 1; j < 9 && causal; ++j) EXPECT_EQ(matrix[i * 9 + j], 0);
    }
  }
}

// σ of A: Σ σ² is ‖A‖², Σ σ⁴ is ‖AAᵀ‖², Π σ is |det A|.
TEST(Approximation, SingularValuesHaveTheInvariantsOfTheMatrix) {
  for (const std::int64_t n : {1, 2, 3, 17, 40}) {
    const std::vector<double> a = in_double(normals(n * n, static_cast<std::uint64_t>(n)));
    const std::vector<double> sigma = singular_values(a, n);
    ASSERT_EQ(std::ssize(sigma), n);
    double squares = 0, fourths = 0, product_squares = 0;
    for (const double value : sigma) {
      squares += value * value;
      fourths += std::pow(value, 4);
    }
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double dot = 0;
        for (std::int64_t e = 0; e < n; ++e) dot += a[i * n + e] * a[j * n + e];
        product_squares += dot * dot;
      }
    EXPECT_NEAR(squares, std::pow(norm(a), 2), 1e-10 * squares);
    EXPECT_NEAR(fourths, product_squares, 1e-10 * fourths);
    EXPECT_TRUE(std::ranges::is_sorted(sigma, std::greater<>()));
  }
  const std::vector<double> sigma = singular_values({3, 0, 4, 5}, 2);
  EXPECT_NEAR(sigma[0], std::sqrt(45), 1e-12);
  EXPECT_NEAR(sigma[1], std::sqrt(5), 1e-12);
}

TEST(Approximation, MatricesOfLowRankLoseNothingBeyondIt) {
  const std::int64_t n = 30, rank = 4;
  const std::vector<double> left = in_double(normals(n * rank, 7)), right = in_double(normals(n * rank, 8));
  std::vector<double> product(n * n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t r = 0; r < rank; ++r) product[i * n + j] += left[i * rank + r] * right[j * rank + r];
  const std::vector<double> sigma = singular_values(product, n);
  EXPECT_LT(rank_error(sigma, rank), 1e-10);
  EXPECT_GT(rank_error(sigma, rank - 1), 0.01);
  EXPECT_EQ(rank_error(sigma, 0), 1);
  EXPECT_EQ(rank_error({4, 3}, 1), 0.6);
  EXPECT_EQ(rank_error(singular_values(std::vector<double>(9), 3), 1), 0);
}

TEST(Approximation, BadInputIsRefused) {
  const HeadRows head = normal_head(4, 4, 1);
  EXPECT_NE(error_of<UsageError>([&] {
              random_feature_error(any_context(), head, "elu", {}, 4);
            }).find("got 'elu'"),
            std::string::npos);
  EXPECT_EQ(error_of<UsageError>([&] { random_feature_error(any_context(), head, "favor", {}, 1); }),
            "[approximate] expected at least 2 draws, got 1");
  EXPECT_NE(error_of<Error>([&] {
              random_feature_error(any_context(), head, "favor", {.features = 1 << 16}, 1 << 26);
            }).find("[memory] expected the random features to fit"),
            std::string::npos);
  HeadRows other = head;
  std::ranges::fill(other.v, 0.0);
  EXPECT_EQ(error_of<Error>([&] { random_feature_error(any_context(), other, "favor", {}, 4); }),
            "[approximate] expected values that are not all 0, got no other");
  other = head;
  other.q[3] = std::numeric_limits<double>::infinity();
  const std::string sentence = "[approximate] expected finite queries, keys and values, got inf";
  EXPECT_EQ(error_of<Error>([&] { random_feature_error(any_context(), other, "favor", {}, 4); }), sentence);
  EXPECT_EQ(error_of<Error>([&] { head_norms(any_context(), other); }), sentence);
  EXPECT_EQ(error_of<Error>([&] { attention_matrix(any_context(), other); }), sentence);
  EXPECT_TRUE(estimates_softmax("favor-trig"));
  EXPECT_FALSE(estimates_softmax("random-exp"));
}

}  // namespace
}  // namespace linnet
