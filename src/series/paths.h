#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "linnet/generation.h"
#include "series/input.h"
#include "series/pace.h"

namespace linnet {

/// Whether the model predicts real numbers by their means alone, from which nothing is drawn.
bool predicts_means(const ModelConfig& config);

/// Whether the model predicts more than means.
bool has_densities(const SeriesInput& input);

/// How many draws of how many rows follow a series.
struct SeriesDraws {
  std::int64_t samples = 1, steps = 24;
  std::int64_t context = 0;  ///< rows before them that the model reads, as `context_of`
  std::uint64_t seed = 0;    ///< of the first sample; each next one adds 1
  double temperature = 1;    ///< as in NumberSession::draw
  int threads = 0;
  SeriesProgress progress = {};
};

/// The rows that the model reads before it draws `steps` rows: those of whole steps, `context` of them or as
/// many as the trained length allows for 0. Throws UsageError, naming the command, where there are too few of
/// them, or too many rows to draw.
std::int64_t context_of(const char* command, const SeriesInput& input, std::int64_t context,
                        std::int64_t steps);

/// NumberSession::draw. Throws Error for numbers that are not finite.
void draw_finite(NumberSession& session, std::int64_t stream, std::uint64_t seed, std::span<float> out,
                 double temperature);

/// Draws of what follows a series, in the units of its columns.
class SeriesPaths {
 public:
  SeriesPaths(const SeriesInput& input, const SeriesDraws& draws);

  /// What a sample has drawn of a column at a step.
  double at(std::int64_t sample, std::int64_t step, std::int64_t column) const;

  /// The median of the draws of one column at one step, and the bounds of the intervals, which are given in
  /// per cent.
  struct Summary {
    double median;
    std::vector<std::pair<double, double>> bounds;
  };
  Summary summary(std::int64_t step, std::int64_t column, const std::vector<std::int64_t>& intervals) const;

 private:
  /// What a stream draws with. Columns that are streams of their own draw apart from each other.
  std::uint64_t seed_of(std::int64_t stream) const;

  /// What a stream has drawn for a row of the series, as the model gives it.
  const float* row(std::int64_t stream, std::int64_t step) const;

  /// The streams of the first sample take the last rows of the series; the others are copies.
  void read_context(std::int64_t rows, Pace& pace);

  /// The next `count` rows of all streams, from one prediction; they then take them.
  void extend(std::int64_t first, std::int64_t count);

  const SeriesInput& input_;  // lives longer
  SeriesDraws draws_;
  std::int64_t row_columns_;
  NumberSession session_;
  std::vector<float> values_;  ///< [streams, steps, row_columns], as the model gives them
};

}  // namespace linnet
