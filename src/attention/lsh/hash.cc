#include "attention/lsh/hash.h"

#include <algorithm>
#include <cmath>

#include "attention/mask_geometry.h"
#include "attention/tiles/scattered.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/workspace.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/lsh/hash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/tiles/ahead-inl.h"
#include "attention/tiles/gemm-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::lsh::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using linnet::HWY_NAMESPACE::F32;

/// columns [depth][kTokens] of the tokens x [kTokens][depth]; `depth` is rounded up to 4.
void columns_of(float* columns, const float* x, std::size_t depth) {
  linnet::HWY_NAMESPACE::transpose(columns, kTokens, x, depth, kTokens, depth);
}

/// rotated [rows][kTokens] = rotations [rows][depth] columns, rows padded as gemm-inl.h says. Asks for the
/// `count` rows to come on the way.
void rotate_of(float* rotated, const float* rotations, const float* columns, std::size_t rows,
               std::size_t depth, const InputRows& to_come, std::int64_t count) {
  using linnet::HWY_NAMESPACE::Ahead;
  using linnet::HWY_NAMESPACE::Left;
  Ahead ahead;
  ahead.start(
      std::max<std::size_t>(1, linnet::HWY_NAMESPACE::fetches_of(rows, kTokens, depth, Ahead::kSteps)));
  linnet::HWY_NAMESPACE::fetch(ahead, to_come, {0, count});
  linnet::HWY_NAMESPACE::for_each_panel(
      linnet::HWY_NAMESPACE::Multiply<Left::plain>{rotated, kTokens, rotations, depth, columns, kTokens, rows,
                                                   depth, &ahead},
      kTokens);
}

/// buckets [kTokens] = 2 half · buckets + argmax([x, −x]) of the rows x [half][kTokens], the first where
/// several are largest.
void pick_of(std::int32_t* buckets, const float* x, std::int32_t half) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  for (std::size_t t = 0; t < kTokens; t += hn::Lanes(d)) {
    auto best = hn::Zero(di);
    auto largest = hn::Set(d, -1.0f);
    for (std::int32_t i = 0; i < half; ++i) {
      const auto number = hn::Load(d, x + static_cast<std::size_t>(i) * kTokens + t);
      const auto size = hn::Abs(number);
      const auto negative = hn::RebindMask(di, hn::Lt(number, hn::Zero(d)));
      const auto place = hn::IfThenElse(negative, hn::Set(di, i + half), hn::Set(di, i));
      const auto smaller = hn::Le(size, largest);
      best = hn::IfThenElse(hn::RebindMask(di, smaller), best, place);
      largest = hn::IfThenElse(smaller, largest, size);
    }
    const auto before = hn::Mul(hn::Load(di, buckets + t), hn::Set(di, 2 * half));
    hn::Store(hn::Add(before, best), di, buckets + t);
  }
}

/// inverse [kTokens] of the columns' norms.
void inverse_norms_of(float* inverse, const float* columns, std::size_t depth) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr std::size_t vectors = 4;  // at once, against the latency of a sum
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t t = 0; t < kTokens; t += vectors * lanes) {
    hn::Vec<decltype(d)> square[vectors];
    for (std::size_t v = 0; v < vectors; ++v) square[v] = hn::Zero(d);
    for (std::size_t e = 0; e < depth; ++e) {
      for (std::size_t v = 0; v < vectors; ++v) {
        const auto x = hn::PromoteTo(d, hn::LoadU(narrow, columns + e * kTokens + t + v * lanes));
        square[v] = hn::MulAdd(x, x, square[v]);
      }
    }
    for (std::size_t v = 0; v < vectors; ++v) {
      // What a float cannot invert counts as 0.
      const auto zero = hn::Lt(square[v], hn::Set(d, 1e-72));
      const auto whole = hn::Div(hn::Set(d, 1.0), hn::Sqrt(square[v]));
      hn::StoreU(hn::DemoteTo(narrow, hn::IfThenZeroElse(zero, whole)), narrow, inverse + t + v * lanes);
    }
  }
}

}  // namespace linnet::lsh::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::lsh {
namespace {

HWY_EXPORT(columns_of);
HWY_EXPORT(rotate_of);
HWY_EXPORT(pick_of);
HWY_EXPORT(inverse_norms_of);

constexpr std::int64_t kMostOfAFactor = 32;

/// Even numbers whose product is `buckets`, each at most kMostOfAFactor where that can be.
std::vector<std::int64_t> factors_of(std::int64_t buckets) {
  std::vector<std::int64_t> factors;
  while (buckets > kMostOfAFactor) {
    std::int64_t factor = kMostOfAFactor;
    while (factor > 0 && (buckets % factor != 0 || buckets / factor % 2 != 0)) factor -= 2;
    if (factor == 0) break;
    factors.push_back(factor);
    buckets /= factor;
  }
  if (buckets > 1) factors.push_back(buckets);
  return factors;
}

/// Every head's R of all rounds below one another, transposed: [H, rows, E].
Tensor draw_rotations(Context& context, const AttentionOptions& options, std::int64_t heads,
                      std::int64_t head_dim, std::int64_t columns, std::int64_t rows) {
  Tensor rotations = Tensor::of<float>({heads, rows, head_dim});
  const View<float> to = rotations.view<float>();
  parallel_for(context, heads, [&](std::int64_t h) {
    for (std::int64_t round = 0; round < options.lsh.rounds; ++round) {
      const Random random(options.lsh.seed, Draw::rotations,
                          static_cast<std::uint32_t>(64 * std::int64_t{options.layer} + round));
      for (std::int64_t e = 0; e < head_dim; ++e)
        for (std::int64_t c = 0; c < columns; ++c)
          to(h, round * columns + c, e) = static_cast<float>(random.normal(
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

Hashes hash_tokens(Context& context, const AttentionOptions& options, View<const float> query,
                   const Mask& mask) {
  const std::int64_t batch = query.extent(0), length = query.extent(1), heads = query.extent(2),
                     head_dim = query.extent(3), rounds = options.lsh.rounds;
  Hashes hashes;
  hashes.buckets.resize(static_cast<std::size_t>(rounds * batch * heads * length));
  hashes.inverse_norms.resize(static_cast<std::size_t>(batch * heads * length));
  const std::vector<std::int64_t> factors = factors_of(bucket_count(options.lsh, length));
  const std::int64_t columns = rotation_columns(bucket_count(options.lsh, length));
  const std::int64_t rows = (rounds * columns + 7) / 8 * 8;
  const Tensor rotations = draw_rotations(context, options, heads, head_dim, columns, rows);
  constexpr std::int64_t tokens = kTokens;
  const std::size_t depth = static_cast<std::size_t>(head_dim);
  // The heads of a token are neighbours in memory.
  struct Part {
    std::int64_t b, h, first, count;
  };
  const auto part_of = [&](std::int64_t item) -> Part {
    const std::int64_t b = item / heads % batch, first = item / heads / batch * tokens;
    const std::int64_t count = std::min(tokens, visible_keys(mask, b, length) - first);
    return {b, item % heads, first, std::max<std::int64_t>(0, count)};
  };
  parallel_runs(context, batch * heads * ((length + tokens - 1) / tokens),
                [&](Context& own, std::int64_t item, std::int64_t next) {
                  const auto [b, h, first, count] = part_of(item);
                  if (count == 0) return;
                  const Part to_come = next >= 0 ? part_of(next) : Part{b, h, 0, 0};
                  Workspace workspace(own);
                  const std::int64_t padded_dim = (head_dim + 3) / 4 * 4;
                  float* x = workspace.take(static_cast<std::size_t>(tokens * head_dim + padded_dim));
                  float* x_columns = workspace.take(static_cast<std::size_t>(padded_dim * tokens));
                  float* rotated = workspace.take(static_cast<std::size_t>(rows * tokens));
                  gather(
                      x, count, [from = first](std::int64_t i) { return from + i; }, query, b, h);
                  std::fill(x + count * head_dim, x + tokens * head_dim + padded_dim, 0.0f);
                  HWY_DYNAMIC_DISPATCH(columns_of)(x_columns, x, depth);
                  HWY_DYNAMIC_DISPATCH(rotate_of)
                  (rotated, rotations.view<float>().at(h), x_columns, static_cast<std::size_t>(rows), depth,
                   rows_of(ConstFloatView(query), to_come.b, to_come.h).from(to_come.first), to_come.count);
                  alignas(64) float inverse[kTokens];
                  HWY_DYNAMIC_DISPATCH(inverse_norms_of)(inverse, x_columns, depth);
                  std::copy_n(inverse, count, hashes.inverse_norms.data() + (b * heads + h) * length + first);
                  for (std::int64_t round = 0; round < rounds; ++round) {
                    alignas(64) std::int32_t buckets[kTokens] = {};
                    const float* row = rotated + round * columns * tokens;
                    for (const std::int64_t factor : factors) {
                      HWY_DYNAMIC_DISPATCH(pick_of)(buckets, row, static_cast<std::int32_t>(factor / 2));
                      row += factor / 2 * tokens;
                    }
                    std::copy_n(buckets, count,
                                hashes.buckets.data() + ((round * batch + b) * heads + h) * length + first);
                  }
                });
  return hashes;
}

}  // namespace linnet::lsh
#endif
