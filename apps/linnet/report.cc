#include "report.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "base/fail.h"
#include "base/names.h"
#include "base/quantile.h"

namespace linnet {
namespace {
constexpr std::chrono::milliseconds terminal_interval(100);
constexpr std::chrono::milliseconds plain_interval(5000);

/// Of the terminal behind standard error; 80 where it does not say.
std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string cut_to(const std::string& line, std::size_t columns) {
  std::size_t seen = 0, last = 0;  // last: where the character in the last column begins
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (is_utf8_continuation(line[i])) continue;
    if (seen == columns) return columns == 0 ? "" : line.substr(0, last) + "…";
    last = i;
    ++seen;
  }
  return line;
}

Progress::Progress(bool shown) : last_(), shown_(shown), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (open_) std::fputs("\n", stderr);
}

void Progress::show(const std::string& line, bool always) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (!always && now - last_ < (terminal_ ? terminal_interval : plain_interval)) return;
  last_ = now;
  open_ = terminal_ && !always;
  // Not fmt::print, as in print_note. A line that the terminal wrapped could not be rewritten. The last
  // column is left to the cursor.
  const std::string clean = printable(line),
                    shown = open_ ? cut_to(clean, terminal_columns() - 1) : clean + "\n";
  std::fputs(((terminal_ ? "\r\x1b[K" : "") + shown).c_str(), stderr);
  std::fflush(stderr);
}

void Progress::hint(const std::string& line) {
  if (!terminal_) return;
  last_ = {};
  show(line);
  last_ = {};
}

void print_note(const std::string& line) { std::fputs((printable(line) + "\n").c_str(), stderr); }

std::string duration_text(double seconds) {
  const long whole = std::lround(std::clamp(seconds, 0.0, 1e15));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

namespace {

std::size_t status_bytes(const char* wanted) {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == wanted) {
      std::size_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
    std::getline(status, key);
  }
  return 0;
}

}  // namespace

std::size_t resident_memory() { return status_bytes("VmRSS:"); }
std::size_t peak_memory() { return status_bytes("VmHWM:"); }

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // Linux: resets VmHWM to what is held now
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail("output", "cannot write standard output: {}", std::generic_category().message(errno));
}

void print_json(const Json& result) {
  fmt::print("{}\n", result.dump(2, ' ', false, Json::error_handler_t::replace));
}

namespace {

std::string cell(const Json& value) {
  if (value.is_string()) return as_line(value.get<std::string>());
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return std::abs(number) >= 1000 && std::abs(number) < 1e15 ? fmt::format("{:.0f}", number)
                                                               : fmt::format("{:.3g}", number);
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

/// Whether a column holds words; a number and its unit ("1.2 MB") are none.
bool is_text(const Json& rows, const std::string& key) {
  return std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
    const Json value = at_path(row, key);
    if (!value.is_string()) return value.is_boolean();
    const std::string text = value;
    return !std::isdigit(static_cast<unsigned char>(text[0])) ||
           std::count(text.begin(), text.end(), ' ') > 1;
  });
}

/// Columns of a terminal that a text in UTF-8 takes: one a character, for the letters that Linnet prints.
std::size_t columns_of(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, is_utf8_continuation));
}

}  // namespace

std::string table_of(const Json& rows, const std::vector<std::string>& keys) {
  std::vector<std::vector<std::string>> lines(1);
  std::ranges::transform(keys, std::back_inserter(lines.front()), as_line);
  for (const Json& row : rows) {
    lines.emplace_back();
    for (const std::string& key : keys) lines.back().push_back(cell(at_path(row, key)));
  }
  std::vector<std::size_t> widths(keys.size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < keys.size(); ++i) widths[i] = std::max(widths[i], columns_of(line[i]));
  std::string table;
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::string space(widths[i] - columns_of(line[i]), ' ');
      text += (is_text(rows, keys[i]) ? line[i] + space : space + line[i]) + "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    table += text + "\n";
  }
  return table;
}

void print_table(const Json& rows, const std::vector<std::string>& keys) {
  fmt::print("{}", table_of(rows, keys));
}

void print_summary(const std::string& out, const std::string& text) {
  struct stat file = {}, standard = {};
  const bool same = stat(out.c_str(), &file) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
                    file.st_dev == standard.st_dev && file.st_ino == standard.st_ino;
  if (same)
    std::fputs(text.c_str(), stderr);  // not fmt::print, as in print_note
  else
    fmt::print("{}", text);
}

Json time_summary(std::vector<double> seconds) {
  const double median = median_of(seconds);
  return {{"median", 1e3 * median},
          {"min", 1e3 * seconds.front()},
          {"max", 1e3 * seconds.back()},
          {"count", seconds.size()}};
}

}  // namespace linnet
