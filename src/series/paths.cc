#include "series/paths.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/memory.h"
#include "base/quantile.h"
#include "base/random.h"

namespace linnet {

bool predicts_means(const ModelConfig& config) {
  return config.columns > 0 && config.value_head == ValueDistribution::squared_error;
}

bool has_densities(const SeriesInput& input) { return !predicts_means(input.model->config()); }

std::int64_t context_of(const char* command, const SeriesInput& input, std::int64_t context,
                        std::int64_t steps) {
  const ModelConfig& config = input.model->config();
  const std::int64_t patch = input.patch();
  std::int64_t read = context > 0 ? context / patch : config.length - 1;
  // Learned positions end with the trained length; the start token takes one.
  if (config.positions == Positions::learned)
    read = std::min(read, config.length - (steps + patch - 1) / patch);
  if (read < 1 && context > 0 && context < patch)
    fail<UsageError>(command, "expected a context of at least the {} rows of a step, got {}", patch, context);
  if (read < 1)
    fail<UsageError>(command,
                     "expected fewer steps than the {} positions of the model, got {}; a model with "
                     "sinusoidal or rotary positions, or with none, goes on beyond its trained length",
                     config.length, steps);
  if (input.series.rows() < patch)
    fail<UsageError>(command, "expected at least the {} rows of a step of the model, got {}", patch,
                     input.series.rows());
  return std::min(read, input.series.rows() / patch) * patch;
}

void draw_finite(NumberSession& session, std::int64_t stream, std::uint64_t seed, std::span<float> out,
                 double temperature) {
  session.draw(stream, seed, out, temperature);
  for (const float number : out)
    if (!std::isfinite(number))
      fail("draw", "expected numbers from which the model predicts finite ones, got a draw of {}", number);
}

namespace {

std::vector<float> room_for(std::int64_t streams, std::int64_t steps, std::int64_t columns) {
  const double numbers =
      static_cast<double>(streams) * static_cast<double>(steps) * static_cast<double>(columns);
  require_memory("the draws", sizeof(float) * numbers);
  return std::vector<float>(static_cast<std::size_t>(streams * steps * columns));
}

}  // namespace

SeriesPaths::SeriesPaths(const SeriesInput& input, const SeriesDraws& draws)
    : input_(input),
      draws_(draws),
      row_columns_(input.row_columns()),
      session_(input.model, draws.samples * input.streams(), {.threads = draws.threads}),
      values_(room_for(session_.streams(), draws.steps, row_columns_)) {
  Pace pace(draws.progress, draws.context + draws.steps);
  read_context(draws.context, pace);
  // Rows of whole steps, which the model can take again.
  const std::int64_t together = input.horizon() / input.patch() * input.patch();
  for (std::int64_t step = 0; step < draws.steps; step += together) {
    pace.show(draws.context + step);
    extend(step, std::min(together, draws.steps - step));
  }
}

double SeriesPaths::at(std::int64_t sample, std::int64_t step, std::int64_t column) const {
  const std::int64_t stream = sample * input_.streams() + column / row_columns_;
  return input_.from_model(row(stream, step)[column % row_columns_], column);
}

SeriesPaths::Summary SeriesPaths::summary(std::int64_t step, std::int64_t column,
                                          const std::vector<std::int64_t>& intervals) const {
  std::vector<double> drawn;
  for (std::int64_t sample = 0; sample < draws_.samples; ++sample) drawn.push_back(at(sample, step, column));
  std::ranges::sort(drawn);
  Summary summary{quantile(drawn, 0.5), {}};
  for (const std::int64_t percent : intervals) {
    const double outside = (1 - static_cast<double>(percent) / 100) / 2;
    summary.bounds.emplace_back(quantile(drawn, outside), quantile(drawn, 1 - outside));
  }
  return summary;
}

const float* SeriesPaths::row(std::int64_t stream, std::int64_t step) const {
  return &values_[static_cast<std::size_t>((stream * draws_.steps + step) * row_columns_)];
}

void SeriesPaths::read_context(std::int64_t rows, Pace& pace) {
  std::vector<float> predicted(static_cast<std::size_t>(session_.targets()));
  for (std::int64_t stream = 0; stream < input_.streams(); ++stream) {
    const std::int64_t one[] = {stream};
    const std::int64_t end = input_.series.rows(), last = end - input_.patch();
    for (std::int64_t i = end - rows; i < last; i += input_.patch()) {
      pace.show(i - (end - rows));
      session_.observe(input_.step(i, stream), one);
    }
    session_.step(input_.step(last, stream), predicted, one);
  }
  for (std::int64_t s = input_.streams(); s < session_.streams(); ++s) session_.fork(s, s % input_.streams());
}

std::uint64_t SeriesPaths::seed_of(std::int64_t stream) const {
  const std::uint64_t seed = draws_.seed + static_cast<std::uint64_t>(stream / input_.streams());
  if (input_.streams() == 1) return seed;
  const auto column = static_cast<std::uint32_t>(stream % input_.streams());
  const auto words = Random(seed, Draw::sampling, column).block(0);
  return std::uint64_t{words[0]} << 32 | words[1];
}

void SeriesPaths::extend(std::int64_t first, std::int64_t count) {
  const std::int64_t streams = session_.streams(), patch = input_.patch();
  const bool last = first + count == draws_.steps;
  std::vector<float> drawn(static_cast<std::size_t>(session_.targets())),
      taken(static_cast<std::size_t>(streams * patch * row_columns_)),
      predicted(static_cast<std::size_t>(streams) * drawn.size());
  const double temperature = has_densities(input_) ? draws_.temperature : 0;
  for (std::int64_t s = 0; s < streams; ++s) {
    draw_finite(session_, s, seed_of(s), drawn, temperature);
    std::copy_n(drawn.begin(), count * row_columns_,
                values_.begin() + (s * draws_.steps + first) * row_columns_);
  }
  for (std::int64_t step = first; step < first + count && !last; step += patch) {
    for (std::int64_t s = 0; s < streams; ++s)
      std::copy_n(row(s, step), patch * row_columns_, taken.begin() + s * patch * row_columns_);
    if (step + patch < first + count)
      session_.observe(taken);
    else
      session_.step(taken, predicted);
  }
}

}  // namespace linnet
