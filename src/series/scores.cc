#include "series/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "linnet/generation.h"
#include "series/pace.h"

namespace linnet {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// Writes the scores of the columns of a stream in the rows of a step.
void score_step(const SeriesInput& input, NumberSession& session, std::int64_t row, std::int64_t count,
                std::int64_t stream, std::span<double> scores) {
  std::vector<float> mean(static_cast<std::size_t>(session.targets())), scale(mean), freedom(mean);
  session.densities(stream, mean, scale, freedom);
  const std::int64_t columns = std::ssize(input.series.columns), row_columns = input.row_columns();
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < row_columns; ++c) {
      const std::int64_t column = stream * row_columns + c;
      const auto from = static_cast<std::size_t>(i * row_columns + c),
                 at = static_cast<std::size_t>((row + i) * columns + column);
      const float number = input.series.values[at];
      scores[at] = unknown;
      if (std::isnan(number)) continue;
      scores[at] = std::log(input.deviation(column)) -
                   log_density(input.to_model(number, column), mean[from], scale[from], freedom[from]);
      if (!std::isfinite(scores[at]))
        fail("score", "expected numbers with a finite score, got a score of {} in row {}", scores[at],
             row + i);
    }
}

/// The streams take their columns of a step; `predicted` [targets] is memory. Errors name the row, whose
/// numbers may be too large for the model.
void take_step(const SeriesInput& input, NumberSession& session, std::int64_t row,
               std::span<float> predicted) {
  for (std::int64_t stream = 0; stream < session.streams(); ++stream) {
    const std::int64_t one[] = {stream};
    try {
      session.step(input.step(row, stream), predicted, one);
    } catch (const Error& error) {
      fail("score", "cannot take row {}: {}", row + input.patch() - 1, error.what());
    }
  }
}

/// The sum over the known numbers of a row; NaN where it has none.
double row_score(std::span<const double> numbers) {
  double score = unknown;
  for (const double number : numbers)
    if (!std::isnan(number)) score = number + (std::isnan(score) ? 0 : score);
  return score;
}

}  // namespace

SeriesScores scores_of(const SeriesInput& input, int threads, const SeriesProgress& progress) {
  const ModelConfig& config = input.model->config();
  const auto columns = static_cast<std::size_t>(std::ssize(input.series.columns));
  require_memory("the scores", sizeof(double) * static_cast<double>(input.series.values.size()));
  NumberSession session(input.model, input.streams(), {.threads = threads});
  SeriesScores scores{.columns = static_cast<std::int64_t>(columns),
                      .numbers = std::vector<double>(input.series.values.size()),
                      .rows = {},
                      .has_context = {}};
  const std::int64_t rows = input.series.rows(), patch = input.patch();
  std::vector<float> predicted(static_cast<std::size_t>(session.targets()));
  Pace pace(progress, rows);
  for (std::int64_t row = 0; row < rows; row += patch) {
    pace.show(row);
    const std::int64_t here = std::min(patch, rows - row);
    for (std::int64_t stream = 0; stream < session.streams(); ++stream) {
      // Learned positions end with the trained length: the stream begins anew.
      if (config.positions == Positions::learned && session.position(stream) + 1 >= config.length)
        session.begin(stream, config.classes > 0 ? 0 : -1);
      score_step(input, session, row, here, stream, scores.numbers);
    }
    const bool has_context = session.position(0) > 0;
    for (std::int64_t i = row; i < row + here; ++i) {
      scores.rows.push_back(
          row_score(std::span(scores.numbers).subspan(static_cast<std::size_t>(i) * columns, columns)));
      scores.has_context.push_back(has_context);
    }
    if (here == patch) take_step(input, session, row, predicted);
  }
  for (std::int64_t stream = 0; stream < session.streams(); ++stream)
    scores.state_bytes += static_cast<std::int64_t>(session.state_bytes(stream));
  return scores;
}

}  // namespace linnet
