#include "metrics_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"
#include "report.h"
#include "run_record.h"
#include "training/checkpoint.h"
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

namespace {

/// Of the last evaluation in the last lines of a file of metrics, which may be long.
std::optional<double> last_validation_bits(const std::filesystem::path& path) {
  constexpr std::uint64_t most = 1 << 18;
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(std::min(file.size(), most)), '\0');
  file.read(file.size() - text.size(), std::as_writable_bytes(std::span(text)));
  const std::size_t at = text.rfind("\"validation_bits\"");
  if (at == std::string::npos) return {};
  const std::size_t begin = text.rfind('\n', at) + 1,
                    end = text.find('\n', at);  // of the line; npos + 1 is 0
  if (end == std::string::npos) return {};
  return parse_json(text.substr(begin, end - begin), path.string()).at("validation_bits").get<double>();
}

}  // namespace

void note_better_evaluation(const std::filesystem::path& model) {
  const std::filesystem::path best = model / "best";
  std::error_code ignored;
  if (!std::filesystem::exists(best / evaluation_file, ignored)) return;
  try {
    const Json evaluation = read_json(best / evaluation_file);
    const double least = evaluation.at("validation_bits").get<double>();
    const std::optional<double> last = last_validation_bits(model / metrics_file);
    if (!last || *last - least <= 0.01 * std::abs(least)) return;
    print_note(fmt::format(
        "note: the last evaluation of {} has {:.4f} bits, that of step {} {:.4f}: its model is {}",
        model.string(), *last, evaluation.at("step").get<std::int64_t>(), least, best.string()));
  } catch (const Error&) {
  } catch (const Json::exception&) {
  }
}

std::optional<RunRecord> record_of_run(const std::filesystem::path& run, const MetricsFile& metrics) {
  if (std::filesystem::exists(run / record_file)) return RunRecord::read(run);
  if (!metrics.heading.contains("settings")) return {};
  RunRecord record;
  record.config.read_json(metrics.heading["settings"].dump(), (run / metrics_file).string());
  return record;
}

}  // namespace linnet
