#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "attention/family.h"
#include "base/fail.h"
#include "commands.h"
#include "io/file.h"
#include "metrics_file.h"
#include "model/files.h"
#include "report.h"
#include "run_record.h"
#include "training/checkpoint.h"
#include "training/run_lock.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string folder;
  bool json = false;
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

Json row_of(const fs::path& run, const std::string& name) {
  const MetricsFile metrics = fs::exists(run / metrics_file) ? read_metrics(run) : MetricsFile{};
  const std::optional<RunConfig> known = config_of_run(run, metrics);
  if (!known)
    fail("runs", "expected {} to begin with the settings of the run, got none",
         (run / metrics_file).string());
  const RunConfig& config = *known;
  const TrainingOptions& training = config.training;
  const Best best = best_of(metrics.lines);
  // Lines may have been lost of updates that are done.
  const std::int64_t logged = metrics.lines.empty() ? 0 : metrics.lines.back()["step"].get<std::int64_t>();
  const std::int64_t step = std::max(logged, Checkpoints(run).newest().value_or(0));
  const Json seconds = last_of(metrics.lines, "seconds");
  const bool finished = step >= training.steps || (training.patience > 0 && best.since >= training.patience);
  return {{"name", name},
          {"family", families_text(config.model.attention)},
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
}

/// The row as the table shows it.
Json shown(const Json& row) {
  const auto bits = [](const Json& value) {
    return value.is_null() ? "" : fmt::format("{:.4f}", value.get<double>());
  };
  if (!row.contains("step")) return row;
  return {{"name", row["name"]},
          {"family", row["family"]},
          {"parameters", row["parameters"]},
          {"step", fmt::format("{}/{}", row["step"].get<std::int64_t>(), row["steps"].get<std::int64_t>())},
          {"best bits", bits(row["best_validation_bits"])},
          {"last bits", bits(row["last_validation_bits"])},
          {"tokens/s", row["tokens_per_second"].is_null()
                           ? ""
                           : fmt::format("{:.0f}", row["tokens_per_second"].get<double>())},
          {"time", row["seconds"].is_null() ? "" : duration_text(row["seconds"].get<double>())},
          {"state", row["state"]}};
}

void run(const Arguments& arguments) {
  Json rows = Json::array(), table = Json::array();
  for (const fs::path& run : runs_in(arguments.folder)) {
    const fs::path below = run.lexically_relative(arguments.folder);
    const std::string name =
        below.empty() || below == "." ? absolute_path(run).filename().string() : below.string();
    try {
      rows.push_back(row_of(run, name));
    } catch (const Error& error) {
      rows.push_back({{"name", name}, {"state", "unreadable"}});
      print_note(error.what());
    }
    table.push_back(shown(rows.back()));
  }
  if (arguments.json)
    print_json(rows);
  else if (table.empty())
    fmt::print("no training runs in {}\n", arguments.folder);
  else
    print_table(table, {"name", "family", "parameters", "step", "best bits", "last bits", "tokens/s", "time",
                        "state"});
}

}  // namespace

void add_runs(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("runs", "A table of the training runs in a folder");
  command.footer(
      "Bits are those of evaluations, per token. A run is running while a program trains in its folder.\n"
      "Example: linnet runs runs");
  command.add_option("folder", arguments->folder, "folder of runs").required();
  command.add_flag("--json", arguments->json, "print the table as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
