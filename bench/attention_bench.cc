// The tiles of attention, through its public interface: one head of 1,024 tokens, a few chunks, on one
// thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "linnet/attention.h"

namespace linnet {
namespace {

using benchmark::Counter;

constexpr std::int64_t length = 1024;

Tensor random_tensor(Shape shape, std::uint32_t stream) {
  Tensor tensor = Tensor::of<float>(std::move(shape));
  const Random random(1, Draw::test, stream);
  const auto numbers = tensor.span<float>();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 2 * random.uniform(i) - 1;
  return tensor;
}

/// FLOPs of one iteration as a rate, "1.2T/s".
void count_flops(benchmark::State& state, double flops) {
  state.counters["FLOPs"] = Counter(flops, Counter::kIsIterationInvariantRate);
}

/// One head of `dim`, with everything that forward and backward want.
struct Head {
  Head(Family family, std::int64_t dim, bool causal)
      : mask(causal ? Mask::causal() : Mask::full()),
        q(random_tensor({1, length, 1, dim}, 0)),
        k(random_tensor({1, length, 1, dim}, 1)),
        v(random_tensor({1, length, 1, dim}, 2)),
        grad(random_tensor({1, length, 1, dim}, 3)),
        out(Tensor::of<float>(q.shape())),
        normaliser(Tensor::of<float>({1, length, 1})),
        dq(Tensor::of<float>(q.shape())),
        dk(Tensor::of<float>(q.shape())),
        dv(Tensor::of<float>(q.shape())) {
    AttentionOptions options;
    options.family = family;
    attention = make_attention(options);
  }

  AttentionInputs inputs() const { return {q.float_view(), k.float_view(), v.float_view(), mask}; }
  void forward() { attention->forward(context, {out.float_view(), normaliser.view<float>()}, inputs()); }
  void backward() {
    attention->backward(context, {dq.float_view(), dk.float_view(), dv.float_view()},
                        std::as_const(grad).float_view(), inputs(), std::as_const(out).float_view(),
                        std::as_const(normaliser).view<float>());
  }

  Context context{1};
  Mask mask;
  Tensor q, k, v, grad, out, normaliser, dq, dk, dv;
  std::unique_ptr<Attention> attention;
};

void linear_forward(benchmark::State& state, bool causal) {
  const std::int64_t dim = state.range(0);
  Head head(Family::linear, dim, causal);
  for (auto _ : state) head.forward();
  count_flops(state, 4.0 * static_cast<double>(length * dim * dim));
}
BENCHMARK_CAPTURE(linear_forward, causal, true)->Arg(32)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(linear_forward, full, false)->Arg(32)->Arg(64)->Arg(128);

void linear_backward(benchmark::State& state, bool causal) {
  const std::int64_t dim = state.range(0);
  Head head(Family::linear, dim, causal);
  head.forward();
  for (auto _ : state) head.backward();
  count_flops(state, 10.0 * static_cast<double>(length * dim * dim));
}
BENCHMARK_CAPTURE(linear_backward, causal, true)->Arg(32)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(linear_backward, full, false)->Arg(32)->Arg(64)->Arg(128);

void softmax_forward(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  Head head(Family::softmax, dim, true);
  for (auto _ : state) head.forward();
  count_flops(state, 4.0 * static_cast<double>(dim * length * (length + 1) / 2));
}
BENCHMARK(softmax_forward)->Arg(32)->Arg(64)->Arg(128);

void softmax_backward(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  Head head(Family::softmax, dim, true);
  head.forward();
  for (auto _ : state) head.backward();
  count_flops(state, 10.0 * static_cast<double>(dim * length * (length + 1) / 2));
}
BENCHMARK(softmax_backward)->Arg(32)->Arg(64)->Arg(128);

/// A token for each of range(1) streams of 8 heads: few fit the caches, many do not.
void linear_step(benchmark::State& state) {
  Context context(1);
  const std::int64_t dim = state.range(0), streams = state.range(1), heads = 8;
  const auto attention = make_attention({});
  const auto states = attention->make_state(streams, {heads, dim, dim});
  const Tensor q = random_tensor({streams, heads, dim}, 0), k = random_tensor({streams, heads, dim}, 1),
               v = random_tensor({streams, heads, dim}, 2);
  Tensor out = Tensor::of<float>(q.shape());
  std::vector<std::int64_t> slots(static_cast<std::size_t>(streams));
  std::iota(slots.begin(), slots.end(), 0);
  for (auto _ : state)
    attention->step(context, out.view<float>(), q.view<float>(), k.view<float>(), v.view<float>(), *states,
                    slots);
  const auto bytes = static_cast<std::int64_t>(2 * states->bytes(0)) * streams;
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(linear_step)->ArgsProduct({{32, 64}, {8, 2048}});

void map_forward(const FeatureMap& map, View<float> y, View<const float> x, std::span<double> log_scale,
                 Context& context) {
  const TileContext tile = {.context = &context};
  if (const auto* scaled = dynamic_cast<const LogScaledMap*>(&map))
    return scaled->forward_scaled(y, log_scale, x, tile);
  map.forward(y, x, tile);
}

/// A tile of 64 rows.
void feature_map_forward(benchmark::State& state, const std::string& name) {
  constexpr std::int64_t rows = 64, dim = 64;
  Context context(1);
  const auto map = find_feature_map(name, {.head_dim = dim, .random = {.features = dim}});
  const Tensor x = random_tensor({rows, dim}, 0);
  Tensor y = Tensor::of<float>({rows, map->features(dim)});
  std::vector<double> log_scale(rows);
  for (auto _ : state) map_forward(*map, y.view<float>(), x.view<float>(), log_scale, context);
  state.SetItemsProcessed(state.iterations() * rows * dim);
}

void feature_map_backward(benchmark::State& state, const std::string& name) {
  constexpr std::int64_t rows = 64, dim = 64;
  Context context(1);
  const auto map = find_feature_map(name, {.head_dim = dim, .random = {.features = dim}});
  const Tensor x = random_tensor({rows, dim}, 0);
  Tensor y = Tensor::of<float>({rows, map->features(dim)}), dx = Tensor::of<float>(x.shape());
  const Tensor dy = random_tensor(y.shape(), 1);
  std::vector<double> log_scale(rows);
  map_forward(*map, y.view<float>(), x.view<float>(), log_scale, context);
  for (auto _ : state)
    map->backward(dx.view<float>(), dy.view<float>(), x.view<float>(), std::as_const(y).view<float>(),
                  {.context = &context});
  state.SetItemsProcessed(state.iterations() * rows * dim);
}

BENCHMARK_CAPTURE(feature_map_forward, elu, "elu");
BENCHMARK_CAPTURE(feature_map_forward, squared_relu, "squared-relu");
BENCHMARK_CAPTURE(feature_map_forward, exp, "exp");
BENCHMARK_CAPTURE(feature_map_forward, favor, "favor");
BENCHMARK_CAPTURE(feature_map_forward, favor_sincos, "favor-sincos");
BENCHMARK_CAPTURE(feature_map_forward, random_relu, "random-relu");
BENCHMARK_CAPTURE(feature_map_backward, elu, "elu");
BENCHMARK_CAPTURE(feature_map_backward, squared_relu, "squared-relu");
BENCHMARK_CAPTURE(feature_map_backward, exp, "exp");
BENCHMARK_CAPTURE(feature_map_backward, favor, "favor");
BENCHMARK_CAPTURE(feature_map_backward, random_relu, "random-relu");

void tile_function(benchmark::State& state, void (*function)(float*, const float*, std::int64_t)) {
  constexpr std::int64_t count = 4096;
  const Tensor x = random_tensor({count}, 0);
  Tensor y = Tensor::of<float>({count});
  for (auto _ : state) {
    function(y.span<float>().data(), x.span<float>().data(), count);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * count);
}
BENCHMARK_CAPTURE(tile_function, exp, tile_exp);
BENCHMARK_CAPTURE(tile_function, tanh, tile_tanh);

}  // namespace
}  // namespace linnet
