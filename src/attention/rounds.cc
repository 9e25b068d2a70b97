#include "attention/rounds.h"

#include <algorithm>

namespace linnet {
namespace {

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) { return (count + chunk - 1) / chunk; }

}  // namespace

Rounds::Rounds(const Sights& sights, const AttentionSizes& sizes, std::int64_t query_chunk,
               std::int64_t key_chunk)
    : sights_(sights),
      sizes_(sizes),
      query_chunk_(query_chunk),
      key_chunk_(key_chunk),
      query_chunks_(chunks_of(sizes.queries, query_chunk)),
      key_chunks_(chunks_of(sizes.keys, key_chunk)),
      needed_(static_cast<std::size_t>(std::max(query_chunks_, key_chunks_))) {
  const std::int64_t rounds = std::max(query_chunks_, key_chunks_);
  std::int64_t missing = rounds;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t q = 0; q < query_chunks_ && missing > 0; ++q) {
      const std::int64_t first = q * query_chunk;
      const Mask::Interval seen = sights.reach(b, first, std::min(query_chunk, sizes.queries - first));
      for (std::int64_t k = seen.begin / key_chunk; k * key_chunk < seen.end; ++k) {
        const std::int64_t ahead = query_chunks_ <= key_chunks_ ? k - q : q - k;
        const std::size_t round = static_cast<std::size_t>((ahead + rounds) % rounds);
        missing -= needed_[round] ? 0 : 1;
        needed_[round] = true;
      }
    }
  }
}

void Rounds::run(
    Context& context,
    FunctionReference<void(Context&, std::int64_t, std::int64_t, std::int64_t, std::int64_t)> body) const {
  const std::int64_t rounds = static_cast<std::int64_t>(needed_.size());
  const std::int64_t chunks = std::min(query_chunks_, key_chunks_);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (!needed_[static_cast<std::size_t>(round)]) continue;
    parallel_for(context, sizes_.batch * sizes_.heads * chunks, [&](Context& own, std::int64_t item) {
      const std::int64_t b = item / chunks / sizes_.heads, h = item / chunks % sizes_.heads;
      const std::int64_t here = item % chunks, there = (here + round) % rounds;
      const std::int64_t query = (query_chunks_ <= key_chunks_ ? here : there) * query_chunk_;
      const std::int64_t key = (query_chunks_ <= key_chunks_ ? there : here) * key_chunk_;
      const Mask::Interval seen = sights_.reach(b, query, std::min(query_chunk_, sizes_.queries - query));
      if (seen.end <= key || key + key_chunk_ <= seen.begin) return;
      body(own, b, h, query, key);
    });
  }
}

}  // namespace linnet
