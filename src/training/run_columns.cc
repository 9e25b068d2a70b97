#include "training/run_columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"
#include "data/sound.h"
#include "data/tokens.h"
#include "io/json.h"
#include "io/options.h"
#include "model/files.h"

namespace linnet {

namespace fs = std::filesystem;

namespace {

constexpr std::pair<const char*, std::string SeriesForm::*> keys_of_form[] = {
    {"columns", &SeriesForm::columns},
    {"time", &SeriesForm::time},
    {"missing", &SeriesForm::missing},
    {"split", &SeriesForm::split}};

}  // namespace

RunColumns RunColumns::of(const Dataset& dataset) {
  RunColumns columns{dataset.column_names(), dataset.applied_statistics()};
  columns.form = series_form(dataset).value_or(SeriesForm{.split = sound_split(dataset)});
  columns.sound = sound_format(dataset);
  if (const std::int64_t bytes = raw_token_bytes(dataset); bytes != DataOptions().token_bytes)
    columns.token_bytes = bytes;
  return columns;
}

std::optional<RunColumns> RunColumns::read(const fs::path& folder) {
  return parse(read_columns(folder), (folder / columns_file).string());
}

std::optional<RunColumns> RunColumns::parse(const std::string& text, const std::string& origin) {
  if (text.empty()) return {};
  RunColumns result;
  const Json json = parse_json(text, origin);
  const auto numbers_for_each = [&](const std::vector<double>& numbers) {
    return numbers.size() == result.names.size() &&
           std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); });
  };
  try {
    for (const auto& [key, member] : keys_of_form) result.form.*member = json.value(key, std::string());
    if (json.contains("rate")) {
      result.sound = {json.at("rate").get<std::int64_t>(), json.at("channels").get<std::int64_t>(), 0};
      if (result.sound->rate < 1 || result.sound->channels < 1)
        fail("data", "{}: expected a rate and a number of channels of at least 1, got {} and {}", origin,
             result.sound->rate, result.sound->channels);
      return result;
    }
    result.token_bytes = json.value("token_bytes", std::int64_t{0});
    if (result.token_bytes != 0) return result;
    result.names = json.at("names").get<std::vector<std::string>>();
    if (!json.contains("mean")) return result;
    result.applied.mean = json.at("mean").get<std::vector<double>>();
    result.applied.deviation = json.at("deviation").get<std::vector<double>>();
  } catch (const Json::exception&) {
    fail("data",
         "{}: expected names of columns, and means and deviations, or rate and channels of sound, got {}",
         origin, shortened(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  if (std::ranges::any_of(result.applied.deviation, [](double deviation) { return deviation < 0; }))
    fail("data", "{}: expected deviations of at least 0, got one below", origin);
  if (!numbers_for_each(result.applied.mean) || !numbers_for_each(result.applied.deviation))
    fail("data", "{}: expected a mean and a deviation for each of {} columns, got others", origin,
         result.names.size());
  return result;
}

void RunColumns::check_kind(const DataOptions& data) const {
  if (sound && data.kind == "series")
    fail<UsageError>("data", "expected a model of a series, got one of sound");
}

void RunColumns::take_form(DataOptions& data) const {
  check_kind(data);
  if (data.kind == "tokens" && token_bytes != 0) data.token_bytes = token_bytes;
  if ((data.kind != "series" || names.empty()) && (data.kind != "sound" || !sound)) return;
  data.columns = form.columns;
  data.time = form.time;
  if (!form.missing.empty()) data.missing = form.missing;
  data.split = form.split;
  data.columns_apart = !applied.mean.empty();
  take_columns(data);
}

void RunColumns::take_columns(DataOptions& data) const {
  check_kind(data);
  if (data.kind != "series" || names.empty()) return;
  data.column_names = names;
  if (!applied.mean.empty()) data.statistics = applied;
  if (!data.columns.empty()) return;
  const std::string list = fmt::format("{}", fmt::join(names, ","));
  // The names are kept as UTF-8: a replacement character stands for what a file has in its place.
  if (comma_separated(list) == names && list.find("\uFFFD") == std::string::npos) data.columns = list;
}

std::int64_t RunColumns::frames_of_step(const ModelConfig& config) const {
  const std::int64_t samples = config.columns > 0 ? config.columns : std::ssize(config.field_sizes());
  return std::max<std::int64_t>(samples / sound->channels, 1);
}

std::string RunColumns::text() const {
  if (token_bytes != 0) return Json{{"token_bytes", token_bytes}}.dump(1) + "\n";
  if (names.empty() && !sound) return {};
  Json json = sound ? Json{{"rate", sound->rate}, {"channels", sound->channels}} : Json{{"names", names}};
  if (!applied.mean.empty()) {
    json["mean"] = applied.mean;
    json["deviation"] = applied.deviation;
  }
  for (const auto& [key, member] : keys_of_form)
    if (!(form.*member).empty()) json[key] = form.*member;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void RunColumns::check(const char* command, const std::string& origin, const SoundFormat& found) const {
  if (!sound) fail<UsageError>(command, "{}: expected a model of sound, got one of a series", origin);
  if (found.rate == sound->rate && found.channels == sound->channels) return;
  fail<UsageError>(
      command,
      "{}: expected sound of the rate and the number of channels of the run's data, {} Hz and {}, got {} Hz "
      "and {}",
      origin, sound->rate, sound->channels, found.rate, found.channels);
}

}  // namespace linnet
