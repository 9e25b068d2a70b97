#include "linnet/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "linnet/error.h"

namespace linnet {
namespace {

TEST(Tensor, IsZeroAlignedAndShaped) {
  Tensor tensor = Tensor::of<float>({2, 3, 5});
  EXPECT_EQ(tensor.size(), 30);
  EXPECT_EQ(tensor.bytes(), 120u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0u);
  for (const float x : tensor.span<float>()) EXPECT_EQ(x, 0.0f);
  tensor.view<float>()(1, 2, 4) = 7;
  EXPECT_EQ(tensor.span<float>()[29], 7.0f);
  EXPECT_EQ(tensor.clone().span<float>()[29], 7.0f);
}

TEST(Tensor, MayBeEmpty) {
  Tensor tensor = Tensor::of<float>({0, 3});
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_TRUE(tensor.view<float>().empty());
}

TEST(Tensor, RefusesStridesThatDoNotFitWhereverAnExtentIsZero) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(Tensor::of<float>({0, most, most}), OutOfMemoryError);
  EXPECT_THROW(Tensor::of<float>({most, most, 0}), OutOfMemoryError);
  EXPECT_EQ(Tensor::of<float>({0, most}).view<float>().stride(0), most);
}

TEST(Tensor, IsEmptyAfterAMove) {
  Tensor source = Tensor::of<double>({2, 3}), assigned = Tensor::of<float>({7});
  source.span<double>()[5] = 4;
  const auto expect_empty = [](Tensor& moved) {
    EXPECT_EQ(moved.size(), 0);
    EXPECT_TRUE(moved.shape().empty());
    EXPECT_TRUE(moved.span<float>().empty());
    EXPECT_TRUE(moved.view<float>().empty());
    EXPECT_EQ(moved.clone().bytes(), 0u);
  };
  Tensor built = std::move(source);
  expect_empty(source);
  assigned = std::move(built);
  expect_empty(built);
  EXPECT_EQ(assigned.view<double>()(1, 2), 4);
}

TEST(Tensor, RefusesImpossibleShapes) {
  EXPECT_THROW(Tensor::of<float>({-1, 2}), Error);
  EXPECT_THROW(Tensor::of<float>({std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
  EXPECT_THROW(Tensor::of<float>({std::int64_t{1} << 61, 2}), Error);
  EXPECT_THROW(Tensor::of<float>({1, 1, 1, 1, 1}), Error);
}

TEST(Tensor, RefusesTheWrongElementType) { EXPECT_THROW(Tensor::of<float>({2}).view<double>(), Error); }

TEST(View, SlicesAndKnowsDensity) {
  Tensor tensor = Tensor::of<float>({4, 6});
  for (int i = 0; i < 24; ++i) tensor.span<float>()[i] = static_cast<float>(i);
  const View<float> whole = tensor.view<float>();
  EXPECT_TRUE(whole.dense());
  const View<float> part = whole.slice(0, 1, 3).slice(1, 2, 5);
  EXPECT_EQ(part.extent(0), 2);
  EXPECT_EQ(part.extent(1), 3);
  EXPECT_FALSE(part.dense());
  EXPECT_EQ(part(1, 2), 16.0f);
  EXPECT_EQ(whole.reshape({2, 2, 6})(1, 1, 0), 18.0f);
}

TEST(View, RefusesWhatItCannotHold) {
  std::vector<float> data(64);
  const Shape five = {1, 2, 1, 2, 1}, dense = {4, 2, 2, 1, 1};
  EXPECT_THROW(View<float>(data.data(), {1, 2, 1, 2, 1}), Error);
  EXPECT_THROW(View<float>(data.data(), std::span<const std::int64_t>(five)), Error);
  EXPECT_THROW(View<float>(data.data(), five, dense), Error);
  EXPECT_THROW(View<float>(data.data(), {2, 3}, {6, 3, 1}), Error);
  EXPECT_THROW(View<float>(data.data(), {2, 3}, {1}), Error);
  EXPECT_THROW(View<float>(data.data(), {2, 3}, {6, 2}), Error);
  EXPECT_THROW(View<float>(data.data(), {2, 3}, {1, 2}), Error) << "columns of a transposed matrix";
  EXPECT_THROW(View<float>(data.data(), {3}, {-1}), Error);
}

TEST(View, TakesEveryRankUpToFour) {
  std::vector<float> data(64);
  EXPECT_EQ(View<float>(data.data(), Shape{}, Shape{}).rank(), 0);
  EXPECT_EQ(View<float>(data.data(), {2, 3}, {7, 1}).stride(0), 7);
  EXPECT_EQ(View<float>(data.data(), {2, 3, 4, 2}, {1, 2, 3, 1}).rank(), 4);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(to_float(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_float(to_bf16(1.00390625f)), 1.0f);       // a tie goes to the even neighbour
  EXPECT_EQ(to_float(to_bf16(1.01171875f)), 1.015625f);  // likewise, upwards
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::infinity()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace linnet
