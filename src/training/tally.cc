#include "training/tally.h"

#include <algorithm>
#include <span>

namespace linnet {

std::size_t Tally::add_sums(std::size_t count) {
  sums_.resize(sums_.size() + count);
  batch_.resize(sums_.size());
  all_.resize(sums_.size() * static_cast<std::size_t>(ranks_.size()));
  return sums_.size() - count;
}

std::size_t Tally::add_counts(std::size_t count) {
  counts_.resize(counts_.size() + count);
  return counts_.size() - count;
}

void Tally::end_round(std::int64_t batches, const std::function<void(std::int64_t)>& after) {
  ranks_.all_gather(std::as_bytes(std::span(batch_)), std::as_writable_bytes(std::span(all_)));
  std::ranges::fill(batch_, 0.0);
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const std::span<const double> its =
        std::span(all_).subspan(static_cast<std::size_t>(batch) * sums_.size(), sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += its[i];
    after(batch);
  }
}

void Tally::end() { ranks_.sum(std::span(counts_)); }

}  // namespace linnet
