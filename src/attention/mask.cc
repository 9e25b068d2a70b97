#include "linnet/mask.h"

#include <algorithm>

#include "attention/mask_geometry.h"
#include "base/fail.h"

namespace linnet {
namespace {

void check_lengths(const char* operation, const char* what, const std::vector<std::int64_t>& lengths,
                   std::int64_t batch, std::int64_t keys) {
  if (static_cast<std::int64_t>(lengths.size()) != batch)
    fail(operation, "expected a {} for each of {} batch entries, got {}", what, batch, lengths.size());
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > keys) fail(operation, "expected {}s from 0 to {}, got {}", what, keys, length);
  }
}

void check_bounds(const char* operation, const std::vector<std::int64_t>& bounds, std::int64_t length) {
  if (bounds.empty() || bounds.front() != 0 || bounds.back() != length)
    fail(operation, "expected segment bounds from 0 to {}, got {} … {}", length,
         bounds.empty() ? "none" : std::to_string(bounds.front()),
         bounds.empty() ? "none" : std::to_string(bounds.back()));
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] <= bounds[i - 1])
      fail(operation, "expected segments that do not overlap, their bounds increasing, got {} after {}",
           bounds[i], bounds[i - 1]);
  }
}

void check_ends(const char* operation, const char* what, const std::vector<std::int64_t>& ends,
                std::int64_t queries, std::int64_t keys) {
  if (static_cast<std::int64_t>(ends.size()) != queries)
    fail(operation, "expected an interval's {} for each of {} queries, got {}", what, queries, ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < 0 || ends[i] > keys)
      fail(operation, "expected the interval of query {} to {} from 0 to {}, got {}", i, what, keys, ends[i]);
    if (i > 0 && ends[i] < ends[i - 1])
      fail(operation,
           "expected intervals that never decrease, got one that {}s at {} for query {} after {}; a boolean "
           "mask "
           "takes any",
           what, ends[i], i, ends[i - 1]);
  }
}

const char* name_of(Mask::Kind kind) {
  switch (kind) {
    case Mask::Kind::full:
      return "full";
    case Mask::Kind::causal:
      return "causal";
    case Mask::Kind::prefix:
      return "prefix";
    case Mask::Kind::window:
      return "window";
    case Mask::Kind::intervals:
      return "intervals";
    case Mask::Kind::boolean:
      return "boolean";
  }
  return "unknown";
}

}  // namespace

Mask Mask::prefix(std::vector<std::int64_t> lengths) {
  Mask mask(Kind::prefix);
  mask.prefix_ = std::move(lengths);
  return mask;
}

Mask Mask::window(std::int64_t left, std::int64_t right) {
  Mask mask(Kind::window);
  mask.left_ = left;
  mask.right_ = right;
  return mask;
}

Mask Mask::intervals(std::vector<std::int64_t> begin, std::vector<std::int64_t> end) {
  Mask mask(Kind::intervals);
  mask.begin_ = std::make_shared<const Bounds>(std::move(begin));
  mask.end_ = std::make_shared<const Bounds>(std::move(end));
  return mask;
}

Mask Mask::boolean(View<const std::uint8_t> visible) {
  Mask mask = boolean(
      [visible](View<std::uint8_t> tile, std::int64_t b, std::int64_t first_query, std::int64_t first_key) {
        const std::int64_t entry = visible.extent(0) == 1 ? 0 : b;
        for (std::int64_t i = 0; i < tile.extent(0); ++i)
          std::copy_n(visible.at(entry, first_query + i, first_key), tile.extent(1), tile.at(i));
      });
  mask.matrix_ = true;
  mask.visible_ = visible;
  return mask;
}

Mask Mask::boolean(BooleanTile tile) {
  Mask mask(Kind::boolean);
  mask.tile_ = std::make_shared<const BooleanTile>(std::move(tile));
  return mask;
}

Mask Mask::with_key_lengths(std::vector<std::int64_t> lengths) const {
  Mask result = *this;
  result.has_key_lengths_ = true;
  result.key_lengths_ = std::move(lengths);
  return result;
}

Mask Mask::with_segments(std::vector<std::int64_t> bounds) const {
  return with_segments(std::vector<Bounds>{std::move(bounds)});
}

Mask Mask::with_segments(std::vector<std::vector<std::int64_t>> bounds) const {
  Mask result = *this;
  result.segments_ = std::make_shared<const std::vector<Bounds>>(std::move(bounds));
  return result;
}

Mask Mask::within(std::int64_t left, std::int64_t right) const {
  if (kind_ != Kind::full && kind_ != Kind::causal && kind_ != Kind::window)
    fail("mask", "expected a full, causal or window mask within a window, got {}", name());
  Mask result = *this;
  result.kind_ = Kind::window;
  result.left_ = kind_ == Kind::window ? std::min(left_, left) : left;
  result.right_ = kind_ == Kind::full ? right : std::min(right_, right);  // a causal mask sees 0 to the right
  return result;
}

Mask::Interval Mask::interval(std::int64_t b, std::int64_t i, std::int64_t keys) const {
  Interval seen = {0, keys};
  switch (kind_) {
    case Kind::full:
    case Kind::boolean:
      break;
    case Kind::causal:
      seen.end = i + 1;
      break;
    case Kind::prefix:
      seen.end = std::max(i + 1, prefix_[prefix_.size() == 1 ? 0 : static_cast<std::size_t>(b)]);
      break;
    case Kind::window:
      // Widths as large as one likes: sums that could overflow are not formed.
      seen.begin = left_ >= i ? 0 : i - left_;
      seen.end = right_ >= keys - i - 1 ? keys : i + right_ + 1;
      break;
    case Kind::intervals:
      seen = {(*begin_)[static_cast<std::size_t>(i)], (*end_)[static_cast<std::size_t>(i)]};
      break;
  }
  if (segments_) {
    const Interval own = segment_of(*this, b, i, keys);
    seen = {std::max(seen.begin, own.begin), std::min(seen.end, own.end)};
  }
  const std::int64_t limit = visible_keys(*this, b, keys);
  seen.begin = std::min(seen.begin, limit);
  seen.end = std::max(seen.begin, std::min(seen.end, limit));
  return seen;
}

void Mask::fill(View<std::uint8_t> tile, std::int64_t b, std::int64_t first_query, std::int64_t first_key,
                std::int64_t keys) const {
  if (tile_) (*tile_)(tile, b, first_query, first_key);
  const std::int64_t width = tile.extent(1);
  for (std::int64_t i = 0; i < tile.extent(0); ++i) {
    const Interval seen = interval(b, first_query + i, keys);
    const std::int64_t begin = std::clamp<std::int64_t>(seen.begin - first_key, 0, width);
    const std::int64_t end = std::clamp<std::int64_t>(seen.end - first_key, begin, width);
    std::uint8_t* row = tile.at(i);
    std::fill(row, row + begin, std::uint8_t{0});
    for (std::int64_t j = begin; j < end; ++j) row[j] = !tile_ || row[j] != 0;
    std::fill(row + end, row + width, std::uint8_t{0});
  }
}

void Mask::check(const char* operation, std::int64_t batch, std::int64_t queries, std::int64_t keys) const {
  const bool square = kind_ == Kind::causal || kind_ == Kind::prefix || kind_ == Kind::window;
  if (square && queries != keys)
    fail(operation, "expected as many queries as keys under a {} mask, got {} and {}", name_of(kind_),
         queries, keys);
  if (segments_ && queries != keys)
    fail(operation, "expected as many queries as keys with segments, got {} and {}", queries, keys);
  if (kind_ == Kind::prefix)
    check_lengths(operation, "prefix length", prefix_, prefix_.size() == 1 ? 1 : batch, keys);
  if (kind_ == Kind::window && (left_ < 0 || right_ < 0))
    fail(operation, "expected a window of at least 0 keys to either side, got {} and {}", left_, right_);
  if (kind_ == Kind::intervals) {
    check_ends(operation, "begin", *begin_, queries, keys);
    check_ends(operation, "end", *end_, queries, keys);
  }
  if (tile_ && !*tile_) fail(operation, "expected a function for a boolean mask, got none");
  if (matrix_) {
    const bool fits = visible_.rank() == 3 && (visible_.extent(0) == 1 || visible_.extent(0) == batch) &&
                      visible_.extent(1) == queries && visible_.extent(2) == keys;
    if (fits && visible_.size() > 0 && visible_.data() == nullptr)
      fail(operation, "expected memory for a boolean mask, got a null pointer");
    if (!fits)
      fail(operation, "expected a boolean mask [{} or 1, {}, {}], got {}", batch, queries, keys,
           to_string(visible_.shape()));
  }
  if (segments_) {
    const auto lists = static_cast<std::int64_t>(segments_->size());
    if (lists == 0 || (lists != 1 && lists != batch))
      fail(operation, "expected segment bounds for each of {} batch entries or for all, got {} lists", batch,
           lists);
    for (const Bounds& bounds : *segments_) check_bounds(operation, bounds, keys);
  }
  if (has_key_lengths_) check_lengths(operation, "key length", key_lengths_, batch, keys);
}

std::string Mask::name() const {
  std::string name = name_of(kind_);
  if (segments_) name += ", segments";
  if (has_key_lengths_) name += ", key lengths";
  return name;
}

}  // namespace linnet
