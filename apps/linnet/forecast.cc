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
  std::string model, data, out, plot, intervals = "50,90";
  std::int64_t steps = 24, samples = 200, context = 0, show = 0;
  std::uint64_t seed = 0;
  bool json = false;
  int threads = 0;
};

/// Draws of what follows a series, [samples, steps, columns].
class Paths {
 public:
  Paths(const SeriesInput& input, const Arguments& arguments)
      : columns_(input.model->config().columns),
        steps_(arguments.steps),
        session_(input.model, arguments.samples, {.threads = arguments.threads}),
        values_(static_cast<std::size_t>(arguments.samples * arguments.steps * columns_)) {
    read_context(input, arguments.context);
    const std::int64_t together = input.model->config().target_count() / columns_;
    for (std::int64_t step = 0; step < steps_; step += together)
      extend(step, std::min(together, steps_ - step), arguments.seed);
  }

  /// The median of the draws of one column at one step, and the bounds of the intervals.
  struct Summary {
    double median;
    std::vector<std::pair<double, double>> bounds;
  };
  Summary at(std::int64_t step, std::int64_t column, const std::vector<std::int64_t>& intervals) const {
    std::vector<double> drawn;
    for (std::int64_t s = 0; s < session_.streams(); ++s) drawn.push_back(*value(s, step, column));
    std::ranges::sort(drawn);
    Summary summary{quantile(drawn, 0.5), {}};
    for (const std::int64_t percent : intervals) {
      const double outside = (1 - static_cast<double>(percent) / 100) / 2;
      summary.bounds.emplace_back(quantile(drawn, outside), quantile(drawn, 1 - outside));
    }
    return summary;
  }

 private:
  const float* value(std::int64_t sample, std::int64_t step, std::int64_t column) const {
    return &values_[static_cast<std::size_t>((sample * steps_ + step) * columns_ + column)];
  }

  /// All streams take the last rows of the series.
  void read_context(const SeriesInput& input, std::int64_t rows) {
    const std::int64_t stream[] = {0};
    const std::span<const float> all = input.series.values;
    for (std::int64_t i = input.series.rows() - rows; i < input.series.rows(); ++i) {
      const auto row =
          all.subspan(static_cast<std::size_t>(i * columns_), static_cast<std::size_t>(columns_));
      if (i + 1 < input.series.rows()) {
        session_.observe(row, stream);
      } else {
        std::vector<float> predicted(static_cast<std::size_t>(input.model->config().target_count()));
        session_.step(row, predicted, stream);
      }
    }
    for (std::int64_t s = 1; s < session_.streams(); ++s) session_.fork(s, 0);
  }

  /// The next `count` steps of all samples, from one prediction; they then take them.
  void extend(std::int64_t first, std::int64_t count, std::uint64_t seed) {
    const std::int64_t streams = session_.streams();
    const bool last = first + count == steps_;
    std::vector<float> drawn(static_cast<std::size_t>(session_.targets())),
        row(static_cast<std::size_t>(streams * columns_)),
        predicted(static_cast<std::size_t>(streams) * drawn.size());
    for (std::int64_t s = 0; s < streams; ++s) {
      session_.draw(s, seed + static_cast<std::uint64_t>(s), drawn);
      std::copy_n(drawn.begin(), count * columns_, values_.begin() + ((s * steps_) + first) * columns_);
    }
    for (std::int64_t step = first; step < first + count && !last; ++step) {
      for (std::int64_t s = 0; s < streams; ++s)
        std::copy_n(value(s, step, 0), columns_, row.begin() + s * columns_);
      if (step + 1 < first + count)
        session_.observe(row);
      else
        session_.step(row, predicted);
    }
  }

  std::int64_t columns_, steps_;
  NumberSession session_;
  std::vector<float> values_;
};

/// The rows before the forecast that the model reads.
std::int64_t context_of(const SeriesInput& input, const Arguments& arguments) {
  const ModelConfig& config = input.model->config();
  std::int64_t rows = arguments.context > 0 ? arguments.context : config.length;
  // Learned positions end with the trained length; the start token takes one.
  if (config.positions == Positions::learned) rows = std::min(rows, config.length - arguments.steps);
  rows = std::min(rows, input.series.rows());
  if (rows < 1)
    fail<UsageError>(
        "forecast",
        "expected fewer steps than the {} positions of the model, got {}; a model with sinusoidal "
        "or rotary positions, or with none, goes on beyond its trained length",
        config.length, arguments.steps);
  return rows;
}

/// One column: its last numbers, the median and the bounds of the intervals.
Chart chart_of(const SeriesInput& input, const Arguments& arguments,
               const std::vector<std::int64_t>& intervals, const Paths& paths, std::int64_t column) {
  Chart chart{.title = input.series.columns[static_cast<std::size_t>(column)],
              .subtitle = fmt::format("{} steps, {} samples", arguments.steps, arguments.samples),
              .x_label = "step from the end of the data",
              .y_label = "value",
              .ticks_at_points = false,
              .lines = {},
              .notes = {}};
  const std::int64_t rows = input.series.rows(), columns = input.model->config().columns;
  const std::int64_t shown = std::min(arguments.show > 0 ? arguments.show : 3 * arguments.steps, rows);
  for (std::int64_t i = rows - shown; i < rows; ++i)
    chart.line("data").points.emplace_back(
        static_cast<double>(i - rows + 1),
        input.series.values[static_cast<std::size_t>(i * columns + column)]);
  for (std::int64_t step = 0; step < arguments.steps; ++step) {
    const auto x = static_cast<double>(step + 1);
    const Paths::Summary summary = paths.at(step, column, intervals);
    chart.line("median").points.emplace_back(x, summary.median);
    for (std::size_t i = 0; i < intervals.size(); ++i)
      for (const bool upper : {false, true}) {
        Chart::Line& line = chart.line(fmt::format("{} % {}", intervals[i], upper ? "above" : "below"));
        line.dashed = true;
        line.points.emplace_back(x, upper ? summary.bounds[i].second : summary.bounds[i].first);
      }
  }
  return chart;
}

void run(const Arguments& arguments) {
  check_outputs("forecast", {{"--out", arguments.out}, {"--plot", arguments.plot}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  if (!arguments.plot.empty()) require_chart_path(arguments.plot);
  const std::vector<std::int64_t> intervals = number_list("--intervals", arguments.intervals, "forecast");
  for (const std::int64_t percent : intervals)
    if (percent < 1 || percent > 99)
      fail<UsageError>("forecast", "expected --intervals in 1 … 99 per cent, got {}", percent);
  const SeriesInput input = read_series_input("forecast", arguments.model, arguments.data);
  Arguments chosen = arguments;
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
    for (std::int64_t column = 0; column < input.model->config().columns; ++column)
      charts.push_back(chart_of(input, arguments, intervals, paths, column));
    write_chart(arguments.plot, charts, "Forecast");
  }
  if (arguments.json)
    print_json({{"context", chosen.context},
                {"steps", arguments.steps},
                {"samples", arguments.samples},
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
                     "shares of the draws between two bounds, in per cent");
  command
      .add_option("--context", arguments->context,
                  "last rows that the model reads; default: its trained length")
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
