#include "data/windows.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace linnet {

Windows Windows::every(std::vector<Stretch> stretches, std::int64_t length) {
  return Windows(std::move(stretches), length, false);
}

Windows Windows::overlapping(std::vector<Stretch> stretches, std::int64_t length) {
  return Windows(std::move(stretches), length, true);
}

Windows::Windows(std::vector<Stretch> stretches, std::int64_t length, bool overlapping)
    : stretches_(std::move(stretches)), length_(length), overlapping_(overlapping) {
  assert(length >= 1);
  first_.push_back(0);
  for (const Stretch& stretch : stretches_) first_.push_back(first_.back() + count(stretch));
}

std::int64_t Windows::stride() const { return std::max<std::int64_t>(1, length_ / 2); }

std::int64_t Windows::first_begin(const Stretch& stretch) const {
  return std::max<std::int64_t>(0, stretch.begin - (length_ - stride()));
}

std::int64_t Windows::count(const Stretch& stretch) const {
  if (!overlapping_) {
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
  if (!overlapping_) return {stretch.source, stretch.begin + k, stretch.begin + k, stretch.end};
  const std::int64_t begin = first_begin(stretch) + k * stride();
  return {stretch.source, std::max<std::int64_t>(0, std::min(begin, stretch.end - length_)),
          k == 0 ? stretch.begin : begin - stride() + length_, stretch.end};
}

}  // namespace linnet
