#include "attention/rounds.h"

#include <algorithm>

namespace linnet {
namespace {

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) { return (count + chunk - 1) / chunk; }

}  // namespace

Rounds::Rounds(const Sights& sights, const AttentionSizes& sizes, std::int64_t query_chunk,
               std::int64_t key_chunk, bool whole)
    : sights_(sights),
      sizes_(sizes),
      query_chunk_(query_chunk),
      key_chunk_(key_chunk),
      query_chunks_(chunks_of(sizes.queries, query_chunk)),
      key_chunks_(chunks_of(sizes.keys, key_chunk)) {
  if (whole) find_distance();
  if (distance_ == 0) find_needed();
}

Mask::Interval Rounds::reach(std::int64_t b, std::int64_t chunk) const {
  const std::int64_t first = chunk * query_chunk_;
  return sights_.reach(b, first, std::min(query_chunk_, sizes_.queries - first));
}

void Rounds::find_distance() {
  // Farther apart, or fewer in a round, and they would not keep the threads of a machine busy.
  constexpr std::int64_t most = 4, fewest_in_a_round = 16;
  std::int64_t distance = 1;
  for (std::int64_t b = 0; b < sizes_.batch; ++b)
    for (std::int64_t q = 0; q < query_chunks_; ++q)
      while (distance <= most && q + distance < query_chunks_ &&
             reach(b, q).end > reach(b, q + distance).begin)
        ++distance;
  if (distance > most) return;
  const std::int64_t in_a_round = sizes_.batch * sizes_.heads * (query_chunks_ / distance);
  if (in_a_round >= fewest_in_a_round) distance_ = distance;
}

void Rounds::find_needed() {
  const std::int64_t rounds = std::max(query_chunks_, key_chunks_);
  needed_.resize(static_cast<std::size_t>(rounds));
  std::int64_t missing = rounds;
  for (std::int64_t b = 0; b < sizes_.batch; ++b) {
    for (std::int64_t q = 0; q < query_chunks_ && missing > 0; ++q) {
      const Mask::Interval seen = reach(b, q);
      for (std::int64_t k = seen.begin / key_chunk_; k * key_chunk_ < seen.end; ++k) {
        const std::int64_t ahead = query_chunks_ <= key_chunks_ ? k - q : q - k;
        const std::size_t round = static_cast<std::size_t>((ahead + rounds) % rounds);
        missing -= needed_[round] ? 0 : 1;
        needed_[round] = true;
      }
    }
  }
}

void Rounds::run_apart(Context& context, Body body) const {
  for (std::int64_t round = 0; round < distance_; ++round) {
    const std::int64_t chunks = (query_chunks_ - round + distance_ - 1) / distance_;
    const auto meeting_at = [&](std::int64_t item) -> Meeting {
      // Heads go first, whose rows lie side by side.
      const std::int64_t b = item / sizes_.heads / chunks;
      const std::int64_t chunk = item / sizes_.heads % chunks * distance_ + round;
      return {b, item % sizes_.heads, chunk * query_chunk_, reach(b, chunk)};
    };
    parallel_runs(context, sizes_.batch * sizes_.heads * chunks,
                  [&](Context& own, std::int64_t item, std::int64_t next_item) {
                    const Meeting meeting = meeting_at(item);
                    if (meeting.keys.begin >= meeting.keys.end) return;
                    const Meeting next = next_item >= 0 ? meeting_at(next_item) : Meeting();
                    body(own, meeting, next_item >= 0 ? &next : nullptr);
                  });
  }
}

void Rounds::run(Context& context, Body body) const {
  if (distance_ > 0) return run_apart(context, body);
  const std::int64_t rounds = static_cast<std::int64_t>(needed_.size());
  const std::int64_t chunks = std::min(query_chunks_, key_chunks_);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (!needed_[static_cast<std::size_t>(round)]) continue;
    parallel_for(context, sizes_.batch * sizes_.heads * chunks, [&](Context& own, std::int64_t item) {
      const std::int64_t b = item / chunks / sizes_.heads, h = item / chunks % sizes_.heads;
      const std::int64_t here = item % chunks, there = (here + round) % rounds;
      const std::int64_t query = query_chunks_ <= key_chunks_ ? here : there;
      const std::int64_t key = (query_chunks_ <= key_chunks_ ? there : here) * key_chunk_;
      const Mask::Interval seen = reach(b, query);
      if (seen.end <= key || key + key_chunk_ <= seen.begin) return;
      body(own, {b, h, query * query_chunk_, {key, std::min(key + key_chunk_, sizes_.keys)}}, nullptr);
    });
  }
}

}  // namespace linnet
