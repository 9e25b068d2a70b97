#pragma once

#include <functional>
#include <vector>

#include "reference/layers.h"
#include "support/parameters.h"

namespace linnet {

/// A layer as a test sees it: y from x, both given rows; backward assigns dx and adds to `gradients`.
struct LayerUnderTest {
  std::int64_t rows = 0, inputs = 0;
  std::function<void(std::vector<float>& y, const std::vector<float>& x)> forward;
  std::function<void(std::vector<float>& dx, const std::vector<float>& dy, const std::vector<float>& x,
                     std::span<float> gradients)>
      backward;
  std::function<reference::Matrix(const reference::Matrix& x, const reference::Parameters& parameters)>
      reference;
};

/// Outputs against the double version, gradients of inputs and parameters against its differences. The
/// backward runs twice, so that gradients of parameters are seen to be added, and that of the input to be
/// assigned.
inline void expect_matches_reference(const ParameterTable& table, std::span<const float> values,
                                     const LayerUnderTest& layer, std::uint64_t seed) {
  const std::vector<float> x = normals(layer.rows * layer.inputs, seed);
  reference::Parameters at = by_name(table, values);
  at["x"] = in_double(x);
  const auto outputs = [&](const reference::Parameters& p) {
    return layer.reference(reference::Matrix(layer.rows, layer.inputs, p.at("x")), p);
  };
  const reference::Matrix expected = outputs(at);
  std::vector<float> y(expected.values.size(), std::nanf(""));
  layer.forward(y, x);
  EXPECT_LT(relative_error(y, expected.values), 2e-6);

  const std::vector<float> dy = normals(static_cast<std::int64_t>(y.size()), seed + 1);
  Tensor gradients = Tensor::of<float>({table.size()});
  std::vector<float> dx(x.size(), std::nanf(""));
  for (int time = 0; time < 2; ++time) layer.backward(dx, dy, x, gradients.span<float>());
  reference::Parameters actual = by_name(table, gradients.span<float>(), 0.5);
  actual["x"] = in_double(dx);
  const Loss loss = [&](const reference::Parameters& p) {
    const reference::Matrix rows = outputs(p);
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * rows.values[i];
    return sum;
  };
  expect_gradients(actual, differences(loss, at));
  expect_padding_is_zero(table, gradients.span<float>());
}

}  // namespace linnet
