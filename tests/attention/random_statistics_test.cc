// What random features promise on average: their errors, and that nothing is biased.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

#include "attention/feature_maps/reference_features.h"
#include "linnet/feature_map.h"
#include "support/numbers.h"

namespace linnet {
namespace {

constexpr std::int64_t dim = 16;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// A pair after the factor E^-1/4, which the maps are given without it.
struct Pair {
  std::vector<double> x, y;

  double exact() const { return std::exp(dot(x, y)); }
  double sum() const { return dot(x, x) + dot(y, y) + 2 * dot(x, y); }
  double difference() const { return dot(x, x) + dot(y, y) - 2 * dot(x, y); }
};

/// φ(x)·φ(y), an estimate of exp(x·y).
double estimate(const std::string& map, std::int64_t features, Directions directions, std::uint64_t draw,
                const Pair& pair) {
  const auto drawn =
      random_feature_map(map, dim, {.features = features, .directions = directions, .seed = 1, .draw = draw});
  const double scale = std::sqrt(std::sqrt(double(dim)));
  std::vector<double> rows, phi(static_cast<std::size_t>(2 * features));
  for (const double number : pair.x) rows.push_back(scale * number);
  for (const double number : pair.y) rows.push_back(scale * number);
  reference_features(*drawn, phi.data(), nullptr, rows.data(), 2, dim, {});
  return std::inner_product(phi.begin(), phi.begin() + features, phi.begin() + features, 0.0);
}

double mean_squared_error(const std::string& map, std::int64_t features, Directions directions,
                          const Pair& pair, std::uint64_t trials) {
  double sum = 0;
  for (std::uint64_t draw = 0; draw < trials; ++draw) {
    const double error = estimate(map, features, directions, draw, pair) - pair.exact();
    sum += error * error;
  }
  return sum / double(trials);
}

Pair pair_of(double norm, std::uint64_t seed) {
  const auto row = [&](std::uint64_t which) {
    std::vector<double> numbers = in_double(normals(dim, seed + which));
    const double length = std::sqrt(dot(numbers, numbers));
    for (double& number : numbers) number *= norm / length;
    return numbers;
  };
  return {row(0), row(1)};
}

/// Lemma 2 of Choromanski et al. 2021, m directions, s = exp(x·y).
double trigonometric(const Pair& pair, double m) {
  return std::exp(pair.sum()) / (pair.exact() * pair.exact()) *
         std::pow(1 - std::exp(-pair.difference()), 2) / (2 * m);
}
double positive(const Pair& pair, double m) {
  return std::exp(pair.sum()) * pair.exact() * pair.exact() * (1 - std::exp(-pair.sum())) / m;
}
double hyperbolic(const Pair& pair, double m) {
  return 0.5 * (1 - std::exp(-pair.sum())) * positive(pair, m);
}

TEST(RandomStatistics, ErrorsAreThoseOfTheClosedForms) {
  for (const double norm : {0.4, 0.8}) {
    const Pair pair = pair_of(norm, 40);
    for (const std::int64_t m : {16, 64}) {
      SCOPED_TRACE("norm " + std::to_string(norm) + ", m " + std::to_string(m));
      const std::uint64_t trials = m == 16 ? 16000 : 6000;
      EXPECT_NEAR(mean_squared_error("favor-sincos", 2 * m, Directions::independent, pair, trials) /
                      trigonometric(pair, double(m)),
                  1, 0.1);
      EXPECT_NEAR(
          mean_squared_error("favor", m, Directions::independent, pair, trials) / positive(pair, double(m)),
          1, 0.1);
      EXPECT_NEAR(mean_squared_error("favor-hyperbolic", 2 * m, Directions::independent, pair, trials) /
                      hyperbolic(pair, double(m)),
                  1, 0.1);
    }
  }
}

TEST(RandomStatistics, OrthogonalDirectionsAreBetter) {
  const Pair pair = pair_of(1, 50);
  for (const std::string map : {"favor", "favor-sincos", "favor-hyperbolic", "favor-trig"}) {
    const std::uint64_t trials = 4000;
    const double independent = mean_squared_error(map, 32, Directions::independent, pair, trials);
    for (const Directions directions : {Directions::orthogonal, Directions::hadamard})
      EXPECT_LT(mean_squared_error(map, 32, directions, pair, trials), independent)
          << map << ", " << name_of(directions);
  }
}

// exp(w·z − ‖z‖²/2) is 1 on average for every z: along axes and diagonals, where a decomposition with signs
// of its own shows first.
void expect_mean_of_one(Directions directions) {
  const std::uint64_t draws = 40000;
  double sums[4] = {};
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    const RandomDraws drawn = draw_random_features(
        "favor", dim, {.features = dim, .directions = directions, .seed = 2, .draw = draw});
    for (std::int64_t r = 0; r < dim; ++r) {
      const float* w = drawn.directions.data() + r * dim;
      const double axis = w[0], diagonal = std::accumulate(w, w + dim, 0.0) / std::sqrt(double(dim));
      const double along[4] = {axis, -axis, diagonal, -diagonal};
      for (int i = 0; i < 4; ++i) sums[i] += std::exp(along[i] - 0.5);
    }
  }
  for (const double sum : sums) EXPECT_NEAR(sum / double(draws * dim), 1, 0.005) << name_of(directions);
}

TEST(RandomStatistics, OrthogonalDrawsAreUnbiased) {
  expect_mean_of_one(Directions::orthogonal);
  expect_mean_of_one(Directions::hadamard);
}

TEST(RandomStatistics, BlocksAreOrthogonal) {
  using enum Directions;
  for (const auto& [width, rows, directions] : {std::tuple{1, 3, orthogonal},
                                                {16, 40, orthogonal},
                                                {65, 66, orthogonal},
                                                {8, 20, hadamard},
                                                {16, 40, hadamard},
                                                {64, 64, hadamard}}) {
    const RandomDraws drawn =
        draw_random_features("favor", width, {.features = rows, .directions = directions});
    ASSERT_EQ(std::ssize(drawn.directions), width * rows);
    const auto row = [&, width = width](std::int64_t r) {
      const auto begin = drawn.directions.begin() + r * width;
      return std::vector<double>(begin, begin + width);
    };
    for (std::int64_t a = 0; a < rows; ++a)
      for (std::int64_t b = a / width * width; b < a; ++b) {
        const double lengths = std::sqrt(dot(row(a), row(a)) * dot(row(b), row(b)));
        EXPECT_LT(std::abs(dot(row(a), row(b))), 1e-6 * lengths) << a << " and " << b;
      }
  }
}

void expect_lengths_of_normal_rows(Directions directions) {
  SCOPED_TRACE(name_of(directions));
  double squares = 0, fourth = 0;
  const std::uint64_t draws = 2000;
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    const RandomDraws drawn =
        draw_random_features("favor", dim, {.features = dim, .directions = directions, .draw = draw});
    for (std::int64_t r = 0; r < dim; ++r) {
      double square = 0;
      for (std::int64_t i = 0; i < dim; ++i) square += std::pow(double(drawn.directions[r * dim + i]), 2);
      squares += square;
      fourth += square * square;
    }
  }
  const double count = double(draws * dim), mean = squares / count;
  EXPECT_NEAR(mean, 16, 0.15);                         // of χ² with 16 degrees
  EXPECT_NEAR(fourth / count - mean * mean, 32, 1.6);  // its variance
}

TEST(RandomStatistics, LengthsAreThoseOfNormalRows) {
  expect_lengths_of_normal_rows(Directions::orthogonal);
  expect_lengths_of_normal_rows(Directions::hadamard);
}

TEST(RandomStatistics, SeedDrawAndLayerDecideTheDraws) {
  const auto drawn = [](const RandomFeatureOptions& options) {
    return draw_random_features("favor-trig", 8, options);
  };
  const RandomDraws first = drawn({.features = 20, .seed = 3});
  EXPECT_TRUE(same_bits(first.directions, drawn({.features = 20, .seed = 3}).directions));
  EXPECT_TRUE(same_bits(first.phases, drawn({.features = 20, .seed = 3}).phases));
  const RandomFeatureOptions others[] = {{.features = 20, .seed = 4},
                                         {.features = 20, .seed = 3, .draw = 1},
                                         {.features = 20, .seed = 3, .layer = 1},
                                         {.features = 20, .directions = Directions::independent, .seed = 3},
                                         {.features = 20, .directions = Directions::hadamard, .seed = 3}};
  for (const RandomFeatureOptions& options : others) {
    const RandomDraws other = drawn(options);
    for (std::size_t i = 0; i < first.directions.size(); ++i)
      EXPECT_NE(first.directions[i], other.directions[i]);
    EXPECT_EQ(same_bits(first.phases, other.phases), options.directions != Directions::automatic);
  }
  const RandomFeatureOptions hadamard = {.features = 24, .directions = Directions::hadamard, .seed = 3};
  EXPECT_EQ(drawn(hadamard).signs, drawn(hadamard).signs);
  for (const std::uint64_t draw : {1, 2}) {
    RandomFeatureOptions other = hadamard;
    (draw == 1 ? other.draw : other.seed) = 7;
    EXPECT_NE(drawn(hadamard).signs, drawn(other).signs);
  }
  // More features go on where fewer end, and the bits are those of every machine.
  const RandomDraws more = drawn({.features = 40, .seed = 3});
  EXPECT_TRUE(std::ranges::equal(first.directions, std::span(more.directions).first(160)));
  for (const float phase : more.phases) {
    EXPECT_GE(phase, 0);
    EXPECT_LE(phase, 6.2831855f);
  }
}

}  // namespace
}  // namespace linnet
