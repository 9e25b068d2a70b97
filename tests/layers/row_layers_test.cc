// Layers that treat every row alike: dense, norm, feed-forward.
#include <gtest/gtest.h>

#include "layers/dense.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "support/contexts.h"
#include "support/layer_check.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 11;

TEST(Dense, MatchesReferenceWithGradients) {
  for (const auto& [rows, inputs, outputs] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {2, 3, 5}, {65, 7, 9}, {5, 33, 17}, {63, 16, 31}})
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(testing::Message()
                   << rows << " rows, " << inputs << " to " << outputs << ", bias " << bias);
      ParameterTable table;
      Dense dense(table, "dense", inputs, outputs, {.bias = bias, .weight_initial = {}, .bias_initial = {}});
      EXPECT_EQ(table.parameter_count(), inputs * outputs + (bias ? outputs : 0));
      const Tensor values = random_values(table, seed);
      dense.pack(any_context(), values.span<float>(), true);
      const std::int64_t n = rows, i = inputs, o = outputs;
      const LayerUnderTest layer = {
          rows, inputs,
          [&](auto& y, const auto& x) {
            dense.forward(any_context(), view(y, {n, o}), view(x, {n, i}));
          },
          [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
            dense.backward(any_context(), view(dx, {n, i}), view(dy, {n, o}), view(x, {n, i}), gradients);
          },
          [](const auto& x, const auto& p) { return reference::dense(x, p, "dense"); }};
      expect_matches_reference(table, values.span<float>(), layer, seed);
    }
}

TEST(Dense, AppliesActivationThenResidual) {
  const std::int64_t rows = 9, inputs = 13, outputs = 21;
  ParameterTable table;
  Dense dense(table, "dense", inputs, outputs);
  const Tensor values = random_values(table, seed);
  dense.pack(any_context(), values.span<float>(), false);
  const auto x = normals(rows * inputs, seed + 1), residual = normals(rows * outputs, seed + 2);
  const reference::Matrix product = reference::dense(reference::Matrix(rows, inputs, in_double(x)),
                                                     by_name(table, values.span<float>()), "dense");
  const std::pair<kernels::Activation, const char*> kinds[] = {{kernels::Activation::none, "none"},
                                                               {kernels::Activation::relu, "relu"},
                                                               {kernels::Activation::gelu, "gelu"},
                                                               {kernels::Activation::gelu_tanh, "gelu-tanh"},
                                                               {kernels::Activation::swiglu, "swiglu"}};
  for (const auto& [kind, name] : kinds) {
    SCOPED_TRACE(name);
    std::vector<double> expected = product.values;
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = reference::activation(name, expected[i]) + residual[i];
    std::vector<float> y(expected.size()), in_place = residual;
    dense.forward(any_context(), view(y, {rows, outputs}), view(x, {rows, inputs}), kind,
                  view(residual, {rows, outputs}));
    EXPECT_LT(relative_error(y, expected), 2e-6);
    dense.forward(any_context(), view(in_place, {rows, outputs}), view(x, {rows, inputs}), kind,
                  view(in_place, {rows, outputs}));
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TEST(Dense, LeavesOutAnEmptyInputGradient) {
  ParameterTable table;
  Dense dense(table, "dense", 3, 2);
  const Tensor values = random_values(table, seed);
  dense.pack(any_context(), values.span<float>(), true);
  const auto x = normals(12, seed), dy = normals(8, seed + 1);
  Tensor gradients = Tensor::of<float>({table.size()});
  dense.backward(any_context(), {}, view(dy, {4, 2}), view(x, {4, 3}), gradients.span<float>());
  double bias0 = 0;
  for (std::size_t row = 0; row < 4; ++row) bias0 += dy[2 * row];
  EXPECT_NEAR(by_name(table, gradients.span<float>()).at("dense.bias")[0], bias0, 1e-6);
}

TEST(Norm, MatchesReferenceWithGradients) {
  for (const auto& [rows, width] : {std::array<std::int64_t, 2>{1, 2}, {3, 5}, {65, 7}, {2, 63}, {64, 16}})
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << width << ", kind " << static_cast<int>(kind));
      ParameterTable table;
      Norm norm(table, "norm", width, kind);
      EXPECT_EQ(table.parameter_count(), kind == NormKind::rms ? width : 2 * width);
      const Tensor values = random_values(table, seed);
      norm.pack(values.span<float>());
      const std::int64_t n = rows, d = width;
      std::vector<float> stats(static_cast<std::size_t>(2 * rows));
      const LayerUnderTest layer = {
          rows, width,
          [&](auto& y, const auto& x) {
            norm.forward(any_context(), view(y, {n, d}), view(stats, {n, 2}), view(x, {n, d}));
          },
          [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
            norm.backward(any_context(), view(dx, {n, d}), view(dy, {n, d}), view(x, {n, d}),
                          view(stats, {n, 2}), gradients, false);
          },
          [](const auto& x, const auto& p) { return reference::norm(x, p, "norm"); }};
      expect_matches_reference(table, values.span<float>(), layer, seed);
    }
}

TEST(Norm, AddsTheInputGradientWhereAsked) {
  const std::int64_t rows = 5, width = 11;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    ParameterTable table;
    Norm norm(table, "norm", width, kind);
    const Tensor values = random_values(table, seed);
    norm.pack(values.span<float>());
    const auto x = normals(rows * width, 1), dy = normals(rows * width, 2), start = normals(rows * width, 3);
    std::vector<float> y(x.size()), stats(2 * rows), assigned(x.size()), added = start;
    norm.forward(any_context(), view(y, {rows, width}), view(stats, {rows, 2}), view(x, {rows, width}));
    Tensor gradients = Tensor::of<float>({table.size()});
    for (const bool add : {false, true})
      norm.backward(any_context(), view(add ? added : assigned, {rows, width}), view(dy, {rows, width}),
                    view(x, {rows, width}), view(stats, {rows, 2}), gradients.span<float>(), add);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(added[i], start[i] + assigned[i], 1e-6);
  }
}

TEST(Norm, SurvivesRowsFarFromZero) {
  const std::int64_t rows = 3, width = 64;
  ParameterTable table;
  Norm norm(table, "norm", width);
  const Tensor values = random_values(table, seed);
  norm.pack(values.span<float>());
  std::vector<float> x = normals(rows * width, seed), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += 1000;  // a one-pass variance would lose three digits
  norm.forward(any_context(), view(y, {rows, width}), {}, view(x, {rows, width}));
  const auto expected = reference::norm(reference::Matrix(rows, width, in_double(x)),
                                        by_name(table, values.span<float>()), "norm");
  EXPECT_LT(relative_error(y, expected.values), 1e-4);
}

/// A feed-forward layer that is ready to train on so many rows.
struct MadeFeedForward {
  MadeFeedForward(std::int64_t rows, const FeedForward::Parts& parts,
                  kernels::WeightType type = kernels::WeightType::f32)
      : table(kernels::WeightType::f32, type), layer(table, "ff", parts), values(random_values(table, seed)) {
    layer.pack(any_context(), values.span<float>(), true);
    saved.reserve(rows, layer.parts());
  }

  ParameterTable table;
  FeedForward layer;
  Tensor values;
  FeedForward::Saved saved;
};

TEST(FeedForward, MatchesReferenceWithGradients) {
  const std::pair<kernels::Activation, const char*> kinds[] = {{kernels::Activation::relu, "relu"},
                                                               {kernels::Activation::gelu, "gelu"},
                                                               {kernels::Activation::gelu_tanh, "gelu-tanh"},
                                                               {kernels::Activation::swiglu, "swiglu"}};
  for (const auto& [kind, name] : kinds)
    for (const auto& [rows, width, hidden] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {7, 5, 13}, {65, 8, 17}}) {
      SCOPED_TRACE(testing::Message()
                   << name << ", " << rows << " rows of " << width << ", hidden " << hidden);
      MadeFeedForward made(rows, {width, hidden, kind, 0.1});
      const std::int64_t n = rows, d = width;
      const LayerUnderTest layer = {
          rows, width,
          [&](auto& y, const auto& x) {
            made.layer.forward(any_context(), view(y, {n, d}), view(x, {n, d}), {}, made.saved);
          },
          [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
            made.layer.backward(any_context(), view(dx, {n, d}), view(dy, {n, d}), view(x, {n, d}),
                                made.saved, gradients);
          },
          [name = name](const auto& x, const auto& p) { return reference::feed_forward(x, p, "ff", name); }};
      expect_matches_reference(made.table, made.values.span<float>(), layer, seed);
    }
}

TEST(FeedForward, AddsAResidualToTheGradient) {
  const std::int64_t rows = 65, width = 8, hidden = 17;
  for (const kernels::Activation kind : {kernels::Activation::gelu, kernels::Activation::swiglu}) {
    MadeFeedForward made(rows, {width, hidden, kind, 0.1});
    const auto x = normals(rows * width, 1), dy = normals(rows * width, 2);
    std::vector<float> y(x.size()), alone(x.size()), both = dy, gradients(made.table.size()),
                                                     again = gradients;
    made.layer.forward(any_context(), view(y, {rows, width}), view(x, {rows, width}), {}, made.saved);
    made.layer.backward(any_context(), view(alone, {rows, width}), view(dy, {rows, width}),
                        view(x, {rows, width}), made.saved, gradients);
    made.layer.backward(any_context(), view(both, {rows, width}), view(std::as_const(both), {rows, width}),
                        view(x, {rows, width}), made.saved, again, view(std::as_const(both), {rows, width}));
    EXPECT_EQ(gradients, again);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(both[i], alone[i] + dy[i], 1e-5);
  }
}

TEST(FeedForward, KeepsRoundedRowsWhereItsProductsReadThem) {
  const std::int64_t rows = 131, width = 64, hidden = 640;
  const auto x = normals(rows * width, 1), dy = normals(rows * width, 2);
  std::vector<float> y[2], dx[2], gradients[2];
  for (const kernels::WeightType type : {kernels::WeightType::f32, kernels::WeightType::bf16}) {
    MadeFeedForward made(rows, {width, hidden, kernels::Activation::gelu, 0.1}, type);
    const bool rounds = kernels::reads_rounded(type, hidden, width);
    EXPECT_EQ(made.layer.parts().rounded, rounds);
    EXPECT_EQ(rounds, type == kernels::WeightType::bf16 && kernels::multiplies_fast(type));
    const double kept = static_cast<double>(made.saved.inner.bytes() + made.saved.after.bytes());
    EXPECT_EQ(kept, 4.0 * rows * FeedForward::Saved::floats_per_token(made.layer.parts()));
    const auto i = static_cast<std::size_t>(type == kernels::WeightType::bf16);
    y[i] = dx[i] = std::vector<float>(x.size());
    gradients[i] = std::vector<float>(made.table.size());
    made.layer.forward(any_context(), view(y[i], {rows, width}), view(x, {rows, width}), {}, made.saved);
    made.layer.backward(any_context(), view(dx[i], {rows, width}), view(dy, {rows, width}),
                        view(x, {rows, width}), made.saved, gradients[i]);
  }
  EXPECT_LT(relative_error(y[1], in_double(y[0])), 0.005);
  EXPECT_LT(relative_error(dx[1], in_double(dx[0])), 0.008);
  EXPECT_LT(relative_error(gradients[1], in_double(gradients[0])), 0.008);
}

TEST(FeedForward, ApplyIsForwardWithResidual) {
  const std::int64_t rows = 6, width = 9;
  const std::pair<kernels::Activation, const char*> kinds[] = {{kernels::Activation::gelu, "gelu"},
                                                               {kernels::Activation::swiglu, "swiglu"}};
  for (const auto& [kind, name] : kinds) {
    ParameterTable table;
    const FeedForward::Parts parts{width, 14, kind, 0.1};
    FeedForward feed_forward(table, "ff", parts);
    const Tensor values = random_values(table, seed);
    feed_forward.pack(any_context(), values.span<float>(), false);
    const auto x = normals(rows * width, 1), residual = normals(rows * width, 2);
    auto expected = reference::feed_forward(reference::Matrix(rows, width, in_double(x)),
                                            by_name(table, values.span<float>()), "ff", name);
    for (std::size_t i = 0; i < residual.size(); ++i) expected.values[i] += residual[i];
    FeedForward::Saved saved;
    saved.reserve(rows, parts);
    std::vector<float> forward(x.size()), applied = residual;
    feed_forward.forward(any_context(), view(forward, {rows, width}), view(x, {rows, width}),
                         view(residual, {rows, width}), saved);
    feed_forward.apply(any_context(), view(applied, {rows, width}), view(x, {rows, width}),
                       view(applied, {rows, width}));
    EXPECT_LT(relative_error(forward, expected.values), 2e-6);
    EXPECT_LT(relative_error(applied, expected.values), 2e-6);
  }
}

}  // namespace
}  // namespace linnet
