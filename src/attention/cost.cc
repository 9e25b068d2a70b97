#include "attention/cost.h"

#include <algorithm>

#include "attention/lsh/hash.h"
#include "attention/sparse/strided_attention.h"

namespace linnet {
namespace {

double interval_pairs(const Mask& mask, std::int64_t length, std::int64_t left, std::int64_t right) {
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const Mask::Interval seen = mask.interval(0, i, length);
    const std::int64_t begin = std::max(seen.begin, i - left), end = std::min(seen.end, i + right + 1);
    pairs += static_cast<double>(std::max<std::int64_t>(0, end - begin));
  }
  return pairs;
}

/// Keys up to the query: its own last s, or its block of s, and the far ones of the pattern.
double strided_pairs(const AttentionOptions& options, std::int64_t length) {
  const std::int64_t stride = options.stride != 0 ? options.stride : default_stride(length);
  const bool fixed = options.pattern == SparsePattern::fixed;
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t near = fixed ? i % stride + 1 : std::min(i + 1, stride);
    const std::int64_t far = i / stride * (fixed ? options.summary : 1);
    pairs += static_cast<double>(near + far);
  }
  return pairs;
}

/// Tokens sorted by bucket, cut into chunks: each sees those of its bucket in its chunk and the one before.
double lsh_pairs(const LshOptions& lsh, bool causal, std::int64_t length) {
  const std::int64_t buckets = lsh::bucket_count(lsh, length), chunk = std::min(lsh.chunk, length);
  const auto first_of = [&](std::int64_t bucket) { return (bucket * length + buckets - 1) / buckets; };
  double pairs = 0;
  for (std::int64_t s = 0; s < length; ++s) {
    const std::int64_t bucket = s * buckets / length, own = s / chunk * chunk;
    pairs += static_cast<double>(s - std::max({std::int64_t{0}, first_of(bucket), own - chunk}));
    if (!causal) pairs += static_cast<double>(std::min({length, first_of(bucket + 1), own + chunk}) - s - 1);
  }
  return pairs * static_cast<double>(lsh.rounds);
}

}  // namespace

double multiplied_pairs(const AttentionOptions& options, const Mask& mask, std::int64_t length) {
  switch (options.family) {
    case Family::linear:
    case Family::linformer:
      return 0;
    case Family::softmax:
    case Family::kernel:
      return interval_pairs(mask, length, length, length);
    case Family::local:
      return interval_pairs(mask, length, options.window_left, options.window_right);
    case Family::strided:
      return strided_pairs(options, length);
    case Family::lsh:
      return lsh_pairs(options.lsh, mask.kind() == Mask::Kind::causal, length);
  }
  return 0;
}

AttentionCost least_cost(const AttentionOptions& options, const CostSizes& sizes, double pairs) {
  const double n = static_cast<double>(sizes.length), e = static_cast<double>(sizes.head_dim),
               m = static_cast<double>(sizes.value_dim), k = static_cast<double>(sizes.rank);
  AttentionCost cost = {pairs * 2 * (e + m), pairs * (8 * e + 6 * m)};
  if (options.family == Family::linear) {
    const double features = static_cast<double>(options.feature_map->features(sizes.head_dim));
    cost = {4 * n * features * m, 14 * n * features * m};
  } else if (options.family == Family::linformer) {
    cost = {4 * n * k * (e + m), n * k * (14 * e + 12 * m)};
  } else if (options.family == Family::lsh) {
    const std::int64_t columns = lsh::rotation_columns(lsh::bucket_count(options.lsh, sizes.length));
    const double hashes = 2 * n * e * static_cast<double>(options.lsh.rounds * columns);
    cost.forward += hashes;
    cost.training += hashes;
  }
  return cost;
}

}  // namespace linnet
