#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>

#include "bench/attention.h"
#include "linnet/attention.h"
#include "plot/plot.h"

namespace linnet {
namespace {

using Curve = std::map<double, double>;  // milliseconds by length

/// The line between the points at a and b, where it crosses 0.
double zero_between(double a, double value_a, double b, double value_b) {
  return a + (b - a) * value_a / (value_a - value_b);
}

/// From which length on `fast` stays below `slow`: 0 where it always does, nothing where it does not at the
/// longest length that both have. Straight lines on logarithmic scales lie between the measured lengths.
std::optional<double> crossing(const Curve& fast, const Curve& slow) {
  std::optional<double> result;
  double last_length = 0, last_gain = 0;
  for (const auto& [length, time] : fast) {
    const auto other = slow.find(length);
    if (other == slow.end()) continue;
    const double gain = std::log(other->second / time);
    if (gain <= 0)
      result.reset();
    else if (!result)
      result = last_length == 0
                   ? 0
                   : std::exp(zero_between(std::log(last_length), last_gain, std::log(length), gain));
    last_length = length;
    last_gain = gain;
  }
  return result;
}

/// To two digits: more would pretend.
double rounded(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

double time_at(const Curve& curve, double length) {
  auto above = curve.lower_bound(length);
  if (above == curve.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == curve.end()) return below->second;
  const double share = std::log(length / below->first) / std::log(above->first / below->first);
  return std::exp(std::log(below->second) + share * std::log(above->second / below->second));
}

Chart::Note crossing_note(const std::string& pass, const Curve& linear, const Curve& softmax) {
  const std::optional<double> from = crossing(linear, softmax);
  if (!from)
    return {fmt::format("softmax is faster up to N = {:.0f}, the longest length of both ({})",
                        std::min(linear.rbegin()->first, softmax.rbegin()->first), pass)};
  if (*from == 0)
    return {fmt::format("linear is faster at all lengths measured, from N = {:.0f} ({})",
                        std::max(linear.begin()->first, softmax.begin()->first), pass)};
  return {fmt::format("linear is faster from N = {:.0f} ({})", rounded(*from), pass), *from,
          time_at(linear, *from), fmt::format("N = {:.0f}, {}", rounded(*from), pass)};
}

std::string subtitle_of(const Json& row) {
  const std::string map = row["feature_map"].is_null() ? "" : row["feature_map"].get<std::string>() + ", ";
  const std::int64_t threads = row["threads"];
  return fmt::format("{} mask, {} heads of {}, {}{}, {} thread{}, {}", row["mask"].get<std::string>(),
                     row["heads"].get<std::int64_t>(), row["head_dim"].get<std::int64_t>(), map,
                     row["dtype"].get<std::string>(), threads, threads == 1 ? "" : "s",
                     row["isa"].get<std::string>());
}

}  // namespace

std::vector<std::string> plot_scaling(const Json& rows, const std::string& path) {
  Chart time, memory;
  time.title = "Time of one sample";
  time.subtitle = subtitle_of(rows.front());
  time.y_label = "time";
  time.unit = Chart::Unit::milliseconds;
  memory.title = "Peak memory of one sample";
  memory.subtitle = "inputs, outputs, gradients and working memory";
  memory.y_label = "memory";
  memory.unit = Chart::Unit::bytes;
  time.x_label = memory.x_label = "sequence length N (tokens)";
  std::map<std::string, std::map<std::string, Curve>> curves;  // by pass and family
  for (const Json& row : rows) {
    const std::string family = row["family"], pass = row["pass"];
    const double batch = row["batch"], length = row["length"];
    const double ms = row["time_ms"]["median"].get<double>() / batch;
    const double bytes =
        (row["tensor_bytes"].get<double>() + row["working_memory_bytes"].get<double>()) / batch;
    curves[pass][family][length] = ms;
    for (Chart* chart : {&time, &memory}) {
      Chart::Line& line = chart->line(family + ", " + pass);
      line.points.emplace_back(length, chart == &time ? ms : bytes);
      line.colour = static_cast<int>(find_family(family));
      line.dashed = pass == "training";
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [pass, families] : curves) {
    if (!families.contains("linear") || !families.contains("softmax")) continue;
    time.notes.push_back(crossing_note(pass, families.at("linear"), families.at("softmax")));
    sentences.push_back(time.notes.back().text);
  }
  write_chart(path, {time, memory});
  return sentences;
}

}  // namespace linnet
