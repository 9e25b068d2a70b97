#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

/// Lines over axes that are logarithmic where the values reach from one to ten times as much, and linear
/// otherwise.
struct Chart {
  enum class Unit { none, milliseconds, bytes };

  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< a line without any is left out
    int colour = -1;                                ///< shared by lines of a kind; one of its own by default
    bool dashed = false;
    bool faint = false;  ///< thin, without its name: one of those that another line is the mean of
  };
  /// A sentence above the plot, and where x > 0 the point that it speaks of, with its name.
  struct Note {
    std::string text;
    double x = 0, y = 0;
    std::string mark = {};
  };

  std::string title, subtitle, x_label, y_label;
  Unit unit = Unit::none;       ///< of y; ticks carry it
  bool ticks_at_points = true;  ///< of x, where there are enough; otherwise at round numbers
  bool linear = false;          ///< both axes, whatever the values
  std::vector<Line> lines;
  std::vector<Note> notes;

  /// The line of that name, a new one at first.
  Line& line(const std::string& name);
};

/// Throws UsageError where `write_chart` cannot write so many charts into this file, or not so that they can
/// be read: known before the work that the charts show.
void require_chart_path(const std::string& path, std::int64_t charts = 1);

/// Draws the charts that have points side by side, many of them in several rows, under a title of all of
/// them: as PNG into a file of that extension, otherwise as SVG. Points whose numbers are above 1e100, or
/// below 1e-100 and not 0, are left out. Throws Error where no point is left.
void write_chart(const std::filesystem::path& path, const std::vector<Chart>& charts,
                 const std::string& title = "");

}  // namespace linnet
