// Dense rows and element kernels at the sizes of the paper's MNIST model, on one thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <utility>

#include "kernels/activation.h"
#include "kernels/dense.h"
#include "kernels/normalisation.h"

namespace linnet::kernels {
namespace {

constexpr std::int64_t width = 256, hidden = 1024;

Tensor ramp(Shape shape) {
  Tensor tensor = Tensor::of<float>(std::move(shape));
  const auto numbers = tensor.span<float>();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 31) * 0.0625f - 1;
  return tensor;
}

void dense_rows(benchmark::State& state, Activation activation) {
  Context context(1);
  const std::int64_t rows = state.range(0);
  const Tensor a = ramp({rows, width}), b = ramp({width, hidden}), bias = ramp({hidden});
  Tensor c = Tensor::of<float>({rows, hidden});
  PackedMatrix packed(width, hidden);
  packed.pack(context, b.view<float>());
  const Epilogue epilogue{bias.view<float>(), activation, {}};
  for (auto _ : state) multiply(context, c.view<float>(), a.view<float>(), packed, epilogue);
  state.counters["FLOPs"] = benchmark::Counter(2.0 * static_cast<double>(rows * width * hidden),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(dense_rows, bias, Activation::none)->Arg(1)->Arg(16)->Arg(64)->Arg(256);
BENCHMARK_CAPTURE(dense_rows, bias_gelu, Activation::gelu)->Arg(1)->Arg(16)->Arg(64)->Arg(256);

void weight_gradient(benchmark::State& state, WeightType type) {
  Context context(1);
  const std::int64_t rows = state.range(0);
  const Tensor x = ramp({rows, width}), dy = ramp({rows, hidden});
  Tensor dw = Tensor::of<float>({hidden, width}), db = Tensor::of<float>({hidden});
  for (auto _ : state)
    accumulate_weight_gradient(context, dw.view<float>(), db.view<float>(), dy.view<float>(), x.view<float>(),
                               type);
  state.counters["FLOPs"] = benchmark::Counter(2.0 * static_cast<double>(rows * width * hidden),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(weight_gradient, f32, WeightType::f32)->Arg(784);
BENCHMARK_CAPTURE(weight_gradient, bf16, WeightType::bf16)->Arg(784);

void layer_norm(benchmark::State& state) {
  Context context(1);
  const std::int64_t rows = state.range(0);
  const Tensor x = ramp({rows, width}), gain = ramp({width}), bias = ramp({width});
  Tensor y = Tensor::of<float>(x.shape()), stats = Tensor::of<float>({rows, 2});
  for (auto _ : state)
    layer_norm_forward(context, y.view<float>(), stats.view<float>(), x.view<float>(), gain.view<float>(),
                       bias.view<float>(), 1e-5f);
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<std::int64_t>(x.bytes()));
}
BENCHMARK(layer_norm)->Arg(64);

void activation(benchmark::State& state, Activation which) {
  Context context(1);
  const Tensor x = ramp({64, hidden});
  Tensor y = Tensor::of<float>(x.shape());
  for (auto _ : state) activation_forward(context, y.view<float>(), x.view<float>(), which);
  state.SetItemsProcessed(state.iterations() * x.size());
}
BENCHMARK_CAPTURE(activation, gelu, Activation::gelu);
BENCHMARK_CAPTURE(activation, gelu_tanh, Activation::gelu_tanh);
BENCHMARK_CAPTURE(activation, relu, Activation::relu);

}  // namespace
}  // namespace linnet::kernels
