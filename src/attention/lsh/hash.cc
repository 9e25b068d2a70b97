#include "attention/lsh/hash.h"

#include <algorithm>
#include <cmath>

#include "attention/mask_geometry.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/workspace.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/lsh/hash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/tiles/gemm-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::lsh::HWY_NAMESPACE {

/// c [rows, columns] = a [rows, depth] b: dense, rows and columns padded as gemm-inl.h says.
void rotate_of(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t columns,
               std::int64_t depth) {
  using linnet::HWY_NAMESPACE::Left;
  linnet::HWY_NAMESPACE::for_each_panel(
      linnet::HWY_NAMESPACE::Multiply<Left::plain>{
          c, static_cast<std::size_t>(columns), a, static_cast<std::size_t>(depth), b,
          static_cast<std::size_t>(columns), static_cast<std::size_t>(rows), static_cast<std::size_t>(depth)},
      static_cast<std::size_t>(columns));
}

}  // namespace linnet::lsh::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::lsh {
namespace {

HWY_EXPORT(rotate_of);

constexpr std::int64_t kTokens = 64;  // hashed together
constexpr std::int64_t kMostBuckets = 32;

/// Even numbers whose product is `buckets`, each at most kMostBuckets where that can be.
std::vector<std::int64_t> factors_of(std::int64_t buckets) {
  std::vector<std::int64_t> factors;
  while (buckets > kMostBuckets) {
    std::int64_t factor = kMostBuckets;
    while (factor > 0 && (buckets % factor != 0 || buckets / factor % 2 != 0)) factor -= 2;
    if (factor == 0) break;
    factors.push_back(factor);
    buckets /= factor;
  }
  if (buckets > 1) factors.push_back(buckets);
  return factors;
}

/// argmax([x, −x]) of `count` numbers, the first where several are largest.
std::int64_t largest(const float* x, std::int64_t count) {
  std::int64_t best = 0;
  float size = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::abs(x[i]) <= size) continue;
    size = std::abs(x[i]);
    best = x[i] < 0 ? i + count : i;
  }
  return best;
}

/// Every head's R of all rounds side by side: [H, E, width].
Tensor draw_rotations(Context& context, const AttentionOptions& options, std::int64_t heads,
                      std::int64_t head_dim, std::int64_t columns, std::int64_t width) {
  Tensor rotations = Tensor::of<float>({heads, head_dim, width});
  const View<float> to = rotations.view<float>();
  parallel_for(context, heads, [&](std::int64_t h) {
    for (std::int64_t round = 0; round < options.lsh.rounds; ++round) {
      const Random random(options.lsh.seed, Draw::rotations,
                          static_cast<std::uint32_t>(64 * options.layer + round));
      for (std::int64_t e = 0; e < head_dim; ++e)
        for (std::int64_t c = 0; c < columns; ++c)
          to(h, e, round * columns + c) = static_cast<float>(random.normal(
              static_cast<std::uint64_t>(h) << 32 | static_cast<std::uint64_t>(e * columns + c)));
    }
  });
  return rotations;
}

}  // namespace

std::int64_t bucket_count(const LshOptions& options, std::int64_t length) {
  if (options.buckets != 0) return options.buckets;
  std::int64_t buckets = 1;
  while (buckets < length / options.chunk + (length % options.chunk != 0 ? 1 : 0)) buckets *= 2;
  return buckets;
}

std::int64_t rotation_columns(std::int64_t buckets) {
  std::int64_t columns = 0;
  for (const std::int64_t factor : factors_of(buckets)) columns += factor / 2;
  return columns;
}

std::vector<std::uint32_t> hash_tokens(Context& context, const AttentionOptions& options,
                                       View<const float> query, const Mask& mask) {
  const std::int64_t batch = query.extent(0), length = query.extent(1), heads = query.extent(2),
                     head_dim = query.extent(3), rounds = options.lsh.rounds;
  std::vector<std::uint32_t> buckets(static_cast<std::size_t>(rounds * batch * heads * length));
  const std::vector<std::int64_t> factors = factors_of(bucket_count(options.lsh, length));
  if (factors.empty()) return buckets;
  const std::int64_t columns = rotation_columns(bucket_count(options.lsh, length));
  const std::int64_t width = (rounds * columns + 15) / 16 * 16;
  const Tensor rotations = draw_rotations(context, options, heads, head_dim, columns, width);
  const std::int64_t blocks = (length + kTokens - 1) / kTokens;
  parallel_for(context, batch * heads * blocks, [&](Context& own, std::int64_t item) {
    const std::int64_t b = item / blocks / heads, h = item / blocks % heads;
    const std::int64_t first = item % blocks * kTokens;
    const std::int64_t count = std::min(kTokens, visible_keys(mask, b, length) - first);
    if (count <= 0) return;
    const std::int64_t rows = (count + 7) / 8 * 8;
    Workspace workspace(own);
    float* x = workspace.take(static_cast<std::size_t>(kTokens * head_dim));
    float* rotated = workspace.take(static_cast<std::size_t>(kTokens * width));
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(query.at(b, first + i, h), head_dim, x + i * head_dim);
    std::fill(x + count * head_dim, x + rows * head_dim, 0.0f);
    HWY_DYNAMIC_DISPATCH(rotate_of)
    (rotated, x, rotations.view<float>().at(h), rows, width, head_dim);
    for (std::int64_t round = 0; round < rounds; ++round) {
      std::uint32_t* to = buckets.data() + ((round * batch + b) * heads + h) * length + first;
      for (std::int64_t i = 0; i < count; ++i) {
        const float* row = rotated + i * width + round * columns;
        std::int64_t bucket = 0;
        for (const std::int64_t factor : factors) {
          bucket = bucket * factor + largest(row, factor / 2);
          row += factor / 2;
        }
        to[i] = static_cast<std::uint32_t>(bucket);
      }
    }
  });
  return buckets;
}

}  // namespace linnet::lsh
#endif
