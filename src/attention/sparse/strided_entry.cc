#include "attention/sparse/strided_entry.h"

#include <algorithm>

#include "attention/mask_geometry.h"
#include "attention/sparse/entry.h"

namespace linnet::sparse {

Mask::Interval StridedEntry::near(std::int64_t i) const {
  const std::int64_t at = position + i, begin = pattern.near_begin(at);
  return {begin - first_key, std::max(begin, std::min(at + 1, limit)) - first_key};
}

Mask::Interval StridedEntry::far(std::int64_t i) const {
  const std::int64_t at = position + i;
  const std::int64_t visible =
      pattern.fixed() ? pattern.summaries_before(limit) : pattern.before(limit, at % pattern.stride);
  return {0, std::min(pattern.far_keys(at), visible)};
}

namespace {

/// Copies the summaries of all blocks but the last one together: those of the state, then those of the rows.
Tensor summaries_of(const StridedEntry& entry, View<const float> rows, std::int64_t of_state, RowOf row) {
  const StridedPattern& pattern = entry.pattern;
  const std::int64_t count = (entry.position + entry.queries() - 1) / pattern.stride * pattern.summary;
  Tensor far = Tensor::of<float>({1, count, rows.extent(2), rows.extent(3)});
  for (std::int64_t f = 0; f < count; ++f) {
    for (std::int64_t h = 0; h < rows.extent(2); ++h) {
      const float* from =
          f < of_state ? row(f, h) : rows.at(0, pattern.summary_position(f) - entry.first_key, h);
      std::copy_n(from, rows.extent(3), far.view<float>().at(0, f, h));
    }
  }
  return far;
}

StridedEntry entry_at(Context& context, const StridedPattern& pattern, View<const float> query,
                      View<const float> key, View<const float> value, const Mask& mask,
                      const StridedState* initial, std::int64_t b) {
  StridedEntry entry;
  entry.pattern = pattern;
  entry.position = initial != nullptr ? initial->position(b) : 0;
  entry.limit = entry.position + visible_keys(mask, b, query.extent(1));
  entry.first_key = pattern.fixed() ? entry.position / pattern.stride * pattern.stride : 0;
  // What the state holds of the current block, or of all, comes behind the summaries.
  const std::int64_t summaries = entry.first_key / pattern.stride * pattern.summary;
  entry.held = initial != nullptr ? initial->held(b) - summaries : 0;
  const auto held_key = [&](std::int64_t t, std::int64_t h) {
    return initial->cache().head(b, h).key.from(t).floats();
  };
  const auto held_value = [&](std::int64_t t, std::int64_t h) {
    return initial->cache().head(b, h).value.from(t).floats();
  };
  entry.query = query.slice(0, b, b + 1);
  entry.key = key.slice(0, b, b + 1);
  entry.value = value.slice(0, b, b + 1);
  if (entry.held > 0) {
    entry.joined_key = joined(context, key, b, entry.held,
                              [&](std::int64_t t, std::int64_t h) { return held_key(summaries + t, h); });
    entry.joined_value = joined(context, value, b, entry.held,
                                [&](std::int64_t t, std::int64_t h) { return held_value(summaries + t, h); });
    entry.key = std::as_const(entry.joined_key).view<float>();
    entry.value = std::as_const(entry.joined_value).view<float>();
  }
  if (!pattern.fixed() || entry.queries() == 0) return entry;
  entry.summary_key = summaries_of(entry, entry.key, summaries, held_key);
  entry.summary_value = summaries_of(entry, entry.value, summaries, held_value);
  entry.far_key = std::as_const(entry.summary_key).view<float>();
  entry.far_value = std::as_const(entry.summary_value).view<float>();
  return entry;
}

}  // namespace

std::vector<StridedEntry> strided_entries(Context& context, const StridedPattern& pattern,
                                          View<const float> query, View<const float> key,
                                          View<const float> value, const Mask& mask,
                                          const StridedState* initial) {
  std::vector<StridedEntry> entries;
  for (std::int64_t b = 0; b < query.extent(0); ++b)
    entries.push_back(entry_at(context, pattern, query, key, value, mask, initial, b));
  return entries;
}

}  // namespace linnet::sparse
