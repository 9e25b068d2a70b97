#include "linnet/series.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "generation/streams.h"
#include "io/file.h"
#include "model/access.h"
#include "model/files.h"
#include "series/input.h"
#include "series/paths.h"
#include "series/scores.h"

namespace linnet {
namespace {

std::optional<RunColumns> columns_of(const Model& model) {
  return RunColumns::parse(model.assets().columns, columns_file);
}

void check_model(const std::shared_ptr<const Model>& model) {
  check_given("series", model);
  check_series_model("series", model->config());
}

/// The series of numbers in memory.
Series series_of(View<const float> values, std::vector<std::string> names) {
  if (values.rank() != 2 || values.extent(0) < 1 || values.extent(1) < 1)
    fail<UsageError>("series", "expected numbers [rows, columns], neither of them 0, got {}",
                     to_string(values.shape()));
  if (values.data() == nullptr)
    fail<UsageError>("series", "expected memory for numbers {}, got a null pointer",
                     to_string(values.shape()));
  Series series;
  const std::int64_t rows = values.extent(0), columns = values.extent(1);
  if (std::ssize(names) != columns) {
    names.clear();
    for (std::int64_t c = 0; c < columns; ++c) names.push_back(std::to_string(c));
  }
  series.columns = std::move(names);
  series.values.reserve(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < columns; ++c) {
      series.values.push_back(values(row, c));
      if (std::isinf(series.values.back()))
        fail<UsageError>("series", "expected finite numbers or NaN, got infinity in row {}", row);
    }
  return series;
}

}  // namespace

std::vector<std::string> column_names(const Model& model) {
  const std::optional<RunColumns> columns = columns_of(model);
  return columns ? columns->names : std::vector<std::string>{};
}

ModelSeries::ModelSeries(std::shared_ptr<const Model> model, View<const float> values) {
  check_model(model);
  const auto columns = columns_of(*model);
  Series series = series_of(values, columns ? columns->names : std::vector<std::string>());
  impl_ = std::make_shared<const Impl>(
      Impl{series_input("series", std::move(model), columns, std::move(series), "the numbers")});
}

ModelSeries ModelSeries::read(std::shared_ptr<const Model> model, const std::filesystem::path& csv,
                              const std::string& missing) {
  check_model(model);
  return parse(std::move(model), read_file(csv), csv.string(), missing);
}

ModelSeries ModelSeries::parse(std::shared_ptr<const Model> model, std::string_view csv,
                               const std::string& origin, const std::string& missing) {
  check_model(model);
  const auto columns = columns_of(*model);
  check_statistics("series", *model, columns);
  DataOptions options{.kind = "series"};
  if (columns) columns->take_form(options);
  if (!missing.empty()) options.missing = missing;
  Series series = parse_series(csv, origin, options);
  return ModelSeries(std::make_shared<const Impl>(
      Impl{series_input("series", std::move(model), columns, std::move(series), origin)}));
}

std::int64_t ModelSeries::rows() const { return impl_->series.rows(); }
const std::vector<std::string>& ModelSeries::column_names() const { return impl_->series.columns; }
std::span<const float> ModelSeries::values() const { return impl_->series.values; }

std::string ModelSeries::time(std::int64_t row) const {
  if (row < 0) fail<UsageError>("series", "expected a row of at least 0, got {}", row);
  return impl_->series.time_text(row);
}

std::vector<float> forecast(const ModelSeries& series, const ForecastOptions& options) {
  constexpr std::int64_t most_steps = 1 << 24, most_samples = 1 << 16;
  const SeriesInput& input = series.impl();
  if (options.steps < 1 || options.steps > most_steps)
    fail<UsageError>("forecast", "expected steps in 1 … {}, got {}", most_steps, options.steps);
  if (options.samples < 1 || options.samples > most_samples)
    fail<UsageError>("forecast", "expected samples in 1 … {}, got {}", most_samples, options.samples);
  check_temperature("forecast", options.temperature);
  if (options.context < 0)
    fail<UsageError>("forecast", "expected a context of at least 0 rows, got {}", options.context);
  const SeriesDraws draws{.samples = has_densities(input) ? options.samples : 1,
                          .steps = options.steps,
                          .context = context_of("forecast", input, options.context, options.steps),
                          .seed = options.seed,
                          .temperature = options.temperature,
                          .threads = options.threads,
                          .progress = options.progress};
  const SeriesPaths paths(input, draws);
  const std::int64_t columns = std::ssize(input.series.columns);
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(draws.samples * draws.steps * columns));
  for (std::int64_t sample = 0; sample < draws.samples; ++sample)
    for (std::int64_t step = 0; step < draws.steps; ++step)
      for (std::int64_t column = 0; column < columns; ++column)
        result.push_back(static_cast<float>(paths.at(sample, step, column)));
  return result;
}

SeriesScores score(const ModelSeries& series, int threads, const SeriesProgress& progress) {
  return scores_of(series.impl(), threads, progress);
}

}  // namespace linnet
