#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/fail.h"
#include "base/memory.h"
#include "checks.h"
#include "commands.h"
#include "given_data.h"
#include "io/csv.h"
#include "io/file.h"
#include "linnet/generation.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"
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

/// A session with a stream for each sequence of the series.
NumberSession session_for(const SeriesInput& input, int threads) {
  return NumberSession(input.model, input.streams(), {.threads = threads});
}

/// −log densities of the numbers of a series, in nats.
struct Scores {
  std::vector<double> numbers;  ///< [rows, columns], each given the steps before its own
  std::vector<double> rows;     ///< the sums over the columns
  /// Whether the stream has read anything before a row: a score that nothing stands behind says nothing.
  std::vector<bool> has_context;
};

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
      scores[at] =
          std::log(input.deviation(column)) - log_density(input.to_model(input.series.values[at], column),
                                                          mean[from], scale[from], freedom[from]);
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

/// Throws Error naming a row whose score is not finite.
Scores scores_of(const SeriesInput& input, NumberSession& session) {
  const ModelConfig& config = input.model->config();
  const auto columns = std::ssize(input.series.columns);
  require_memory("the scores", sizeof(double) * static_cast<double>(input.series.values.size()));
  Scores scores{std::vector<double>(input.series.values.size()), {}, {}};
  Progress progress;
  const std::int64_t rows = input.series.rows(), patch = input.patch();
  std::vector<float> predicted(static_cast<std::size_t>(session.targets()));
  for (std::int64_t row = 0; row < rows; row += patch) {
    const std::int64_t here = std::min(patch, rows - row);
    for (std::int64_t stream = 0; stream < session.streams(); ++stream) {
      // Learned positions end with the trained length: the stream begins anew.
      if (config.positions == Positions::learned && session.position(stream) + 1 >= config.length)
        session.begin(stream, config.classes > 0 ? 0 : -1);
      score_step(input, session, row, here, stream, scores.numbers);
    }
    const bool has_context = session.position(0) > 0;
    for (std::int64_t i = row; i < row + here; ++i) {
      double score = 0;
      for (std::int64_t column = 0; column < columns; ++column)
        score += scores.numbers[static_cast<std::size_t>(i * columns + column)];
      if (!std::isfinite(score))
        fail("score", "expected numbers with a finite score, got a score of {} in row {}", score, i);
      scores.rows.push_back(score);
      scores.has_context.push_back(has_context);
    }
    if (here == patch) take_step(input, session, row, predicted);
    if (row > 0 && row / patch % 1024 == 0) progress.show(fmt::format("{} of {} rows", row, rows));
  }
  return scores;
}

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

/// Means over the scores with a context among the last `window` ones. A score without stays as it is.
std::vector<double> smoothed(const Scores& scores, std::int64_t window) {
  std::vector<double> result = scores.rows, known = scores.rows, counts(known.size(), 1.0);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (!scores.has_context[i]) known[i] = counts[i] = 0;
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
struct Anomaly {
  std::int64_t first = 0, last = 0;
  double highest = 0;
};
std::vector<Anomaly> anomalies_of(const std::vector<double>& scores, const std::vector<bool>& has_context,
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

/// Adds the scores of the columns in the rows first … last − 1 that have a context; returns their number.
std::int64_t add_columns(const Scores& scores, std::int64_t first, std::int64_t last,
                         std::span<double> sums) {
  std::int64_t count = 0;
  for (std::int64_t row = first; row < last; ++row) {
    if (!scores.has_context[static_cast<std::size_t>(row)]) continue;
    ++count;
    for (std::size_t c = 0; c < sums.size(); ++c)
      sums[c] += scores.numbers[static_cast<std::size_t>(row) * sums.size() + c];
  }
  return count;
}

/// The anomalies for people and for JSON. Of several columns each names the one whose scores, in the rows
/// that its means are taken over, lie furthest above their mean in the first `calibrated` rows: scores have
/// the units of their column, and are not compared as they are.
Json rows_of(const std::vector<Anomaly>& anomalies, const Series& series, const Scores& scores,
             std::int64_t calibrated, std::int64_t window) {
  std::vector<double> usual(series.columns.size()), sums(usual.size());
  const std::int64_t count = std::max<std::int64_t>(add_columns(scores, 0, calibrated, usual), 1);
  Json rows = Json::array();
  for (const auto& [first, last, highest] : anomalies) {
    Json row = {{"first", first}, {"last", last}};
    if (!series.times.empty()) {
      row["first_time"] = series.time_text(first);
      row["last_time"] = series.time_text(last);
    }
    row["highest"] = highest;
    if (series.columns.size() > 1) {
      std::ranges::fill(sums, 0.0);
      const auto here = static_cast<double>(
          add_columns(scores, std::max<std::int64_t>(first - window + 1, 0), last + 1, sums));
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] -= usual[c] * (here / static_cast<double>(count));
      row["column"] = series.columns[static_cast<std::size_t>(std::ranges::max_element(sums) - sums.begin())];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The lines of --out.
std::string csv_of(const Series& series, const Scores& scores, const std::vector<double>& smoothed,
                   double threshold) {
  const bool timed = !series.times.empty();
  const std::size_t columns = series.columns.size();
  std::string lines = fmt::format("row{},score,smoothed,anomaly", timed ? ",time" : "");
  if (columns > 1)
    for (const std::string& column : series.columns) lines += "," + csv_cell("score_" + column);
  lines += "\n";
  for (std::size_t i = 0; i < smoothed.size(); ++i) {
    const std::string time = timed ? "," + series.time_text(static_cast<std::int64_t>(i)) : "";
    lines += fmt::format("{}{},{:.7g},{:.7g},{}", i, time, scores.rows[i], smoothed[i],
                         scores.has_context[i] && smoothed[i] > threshold ? 1 : 0);
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
  const SeriesInput input = read_series_input("score", arguments.model, arguments.data, arguments.missing);
  NumberSession session = session_for(input, arguments.threads);
  const auto start = std::chrono::steady_clock::now();
  const Scores exact = scores_of(input, session);
  const double seconds = seconds_since(start);
  const std::vector<double> scores = smoothed(exact, arguments.window);
  std::int64_t calibrate = arguments.calibrate > 0 ? arguments.calibrate : input.calibrate;
  if (calibrate == 0) calibrate = input.series.rows();
  calibrate = std::min(calibrate, input.series.rows());
  std::size_t state_bytes = 0;
  for (std::int64_t s = 0; s < session.streams(); ++s) state_bytes += session.state_bytes(s);
  std::vector<double> sorted;
  for (std::size_t i = 0; i < static_cast<std::size_t>(calibrate); ++i)
    if (exact.has_context[i]) sorted.push_back(scores[i]);
  std::ranges::sort(sorted);
  if (sorted.empty() && std::isnan(arguments.threshold))
    fail<UsageError>("score",
                     "expected --threshold, or more calibrating rows than the {} of the first step, which no "
                     "others stand before, got {}",
                     input.patch(), calibrate);
  const double threshold =
      std::isnan(arguments.threshold) ? threshold_of(sorted, arguments.quantile) : arguments.threshold;
  const std::vector<Anomaly> anomalies = anomalies_of(scores, exact.has_context, threshold, arguments.gap);
  double sum = 0;
  for (const double score : exact.rows) sum += score;
  const double mean = sum / static_cast<double>(exact.rows.size());

  if (!arguments.out.empty())
    write_file_atomically(arguments.out, csv_of(input.series, exact, scores, threshold));
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
  const Json rows = rows_of(anomalies, input.series, exact, calibrate, arguments.window);
  if (arguments.json) {
    print_json({{"steps", scores.size()},
                {"nats_per_step", mean},
                {"threshold", threshold},
                {"steps_per_second", static_cast<double>(scores.size()) / seconds},
                {"state_bytes", state_bytes},
                {"calibrated", calibrate},
                {"anomalies", rows}});
    return;
  }
  std::string summary = fmt::format(
      "{:.4f} nats per step over {} steps, {:.0f} steps/s, {} bytes of state; {} anomalies above {:.4g}\n",
      mean, scores.size(), static_cast<double>(scores.size()) / seconds, state_bytes, anomalies.size(),
      threshold);
  std::vector<std::string> keys = {"first", "last"};
  if (!input.series.times.empty()) keys.insert(keys.end(), {"first_time", "last_time"});
  keys.emplace_back("highest");
  if (input.series.columns.size() > 1) keys.emplace_back("column");
  if (!anomalies.empty()) summary += table_of(rows, keys);
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
