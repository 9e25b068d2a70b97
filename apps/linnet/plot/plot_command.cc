#include <fmt/core.h>

#include <sstream>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "io/json.h"
#include "outputs.h"
#include "plot/plot.h"

namespace linnet {
namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string out, title;
};

/// The lines of a run's metrics that have the member, as (step, its value).
std::vector<std::pair<double, double>> points_of(const std::vector<Json>& metrics, const char* member) {
  std::vector<std::pair<double, double>> points;
  for (const Json& line : metrics)
    if (line.contains(member) && line[member].is_number() && line[member].get<double>() > 0)
      points.emplace_back(line["step"].get<double>(), line[member].get<double>());
  return points;
}

std::vector<Json> metrics_of(const std::filesystem::path& run) {
  const std::filesystem::path path = run / "metrics.jsonl";
  if (!std::filesystem::exists(path))
    fail<UsageError>("plot", "expected folders of training runs, got {}, which has no metrics.jsonl",
                     run.string());
  std::vector<Json> metrics;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    metrics.push_back(parse_json(line, path.string()));
    if (!metrics.back().is_object() || !metrics.back().contains("step") ||
        !metrics.back()["step"].is_number())
      fail("plot", "expected every line of {} to have a step, got {}", path.string(), line);
  }
  return metrics;
}

/// Means over runs of consecutive points, at most `most` of them: single batches scatter.
std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& points,
                                                std::size_t most) {
  const std::size_t group = (points.size() + most - 1) / std::max<std::size_t>(most, 1);
  std::vector<std::pair<double, double>> means;
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

void run(const Arguments& arguments) {
  std::vector<NamedPath> runs;
  for (const std::string& folder : arguments.runs) runs.push_back({"the run's", folder});
  check_outputs("plot", {{"--out", arguments.out}}, runs);
  Chart training, validation;
  training.title = arguments.title.empty() ? "Training loss" : arguments.title;
  validation.title = "Validation loss";
  training.x_label = validation.x_label = "updates";
  training.y_label = validation.y_label = "bits per token";
  constexpr std::size_t most_points = 60;
  for (const std::string& folder : arguments.runs) {
    const std::vector<Json> metrics = metrics_of(folder);
    const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
    const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
    training.line(name).points = smoothed(points_of(metrics, "bits"), most_points);
    validation.line(name).points = points_of(metrics, "validation_bits");
  }
  write_svg(arguments.out, {training, validation});
  fmt::print("{}\n", arguments.out);
}

}  // namespace

void add_plot(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("plot", "Draw the losses of training runs");
  command.footer("Example: linnet plot runs/linear runs/softmax --out losses.svg");
  command.add_option("runs", arguments->runs, "folders of training runs").required();
  command.add_option("--out", arguments->out, "SVG file to write").required();
  command.add_option("--title", arguments->title, "title of the picture");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
