#include "data/windows.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace linnet {

Windows Windows::every(std::vector<Stretch> stretches, std::int64_t length) {
  return Windows(std::move(stretches), length, Kind::every);
}

Windows Windows::overlapping(std::vector<Stretch> stretches, std::int64_t length) {
  return Windows(std::move(stretches), length, Kind::overlapping);
}

Windows Windows::ending_at_each(std::vector<Stretch> stretches, std::int64_t length, std::int64_t patch) {
  assert(patch >= 1 && length % patch == 0);
  return Windows(std::move(stretches), length, Kind::ending_at_each, patch);
}

Windows::Windows(std::vector<Stretch> stretches, std::int64_t length, Kind kind, std::int64_t patch)
    : stretches_(std::move(stretches)), length_(length), kind_(kind), patch_(patch) {
  assert(length >= 1);
  first_.push_back(0);
  for (const Stretch& stretch : stretches_) first_.push_back(first_.back() + count(stretch));
}

std::int64_t Windows::stride() const { return std::max<std::int64_t>(1, length_ / 2); }

std::int64_t Windows::first_begin(const Stretch& stretch) const {
  return std::max<std::int64_t>(0, stretch.begin - (length_ - stride()));
}

std::int64_t Windows::count(const Stretch& stretch) const {
  if (kind_ == Kind::ending_at_each) return stretch.end - stretch.begin;
  if (kind_ == Kind::every) {
    assert(stretch.end - stretch.begin >= length_);
    return stretch.end - stretch.begin - length_ + 1;
  }
  assert(stretch.begin < stretch.end);
  const std::int64_t rest = std::max<std::int64_t>(0, stretch.end - first_begin(stretch) - length_);
  return 1 + (rest + stride() - 1) / stride();
}

Window Windows::operator[](std::int64_t index) const {
  assert(index >= 0 && index < size());
  const auto after = std::ranges::upper_bound(first_, index);
  const auto at = static_cast<std::size_t>(after - first_.begin() - 1);
  const Stretch& stretch = stretches_[at];
  const std::int64_t k = index - first_[at];
  if (kind_ == Kind::every) return {stretch.source, stretch.begin + k, stretch.begin + k, stretch.end};
  if (kind_ == Kind::ending_at_each) {
    const std::int64_t step = stretch.begin + k;
    const std::int64_t before = std::min(length_ / patch_ - 1, step / patch_) * patch_;
    return {stretch.source, step - before, step, step + 1};
  }
  const std::int64_t begin = first_begin(stretch) + k * stride();
  return {stretch.source, std::max<std::int64_t>(0, std::min(begin, stretch.end - length_)),
          k == 0 ? stretch.begin : begin - stride() + length_, stretch.end};
}

}  // namespace linnet
