#include "attention/attention_tools.h"
#include "attention/feature_maps/reference_features.h"
#include "linnet/error.h"
#include "linnet/feature_map.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::for_each_target;
using test::random_tensor;

/// Features of one map and the gradient of a given dy, of rows that lie apart.
struct Tile {
  Tile(const FeatureMap& map, std::int64_t rows, std::int64_t dim, float scale, std::uint64_t seed)
      : rows(rows),
        dim(dim),
        features(map.features(dim)),
        x(random_tensor({rows, dim + 3}, seed, scale)),
        dy(random_tensor({rows, features + 1}, seed + 1)),
        y(Tensor::of<float>({rows, features + 1})),
        dx(Tensor::of<float>({rows, dim + 3})),
        log_scale(static_cast<std::size_t>(rows)) {
    for (float& number : y.span<float>()) number = 77;
    const View<const float> from(x.span<float>().data(), {rows, dim}, {dim + 3, 1});
    const View<const float> gradient(dy.span<float>().data(), {rows, features}, {features + 1, 1});
    const View<float> to(y.span<float>().data(), {rows, features}, {features + 1, 1});
    if (const auto* scaled = dynamic_cast<const LogScaledMap*>(&map))
      scaled->forward_scaled(to, log_scale, from, {});
    else
      map.forward(to, from, {});
    map.backward({dx.span<float>().data(), {rows, dim}, {dim + 3, 1}}, gradient, from, to, {});
  }

  std::int64_t rows, dim, features;
  Tensor x, dy, y, dx;
  std::vector<double> log_scale;
};

std::vector<double> columns(const Tensor& tensor, std::int64_t width) {
  std::vector<double> result;
  const auto view = tensor.view<float>();
  for (std::int64_t r = 0; r < view.extent(0); ++r)
    result.insert(result.end(), view.at(r), view.at(r) + width);
  return result;
}

void expect_exact(const std::string& name, std::int64_t rows, std::int64_t dim, std::int64_t features,
                  float scale, Directions directions = Directions::orthogonal) {
  SCOPED_TRACE(name + ", " + name_of(directions) + ", rows " + std::to_string(rows) + ", E " +
               std::to_string(dim) + ", F " + std::to_string(features));
  const auto map = random_feature_map(name, dim, {.features = features, .directions = directions, .seed = 5});
  const Tile tile(*map, rows, dim, scale, 11);
  ASSERT_EQ(tile.features, features);
  const std::vector<double> x = columns(tile.x, dim), dy = columns(tile.dy, features);
  std::vector<double> y(static_cast<std::size_t>(rows * features)), log_scale(static_cast<std::size_t>(rows)),
      dx(x.size());
  reference_features(*map, y.data(), log_scale.data(), x.data(), rows, dim, {});
  reference_features_backward(*map, dx.data(), dy.data(), x.data(), rows, dim, {});
  EXPECT_LT(test::relative_error(columns(tile.y, features), y), 3e-6);
  for (std::int64_t r = 0; r < rows; ++r) EXPECT_NEAR(tile.log_scale[r], log_scale[r], 1e-5);
  // The parts of directions and of the norm may cancel.
  const double least = 0.01 * std::sqrt(static_cast<double>(rows * dim));
  EXPECT_LT(test::relative_error(columns(tile.dx, dim), dx, least), 1e-5);
  for (std::int64_t r = 0; r < rows; ++r)
    EXPECT_EQ(tile.y.view<float>()(r, features), 77) << "written beyond the row";
}

TEST(RandomFeatures, TilesMatchDouble) {
  for_each_target([] {
    for (const FeatureMapInfo& info : random_feature_map_table()) {
      for (const std::int64_t rows : {1, 31, 33})
        for (const auto& [dim, features] : {std::pair{1, 2}, {3, 6}, {16, 34}, {64, 64}, {65, 66}})
          expect_exact(info.name, rows, dim, features, 2.0f);
      const bool two = info.features.find("even") != std::string::npos;
      if (!two) expect_exact(info.name, 7, 5, 17, 2.0f);
      expect_exact(info.name, 5, 64, 272, 1.0f);
    }
  });
}

// The reference multiplies by the directions, a row each; tiles transform.
TEST(RandomFeatures, TilesOfHadamardDirectionsMatchDouble) {
  for_each_target([] {
    for (const FeatureMapInfo& info : random_feature_map_table())
      for (const auto& [dim, features] :
           {std::pair{8, 2}, {8, 20}, {16, 34}, {32, 32}, {64, 64}, {64, 272}, {128, 66}})
        for (const std::int64_t rows : {1, 33})
          expect_exact(info.name, rows, dim, features, 1.0f, Directions::hadamard);
    for (const std::int64_t dim : {256, 512})
      expect_exact("favor", 3, dim, 2 * dim - 4, 1.0f, Directions::hadamard);
  });
}

// L = Σ dφ φ with dφ = e^−s dy, s of the unmoved rows: its gradient is what `exact_gradient` gives for dy.
TEST(RandomFeatures, ExactGradientMatchesDifferences) {
  for (const FeatureMapInfo& info : random_feature_map_table()) {
    for (const auto& [dim, features] : {std::pair{1, 2}, {3, 8}, {16, 20}}) {
      SCOPED_TRACE(info.name + ", E " + std::to_string(dim));
      const std::int64_t rows = 3;
      const auto map = random_feature_map(info.name, dim, {.features = features, .seed = 3});
      const auto numbers = [](std::int64_t count, std::uint64_t seed) {
        const Tensor tensor = random_tensor({count}, seed, 1.5f);
        return std::vector<double>(tensor.span<float>().begin(), tensor.span<float>().end());
      };
      std::vector<double> x = numbers(rows * dim, 21), dy = numbers(rows * features, 22), y(dy.size()),
                          dx(x.size()), scale(static_cast<std::size_t>(rows)), ignored = scale;
      reference_features(*map, y.data(), scale.data(), x.data(), rows, dim, {});
      reference_features_backward(*map, dx.data(), dy.data(), x.data(), rows, dim, {});
      const auto loss = [&, dim = dim, features = features] {
        double sum = 0;
        reference_features(*map, y.data(), nullptr, x.data(), rows, dim, {});
        for (std::size_t i = 0; i < y.size(); ++i)
          sum += dy[i] * y[i] * std::exp(-scale[i / static_cast<std::size_t>(features)]);
        return sum;
      };
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double at = x[i], step = 1e-5;
        x[i] = at + step;
        const double above = loss();
        x[i] = at - step;
        const double below = loss();
        x[i] = at;
        EXPECT_NEAR(dx[i], (above - below) / (2 * step), 1e-7 * (1 + std::abs(dx[i]))) << i;
      }
    }
  }
}

TEST(RandomFeatures, RowsDoNotDependOnTheirNeighbours) {
  for_each_target([] {
    for (const FeatureMapInfo& info : random_feature_map_table()) {
      const auto map = random_feature_map(info.name, 24, {.features = 80});
      const Tensor x = random_tensor({37, 24}, 4, 2.0f);
      Tensor all = Tensor::of<float>({37, 80}), one = Tensor::of<float>({1, 80});
      map->forward(all.view<float>(), x.view<float>(), {});
      for (std::int64_t r = 0; r < 37; ++r) {
        map->forward(one.view<float>(), x.view<float>().slice(0, r, r + 1), {});
        EXPECT_TRUE(std::ranges::equal(one.span<float>(), all.span<float>().subspan(r * 80, 80)))
            << info.name << " row " << r;
      }
    }
  });
}

TEST(RandomFeatures, InputsOfNorm100StayFinite) {
  for_each_target([] {
    for (const FeatureMapInfo& info : random_feature_map_table()) {
      SCOPED_TRACE(info.name);
      const std::int64_t rows = 4, dim = 64;
      const auto map = random_feature_map(info.name, dim);
      Tensor x = random_tensor({rows, dim}, 9);
      for (std::int64_t r = 0; r < rows; ++r) {
        double squares = 0;
        for (std::int64_t i = 0; i < dim; ++i) squares += std::pow(double(x.view<float>()(r, i)), 2);
        for (std::int64_t i = 0; i < dim; ++i) x.view<float>()(r, i) *= float(100 / std::sqrt(squares));
      }
      const std::int64_t features = map->features(dim);
      Tensor y = Tensor::of<float>({rows, features}), dx = Tensor::of<float>({rows, dim});
      const Tensor dy = random_tensor({rows, features}, 10), from = x.clone();
      std::vector<double> log_scale(rows);
      const auto* scaled = dynamic_cast<const LogScaledMap*>(map.get());
      if (scaled != nullptr)
        scaled->forward_scaled(y.view<float>(), log_scale, from.view<float>(), {});
      else
        map->forward(y.view<float>(), from.view<float>(), {});
      const Tensor given = y.clone();
      map->backward(dx.view<float>(), dy.view<float>(), from.view<float>(), given.view<float>(), {});
      const double raised = info.name == "favor" || info.name == "favor-hyperbolic" ? std::exp(28.0) : 1;
      const double limit = raised * std::sqrt(2.0 / double(features)) * 1.002;
      for (const float number : y.span<float>()) {
        EXPECT_TRUE(std::isfinite(number));
        if (scaled != nullptr) {
          EXPECT_LE(std::abs(number), limit);
        }
      }
      for (const float number : dx.span<float>()) EXPECT_TRUE(std::isfinite(number));
      for (const double number : log_scale) EXPECT_TRUE(std::isfinite(number));
    }
  });
}

TEST(RandomFeatures, NanStaysInItsRow) {
  for_each_target([] {
    for (const FeatureMapInfo& info : random_feature_map_table()) {
      const auto map = random_feature_map(info.name, 4, {.features = 20});
      Tensor x = random_tensor({3, 4}, 2), y = Tensor::of<float>({3, 20});
      x.view<float>()(1, 2) = NAN;
      map->forward(y.view<float>(), std::as_const(x).view<float>(), {});
      for (std::int64_t f = 0; f < 20; ++f) {
        EXPECT_FALSE(std::isnan(y.view<float>()(0, f))) << info.name;
        EXPECT_TRUE(std::isnan(y.view<float>()(1, f))) << info.name;
        EXPECT_FALSE(std::isnan(y.view<float>()(2, f))) << info.name;
      }
    }
  });
}

TEST(RandomFeatures, GradientMayTakeThePlaceOfItsSource) {
  for (const FeatureMapInfo& info : random_feature_map_table()) {
    const auto map = random_feature_map(info.name, 16, {.features = 16});
    const Tensor x = random_tensor({70, 16}, 2), dy = random_tensor({70, 16}, 3);
    Tensor y = Tensor::of<float>({70, 16}), dx = Tensor::of<float>({70, 16}), same = dy.clone();
    std::vector<double> log_scale(70);
    if (const auto* scaled = dynamic_cast<const LogScaledMap*>(map.get()))
      scaled->forward_scaled(y.view<float>(), log_scale, x.view<float>(), {});
    else
      map->forward(y.view<float>(), x.view<float>(), {});
    const View<const float> given = std::as_const(y).view<float>();
    map->backward(dx.view<float>(), dy.view<float>(), x.view<float>(), given, {});
    map->backward(same.view<float>(), std::as_const(same).view<float>(), x.view<float>(), given, {});
    EXPECT_TRUE(test::equal(dx, same)) << info.name;
  }
}

TEST(RandomFeatures, TableMatchesTheMaps) {
  for (const FeatureMapInfo& info : random_feature_map_table()) {
    const auto map = random_feature_map(info.name, 16);
    EXPECT_EQ(map->name(), info.name);
    EXPECT_EQ(map->traits().non_negative, info.non_negative);
    EXPECT_EQ(map->features(16), 48);  // 16 ln 16 = 44.4
    EXPECT_TRUE(is_random_feature_map(info.name));
    EXPECT_EQ(find_feature_map(info.name, {.head_dim = 16})->name(), info.name);
  }
  EXPECT_FALSE(is_random_feature_map("elu"));
  EXPECT_EQ(random_feature_map("favor", 64)->features(64), 272);  // 64 ln 64 = 266.2
  EXPECT_EQ(random_feature_map("favor-sincos", 1)->features(1), 16);
}

TEST(RandomFeatures, BadInputIsRefused) {
  const auto message = [](const std::string& name, std::int64_t dim, const RandomFeatureOptions& options) {
    return error_of<UsageError>([&] { random_feature_map(name, dim, options); });
  };
  EXPECT_EQ(message("favor", 0, {}), "[favor] expected a head size of at least 1, got 0");
  EXPECT_EQ(message("favor", 8, {.features = -3}),
            "[favor] expected at least 1 feature, or 0 for the default, got -3");
  EXPECT_EQ(message("favor-sincos", 8, {.features = 33}),
            "[favor-sincos] expected an even number of features, two a direction, got 33");
  EXPECT_NE(message("favor", 8, {.draw = std::uint64_t{1} << 30}).find("expected a draw below"),
            std::string::npos);
  EXPECT_NE(message("favor", 8, {.layer = -1}).find("expected a layer from 0"), std::string::npos);
  EXPECT_NE(message("favor", 8, {.features = std::int64_t{1} << 40}).find("numbers of directions"),
            std::string::npos);
  EXPECT_NE(message("favour", 8, {}).find("did you mean favor?"), std::string::npos);
  EXPECT_EQ(error_of<UsageError>([] { find_feature_map("favor"); }),
            "[feature map] expected a head size, for which favor draws its directions, got none");
  EXPECT_NE(error_of<UsageError>([] { find_feature_map("random-rleu"); }).find("did you mean random-relu?"),
            std::string::npos);
  EXPECT_EQ(error_of<UsageError>([] { random_feature_map("favor", 8)->features(16); }),
            "[favor] expected the head size 8 of its directions, got 16");
  EXPECT_EQ(error_of([] {
              random_feature_map("favor", {.head_dim = 4, .directions = {1, 2, 3}});
            }),
            "[favor] expected directions of 4 numbers each and at least one, got 3 numbers");
  EXPECT_EQ(error_of([] {
              random_feature_map("favor-trig", {.head_dim = 1, .directions = {1, 2}});
            }),
            "[favor-trig] expected 2 phases for 2 directions, got 0");
  EXPECT_EQ(error_of([] { random_feature_map("favor", {.head_dim = 1, .directions = {NAN}}); }),
            "[favor] expected draws that are numbers, got one that is not");
  EXPECT_NE(message("favor", 4, {.directions = Directions::hadamard}).find("from 8 on"), std::string::npos);
  EXPECT_EQ(message("favor", 24, {.directions = Directions::hadamard}),
            "[favor] expected a head size that is a power of two from 8 on with Hadamard directions, got 24");
  EXPECT_EQ(error_of<UsageError>([] { (void)name_of(static_cast<Directions>(9)); }),
            "[random features] expected directions of auto, orthogonal, independent, hadamard, got number 9");
  EXPECT_EQ(error_of<UsageError>(
                [] { random_feature_map("favor", 8, {.directions = static_cast<Directions>(9)}); }),
            "[random features] expected directions of auto, orthogonal, independent, hadamard, got number 9");
  EXPECT_EQ(
      error_of<UsageError>([] { find_directions("hadamar"); }),
      "[random features] expected directions of auto, orthogonal, independent, hadamard, got 'hadamar'");
}

TEST(RandomFeatures, DirectionsFollowTheSizeOfAHeadByDefault) {
  for (const std::int64_t dim : {1, 8, 16, 24, 32, 64, 128, 250, 256, 512}) {
    const bool hadamard = dim == 16 || dim == 32 || dim == 64 || dim == 128 || dim == 256;
    const RandomDraws drawn = draw_random_features("favor", dim, {.features = 20, .seed = 2});
    const RandomDraws same = draw_random_features(
        "favor", dim,
        {.features = 20, .directions = hadamard ? Directions::hadamard : Directions::orthogonal, .seed = 2});
    EXPECT_EQ(drawn.signs.empty(), !hadamard) << dim;
    EXPECT_EQ(drawn.directions, same.directions) << dim;
    EXPECT_EQ(drawn.lengths, same.lengths) << dim;
  }
}

TEST(RandomFeatures, HadamardDrawsThatDoNotFitAreRefused) {
  const RandomFeatureOptions options = {.features = 10, .directions = Directions::hadamard};
  const RandomDraws drawn = draw_random_features("favor", 8, options);
  const auto error = [&](const auto& change) {
    RandomDraws other = drawn;
    change(other);
    return error_of([&] { random_feature_map("favor", std::move(other)); });
  };
  EXPECT_EQ(error([](RandomDraws& draws) { draws.signs.pop_back(); }),
            "[favor] expected 48 signs for 10 Hadamard directions and at least one, got 47");
  EXPECT_EQ(error([](RandomDraws& draws) { draws.lengths.clear(); }),
            "[favor] expected 0 signs for 0 Hadamard directions and at least one, got 48");
  EXPECT_EQ(error([](RandomDraws& draws) { draws.signs[3] = 0.5f; }),
            "[favor] expected signs of +1 and -1, got another number");
  EXPECT_EQ(error([](RandomDraws& draws) { draws.lengths[3] = INFINITY; }),
            "[favor] expected draws that are numbers, got one that is not");
  EXPECT_EQ(error([](RandomDraws& draws) { draws.signs[3] = -draws.signs[3]; }),
            "[favor] expected directions that follow from their signs and lengths, got others");
  EXPECT_EQ(error([](RandomDraws& draws) { draws.head_dim = 3; }),
            "[favor] expected Hadamard directions of 8, 16, 32 … numbers, got 3");
}

TEST(RandomFeatures, HadamardProjectionsOverflowNoSoonerThanOthers) {
  for (const std::int64_t dim : {16, 64, 256}) {
    const auto map =
        random_feature_map("favor", dim, {.features = 2 * dim, .directions = Directions::hadamard});
    Tensor x = random_tensor({3, dim}, 8), y = Tensor::of<float>({3, 2 * dim});
    for (float& number : x.span<float>()) number *= 1e36f;
    std::vector<double> log_scale(3);
    dynamic_cast<const LogScaledMap&>(*map).forward_scaled(y.view<float>(), log_scale, x.view<float>(), {});
    for (const float number : y.span<float>()) EXPECT_TRUE(std::isfinite(number));
  }
}

TEST(RandomFeatures, DirectionsFollowFromSignsAndLengths) {
  RandomDraws drawn =
      draw_random_features("favor-trig", 16, {.features = 40, .directions = Directions::hadamard});
  EXPECT_EQ(std::ssize(drawn.directions), 16 * 40);
  EXPECT_EQ(std::ssize(drawn.signs), 3 * 3 * 16);
  const auto whole = random_feature_map("favor-trig", drawn);
  drawn.directions.clear();
  const auto made = random_feature_map("favor-trig", drawn);
  const Tensor x = random_tensor({5, 16}, 6);
  Tensor a = Tensor::of<float>({5, 40}), b = Tensor::of<float>({5, 40});
  whole->forward(a.view<float>(), x.view<float>(), {});
  made->forward(b.view<float>(), x.view<float>(), {});
  EXPECT_TRUE(test::equal(a, b));
}

}  // namespace
}  // namespace linnet
