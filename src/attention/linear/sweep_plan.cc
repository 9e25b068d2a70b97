#include "attention/linear/sweep_plan.h"

#include <algorithm>

#include "attention/mask_geometry.h"

namespace linnet {
namespace {

// Where a bound moves on by so many rows at most, the edge of the one step begins where that of the other one
// ends: what is loaded for an edge is then a chunk that the next step's state takes in.
constexpr std::int64_t kNear = 8;

// Chunks of an edge: one would do for bounds that move on with the rows, and steps of few rows, where bounds
// move faster, cost more than long edges.
constexpr std::int64_t kMostChunksOfEdge = 2;

}  // namespace

SweepPlan::SweepPlan(const Mask& mask, SweepSide side, std::int64_t b, std::int64_t queries,
                     std::int64_t keys, std::int64_t chunk, bool states)
    : mask_(mask),
      side_(side),
      batch_(b),
      queries_(queries),
      keys_(keys),
      chunk_(chunk),
      states_(states),
      rows_(side == SweepSide::queries ? queries : visible_keys(mask, b, keys)),
      others_(side == SweepSide::queries ? visible_keys(mask, b, keys) : queries) {
  std::vector<std::int64_t> starts;
  for (std::int64_t first = 0; first < rows_; first = end_of_step(first)) starts.push_back(first);
  starts.push_back(rows_);
  cut_others(starts);

  steps_.reserve(starts.size());
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) add_step({starts[i], starts[i + 1]});
  if (side == SweepSide::keys) std::reverse(steps_.begin(), steps_.end());
  if (side == SweepSide::queries && mask.takes_state()) {
    const Mask::Interval last = keys > 0 ? segment_of(mask, b, keys - 1, keys) : Mask::Interval{};
    final_.first = std::lower_bound(cuts_.begin(), cuts_.end(), last.begin) - cuts_.begin();
    final_.last = chunks();
    final_.after_initial = last.begin == 0;
  }
  if (side == SweepSide::keys && states) {
    const std::int64_t end = keys > 0 ? segment_of(mask, b, 0, keys).end : 0;
    final_.first = chunks() - (std::lower_bound(cuts_.begin(), cuts_.end(), end) - cuts_.begin());
    final_.last = chunks();
    final_.after_initial = end == keys;
  }
  find_pieces();
}

/// Edges should be short, so the other side is cut where they begin: where queries and keys go together like
/// this side, and under intervals of any kind where those of the steps, `starts`, have their bounds.
void SweepPlan::cut_others(const std::vector<std::int64_t>& starts) {
  std::vector<std::int64_t> wanted = {others_};
  if (queries_are_keys(mask_)) {
    wanted.insert(wanted.end(), starts.begin(), starts.end() - (states_ ? 0 : 1));
  } else if (mask_.kind() == Mask::Kind::intervals) {
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      wanted.push_back(first_behind(starts[i + 1] - 1));
      wanted.push_back(last_before(starts[i]));
    }
  }
  std::sort(wanted.begin(), wanted.end());
  cuts_.push_back(0);
  for (const std::int64_t cut : wanted) {
    while (cuts_.back() < std::min(cut, others_)) {
      const std::int64_t end =
          mask_.has_segments() ? segment_of(mask_, batch_, cuts_.back(), keys_).end : others_;
      cuts_.push_back(std::min({cuts_.back() + chunk_, end, cut, others_}));
    }
  }
}

Mask::Interval SweepPlan::seen(std::int64_t row) const {
  return side_ == SweepSide::queries ? mask_.interval(batch_, row, keys_)
                                     : seen_by(mask_, batch_, row, queries_, keys_);
}

/// Where the edge ends that begins what the rows up to `row` see.
std::int64_t SweepPlan::first_behind(std::int64_t row) const {
  const std::int64_t begin = seen(row).begin, next = row + 1 < rows_ ? seen(row + 1).begin : begin;
  return next - begin <= kNear ? next : begin;
}

/// Where the edge begins that ends what the rows from `row` on see.
std::int64_t SweepPlan::last_before(std::int64_t row) const {
  const std::int64_t end = seen(row).end, before = row > 0 ? seen(row - 1).end : end;
  return end - before <= kNear ? before : end;
}

/// Rows go into one step as long as their edges stay short: where a bound jumps a new step begins, and with
/// every segment.
std::int64_t SweepPlan::end_of_step(std::int64_t first) const {
  std::int64_t end = std::min(rows_, first + chunk_);
  const std::int64_t visible = visible_keys(mask_, batch_, keys_);
  if (states_ && first < visible) end = std::min(end, visible);
  if (mask_.kind() == Mask::Kind::boolean && !mask_.has_segments()) return end;
  if (mask_.has_segments()) end = std::min(end, segment_of(mask_, batch_, first, keys_).end);
  const std::int64_t longest = kMostChunksOfEdge * chunk_;
  const Mask::Interval inner = {seen(first).begin, last_before(first)};
  const auto close = [&](std::int64_t row) {
    return first_behind(row) - inner.begin <= longest && seen(row).end - inner.end <= longest;
  };
  if (close(end - 1)) return end;
  return first + 1 + first_where(end - first - 1, [&](std::int64_t i) { return !close(first + 1 + i); });
}

void SweepPlan::add_step(Mask::Interval rows) {
  SweepStep step;
  step.rows = rows;
  if (side_ == SweepSide::queries)
    step.after_initial = segment_of(mask_, batch_, rows.begin, keys_).begin == 0;
  else
    step.after_initial = states_ && segment_of(mask_, batch_, rows.begin, keys_).end == keys_;
  Mask::Interval first = seen(rows.begin), last = seen(rows.end - 1);
  const Mask::Interval edge = {first.begin, last.end};
  if (mask_.kind() == Mask::Kind::causal) {
    // A chunk's own rows are its diagonal even where it is a single row.
    first.end = side_ == SweepSide::queries ? std::min(first.end, rows.begin) : first.end;
    last.begin = side_ == SweepSide::keys ? std::max(last.begin, rows.end) : last.begin;
  }
  const auto cut_from = [&](std::int64_t row) { return std::lower_bound(cuts_.begin(), cuts_.end(), row); };
  // The first cut that no row begins behind, and the last one that all of them reach.
  std::int64_t begin = cut_from(last.begin) - cuts_.begin();
  std::int64_t end = std::upper_bound(cuts_.begin(), cuts_.end(), first.end) - cuts_.begin() - 1;
  if (mask_.kind() == Mask::Kind::boolean || begin >= end) {
    step.edges[0] = {edge.begin, std::max(edge.begin, edge.end)};
    // What an initial state holds comes before the first chunk.
    begin = end = side_ == SweepSide::keys && states_ ? chunks() : 0;
  } else {
    step.edges[0] = {edge.begin, cuts_[static_cast<std::size_t>(begin)]};
    step.edges[1] = {cuts_[static_cast<std::size_t>(end)], edge.end};
  }
  const bool forwards = side_ == SweepSide::queries;
  step.first = forwards ? begin : chunks() - end;
  step.last = forwards ? end : chunks() - begin;
  steps_.push_back(step);
}

void SweepPlan::find_pieces() {
  const auto each = [&](const auto& body) {
    for (const SweepStep& step : steps_)
      if (step.has_core(true)) body(step);
    if (final_.has_core(true)) body(final_);
  };
  each([&](const SweepStep& step) {
    if (pieces_.empty() || step.first > pieces_.back()) pieces_.push_back(step.first);
  });
  if (pieces_.empty()) pieces_.push_back(0);
  const auto piece = [&](std::int64_t ordinal) {
    return std::upper_bound(pieces_.begin(), pieces_.end(), ordinal) - pieces_.begin();
  };
  each([&](const SweepStep& step) {
    most_pieces_ = std::max<std::int64_t>(most_pieces_, piece(step.last - 1) - piece(step.first) + 1);
  });
}

Mask::Interval SweepPlan::chunk(std::int64_t ordinal) const {
  const std::int64_t i = side_ == SweepSide::queries ? ordinal : chunks() - 1 - ordinal;
  return {cuts_[static_cast<std::size_t>(i)], cuts_[static_cast<std::size_t>(i + 1)]};
}

void SweepPlan::edge_tiles(const SweepStep& step, std::vector<EdgeTile>& tiles) const {
  tiles.clear();
  // The edge whose rows enter the state comes first: under a causal mask it is the chunk itself.
  const std::size_t entering = side_ == SweepSide::queries ? 1 : 0;
  for (const Mask::Interval& edge : {step.edges[entering], step.edges[1 - entering]}) {
    for (std::int64_t begin = edge.begin; begin < edge.end; begin += chunk_)
      add_tile(step, {begin, std::min(begin + chunk_, edge.end)}, tiles);
  }
}

void SweepPlan::add_tile(const SweepStep& step, Mask::Interval others, std::vector<EdgeTile>& tiles) const {
  EdgeTile tile;
  tile.others = others;
  const bool of_queries = side_ == SweepSide::queries;
  const Mask::Interval queries = of_queries ? step.rows : others, keys = of_queries ? others : step.rows;
  const std::int64_t count = queries.end - queries.begin, width = keys.end - keys.begin;
  if (mask_.kind() == Mask::Kind::causal && queries.begin == keys.begin && !mask_.has_segments()) {
    tile.triangle = true;
    tiles.push_back(tile);
    return;
  }
  std::uint32_t any = 0;
  tile.triangle = queries.begin == keys.begin;
  const std::uint32_t all = width == 32 ? ~0u : (1u << width) - 1;
  std::uint8_t pairs[kTileRows * kTileRows];
  if (mask_.kind() == Mask::Kind::boolean)
    mask_.fill({pairs, {count, width}}, batch_, queries.begin, keys.begin, keys_);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t& seen = tile.seen[static_cast<std::size_t>(i)];
    seen = 0;
    if (mask_.kind() == Mask::Kind::boolean) {
      for (std::int64_t j = 0; j < width; ++j) seen |= std::uint32_t{pairs[i * width + j] != 0} << j;
    } else {
      const Mask::Interval bounds = mask_.interval(batch_, queries.begin + i, keys_);
      const std::int64_t begin = std::clamp<std::int64_t>(bounds.begin - keys.begin, 0, width);
      const std::int64_t end = std::clamp<std::int64_t>(bounds.end - keys.begin, 0, width);
      if (begin < end) seen = (end == 32 ? ~0u : (1u << end) - 1) & ~((1u << begin) - 1);
    }
    any |= seen;
    const std::uint32_t lower = i == 31 ? ~0u : (2u << i) - 1;
    tile.triangle = tile.triangle && seen == (lower & all);
  }
  if (any != 0) tiles.push_back(tile);
}

}  // namespace linnet
