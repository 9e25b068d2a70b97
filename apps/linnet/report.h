#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/json.h"

namespace linnet {

/// One line of progress on standard error: rewritten in place on a terminal, whose width it never exceeds,
/// printed every few seconds elsewhere.
class Progress {
 public:
  /// Shows nothing where not `shown`.
  explicit Progress(bool shown = true);
  ~Progress();

  /// Shows `line` if it is time to; `always` prints it in any case and keeps it.
  void show(const std::string& line, bool always = false);

  /// Shows `line` on a terminal, until something else is to be shown; nowhere else.
  void hint(const std::string& line);

 private:
  std::chrono::steady_clock::time_point last_;
  bool shown_, terminal_;
  bool open_ = false;
};

/// Prints a line on standard error. Unlike fmt::print it never throws, should that be full or closed: the
/// work goes on.
void print_note(const std::string& line);

/// The first `columns` characters of a line of UTF-8, the last of them "…" where more follow.
std::string cut_to(const std::string& line, std::size_t columns);

/// "1 h 02 min", "3 min 20 s", "4 s".
std::string duration_text(double seconds);

/// Bytes of memory that this process holds, and that it has held at most since `reset_peak_memory`.
std::size_t resident_memory();
std::size_t peak_memory();
void reset_peak_memory();

/// Flushes standard output. Throws Error where it cannot be written.
void flush_output();

/// Prints the result of a command. Bytes that are not UTF-8, which names of files may have, become U+FFFD.
void print_json(const Json& result);

/// Rows of equal keys as a table: text to the left, numbers to the right.
std::string table_of(const Json& rows, const std::vector<std::string>& keys);
void print_table(const Json& rows, const std::vector<std::string>& keys);

/// Says what a command has done that wrote the file `out`: on standard output, or on standard error where
/// that file is standard output, so that nothing follows its contents. `text` ends with a newline.
void print_summary(const std::string& out, const std::string& text);

/// Median, least and most of durations in seconds, as {"median", "min", "max"} in milliseconds, and their
/// "count".
Json time_summary(std::vector<double> seconds);

}  // namespace linnet
