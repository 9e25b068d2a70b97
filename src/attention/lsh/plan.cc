#include "attention/lsh/plan.h"

#include <algorithm>
#include <utility>

#include "attention/mask_geometry.h"
#include "attention/softmax/tiles.h"
#include "base/parallel.h"

namespace linnet::lsh {

Plan::Plan(Context& context, const AttentionOptions& options, View<const float> query, const Mask& mask)
    : Plan(context, options, query, mask, hash_tokens(context, options, query, mask)) {}

Plan::Plan(Context& context, const AttentionOptions& options, View<const float> query, const Mask& mask,
           Hashes hashes)
    : batch_(query.extent(0)),
      length_(query.extent(1)),
      heads_(query.extent(2)),
      // One chunk holds all tokens from there on.
      chunk_(std::min(options.lsh.chunk, std::max<std::int64_t>(1, length_))),
      block_(std::max<std::int64_t>(1, softmax::kMaxQueries / chunk_) * chunk_),
      blocks_((length_ + block_ - 1) / block_),
      causal_(mask.kind() == Mask::Kind::causal),
      neighbourhoods_(std::move(hashes.buckets)),
      order_(neighbourhoods_.size()),
      inverse_norms_(std::move(hashes.inverse_norms)),
      alone_(inverse_norms_.size()) {
  for (std::int64_t b = 0; b < batch_; ++b) tokens_.push_back(visible_keys(mask, b, length_));
  const std::int64_t rounds = options.lsh.rounds, buckets = bucket_count(options.lsh, length_);
  parallel_for(context, rounds * batch_ * heads_, [&](std::int64_t item) {
    sort(item / heads_ / batch_, item / heads_ % batch_, item % heads_, buckets);
  });
  parallel_for(context, batch_ * heads_,
               [&](std::int64_t item) { find_alone(item / heads_, item % heads_, rounds); });
}

// Buckets in order of their number, within them chunks: another bucket is 2 apart at least, another chunk of
// the same bucket 1.
void Plan::sort(std::int64_t round, std::int64_t b, std::int64_t h, std::int64_t buckets) {
  std::uint32_t* bucket = neighbourhoods_.data() + at(round, b, h);
  std::int64_t* order = order_.data() + at(round, b, h);
  std::vector<std::int64_t> places(static_cast<std::size_t>(buckets + 1));
  for (std::int64_t i = 0; i < tokens(b); ++i) ++places[bucket[i] + 1];
  for (std::int64_t k = 0; k < buckets; ++k) places[k + 1] += places[k];
  for (std::int64_t i = 0; i < tokens(b); ++i) order[places[bucket[i]]++] = i;
  std::uint32_t before = 0, neighbourhood = 0;
  for (std::int64_t s = 0; s < tokens(b); ++s) {
    std::uint32_t& of_token = bucket[order[s]];
    if (s > 0 && of_token != before)
      neighbourhood += 2;
    else if (s > 0 && s % chunk_ == 0)
      neighbourhood += 1;
    before = of_token;
    of_token = neighbourhood;
  }
}

void Plan::find_alone(std::int64_t b, std::int64_t h, std::int64_t rounds) {
  std::uint8_t* alone = alone_.data() + at(0, b, h);
  std::fill_n(alone, tokens(b), std::uint8_t{1});
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::uint32_t* of = neighbourhoods(round, b, h);
    const std::int64_t* sorted = order(round, b, h);
    for (std::int64_t s = 1; s < tokens(b); ++s) {
      if (of[sorted[s]] - of[sorted[s - 1]] > 1) continue;
      alone[sorted[s]] = 0;
      if (!causal_ && s % chunk_ != 0) alone[sorted[s - 1]] = 0;
    }
  }
}

Plan::Block Plan::look(std::int64_t round, std::int64_t b, std::int64_t h, std::int64_t block) const {
  const std::uint32_t* of = neighbourhoods(round, b, h);
  const std::int64_t* sorted = order(round, b, h);
  Block result;
  const Mask::Interval own = queries(b, block);
  result.first = own.begin;
  result.end = own.end;
  result.first_key = std::max<std::int64_t>(0, result.first - chunk_);
  const std::int64_t count = result.end - result.first;
  result.before.resize(static_cast<std::size_t>(count));
  std::int64_t begin = result.first_key;  // of the bucket, or of what the block holds of it
  for (std::int64_t s = result.first_key; s < result.end; ++s) {
    if (s > result.first_key && of[sorted[s]] - of[sorted[s - 1]] > 1) begin = s;
    if (s < result.first) continue;
    const std::int64_t reach = std::max(begin, s / chunk_ * chunk_ - chunk_);
    result.before[static_cast<std::size_t>(s - result.first)] = {reach - result.first_key,
                                                                 s - result.first_key};
  }
  if (causal_) return result;
  result.behind.resize(static_cast<std::size_t>(count));
  std::int64_t end = result.end;  // of the bucket within its chunk
  for (std::int64_t s = result.end - 1; s >= result.first; --s) {
    if (s + 1 < result.end && of[sorted[s + 1]] != of[sorted[s]]) end = s + 1;
    result.behind[static_cast<std::size_t>(s - result.first)] = {s + 1 - result.first_key,
                                                                 end - result.first_key};
  }
  return result;
}

FirstMeetings::FirstMeetings(const Plan& plan, std::int64_t round, std::int64_t b, std::int64_t h,
                             const Plan::Block& block)
    : rounds_(round), queries_(block.end - block.first), keys_(block.end - block.first_key) {
  const std::int64_t* order = plan.order(round, b, h);
  for (std::int64_t earlier = 0; earlier < round; ++earlier) {
    const std::uint32_t* of = plan.neighbourhoods(earlier, b, h);
    for (std::int64_t s = block.first; s < block.end; ++s) of_queries_.push_back(of[order[s]]);
    for (std::int64_t s = block.first_key; s < block.end; ++s) of_keys_.push_back(of[order[s]]);
  }
}

Mask FirstMeetings::within(const std::vector<Mask::Interval>& intervals) const {
  return Mask::boolean(
      [this, &intervals](View<std::uint8_t> tile, std::int64_t, std::int64_t first_query,
                         std::int64_t first_key) { fill(tile, first_query, first_key, intervals); });
}

void FirstMeetings::fill(View<std::uint8_t> tile, std::int64_t first_query, std::int64_t first_key,
                         const std::vector<Mask::Interval>& intervals) const {
  const std::int64_t width = tile.extent(1);
  for (std::int64_t i = 0; i < tile.extent(0); ++i) {
    const Mask::Interval seen = intervals[static_cast<std::size_t>(first_query + i)];
    const std::int64_t begin = std::clamp<std::int64_t>(seen.begin - first_key, 0, width);
    const std::int64_t end = std::clamp<std::int64_t>(seen.end - first_key, begin, width);
    std::uint8_t* row = tile.at(i);
    std::fill_n(row, width, std::uint8_t{0});
    std::fill(row + begin, row + end, std::uint8_t{1});
    for (std::int64_t earlier = 0; earlier < rounds_; ++earlier) {
      const std::uint32_t own = of_queries_[static_cast<std::size_t>(earlier * queries_ + first_query + i)];
      const std::uint32_t* keys = of_keys_.data() + earlier * keys_ + first_key;
      for (std::int64_t j = begin; j < end; ++j) row[j] &= static_cast<std::uint8_t>(own - keys[j] > 1);
    }
  }
}

}  // namespace linnet::lsh
