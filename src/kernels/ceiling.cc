#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/dense.h"
#include "kernels/narrow_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ceiling.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

// Copies aligned memory past the caches: ordinary stores would read every line before they overwrite it.
void stream_copy(std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<std::uint8_t, 64> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < bytes; i += step) hn::Stream(hn::Load(d, from + i), d, to + i);
  hwy::FlushStream();
}

// Eight maxima at once, so that none waits for the one before.
float largest(const float* x, std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int parts = 8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> most[parts];
#pragma GCC unroll 8
  for (int p = 0; p < parts; ++p) most[p] = hn::Set(d, std::numeric_limits<float>::lowest());
  std::int64_t i = 0;
  for (; i + parts * lanes <= count; i += parts * lanes) {
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) most[p] = hn::Max(most[p], hn::LoadU(d, x + i + p * lanes));
  }
  for (int p = 1; p < parts; ++p) most[0] = hn::Max(most[0], most[p]);
  float result = hn::GetLane(hn::MaxOfLanes(d, most[0]));
  for (; i < count; ++i) result = std::max(result, x[i]);
  return result;
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(stream_copy);
HWY_EXPORT(largest);

using Clock = std::chrono::steady_clock;

// Median seconds of `runs` calls after one to warm up.
template <class Work>
double median_seconds(int runs, Work work) {
  work();
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    const auto begin = Clock::now();
    work();
    seconds.push_back(seconds_since(begin));
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[runs / 2];
}

/// A product [rows, inputs] · [inputs, outputs] with everything packed beforehand; its rows are shared out.
double gflops(Context& context, std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
              WeightType type) {
  Tensor a = Tensor::of<float>({rows, inputs}), b = Tensor::of<float>({outputs, inputs});
  Tensor c = Tensor::of<float>({rows, outputs});
  // Ordinary values: zeros might be cheaper.
  for (Tensor* tensor : {&a, &b}) {
    const auto values = tensor->span<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 31) * 0.0625f - 1;
  }
  const double work = 2.0 * static_cast<double>(rows * inputs * outputs);
  const int runs = std::clamp(static_cast<int>(2e10 / work), 9, 101);
  const NarrowLayout layout{type, inputs, outputs};
  if (type == WeightType::f32 || NarrowMatrix(layout).takes_wide_rows()) {
    PackedMatrix packed(inputs, outputs, type);
    packed.pack_transposed(context, b.view<float>());
    return work / median_seconds(runs, [&] { multiply(context, c.view<float>(), a.view<float>(), packed); }) *
           1e-9;
  }
  constexpr std::int64_t block = NarrowMatrix::block_rows;
  NarrowMatrix matrix(layout);
  matrix.pack_transposed(context, b.view<float>());
  Tensor narrow = Tensor::of<std::uint8_t>({rows * inputs * layout.element()});
  Tensor scales = Tensor::of<float>({rows});
  narrow_rows({type, narrow.raw(), scales.span<float>().data()}, a.view<float>());
  const double seconds = median_seconds(runs, [&] {
    parallel_for(context, rows / block, [&](Context& own, std::int64_t i) {
      std::uint8_t* const codes = narrow.span<std::uint8_t>().data() + i * block * inputs * layout.element();
      matrix.product(own, c.view<float>().at(i * block), {type, codes, nullptr}, block, 0, layout.panels());
    });
  });
  return work / seconds * 1e-9;
}

}  // namespace

double measure_gemm_gflops(Context& context, WeightType type) {
  const double best =
      std::max(gflops(context, 256, 256, 1024, type), gflops(context, 2048, 1024, 1024, type));
  // What is widened anyway could have been widened before.
  return multiplies_fast(type) ? best : std::max(best, measure_gemm_gflops(context, WeightType::f32));
}

double measure_copy_gbs(Context& context) {
  constexpr std::int64_t bytes = 128 << 20, block = 1 << 20;
  Tensor from = Tensor::of<std::uint8_t>({bytes}), to = Tensor::of<std::uint8_t>({bytes});
  const auto* source = from.span<std::uint8_t>().data();
  auto* destination = to.span<std::uint8_t>().data();
  const auto copy = HWY_DYNAMIC_DISPATCH(stream_copy);
  const double seconds = median_seconds(7, [&] {
    parallel_blocks(context, bytes, block, [&](std::int64_t begin, std::int64_t end) {
      copy(destination + begin, source + begin, end - begin);
    });
  });
  return 2.0 * bytes / seconds * 1e-9;
}

float read_all(Context& context, std::span<const float> x) {
  const auto count = std::ssize(x), parts = static_cast<std::int64_t>(context.threads());
  std::vector<float> most(static_cast<std::size_t>(parts));
  parallel_for(context, parts, [&](std::int64_t part) {
    const std::int64_t begin = count * part / parts, end = count * (part + 1) / parts;
    most[static_cast<std::size_t>(part)] = HWY_DYNAMIC_DISPATCH(largest)(x.data() + begin, end - begin);
  });
  return *std::ranges::max_element(most);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
