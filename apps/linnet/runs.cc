#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "attention/family.h"
#include "base/fail.h"
#include "commands.h"
#include "config.h"
#include "io/file.h"
#include "metrics_file.h"
#include "model/files.h"
#include "report.h"
#include "run_groups.h"
#include "run_record.h"
#include "training/checkpoint.h"
#include "training/run_lock.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string folder;
  bool differences = false, seeds = false, best_first = false, json = false;
};

/// Whether the program, or `train` of C++ or Python, trained in a folder. One that cannot be looked into
/// counts as none.
bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / record_file, ignored) ||
         (fs::exists(folder / metrics_file, ignored) && fs::exists(folder / config_file, ignored));
}

/// The runs in a folder and in those below it, by path; the folder itself may be one.
std::vector<fs::path> runs_in(const fs::path& folder) {
  if (!fs::is_directory(folder))
    fail<UsageError>("runs", "expected a folder of training runs, got {}", folder.string());
  if (const auto run = run_of(folder)) return {*run};
  if (is_run(folder)) return {folder};
  std::vector<fs::path> runs;
  const auto options = fs::directory_options::skip_permission_denied;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, options, error), end; !error && at != end;) {
    std::error_code ignored;
    if (at->is_directory(ignored) && is_run(at->path())) {
      runs.push_back(at->path());
      at.disable_recursion_pending();
    }
    at.increment(error);
  }
  if (error) print_note(fmt::format("[runs] cannot read all of {}: {}", folder.string(), error.message()));
  std::ranges::sort(runs);
  return runs;
}

/// The number `key` of the last line that has it, or null.
Json last_of(const std::vector<Json>& lines, const char* key) {
  for (std::size_t i = lines.size(); i-- > 0;)
    if (lines[i].contains(key) && lines[i][key].is_number()) return lines[i][key];
  return nullptr;
}

/// The lowest validation loss so far, and how many evaluations there were since.
struct Best {
  Json bits = nullptr;
  std::int64_t since = 0;
};

Best best_of(const std::vector<Json>& lines) {
  Best best;
  for (const Json& line : lines) {
    if (!line.contains("validation_bits") || !line["validation_bits"].is_number()) continue;
    const bool better = best.bits.is_null() || line["validation_bits"] < best.bits;
    best.since = better ? 0 : best.since + 1;
    if (better) best.bits = line["validation_bits"];
  }
  return best;
}

/// The middle one of the rates of all updates that have a line; null where none has. An update that waits,
/// as in a program that was suspended, does not change it.
Json median_rate(const std::vector<Json>& lines) {
  std::vector<double> rates;
  for (const Json& line : lines)
    if (line.contains("tokens_per_second") && line["tokens_per_second"].is_number())
      rates.push_back(line["tokens_per_second"]);
  if (rates.empty()) return nullptr;
  const auto middle = rates.begin() + std::ssize(rates) / 2;
  std::ranges::nth_element(rates, middle);
  return *middle;
}

/// A run, as a row and with all of its settings.
struct KnownRun {
  Json row;
  RunSettings settings;
};

KnownRun read_run(const fs::path& run, const std::string& name) {
  const MetricsFile metrics = fs::exists(run / metrics_file) ? read_metrics(run) : MetricsFile{};
  const std::optional<RunRecord> known = record_of_run(run, metrics);
  if (!known)
    fail("runs", "expected {} to begin with the settings of the run, got none",
         (run / metrics_file).string());
  const RunConfig& config = known->config;
  const TrainingOptions& training = config.training;
  const Best best = best_of(metrics.lines);
  // Lines may have been lost of updates that are done.
  const std::int64_t logged = metrics.lines.empty() ? 0 : metrics.lines.back()["step"].get<std::int64_t>();
  const std::int64_t step = std::max(logged, Checkpoints(run).newest().value_or(0));
  const Json seconds = last_of(metrics.lines, "seconds");
  const bool finished = step >= training.steps || (training.patience > 0 && best.since >= training.patience);
  const auto map = feature_map_of(config.model);
  Json row = {{"name", name},
              {"family", families_text(config.model.attention)},
              {"feature_map", map ? Json(*map) : Json()},
              {"parameters", metrics.heading.value("parameters", Json())},
              {"step", step},
              {"steps", training.steps},
              {"best_validation_bits", best.bits},
              {"last_validation_bits", last_of(metrics.lines, "validation_bits")},
              {"tokens_per_second", median_rate(metrics.lines)},
              {"seconds", seconds},
              {"state", RunLock::is_held(run) ? "running"
                        : finished            ? "finished"
                                              : "stopped"}};
  return {std::move(row), settings_of(*known)};
}

std::string bits_text(const Json& bits) {
  return bits.is_null() ? "" : fmt::format("{:.4f}", bits.get<double>());
}

/// "linear (elu)", "softmax".
std::string attention_text(const Json& row) {
  const std::string family = row["family"];
  return row["feature_map"].is_null() ? family
                                      : fmt::format("{} ({})", family, row["feature_map"].get<std::string>());
}

/// The row as the table shows it.
Json shown(const Json& row) {
  if (!row.contains("step")) return row;
  return {{"name", row["name"]},
          {"attention", attention_text(row)},
          {"parameters", row["parameters"]},
          {"step", fmt::format("{}/{}", row["step"].get<std::int64_t>(), row["steps"].get<std::int64_t>())},
          {"best bits", bits_text(row["best_validation_bits"])},
          {"last bits", bits_text(row["last_validation_bits"])},
          {"tokens/s", row["tokens_per_second"].is_null()
                           ? ""
                           : fmt::format("{:.0f}", row["tokens_per_second"].get<double>())},
          {"time", row["seconds"].is_null() ? "" : duration_text(row["seconds"].get<double>())},
          {"state", row["state"]}};
}

/// Runs that repeat each other, as a row: what their best evaluations are together.
Json repeated_row(const std::vector<KnownRun>& runs, const std::vector<std::size_t>& group) {
  const Json& first = runs[group.front()].row;
  Json names = Json::array();
  std::vector<double> bits;
  std::int64_t finished = 0;
  for (const std::size_t i : group) {
    const Json& row = runs[i].row;
    names.push_back(row["name"]);
    if (row["state"] == "finished") ++finished;
    if (!row["best_validation_bits"].is_null()) bits.push_back(row["best_validation_bits"]);
  }
  Json mean, deviation, least, most;
  if (!bits.empty()) {
    const auto count = static_cast<double>(bits.size());
    const double sum = std::accumulate(bits.begin(), bits.end(), 0.0);
    mean = sum / count;
    least = *std::ranges::min_element(bits);
    most = *std::ranges::max_element(bits);
    double squares = 0;
    for (const double value : bits) squares += (value - sum / count) * (value - sum / count);
    if (bits.size() > 1) deviation = std::sqrt(squares / (count - 1));
  }
  return {
      {"names", names},
      {"family", first["family"]},
      {"feature_map", first["feature_map"]},
      {"parameters", first["parameters"]},
      {"runs", group.size()},
      {"finished", finished},
      {"evaluated", bits.size()},
      {"best_validation_bits", {{"mean", mean}, {"deviation", deviation}, {"least", least}, {"most", most}}}};
}

/// The row as the table shows it.
Json shown_repeated(const Json& row) {
  const Json& bits = row["best_validation_bits"];
  return {{"first run", row["names"][0]},
          {"attention", attention_text(row)},
          {"parameters", row["parameters"]},
          {"runs", row["runs"]},
          {"finished", row["finished"]},
          {"mean of best bits", bits_text(bits["mean"])},
          {"deviation", bits_text(bits["deviation"])},
          {"least", bits_text(bits["least"])},
          {"most", bits_text(bits["most"])}};
}

/// The bits of a row's best evaluation, with --seeds their mean; infinite where there is none.
double bits_of_row(const Json& row) {
  const Json& bits = row["best_validation_bits"];
  const Json& mean = bits.is_object() ? bits["mean"] : bits;
  return mean.is_number() ? mean.get<double>() : std::numeric_limits<double>::infinity();
}

void run(const Arguments& arguments) {
  std::vector<KnownRun> runs;
  Json unreadable = Json::array();
  for (const fs::path& run : runs_in(arguments.folder)) {
    const fs::path below = run.lexically_relative(arguments.folder);
    const std::string name =
        below.empty() || below == "." ? absolute_path(run).filename().string() : below.string();
    try {
      runs.push_back(read_run(run, name));
    } catch (const Error& error) {
      unreadable.push_back({{"name", name}, {"state", "unreadable"}});
      print_note(error.what());
    }
  }
  std::vector<RunSettings> settings;
  for (const KnownRun& run : runs) settings.push_back(run.settings);
  const std::vector<std::vector<std::size_t>> groups =
      arguments.seeds ? groups_by_seeds(settings) : groups_of_one(runs.size());
  const std::vector<std::string> differing =
      arguments.differences ? differences(settings, groups) : std::vector<std::string>();

  std::vector<Json> known;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    known.push_back(arguments.seeds ? repeated_row(runs, groups[i]) : runs[i].row);
    if (arguments.differences) known.back()["differences"] = differing[i];
  }
  if (arguments.best_first) std::ranges::stable_sort(known, {}, bits_of_row);
  Json rows = Json::array(), table = Json::array();
  for (const Json& row : known) {
    rows.push_back(row);
    table.push_back(arguments.seeds ? shown_repeated(row) : shown(row));
    if (arguments.differences) table.back()["differences"] = row["differences"];
  }
  if (!arguments.seeds) {
    for (const Json& row : unreadable) {
      rows.push_back(row);
      table.push_back(row);
    }
  }
  std::vector<std::string> columns =
      arguments.seeds
          ? std::vector<std::string>{"first run",         "attention", "parameters", "runs", "finished",
                                     "mean of best bits", "deviation", "least",      "most"}
          : std::vector<std::string>{"name",      "attention", "parameters", "step", "best bits",
                                     "last bits", "tokens/s",  "time",       "state"};
  if (arguments.differences) columns.emplace_back("differences");
  if (arguments.json)
    print_json(rows);
  else if (table.empty())
    fmt::print("no training runs in {}\n", arguments.folder);
  else
    print_table(table, columns);
}

}  // namespace

void add_runs(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("runs", "A table of the training runs in a folder");
  command.footer(
      "Bits are those of evaluations, per token. A run is running while a program trains in its folder.\n"
      "Example: linnet runs runs --seeds --differences");
  command.add_option("folder", arguments->folder, "folder of runs").required();
  command.add_flag("--differences", arguments->differences, "also the settings in which the runs differ");
  command.add_flag("--seeds", arguments->seeds,
                   "one line for runs that differ in training.seed and attention.seed alone: mean and "
                   "standard deviation of their best bits");
  command.add_flag("--best-first", arguments->best_first,
                   "sort by the bits of the best evaluations, the lowest first, in place of the names");
  command.add_flag("--json", arguments->json, "print the table as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
