#include "bench/masks.h"

#include <algorithm>
#include <cstring>

namespace linnet {
namespace {

constexpr std::int64_t block = 64;
constexpr std::int64_t far_blocks = 8;

bool block_is_seen(std::int64_t query_block, std::int64_t key_block) {
  return key_block <= query_block && (query_block - key_block <= 1 || key_block % far_blocks == 0);
}

void block_sparse_tile(View<std::uint8_t> tile, std::int64_t /*batch entry*/, std::int64_t first_query,
                       std::int64_t first_key) {
  const std::int64_t keys = tile.extent(1);
  for (std::int64_t i = 0; i < tile.extent(0); ++i) {
    for (std::int64_t j = 0; j < keys;) {
      const std::int64_t key_block = (first_key + j) / block;
      const std::int64_t end = std::min(keys, (key_block + 1) * block - first_key);
      std::memset(tile.at(i, j), block_is_seen((first_query + i) / block, key_block),
                  static_cast<std::size_t>(end - j));
      j = end;
    }
  }
}

double block_sparse_pairs(std::int64_t length) {
  const auto rows_of = [&](std::int64_t b) { return std::min(block, length - b * block); };
  double pairs = 0, far_keys = 0;  // keys of every eighth block before the one before
  for (std::int64_t b = 0; b * block < length; ++b) {
    if (b >= 2 && (b - 2) % far_blocks == 0) far_keys += block;
    pairs +=
        static_cast<double>(rows_of(b)) * (far_keys + static_cast<double>(rows_of(b) + (b > 0 ? block : 0)));
  }
  return pairs;
}

Mask varying_windows(const BenchMaskSizes& sizes, std::int64_t length) {
  std::vector<std::int64_t> begin(static_cast<std::size_t>(length)), end(begin);
  const std::int64_t half = sizes.left / 2;
  for (std::int64_t i = 0; i < length; ++i) {
    // A triangle wave that rises by 1 in two queries, so that no begin comes before the last one.
    const std::int64_t phase = half == 0 ? 0 : i / 2 % (2 * half);
    const std::int64_t width = half + (phase < half ? phase : 2 * half - phase);
    begin[static_cast<std::size_t>(i)] = std::max<std::int64_t>(0, i - width);
    end[static_cast<std::size_t>(i)] = i + 1 + std::min(length - i - 1, sizes.right);
  }
  return Mask::intervals(std::move(begin), std::move(end));
}

}  // namespace

const std::vector<std::string>& bench_mask_names() {
  static const std::vector<std::string> names = {"full",     "causal",    "prefix", "window",
                                                 "segments", "intervals", "boolean"};
  return names;
}

Mask bench_mask(const std::string& name, const BenchMaskSizes& sizes, std::int64_t length) {
  if (name == "causal") return Mask::causal();
  if (name == "prefix") return Mask::prefix({std::min(sizes.prefix, length)});
  if (name == "window") return Mask::window(sizes.left, sizes.right);
  if (name == "intervals") return varying_windows(sizes, length);
  if (name == "boolean") return Mask::boolean(Mask::BooleanTile(block_sparse_tile));
  if (name == "segments") {
    std::vector<std::int64_t> bounds;
    for (std::int64_t bound = 0; bound < length; bound += sizes.segment) bounds.push_back(bound);
    bounds.push_back(length);
    return Mask::causal().with_segments(std::move(bounds));
  }
  return Mask::full();
}

double visible_pairs(const std::string& name, const BenchMaskSizes& sizes, std::int64_t length) {
  if (name == "boolean") return block_sparse_pairs(length);
  const Mask mask = bench_mask(name, sizes, length);
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const Mask::Interval seen = mask.interval(0, i, length);
    pairs += static_cast<double>(seen.end - seen.begin);
  }
  return pairs;
}

}  // namespace linnet
