#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "linnet/generation.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"
#include "series_input.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, out, plot;
  double threshold = std::numeric_limits<double>::quiet_NaN(), quantile = 0.9999;
  std::int64_t calibrate = 0, window = 1, gap = 50;
  bool json = false;
  int threads = 0;
};

/// A session with a stream for each sequence of the series.
NumberSession session_for(const SeriesInput& input, int threads) {
  return NumberSession(input.model, input.streams(), {.threads = threads});
}

/// Adds −log density of the rows of one step, given those before it, to `scores`.
void add_scores(const SeriesInput& input, NumberSession& session, std::int64_t row, std::int64_t stream,
                std::span<double> scores) {
  std::vector<float> mean(static_cast<std::size_t>(session.targets())), scale(mean), freedom(mean);
  session.densities(stream, mean, scale, freedom);
  const std::int64_t columns = std::ssize(input.series.columns), row_columns = input.row_columns();
  for (std::int64_t i = 0; i < std::ssize(scores); ++i)
    for (std::int64_t c = 0; c < row_columns; ++c) {
      const std::int64_t column = stream * row_columns + c;
      const auto at = static_cast<std::size_t>(i * row_columns + c);
      const float number =
          input.to_model(input.series.values[static_cast<std::size_t>((row + i) * columns + column)], column);
      scores[static_cast<std::size_t>(i)] +=
          std::log(input.deviation(column)) - log_density(number, mean[at], scale[at], freedom[at]);
    }
}

/// The streams take their columns of a step; `predicted` [targets] is memory. Throws Error naming the row
/// that numbers too large come from.
void take_step(const SeriesInput& input, NumberSession& session, std::int64_t row,
               std::span<float> predicted) {
  for (std::int64_t stream = 0; stream < session.streams(); ++stream) {
    const std::int64_t one[] = {stream};
    try {
      session.step(input.step(row, stream), predicted, one);
    } catch (const Error&) {
      fail("score", "expected numbers from which the model predicts finite ones, got others in row {}",
           row + input.patch() - 1);
    }
  }
}

/// −log density of every row, given the steps before its own, in nats: the sum over the columns. Throws Error
/// naming a row whose score is not finite.
std::vector<double> scores_of(const SeriesInput& input, NumberSession& session) {
  const ModelConfig& config = input.model->config();
  std::vector<double> scores(static_cast<std::size_t>(input.series.rows()));
  Progress progress;
  const std::int64_t rows = input.series.rows(), patch = input.patch();
  std::vector<float> predicted(static_cast<std::size_t>(session.targets()));
  for (std::int64_t row = 0; row < rows; row += patch) {
    const std::int64_t here = std::min(patch, rows - row);
    for (std::int64_t stream = 0; stream < session.streams(); ++stream) {
      // Learned positions end with the trained length: the stream begins anew.
      if (config.positions == Positions::learned && session.position(stream) + 1 >= config.length)
        session.begin(stream, config.classes > 0 ? 0 : -1);
      add_scores(input, session, row, stream,
                 std::span(scores).subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(here)));
    }
    for (std::int64_t i = row; i < row + here; ++i)
      if (const double score = scores[static_cast<std::size_t>(i)]; !std::isfinite(score))
        fail("score", "expected numbers with a finite score, got a score of {} in row {}", score, i);
    if (here == patch) take_step(input, session, row, predicted);
    if (row > 0 && row / patch % 1024 == 0) progress.show(fmt::format("{} of {} rows", row, rows));
  }
  return scores;
}

/// Means over the last `window` scores. Nothing is subtracted, so that a score that is huge or no number does
/// not stay in the later means: the scores are cut into pieces of `window`, and a mean is that of the end of
/// one piece and the beginning of the next.
std::vector<double> smoothed(const std::vector<double>& scores, std::int64_t window) {
  const std::size_t count = scores.size(), width = static_cast<std::size_t>(window);
  std::vector<double> to_end(count), result(count);
  for (std::size_t i = count; i-- > 0;)
    to_end[i] = scores[i] + ((i + 1) % width != 0 && i + 1 < count ? to_end[i + 1] : 0);
  double from_begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    from_begin = (i % width != 0 ? from_begin : 0) + scores[i];
    const bool ends_piece = (i + 1) % width == 0;
    const double before = i >= width && !ends_piece ? to_end[i + 1 - width] : 0;
    result[i] = (before + from_begin) / static_cast<double>(std::min(i + 1, width));
  }
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

/// Rows whose score is above a threshold; those with up to `gap` rows between them are one anomaly.
struct Anomaly {
  std::int64_t first = 0, last = 0;
  double highest = 0;
};
std::vector<Anomaly> anomalies_of(const std::vector<double>& scores, double threshold, std::int64_t gap) {
  std::vector<Anomaly> found;
  for (std::int64_t i = 0; i < std::ssize(scores); ++i) {
    const double score = scores[static_cast<std::size_t>(i)];
    if (!(score > threshold)) continue;
    if (found.empty() || i - found.back().last - 1 > gap) found.push_back({i, i, score});
    found.back().last = i;
    found.back().highest = std::max(found.back().highest, score);
  }
  return found;
}

void run(const Arguments& arguments) {
  check_outputs("score", {{"--out", arguments.out}, {"--plot", arguments.plot}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  if (!arguments.plot.empty()) require_chart_path(arguments.plot);
  const SeriesInput input = read_series_input("score", arguments.model, arguments.data);
  NumberSession session = session_for(input, arguments.threads);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<double> exact = scores_of(input, session);
  const double seconds = seconds_since(start);
  const std::vector<double> scores = smoothed(exact, arguments.window);
  std::int64_t calibrate = arguments.calibrate > 0 ? arguments.calibrate : input.calibrate;
  if (calibrate == 0) calibrate = input.series.rows();
  const auto calibrated = static_cast<std::size_t>(std::min(calibrate, input.series.rows()));
  std::size_t state_bytes = 0;
  for (std::int64_t s = 0; s < session.streams(); ++s) state_bytes += session.state_bytes(s);
  std::vector<double> sorted(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(calibrated));
  std::ranges::sort(sorted);
  const double threshold =
      std::isnan(arguments.threshold) ? threshold_of(sorted, arguments.quantile) : arguments.threshold;
  const std::vector<Anomaly> anomalies = anomalies_of(scores, threshold, arguments.gap);
  double sum = 0;
  for (const double score : exact) sum += score;
  const double mean = sum / static_cast<double>(exact.size());

  if (!arguments.out.empty()) {
    std::string lines = "row,score,smoothed,anomaly\n";
    for (std::size_t i = 0; i < scores.size(); ++i)
      lines += fmt::format("{},{:.7g},{:.7g},{}\n", i, exact[i], scores[i], scores[i] > threshold ? 1 : 0);
    write_file_atomically(arguments.out, lines);
  }
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
  Json rows = Json::array();
  for (const Anomaly& anomaly : anomalies)
    rows.push_back({{"first", anomaly.first}, {"last", anomaly.last}, {"highest", anomaly.highest}});
  if (arguments.json) {
    print_json({{"steps", scores.size()},
                {"nats_per_step", mean},
                {"threshold", threshold},
                {"steps_per_second", static_cast<double>(scores.size()) / seconds},
                {"state_bytes", state_bytes},
                {"calibrated", calibrated},
                {"anomalies", rows}});
    return;
  }
  fmt::print(
      "{:.4f} nats per step over {} steps, {:.0f} steps/s, {} bytes of state; {} anomalies above {:.4g}\n",
      mean, scores.size(), static_cast<double>(scores.size()) / seconds, state_bytes, anomalies.size(),
      threshold);
  if (!anomalies.empty()) print_table(rows, {"first", "last", "highest"});
}

}  // namespace

void add_score(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      program.add_subcommand("score", "Negative log-likelihood of every step of a series, and its anomalies");
  command.footer(
      "Reads the series as a stream, step by step. With linear attention its state has a constant size. An "
      "anomaly is\n"
      "a stretch of steps whose score is above the threshold.\n"
      "Example: linnet score runs/anomalies --data machine.csv --calibrate 5000 --out scores.csv --plot "
      "scores.svg");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data, "CSV file; default: that of the run");
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
  command.add_option("--window", arguments->window, "scores are means over so many steps")
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
