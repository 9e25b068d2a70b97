#include "run_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace linnet {
namespace {

constexpr const char* seeds[] = {"training.seed", "attention.seed"};

}  // namespace

RunSettings settings_of(const RunConfig& config) {
  RunSettings settings;
  for (const Setting& setting : config.settings()) settings.emplace(setting.key, setting.value);
  return settings;
}

RunSettings settings_of(const RunRecord& record) {
  RunSettings settings = settings_of(record.config);
  settings["run.initial"] = record.initial;
  settings["fingerprint.crc32"] = record.data.crc32;
  return settings;
}

std::vector<std::vector<std::size_t>> groups_by_seeds(const std::vector<RunSettings>& runs) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<RunSettings, std::size_t> places;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunSettings rest = runs[i];
    for (const char* seed : seeds) rest.erase(seed);
    const auto [place, is_new] = places.emplace(std::move(rest), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(i);
  }
  return groups;
}

std::vector<std::vector<std::size_t>> groups_of_one(std::size_t runs) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < runs; ++i) groups.push_back({i});
  return groups;
}

std::vector<std::string> differences(const std::vector<RunSettings>& runs,
                                     const std::vector<std::vector<std::size_t>>& groups) {
  const bool repeated = std::ranges::any_of(groups, [](const auto& group) { return group.size() > 1; });
  std::map<std::string, std::set<std::string>> values;
  for (const auto& group : groups)
    for (const auto& [key, value] : runs[group.front()]) values[key].insert(value);
  if (repeated)
    for (const char* seed : seeds) values.erase(seed);
  std::vector<std::string> result;
  for (const auto& group : groups) {
    std::vector<std::string> own;
    for (const auto& [key, value] : runs[group.front()])
      if (const auto found = values.find(key); found != values.end() && found->second.size() > 1)
        own.push_back(fmt::format("{}={}", key, value));
    result.push_back(fmt::format("{}", fmt::join(own, " ")));
  }
  return result;
}

}  // namespace linnet
