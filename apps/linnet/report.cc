#include "report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace linnet {
namespace {
constexpr std::chrono::milliseconds terminal_interval(100);
constexpr std::chrono::milliseconds plain_interval(5000);
}  // namespace

Progress::Progress() : last_(), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (open_) fmt::print(stderr, "\n");
}

void Progress::show(const std::string& line, bool always) {
  const auto now = std::chrono::steady_clock::now();
  if (!always && now - last_ < (terminal_ ? terminal_interval : plain_interval)) return;
  last_ = now;
  if (terminal_) fmt::print(stderr, "\r\x1b[K{}", line);
  else fmt::print(stderr, "{}", line);
  open_ = terminal_ && !always;
  if (!open_) fmt::print(stderr, "\n");
  std::fflush(stderr);
}

std::string duration_text(double seconds) {
  const long whole = std::lround(std::max(seconds, 0.0));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::size_t peak_memory() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == "VmHWM:") {
      std::size_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
    std::getline(status, key);
  }
  return 0;
}

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // Linux: resets VmHWM to what is held now
}

namespace {

std::string cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return std::abs(number) >= 1000 ? fmt::format("{:.0f}", number) : fmt::format("{:.3g}", number);
  }
  return value.is_null() ? "" : value.dump();
}

/// The value of "a.b" in nested objects.
Json at_path(const Json& row, const std::string& path) {
  const std::size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  if (!row.contains(key)) return nullptr;
  return dot == std::string::npos ? row[key] : at_path(row[key], path.substr(dot + 1));
}

}  // namespace

void print_table(const Json& rows, const std::vector<std::string>& keys) {
  std::vector<std::vector<std::string>> lines = {keys};
  for (const Json& row : rows) {
    lines.emplace_back();
    for (const std::string& key : keys) lines.back().push_back(cell(at_path(row, key)));
  }
  std::vector<std::size_t> widths(keys.size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < keys.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < keys.size(); ++i) text += fmt::format("{:>{}}  ", line[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
}

Json time_summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {{"median", 1e3 * quantile(seconds, 0.5)}, {"min", 1e3 * seconds.front()}, {"max", 1e3 * seconds.back()}};
}

double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace linnet
