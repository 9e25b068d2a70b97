#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "io/json.h"
#include "metrics_file.h"
#include "model/files.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"
#include "run_groups.h"
#include "training/config.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> runs;
  std::string out, title, x = "updates";
  bool seeds = false;
};

/// What --x takes, the members of metrics.jsonl that these are, and the labels of the axis.
struct Abscissa {
  const char *name, *member, *label;
};
constexpr Abscissa abscissae[] = {{"updates", "step", "updates"},
                                  {"seconds", "seconds", "seconds of training and evaluation"},
                                  {"tokens", "tokens", "tokens seen"}};

const Abscissa& abscissa_of(const std::string& name) {
  return *std::ranges::find(abscissae, name, [](const Abscissa& x) { return std::string(x.name); });
}

using Points = std::vector<std::pair<double, double>>;

/// The values of `member` over those of the abscissa.
Points points_of(const std::string& run, const MetricsFile& metrics, const Abscissa& x, const char* member) {
  Points points;
  for (const Json& line : metrics.lines) {
    if (!line.contains(member) || !line[member].is_number()) continue;
    if (!line.contains(x.member) || !line[x.member].is_number())
      fail<UsageError>("plot",
                       "expected \"{}\" in all lines of {}/metrics.jsonl for --x {}, got a line without",
                       x.member, run, x.name);
    points.emplace_back(line[x.member].get<double>(), line[member].get<double>());
  }
  return points;
}

/// Means over runs of consecutive points, at most `most` of them: single batches scatter.
Points smoothed(const Points& points, std::size_t most) {
  const std::size_t group = (points.size() + most - 1) / std::max<std::size_t>(most, 1);
  Points means;
  for (std::size_t first = 0; first < points.size(); first += group) {
    const std::size_t last = std::min(points.size(), first + group);
    double x = 0, y = 0;
    for (std::size_t i = first; i < last; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    means.emplace_back(x / static_cast<double>(last - first), y / static_cast<double>(last - first));
  }
  return means;
}

/// The mean of curves at each of their points, as far as all of them reach.
Points mean_of(const std::vector<Points>& curves) {
  std::size_t count = curves.front().size();
  for (const Points& curve : curves) count = std::min(count, curve.size());
  const auto share = 1 / static_cast<double>(curves.size());
  Points means(count);
  for (const Points& curve : curves) {
    for (std::size_t i = 0; i < count; ++i) {
      means[i].first += share * curve[i].first;
      means[i].second += share * curve[i].second;
    }
  }
  return means;
}

/// The last parts of the runs' paths, as many as tell them apart; a folder that is given again gets a number.
std::vector<std::string> names_of(const std::vector<std::string>& runs) {
  std::vector<fs::path> paths, rest, names;
  for (const std::string& run : runs) {
    paths.push_back(absolute_path(run));
    names.push_back(paths.back().filename());
    rest.push_back(paths.back().parent_path());
  }
  const auto is_taken = [&](std::size_t i) {
    for (std::size_t other = 0; other < names.size(); ++other)
      if (names[other] == names[i] && paths[other] != paths[i]) return true;
    return false;
  };
  for (bool any = true; any;) {
    std::vector<std::size_t> taken;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (is_taken(i) && rest[i].has_filename()) taken.push_back(i);
    for (const std::size_t i : taken) {
      names[i] = rest[i].filename() / names[i];
      rest[i] = rest[i].parent_path();
    }
    any = !taken.empty();
  }
  std::vector<std::string> result;
  std::map<fs::path, int> given;
  for (const fs::path& name : names) {
    const int count = ++given[name];
    result.push_back(count == 1 ? name.string() : fmt::format("{} ({})", name.string(), count));
  }
  return result;
}

/// By what the losses of runs are counted.
class LossUnits {
 public:
  void add(const std::string& name, const fs::path& run, const MetricsFile& metrics) {
    const std::optional<RunRecord> record = record_of_run(run, metrics);
    const std::string unit = record ? unit_of(record->config.model) : "token";
    if (std::ranges::find(units_, unit) == units_.end()) units_.push_back(unit);
    if (unit != "token" || !record) return;
    const fs::path tokenizer = run / tokenizer_file;
    const std::string key = fs::exists(tokenizer) ? read_file(tokenizer) : record->config.data.tokenizer;
    names_of_[key.empty() ? fmt::format("{} values", record->config.model.vocabulary) : key].push_back(name);
  }

  std::string label() const { return fmt::format("bits per {}", fmt::join(units_, " or ")); }

  /// A sentence where tokens of one run are not those of another.
  std::optional<std::string> warning() const {
    if (names_of_.size() < 2) return {};
    std::vector<std::string> groups;
    for (const auto& [tokens, names] : names_of_) groups.push_back(fmt::format("{}", fmt::join(names, ", ")));
    return fmt::format(
        "note: bits per token cannot be compared between runs whose tokens differ: {}; linnet evaluate "
        "prints "
        "bits per byte of text",
        fmt::join(groups, " | "));
  }

 private:
  std::vector<std::string> units_;
  std::map<std::string, std::vector<std::string>> names_of_;  // of runs, by their tokens
};

/// The places of the runs that are one line: with --seeds of those that repeat each other.
std::vector<std::vector<std::size_t>> groups_of(const Arguments& arguments,
                                                const std::vector<MetricsFile>& metrics) {
  if (!arguments.seeds) return groups_of_one(metrics.size());
  std::vector<RunSettings> settings;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const std::optional<RunRecord> record = record_of_run(arguments.runs[i], metrics[i]);
    if (!record)
      fail<UsageError>("plot", "expected runs with settings for --seeds, got {}", arguments.runs[i]);
    settings.push_back(settings_of(*record));
  }
  return groups_by_seeds(settings);
}

void run(const Arguments& arguments) {
  std::vector<NamedPath> runs;
  for (const std::string& folder : arguments.runs) runs.push_back({"the run's", folder});
  check_outputs("plot", {{"--out", arguments.out}}, runs);
  require_chart_path(arguments.out);
  const Abscissa& x = abscissa_of(arguments.x);
  Chart training, validation;
  training.title = "Training loss";
  validation.title = "Validation loss";
  training.x_label = validation.x_label = x.label;
  training.ticks_at_points = validation.ticks_at_points = false;
  constexpr std::size_t most_points = 60;
  const std::vector<std::string> names = names_of(arguments.runs);
  LossUnits units;
  std::vector<MetricsFile> metrics;
  for (std::size_t i = 0; i < names.size(); ++i) {
    metrics.push_back(read_metrics(arguments.runs[i]));
    units.add(names[i], arguments.runs[i], metrics.back());
  }
  bool any = false;
  std::vector<std::string> missing;
  const std::vector<std::vector<std::size_t>> groups = groups_of(arguments, metrics);
  for (std::size_t place = 0; place < groups.size(); ++place) {
    const std::vector<std::size_t>& group = groups[place];
    const std::string& first = names[group.front()];
    // A curve keeps its colour in both charts, also where a run has no points in one of them.
    for (Chart* chart : {&training, &validation}) {
      const bool trains = chart == &training;
      std::vector<Points> curves;
      for (const std::size_t i : group) {
        curves.push_back(points_of(arguments.runs[i], metrics[i], x, trains ? "bits" : "validation_bits"));
        any = any || !curves.back().empty();
        if (!curves.back().empty()) continue;
        curves.pop_back();
        missing.push_back(
            fmt::format("{} has no {} loss yet", arguments.runs[i], trains ? "training" : "validation"));
      }
      const auto add = [&](const std::string& name, const Points& points, bool faint) {
        chart->lines.push_back(
            {name, trains ? smoothed(points, most_points) : points, static_cast<int>(place), false, faint});
      };
      if (curves.size() > 1)
        for (const Points& curve : curves) add("", curve, true);
      add(curves.size() > 1 ? fmt::format("{}, mean of {}", first, curves.size()) : first,
          curves.empty() ? Points() : mean_of(curves), false);
    }
  }
  if (!any)
    fail<UsageError>("plot", "expected runs with losses in their metrics.jsonl, got none in {}",
                     fmt::join(arguments.runs, ", "));
  training.y_label = validation.y_label = units.label();
  if (const auto warning = units.warning()) missing.push_back(*warning);
  for (const std::string& sentence : missing) Progress().show(sentence, true);
  write_chart(arguments.out, {training, validation}, arguments.title);
  print_summary(arguments.out, arguments.out + "\n");
}

}  // namespace

void add_plot(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("plot", "Draw the losses of training runs");
  command.footer("Example: linnet plot runs/linear runs/softmax --out losses.svg");
  command.add_option("runs", arguments->runs, "folders of training runs").required();
  command.add_option("--out", arguments->out, "SVG or PNG file to write").required();
  command.add_option("--title", arguments->title, "title of the picture").may_be_empty();
  std::vector<std::string> words;
  for (const Abscissa& x : abscissae) words.emplace_back(x.name);
  command.add_option("--x", arguments->x, "what the horizontal axis counts")
      .check(one_of(words))
      .capture_default_str();
  command.add_flag(
      "--seeds", arguments->seeds,
      "runs that differ in training.seed and attention.seed alone as thin lines, with their mean");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
