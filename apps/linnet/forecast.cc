#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "linnet/generation.h"
#include "lists.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"
#include "series_input.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, out, plot, intervals;
  std::int64_t steps = 24, samples = 200, context = 0, show = 0;
  std::uint64_t seed = 0;
  bool json = false;
  int threads = 0;
};

/// Draws of what follows a series, in the units of its columns.
class Paths {
 public:
  Paths(const SeriesInput& input, const Arguments& arguments)
      : input_(input),
        samples_(arguments.samples),
        steps_(arguments.steps),
        row_columns_(input.row_columns()),
        temperature_(has_densities(input) ? 1 : 0),
        session_(input.model, samples_ * input.streams(), {.threads = arguments.threads}),
        values_(static_cast<std::size_t>(session_.streams() * steps_ * row_columns_)) {
    read_context(arguments.context);
    // Rows of whole steps, which the model can take again.
    const std::int64_t together = input.horizon() / input.patch() * input.patch();
    for (std::int64_t step = 0; step < steps_; step += together)
      extend(step, std::min(together, steps_ - step), arguments.seed);
  }

  /// Whether the model predicts more than means.
  static bool has_densities(const SeriesInput& input) {
    return input.model->config().value_head != ValueDistribution::squared_error;
  }

  /// The median of the draws of one column at one step, and the bounds of the intervals.
  struct Summary {
    double median;
    std::vector<std::pair<double, double>> bounds;
  };
  Summary at(std::int64_t step, std::int64_t column, const std::vector<std::int64_t>& intervals) const {
    std::vector<double> drawn;
    for (std::int64_t s = 0; s < samples_; ++s) {
      const std::int64_t stream = s * input_.streams() + column / row_columns_;
      drawn.push_back(input_.from_model(row(stream, step)[column % row_columns_], column));
    }
    std::ranges::sort(drawn);
    Summary summary{quantile(drawn, 0.5), {}};
    for (const std::int64_t percent : intervals) {
      const double outside = (1 - static_cast<double>(percent) / 100) / 2;
      summary.bounds.emplace_back(quantile(drawn, outside), quantile(drawn, 1 - outside));
    }
    return summary;
  }

 private:
  /// What a stream has drawn for a row of the series, as the model gives it.
  const float* row(std::int64_t stream, std::int64_t step) const {
    return &values_[static_cast<std::size_t>((stream * steps_ + step) * row_columns_)];
  }

  /// The streams of the first sample take the last rows of the series; the others are copies.
  void read_context(std::int64_t rows) {
    std::vector<float> predicted(static_cast<std::size_t>(session_.targets()));
    for (std::int64_t stream = 0; stream < input_.streams(); ++stream) {
      const std::int64_t one[] = {stream};
      const std::int64_t end = input_.series.rows(), last = end - input_.patch();
      for (std::int64_t i = end - rows; i < last; i += input_.patch())
        session_.observe(input_.step(i, stream), one);
      session_.step(input_.step(last, stream), predicted, one);
    }
    for (std::int64_t s = input_.streams(); s < session_.streams(); ++s)
      session_.fork(s, s % input_.streams());
  }

  /// The next `count` rows of all streams, from one prediction; they then take them.
  void extend(std::int64_t first, std::int64_t count, std::uint64_t seed) {
    const std::int64_t streams = session_.streams(), patch = input_.patch();
    const bool last = first + count == steps_;
    std::vector<float> drawn(static_cast<std::size_t>(session_.targets())),
        taken(static_cast<std::size_t>(streams * patch * row_columns_)),
        predicted(static_cast<std::size_t>(streams) * drawn.size());
    for (std::int64_t s = 0; s < streams; ++s) {
      session_.draw(s, seed + static_cast<std::uint64_t>(s), drawn, temperature_);
      std::copy_n(drawn.begin(), count * row_columns_, values_.begin() + (s * steps_ + first) * row_columns_);
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

  const SeriesInput& input_;
  std::int64_t samples_, steps_, row_columns_;
  double temperature_;
  NumberSession session_;
  std::vector<float> values_;  ///< [streams, steps, row_columns], as the model gives them
};

/// The rows before the forecast that the model reads: those of whole steps.
std::int64_t context_of(const SeriesInput& input, const Arguments& arguments) {
  const ModelConfig& config = input.model->config();
  const std::int64_t patch = input.patch();
  std::int64_t steps = arguments.context > 0 ? arguments.context / patch : config.length - 1;
  // Learned positions end with the trained length; the start token takes one.
  if (config.positions == Positions::learned)
    steps = std::min(steps, config.length - (arguments.steps + patch - 1) / patch);
  if (steps < 1 && arguments.context > 0 && arguments.context < patch)
    fail<UsageError>("forecast", "expected --context of at least the {} rows of a step, got {}", patch,
                     arguments.context);
  if (steps < 1)
    fail<UsageError>(
        "forecast",
        "expected fewer steps than the {} positions of the model, got {}; a model with sinusoidal "
        "or rotary positions, or with none, goes on beyond its trained length",
        config.length, arguments.steps);
  if (input.series.rows() < patch)
    fail<UsageError>("forecast", "expected at least the {} rows of a step of the model, got {}", patch,
                     input.series.rows());
  return std::min(steps, input.series.rows() / patch) * patch;
}

/// One column: its last numbers, the median and the bounds of the intervals.
Chart chart_of(const SeriesInput& input, const Arguments& arguments,
               const std::vector<std::int64_t>& intervals, const Paths& paths, std::int64_t column) {
  Chart chart{.title = input.series.columns[static_cast<std::size_t>(column)],
              .subtitle = Paths::has_densities(input)
                              ? fmt::format("{} steps, {} samples", arguments.steps, arguments.samples)
                              : fmt::format("{} steps", arguments.steps),
              .x_label = "step from the end of the data",
              .y_label = "value",
              .ticks_at_points = false,
              .linear = true,
              .lines = {},
              .notes = {}};
  const std::int64_t rows = input.series.rows(), columns = std::ssize(input.series.columns);
  const std::int64_t shown = std::min(arguments.show > 0 ? arguments.show : 3 * arguments.steps, rows);
  for (std::int64_t i = rows - shown; i < rows; ++i)
    chart.line("data").points.emplace_back(
        static_cast<double>(i - rows + 1),
        input.series.values[static_cast<std::size_t>(i * columns + column)]);
  for (std::int64_t step = 0; step < arguments.steps; ++step) {
    const auto x = static_cast<double>(step + 1);
    const Paths::Summary summary = paths.at(step, column, intervals);
    chart.line(Paths::has_densities(input) ? "median" : "mean").points.emplace_back(x, summary.median);
    for (std::size_t i = 0; i < intervals.size(); ++i)
      for (const bool upper : {false, true}) {
        Chart::Line& line = chart.line(fmt::format("{} % {}", intervals[i], upper ? "above" : "below"));
        line.dashed = true;
        line.colour = static_cast<int>(i) + 2;
        line.points.emplace_back(x, upper ? summary.bounds[i].second : summary.bounds[i].first);
      }
  }
  return chart;
}

void run(const Arguments& arguments) {
  check_outputs("forecast", {{"--out", arguments.out}, {"--plot", arguments.plot}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  if (!arguments.plot.empty()) require_chart_path(arguments.plot);
  const SeriesInput input = read_series_input("forecast", arguments.model, arguments.data);
  if (!arguments.intervals.empty() && !Paths::has_densities(input))
    fail<UsageError>("forecast",
                     "expected a model of densities (model.value_head = \"gaussian\" or \"student-t\") for "
                     "--intervals, got \"{}\", which predicts means alone",
                     name_of(input.model->config().value_head));
  std::vector<std::int64_t> intervals;
  if (Paths::has_densities(input))
    intervals =
        number_list("--intervals", arguments.intervals.empty() ? "50,90" : arguments.intervals, "forecast");
  for (const std::int64_t percent : intervals)
    if (percent < 1 || percent > 99)
      fail<UsageError>("forecast", "expected --intervals in 1 … 99 per cent, got {}", percent);
  Arguments chosen = arguments;
  if (!Paths::has_densities(input)) chosen.samples = 1;
  chosen.context = context_of(input, arguments);
  const Paths paths(input, chosen);
  std::string lines = "step,column,median";
  for (const std::int64_t percent : intervals) lines += fmt::format(",low_{0},high_{0}", percent);
  lines += "\n";
  Json rows = Json::array();
  for (std::int64_t step = 0; step < arguments.steps; ++step)
    for (std::size_t column = 0; column < input.series.columns.size(); ++column) {
      const auto [median, bounds] = paths.at(step, static_cast<std::int64_t>(column), intervals);
      lines += fmt::format("{},{},{:.7g}", step + 1, input.series.columns[column], median);
      Json row = {{"step", step + 1}, {"column", input.series.columns[column]}, {"median", median}};
      for (std::size_t i = 0; i < intervals.size(); ++i) {
        const auto [low, high] = bounds[i];
        lines += fmt::format(",{:.7g},{:.7g}", low, high);
        row[fmt::format("low_{}", intervals[i])] = low;
        row[fmt::format("high_{}", intervals[i])] = high;
      }
      lines += "\n";
      if (arguments.json) rows.push_back(row);
    }
  if (!arguments.out.empty()) write_file_atomically(arguments.out, lines);
  if (!arguments.plot.empty()) {
    std::vector<Chart> charts;
    for (std::int64_t column = 0; column < std::ssize(input.series.columns); ++column)
      charts.push_back(chart_of(input, chosen, intervals, paths, column));
    write_chart(arguments.plot, charts, "Forecast");
  }
  if (arguments.json)
    print_json({{"context", chosen.context},
                {"steps", arguments.steps},
                {"samples", chosen.samples},
                {"forecast", rows}});
  else if (arguments.out.empty())
    fmt::print("{}", lines);
  else
    fmt::print("{} steps of {} columns from the last {} rows: {}\n", arguments.steps,
               input.series.columns.size(), chosen.context, arguments.out);
}

}  // namespace

void add_forecast(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("forecast", "Continue a series: medians and intervals");
  command.footer(
      "Draws how the series may go on after its last row and writes the median of the draws at every step, "
      "and\n"
      "the bounds between which a share of them lies.\n"
      "Example: linnet forecast runs/series --data ETTh1.csv --steps 96 --out next.csv --plot next.svg");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data,
                     "CSV file whose last rows are continued; default: that of the run");
  command.add_option("--steps", arguments->steps, "steps to forecast").check(whole(1, most_count));
  command.add_option("--samples", arguments->samples, "draws").check(whole(1, 1 << 16));
  command.add_option("--intervals", arguments->intervals,
                     "shares of the draws between two bounds, in per cent; default: 50,90");
  command
      .add_option(
          "--context", arguments->context,
          "last rows that the model reads, in whole steps of it; default: those of a training example")
      .check(whole(1, most_count));
  command.add_option("--out", arguments->out, "CSV file; default: standard output");
  command.add_option("--plot", arguments->plot, "SVG or PNG file with a chart of each column");
  command
      .add_option("--show", arguments->show, "rows of the data in the charts; default: three times the steps")
      .check(whole(1, most_count));
  command.add_option("--seed", arguments->seed, "seed of the draws").check(whole(0));
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
