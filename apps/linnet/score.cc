#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "given_data.h"
#include "io/csv.h"
#include "io/file.h"
#include "linnet/series.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"
#include "series/scores.h"
#include "series_input.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, missing, out, plot;
  double threshold = std::numeric_limits<double>::quiet_NaN(), quantile = 0.9999;
  std::int64_t calibrate = 0, window = 1, gap = 50;
  bool json = false;
  int threads = 0;
};

/// The anomalies for people and for JSON; of several columns each names one.
Json rows_of(const std::vector<Anomaly>& anomalies, const Series& series) {
  Json rows = Json::array();
  for (const auto& [first, last, highest, column] : anomalies) {
    Json row = {{"first", first}, {"last", last}};
    if (!series.times.empty()) {
      row["first_time"] = series.time_text(first);
      row["last_time"] = series.time_text(last);
    }
    row["highest"] = highest;
    if (series.columns.size() > 1) row["column"] = series.columns[static_cast<std::size_t>(column)];
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The lines of --out.
std::string csv_of(const Series& series, const SeriesScores& scores, const Anomalies& anomalies) {
  const bool timed = !series.times.empty();
  const std::size_t columns = series.columns.size();
  std::string lines = fmt::format("row{},score,smoothed,anomaly", timed ? ",time" : "");
  if (columns > 1)
    for (const std::string& column : series.columns) lines += "," + csv_cell("score_" + column);
  lines += "\n";
  for (std::size_t i = 0; i < scores.rows.size(); ++i) {
    const std::string time = timed ? "," + series.time_text(static_cast<std::int64_t>(i)) : "";
    lines += fmt::format("{}{},{:.7g},{:.7g},{}", i, time, scores.rows[i], anomalies.scores[i],
                         scores.has_context[i] && anomalies.scores[i] > anomalies.threshold ? 1 : 0);
    for (std::size_t c = 0; c < columns && columns > 1; ++c)
      lines += fmt::format(",{:.7g}", scores.numbers[i * columns + c]);
    lines += "\n";
  }
  return lines;
}

void run(const Arguments& arguments) {
  check_outputs("score", {{"--out", arguments.out}, {"--plot", arguments.plot}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  if (!arguments.plot.empty()) require_chart_path(arguments.plot);
  const CommandSeries input = read_series_input("score", arguments.model, arguments.data, arguments.missing);
  Progress progress;
  auto start = std::chrono::steady_clock::now();
  const SeriesScores exact = scores_of(input, arguments.threads, [&](std::int64_t done, std::int64_t all) {
    constexpr double shown_after = 1;                         // seconds
    if (done == 0) start = std::chrono::steady_clock::now();  // the model is ready
    if (seconds_since(start) > shown_after) progress.show(fmt::format("{} of {} rows", done, all));
  });
  const double seconds = seconds_since(start);
  std::int64_t calibrate = arguments.calibrate > 0 ? arguments.calibrate : input.calibrate;
  if (calibrate == 0) calibrate = input.series.rows();
  calibrate = std::min(calibrate, input.series.rows());
  const Anomalies anomalies = find_anomalies(exact, {.window = arguments.window,
                                                     .threshold = arguments.threshold,
                                                     .quantile = arguments.quantile,
                                                     .calibrate = calibrate,
                                                     .gap = arguments.gap});
  const auto& [scores, threshold, found] = anomalies;
  double sum = 0;
  for (const double score : exact.rows) sum += score;
  const double mean = sum / static_cast<double>(exact.rows.size());

  if (!arguments.out.empty()) write_file_atomically(arguments.out, csv_of(input.series, exact, anomalies));
  if (!arguments.plot.empty()) {
    Chart chart{.title = "Score",
                .subtitle = fmt::format("−log density, nats per step; mean of {} steps", arguments.window),
                .x_label = "step",
                .y_label = "nats",
                .ticks_at_points = false,
                .linear = true,
                .lines = {},
                .notes = {}};
    // A point for each of some thousand stretches: the highest score in it.
    constexpr std::size_t points = 2000;
    const std::size_t stretch = std::max<std::size_t>(1, scores.size() / points);
    for (std::size_t i = 0; i < scores.size(); i += stretch) {
      const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(stretch, scores.size() - i));
      chart.line("score").points.emplace_back(static_cast<double>(i), *std::max_element(begin, end));
    }
    for (const double x : {0.0, static_cast<double>(scores.size() - 1)})
      chart.line("threshold").points.emplace_back(x, threshold);
    chart.lines.back().dashed = true;
    write_chart(arguments.plot, {chart});
  }
  const Json rows = rows_of(found, input.series);
  if (arguments.json) {
    print_json({{"steps", scores.size()},
                {"nats_per_step", mean},
                {"threshold", threshold},
                {"steps_per_second", static_cast<double>(scores.size()) / seconds},
                {"state_bytes", exact.state_bytes},
                {"calibrated", calibrate},
                {"anomalies", rows}});
    return;
  }
  std::string summary = fmt::format(
      "{:.4f} nats per step over {} steps, {:.0f} steps/s, {} bytes of state; {} anomalies above {:.4g}\n",
      mean, scores.size(), static_cast<double>(scores.size()) / seconds, exact.state_bytes, found.size(),
      threshold);
  std::vector<std::string> keys = {"first", "last"};
  if (!input.series.times.empty()) keys.insert(keys.end(), {"first_time", "last_time"});
  keys.emplace_back("highest");
  if (input.series.columns.size() > 1) keys.emplace_back("column");
  if (!found.empty()) summary += table_of(rows, keys);
  print_summary(arguments.out, summary);
}

}  // namespace

void add_score(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      program.add_subcommand("score", "Negative log-likelihood of every step of a series, and its anomalies");
  command.footer(
      "Reads the series as a stream, step by step. With linear attention its state has a constant size. An "
      "anomaly is\n"
      "a stretch of steps whose score is above the threshold. The first step, which has none before it, does "
      "not count.\n"
      "Example: linnet score runs/anomalies --data machine.csv --calibrate 5000 --out scores.csv --plot "
      "scores.svg");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data, "CSV file; default: that of the run");
  add_missing(command, arguments->missing);
  Option threshold =
      command
          .add_option("--threshold", arguments->threshold, "score in nats above which a step is an anomaly")
          .check(number(-1e9));
  command
      .add_option(
          "--quantile", arguments->quantile,
          "without --threshold: the share of steps that lies below it, as far as the calibrating ones tell")
      .check(number(0, 1))
      .capture_default_str()
      .excludes(threshold);
  command
      .add_option(
          "--calibrate", arguments->calibrate,
          "first steps that give the threshold; default: the training part of the run's own series, all "
          "steps of another")
      .check(whole(1))
      .excludes(threshold);
  command.add_option("--window", arguments->window, "scores are means over that many steps")
      .check(whole(1, most_count))
      .capture_default_str();
  command.add_option("--gap", arguments->gap, "most steps between two steps of one anomaly")
      .check(whole(0, most_count))
      .capture_default_str();
  command.add_option("--out", arguments->out, "CSV file with the score of every step");
  command.add_option("--plot", arguments->plot, "SVG or PNG file");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
