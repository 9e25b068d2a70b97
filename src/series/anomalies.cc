#include <algorithm>
#include <cmath>
#include <vector>

#include "base/fail.h"
#include "base/quantile.h"
#include "linnet/series.h"

namespace linnet {
namespace {

/// Sums of the last `window` numbers. Nothing is subtracted, so that a number that is huge does not stay in
/// the later sums: the numbers are cut into pieces of `window`, and a sum is that of the end of one piece and
/// the beginning of the next.
std::vector<double> window_sums(const std::vector<double>& numbers, std::int64_t window) {
  const std::size_t count = numbers.size(), width = static_cast<std::size_t>(window);
  std::vector<double> to_end(count), result(count);
  for (std::size_t i = count; i-- > 0;)
    to_end[i] = numbers[i] + ((i + 1) % width != 0 && i + 1 < count ? to_end[i + 1] : 0);
  double from_begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    from_begin = (i % width != 0 ? from_begin : 0) + numbers[i];
    const bool ends_piece = (i + 1) % width == 0;
    result[i] = (i >= width && !ends_piece ? to_end[i + 1 - width] : 0) + from_begin;
  }
  return result;
}

/// Means over the known scores with a context among the last `window` ones, NaN where there are none. A score
/// without a context stays as it is.
std::vector<double> smoothed(const SeriesScores& scores, std::int64_t window) {
  std::vector<double> result = scores.rows, known = scores.rows, counts(known.size(), 1.0);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (!scores.has_context[i] || std::isnan(known[i])) known[i] = counts[i] = 0;
  known = window_sums(known, window);
  counts = window_sums(counts, window);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (scores.has_context[i]) result[i] = known[i] / counts[i];
  return result;
}

/// The score that a share of the steps lies below, from sorted ones. Of few steps the highest are too few to
/// tell: beyond the 98th percentile the excess over it is taken as exponential (peaks over threshold with
/// shape 0; Siffer et al. 2017, "Anomaly detection in streams with extreme value theory", section 3.3).
double threshold_of(const std::vector<double>& sorted, double share) {
  constexpr double tail = 0.02;
  constexpr std::ptrdiff_t fewest = 10;  // scores in the tail
  const double begin = quantile(sorted, 1 - tail);
  const auto first = std::ranges::upper_bound(sorted, begin);
  if (1 - share >= tail || share >= 1 || sorted.end() - first < fewest) return quantile(sorted, share);
  double excess = 0;
  for (auto score = first; score != sorted.end(); ++score) excess += *score - begin;
  return begin + excess / static_cast<double>(sorted.end() - first) * std::log(tail / (1 - share));
}

/// Rows with a context whose score is above a threshold; those with up to `gap` rows between them are one
/// anomaly.
std::vector<Anomaly> rows_above(const std::vector<double>& scores, const std::vector<bool>& has_context,
                                double threshold, std::int64_t gap) {
  std::vector<Anomaly> found;
  for (std::int64_t i = 0; i < std::ssize(scores); ++i) {
    const double score = scores[static_cast<std::size_t>(i)];
    if (!has_context[static_cast<std::size_t>(i)] || !(score > threshold)) continue;
    if (found.empty() || i - found.back().last - 1 > gap) found.push_back({i, i, score});
    found.back().last = i;
    found.back().highest = std::max(found.back().highest, score);
  }
  return found;
}

/// What the scores of each column add up to in some rows, and how many of these are known.
struct ColumnSums {
  std::vector<double> sums, counts;
};

/// Of the rows first … last − 1 that have a context.
ColumnSums sums_of(const SeriesScores& scores, std::int64_t first, std::int64_t last) {
  const auto columns = static_cast<std::size_t>(scores.columns);
  ColumnSums result{std::vector<double>(columns), std::vector<double>(columns)};
  for (std::int64_t row = first; row < last; ++row) {
    if (!scores.has_context[static_cast<std::size_t>(row)]) continue;
    for (std::size_t c = 0; c < columns; ++c) {
      const double number = scores.numbers[static_cast<std::size_t>(row) * columns + c];
      if (std::isnan(number)) continue;
      result.sums[c] += number;
      result.counts[c] += 1;
    }
  }
  return result;
}

/// The column whose scores, in the rows that the means of an anomaly are taken over, lie furthest above their
/// mean in the calibrating rows: scores have the units of their column, and are not compared as they are.
std::int64_t column_of(const Anomaly& anomaly, const SeriesScores& scores, const ColumnSums& usual,
                       std::int64_t window) {
  const std::int64_t first = std::max<std::int64_t>(anomaly.first - window + 1, 0);
  ColumnSums here = sums_of(scores, first, anomaly.last + 1);
  for (std::size_t c = 0; c < here.sums.size(); ++c)
    here.sums[c] -= usual.sums[c] * (here.counts[c] / std::max(usual.counts[c], 1.0));
  return std::ranges::max_element(here.sums) - here.sums.begin();
}

void check(const AnomalyOptions& options) {
  constexpr std::int64_t most = 1 << 24;
  if (options.window < 1 || options.window > most)
    fail<UsageError>("score", "expected a window of 1 … {} rows, got {}", most, options.window);
  if (options.gap < 0 || options.calibrate < 0)
    fail<UsageError>("score", "expected a gap and calibrating rows of at least 0, got {} and {}", options.gap,
                     options.calibrate);
  if (!(options.quantile >= 0 && options.quantile <= 1))
    fail<UsageError>("score", "expected a quantile in 0 … 1, got {}", options.quantile);
}

}  // namespace

Anomalies find_anomalies(const SeriesScores& scores, const AnomalyOptions& options) {
  check(options);
  const auto columns = static_cast<std::size_t>(std::max<std::int64_t>(scores.columns, 0));
  if (columns == 0 || scores.has_context.size() != scores.rows.size() ||
      scores.numbers.size() % columns != 0 || scores.numbers.size() / columns != scores.rows.size())
    fail<UsageError>(
        "score",
        "expected scores of as many rows as contexts and of a number for each row and column, got {} "
        "rows, {} contexts, {} columns and {} numbers",
        scores.rows.size(), scores.has_context.size(), scores.columns, scores.numbers.size());
  for (const std::vector<double>* all : {&scores.rows, &scores.numbers}) {
    const auto infinite = std::ranges::find_if(*all, [](double score) { return std::isinf(score); });
    if (infinite != all->end())
      fail<UsageError>("score", "expected finite scores or NaN, got {} {} {}", *infinite,
                       all == &scores.rows ? "in row" : "for number", infinite - all->begin());
  }
  Anomalies result{.scores = smoothed(scores, options.window), .threshold = options.threshold, .found = {}};
  const std::int64_t rows = std::ssize(scores.rows),
                     calibrate = options.calibrate > 0 ? std::min(options.calibrate, rows) : rows;
  if (std::isnan(options.threshold)) {
    std::vector<double> sorted;
    for (std::size_t i = 0; i < static_cast<std::size_t>(calibrate); ++i)
      if (scores.has_context[i] && !std::isnan(result.scores[i])) sorted.push_back(result.scores[i]);
    std::ranges::sort(sorted);
    if (sorted.empty())
      fail<UsageError>(
          "score",
          "expected a threshold, or calibrating rows with known numbers behind the first step, which no "
          "others stand before, got {} rows",
          calibrate);
    result.threshold = threshold_of(sorted, options.quantile);
  }
  result.found = rows_above(result.scores, scores.has_context, result.threshold, options.gap);
  if (result.found.empty()) return result;
  const ColumnSums usual = sums_of(scores, 0, calibrate);
  for (Anomaly& anomaly : result.found) anomaly.column = column_of(anomaly, scores, usual, options.window);
  return result;
}

}  // namespace linnet
