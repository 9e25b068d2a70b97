#include "training/metrics.h"

#include <sstream>

#include "base/fail.h"
#include "io/file.h"
#include "training/config.h"

namespace linnet {
namespace {

/// Nothing where the line cannot be read. Most of those are told without an exception: there may be millions.
std::optional<Json> parsed(const std::string& line, const std::string& origin) {
  if (!Json::accept(line)) return std::nullopt;
  try {
    return parse_json(line, origin);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<std::int64_t> step_of(const Json& line) {
  const auto step = line.is_object() ? line.find("step") : line.end();
  if (step == line.end() || !step->is_number_unsigned() ||
      step->get<std::uint64_t>() > static_cast<std::uint64_t>(most_steps))
    return std::nullopt;
  return step->get<std::int64_t>();
}

Metrics::Metrics(const std::filesystem::path& run) : path_(run / "metrics.jsonl") {}

std::int64_t Metrics::begin(std::int64_t step, bool evaluation_due, const Json& first) const {
  const std::string old = std::filesystem::exists(path_) ? read_regular_file(path_) : "";
  const std::string heading = first.dump() + "\n";
  std::string kept;
  std::istringstream lines(old);
  std::int64_t unreadable = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::optional<Json> json = parsed(line, path_.string());
    if (json && json->is_object() && json->contains("settings")) continue;
    if (const auto found = json ? step_of(*json) : std::nullopt; !found)
      ++unreadable;
    else if (*found < step || (*found == step && !(evaluation_due && json->contains("validation_bits"))))
      kept += line + "\n";
  }
  if (unreadable > 0) write_file_atomically(damaged(), old);
  if (heading + kept != old) write_file_atomically(path_, heading + kept);
  return unreadable;
}

std::filesystem::path Metrics::damaged() const { return std::filesystem::path(path_) += ".damaged"; }

void Metrics::append(const Json& line) const { append_line(path_, line.dump()); }

}  // namespace linnet
