// The metrics.jsonl of a run: read as `linnet plot` and `linnet runs` do, drawn, and prepared for a resumed
// training. The first byte chooses the step of the resume.

#include "base/fail.h"
#include "fuzz.h"
#include "io/file.h"
#include "metrics_file.h"
#include "plot/plot.h"
#include "training/metrics.h"

namespace linnet::fuzz {
namespace {

/// Two charts of all numbers, over the steps and over the seconds.
void draw(const MetricsFile& metrics, const std::filesystem::path& path) {
  std::vector<Chart> charts(2);
  for (const Json& line : metrics.lines)
    for (const auto& [name, value] : line.items())
      for (std::size_t i = 0; i < charts.size(); ++i) {
        const auto x = line.find(i == 0 ? "step" : "seconds");
        if (x != line.end() && x->is_number() && value.is_number())
          charts[i].line(name).points.emplace_back(x->get<double>(), value.get<double>());
      }
  if (!charts[0].lines.empty()) write_chart(path, charts, "all numbers");
}

}  // namespace

void answer(std::string_view input) {
  const std::int64_t step = take_choice(input);
  const auto& folder = empty_folder();
  put(folder / "metrics.jsonl", input);
  const Metrics metrics(folder);
  if (metrics.begin(step, false, {{"settings", Json::object()}}) > 0 && read_file(metrics.damaged()) != input)
    report("expected the damaged file to be kept");
  metrics.append({{"step", step + 1}});
  if (read_again([&] { return read_metrics(folder); }).lines.empty())
    report("expected the line that was appended");
  if (read_again([&] { return metrics.begin(step, false, {}); }) != 0)
    report("expected to read every line that was written");

  put(folder / "metrics.jsonl", input);
  draw(read_metrics(folder), folder / "chart.svg");
}

std::vector<std::string> seeds() {
  return {with_choice(9,
                      "{\"settings\":{\"model\":{\"layers\":2}},\"version\":\"0.1\",\"parameters\":100}\n"
                      "{\"step\":5,\"bits\":7.5,\"seconds\":0.25,\"tokens\":80,\"smoothed_bits\":7.9}\n"
                      "{\"step\":10,\"validation_bits\":6.5e0,\"accuracy\":null}\n"),
          with_choice(200, "{\"step\":1,\"bits\":8}\n{\"step\":2,\"bits\":7.5}\n"), with_choice(0, "")};
}

std::vector<std::string> words() {
  return {"\"step\":",
          "\"settings\":",
          "\"bits\":",
          "\"validation_bits\":",
          "\"seconds\":",
          "\"tokens\":",
          "{\"step\":1}",
          "\n",
          "9223372036854775807",
          "18446744073709551615",
          "1e308",
          "-1",
          "null",
          "[[[["};
}

}  // namespace linnet::fuzz
