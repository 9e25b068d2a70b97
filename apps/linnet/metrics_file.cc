#include "metrics_file.h"

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"
#include "run_record.h"
#include "training/metrics.h"

namespace linnet {

MetricsFile read_metrics(const std::filesystem::path& run) {
  const std::filesystem::path path = run / metrics_file;
  if (!std::filesystem::exists(path))
    fail<UsageError>("metrics", "expected the folder of a training run, got {}, which has no {}",
                     run.string(), metrics_file);
  MetricsFile metrics;
  const std::string text = read_regular_file(path);
  int number = 0;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string origin = fmt::format("{}, line {}", path.string(), ++number);
    Json line = parse_json(std::string_view(text).substr(begin, end - begin), origin);
    if (line.is_object() && line.contains("settings"))
      metrics.heading = std::move(line);
    else if (step_of(line))
      metrics.lines.push_back(std::move(line));
    else
      fail("metrics", "expected {} to have a step, got {}", origin,
           shortened(line.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  return metrics;
}

std::optional<RunConfig> config_of_run(const std::filesystem::path& run, const MetricsFile& metrics) {
  if (std::filesystem::exists(run / record_file)) return RunRecord::read(run).config;
  if (!metrics.heading.contains("settings")) return {};
  RunConfig config;
  config.read_json(metrics.heading["settings"].dump(), (run / metrics_file).string());
  return config;
}

}  // namespace linnet
