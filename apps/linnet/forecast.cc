#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "checks.h"
#include "commands.h"
#include "given_data.h"
#include "io/csv.h"
#include "io/file.h"
#include "lists.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"
#include "series/paths.h"
#include "series_input.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, missing, out, plot, intervals = "50,90";
  std::int64_t steps = 24, samples = 200, context = 0, show = 0;
  std::uint64_t seed = 0;
  bool json = false;
  int threads = 0;
  std::vector<Option> of_draws;  ///< those that only a model of densities has a use for
};

/// What stands for a step: of draws their median.
const char* centre_of(const SeriesInput& input) { return has_densities(input) ? "median" : "mean"; }

/// One column: its last numbers, the median or the mean, and the bounds of the intervals.
Chart chart_of(const SeriesInput& input, const Arguments& arguments,
               const std::vector<std::int64_t>& intervals, const SeriesPaths& paths, std::int64_t column) {
  Chart chart{.title = input.series.columns[static_cast<std::size_t>(column)],
              .subtitle = has_densities(input)
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
    const SeriesPaths::Summary summary = paths.summary(step, column, intervals);
    chart.line(centre_of(input)).points.emplace_back(x, summary.median);
    for (std::size_t i = 0; i < intervals.size(); ++i)
      for (const bool upper : {false, true}) {
        const double beyond = 0.5 - 0.005 * static_cast<double>(intervals[i]);
        Chart::Line& line = chart.line(fmt::format("quantile {:.3g}", upper ? 1 - beyond : beyond));
        line.dashed = true;
        line.colour = static_cast<int>(i) + 2;
        line.points.emplace_back(x, upper ? summary.bounds[i].second : summary.bounds[i].first);
      }
  }
  return chart;
}

/// Shares in per cent, each once.
std::vector<std::int64_t> intervals_of(const std::string& list) {
  if (list.find('.') != std::string::npos)
    fail<UsageError>("forecast", "expected --intervals with whole numbers in 1 … 99 per cent, got {}",
                     shortened(list));
  std::vector<std::int64_t> intervals = number_list("--intervals", list, "forecast");
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i] < 1 || intervals[i] > 99)
      fail<UsageError>("forecast", "expected --intervals in 1 … 99 per cent, got {}", intervals[i]);
    if (std::ranges::count(std::span(intervals).first(i), intervals[i]) > 0)
      fail<UsageError>("forecast", "expected --intervals that differ, got {} twice", intervals[i]);
  }
  return intervals;
}

void run(const Arguments& arguments) {
  check_outputs("forecast", {{"--out", arguments.out}, {"--plot", arguments.plot}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  const CommandSeries input =
      read_series_input("forecast", arguments.model, arguments.data, arguments.missing);
  if (!arguments.plot.empty()) require_chart_path(arguments.plot, std::ssize(input.series.columns));
  for (const Option& option : arguments.of_draws)
    if (option.count() > 0 && !has_densities(input))
      fail<UsageError>("forecast",
                       "expected a model of densities (model.value_head = \"gaussian\" or \"student-t\") for "
                       "{}, got \"{}\", which predicts means alone",
                       option.name(), name_of(input.model->config().value_head));
  const std::vector<std::int64_t> intervals =
      has_densities(input) ? intervals_of(arguments.intervals) : std::vector<std::int64_t>();
  Arguments chosen = arguments;
  if (!has_densities(input)) chosen.samples = 1;
  chosen.context = context_of("forecast", input, arguments.context, arguments.steps);
  const SeriesPaths paths(input, {.samples = chosen.samples,
                                  .steps = chosen.steps,
                                  .context = chosen.context,
                                  .seed = chosen.seed,
                                  .threads = chosen.threads});
  const bool timed = input.series.times_go_on();
  const char* const centre = centre_of(input);
  std::string lines = fmt::format("step,{}column,{}", timed ? "time," : "", centre);
  for (const std::int64_t percent : intervals) lines += fmt::format(",low_{0},high_{0}", percent);
  lines += "\n";
  Json rows = Json::array();
  for (std::int64_t step = 0; step < arguments.steps; ++step) {
    const std::string time = timed ? input.series.time_text(input.series.rows() + step) : "";
    for (std::size_t column = 0; column < input.series.columns.size(); ++column) {
      const auto [median, bounds] = paths.summary(step, static_cast<std::int64_t>(column), intervals);
      lines += fmt::format("{}{}{},{},{:.7g}", step + 1, timed ? "," : "", time,
                           csv_cell(input.series.columns[column]), median);
      Json row = {{"step", step + 1}};
      if (timed) row["time"] = time;
      row["column"] = input.series.columns[column];
      row[centre] = median;
      for (std::size_t i = 0; i < intervals.size(); ++i) {
        const auto [low, high] = bounds[i];
        lines += fmt::format(",{:.7g},{:.7g}", low, high);
        row[fmt::format("low_{}", intervals[i])] = low;
        row[fmt::format("high_{}", intervals[i])] = high;
      }
      lines += "\n";
      if (arguments.json) rows.push_back(row);
    }
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
    print_summary(arguments.out,
                  fmt::format("{} steps of {} columns from the last {} rows: {}\n", arguments.steps,
                              input.series.columns.size(), chosen.context, arguments.out));
}

}  // namespace

void add_forecast(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("forecast", "Continue a series: means, or medians and intervals");
  command.footer(
      "Draws how the series may go on after its last row and writes the median of the draws at every step, "
      "and\n"
      "the bounds between which a share of them lies. A model of squared errors predicts means alone.\n"
      "Example: linnet forecast runs/series --data ETTh1.csv --steps 96 --out next.csv --plot next.svg");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data,
                     "CSV file whose last rows are continued; default: that of the run");
  add_missing(command, arguments->missing);
  command.add_option("--steps", arguments->steps, "steps to forecast")
      .check(whole(1, most_count))
      .capture_default_str();
  arguments->of_draws.push_back(command.add_option("--samples", arguments->samples, "draws")
                                    .check(whole(1, 1 << 16))
                                    .capture_default_str());
  arguments->of_draws.push_back(command
                                    .add_option("--intervals", arguments->intervals,
                                                "shares of the draws between two bounds, in per cent")
                                    .capture_default_str());
  command
      .add_option("--context", arguments->context,
                  "last rows that the model reads, in whole steps of it; default: one step less than a "
                  "training example has")
      .check(whole(1, most_count));
  command.add_option("--out", arguments->out, "CSV file; default: standard output");
  const Option plot =
      command.add_option("--plot", arguments->plot, "SVG or PNG file with a chart of each column");
  command
      .add_option("--show", arguments->show, "rows of the data in the charts; default: three times the steps")
      .check(whole(1, most_count))
      .needs(plot);
  arguments->of_draws.push_back(command.add_option("--seed", arguments->seed, "seed of the draws")
                                    .check(whole_of_64_bits())
                                    .capture_default_str());
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
