#include "linnet/feature_map.h"

#include <stdexcept>

#include "attention/attention_tools.h"
#include "linnet/error.h"

namespace linnet {
namespace {

using test::for_each_target;
using test::random_tensor;
using test::relative_error;

double exact(const std::string& name, double alpha, double x) {
  if (name == "elu") return x > 0 ? x + 1 : alpha * (std::exp(x) - 1) + 1;
  if (name == "relu") return std::max(x, 0.0);
  if (name == "squared-relu") return std::max(x, 0.0) * std::max(x, 0.0);
  if (name == "exp") return std::exp(std::min(x, 32.0));
  if (name == "identity") return x;
  throw std::invalid_argument("no formula of the feature map " + name);
}

// Tiles with rows apart, of awkward widths.
void expect_exact_values_and_slopes(const std::string& name, float alpha) {
  const auto map = find_feature_map(name, {.alpha = alpha});
  for (const std::int64_t width : {1, 3, 16, 17, 64, 65}) {
    SCOPED_TRACE(name + " of width " + std::to_string(width));
    const std::int64_t rows = 5, stride = width + 3;
    ASSERT_EQ(map->features(width), width);
    const Tensor x = random_tensor({rows, stride}, 7, 4.0f), dy = random_tensor({rows, stride}, 8);
    Tensor y = Tensor::of<float>({rows, stride}), dx = Tensor::of<float>({rows, stride});
    const View<const float> x_tile(x.span<float>().data(), {rows, width}, {stride, 1});
    const View<const float> dy_tile(dy.span<float>().data(), {rows, width}, {stride, 1});
    const View<float> y_tile(y.span<float>().data(), {rows, width}, {stride, 1});
    const View<float> dx_tile(dx.span<float>().data(), {rows, width}, {stride, 1});
    for (float& number : y.span<float>()) number = 77;
    map->forward(y_tile, x_tile, {});
    map->backward(dx_tile, dy_tile, x_tile, y_tile, {});
    std::vector<double> value, expected, slope, difference;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < width; ++c) {
        const double at = x_tile(r, c), step = 1e-6;
        value.push_back(y_tile(r, c));
        expected.push_back(exact(name, alpha, at));
        EXPECT_NEAR(y_tile(r, c), expected.back(), 4e-7 * (1 + std::abs(expected.back())));
        slope.push_back(dx_tile(r, c));
        difference.push_back(dy_tile(r, c) * (exact(name, alpha, at + step) - exact(name, alpha, at - step)) /
                             (2 * step));
      }
      for (std::int64_t c = width; c < stride && r + 1 < rows; ++c)
        EXPECT_EQ(y_tile.at(r)[c], 77) << "written beyond the row";
    }
    EXPECT_LT(relative_error(value, expected), 3e-7);
    EXPECT_LT(relative_error(slope, difference), 1e-6);
    // In place.
    Tensor same = dy.clone();
    const View<float> same_tile(same.span<float>().data(), {rows, width}, {stride, 1});
    map->backward(same_tile, same_tile, x_tile, y_tile, {});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < width; ++c) EXPECT_EQ(same_tile(r, c), dx_tile(r, c));
  }
}

TEST(FeatureMap, MatchesDoubleAndDifferences) {
  for_each_target([] {
    for (const FeatureMapInfo& info : feature_map_table()) expect_exact_values_and_slopes(info.name, 1.0f);
    expect_exact_values_and_slopes("elu", 0.1f);
  });
}

TEST(FeatureMap, EluKeepsSmallValues) {
  for_each_target([] {
    const float x[3] = {-20, -50, -80};
    float y[3];
    elu_map()->forward({y, {1, 3}}, {x, {1, 3}}, {});
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(y[i] / std::exp(double(x[i])), 1, 1e-6);
  });
}

TEST(FeatureMap, ExpNeverOverflows) {
  for_each_target([] {
    const float x[2] = {1e30f, 32};
    float y[2], dx[2], dy[2] = {1, 1};
    exp_map()->forward({y, {1, 2}}, {x, {1, 2}}, {});
    exp_map()->backward({dx, {1, 2}}, {dy, {1, 2}}, {x, {1, 2}}, {y, {1, 2}}, {});
    EXPECT_EQ(y[0], y[1]);
    EXPECT_TRUE(std::isfinite(y[0]));
    EXPECT_EQ(dx[0], 0);
    EXPECT_EQ(dx[1], y[1]);
  });
}

TEST(FeatureMap, NanStaysNan) {
  for_each_target([] {
    for (const FeatureMapInfo& info : feature_map_table()) {
      const float x[2] = {NAN, 1};
      float y[2];
      find_feature_map(info.name)->forward({y, {1, 2}}, {x, {1, 2}}, {});
      EXPECT_TRUE(std::isnan(y[0])) << info.name;
      EXPECT_FALSE(std::isnan(y[1])) << info.name;
    }
  });
}

TEST(FeatureMap, TableMatchesTheMaps) {
  for (const FeatureMapInfo& info : feature_map_table()) {
    const auto map = find_feature_map(info.name);
    EXPECT_EQ(map->name(), info.name);
    EXPECT_EQ(map->traits().non_negative, info.non_negative);
  }
  EXPECT_FALSE(elu_map(1.5f)->traits().non_negative);
}

TEST(FeatureMap, UnknownNamesAreRefused) {
  try {
    find_feature_map("squared-rleu");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean squared-relu?"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(find_feature_map("elu", {.alpha = 0.0f}), UsageError);
  EXPECT_THROW(find_feature_map("elu", {.alpha = NAN}), UsageError);
}

TEST(TileMathematics, MatchesDouble) {
  for_each_target([] {
    for (const std::int64_t count : {0, 1, 15, 16, 17, 1000}) {
      const Tensor x = random_tensor({count}, 3, 87.0f);
      Tensor y = Tensor::of<float>({count});
      tile_exp(y.span<float>().data(), x.span<float>().data(), count);
      for (std::int64_t i = 0; i < count; ++i)
        EXPECT_NEAR(y.span<float>()[i] / std::exp(double(x.span<float>()[i])), 1, 4e-7) << x.span<float>()[i];
      const Tensor small = random_tensor({count}, 4, 5.0f);
      tile_tanh(y.span<float>().data(), small.span<float>().data(), count);
      for (std::int64_t i = 0; i < count; ++i)
        EXPECT_NEAR(y.span<float>()[i], std::tanh(double(small.span<float>()[i])), 4e-7);
    }
    float ends[4] = {-87, 87, -1000, 1000};
    tile_exp(ends, ends, 4);
    EXPECT_NEAR(ends[0] / std::exp(-87.0), 1, 4e-7);
    EXPECT_NEAR(ends[1] / std::exp(87.0), 1, 4e-7);
    EXPECT_EQ(ends[2], ends[0]);
    EXPECT_EQ(ends[3], ends[1]);
  });
}

}  // namespace
}  // namespace linnet
