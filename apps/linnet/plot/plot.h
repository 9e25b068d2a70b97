#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

/// Lines over logarithmic axes.
struct Chart {
  enum class Unit { none, milliseconds, bytes };

  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< above 0
    int colour = -1;                                ///< shared by lines of a kind; one of its own by default
    bool dashed = false;
  };
  /// A sentence above the plot, and where x > 0 the point that it speaks of, with its name.
  struct Note {
    std::string text;
    double x = 0, y = 0;
    std::string mark = {};
  };

  std::string title, subtitle, x_label, y_label;
  Unit unit = Unit::none;  ///< of y; ticks carry it
  std::vector<Line> lines;
  std::vector<Note> notes;

  /// The line of that name, a new one at first.
  Line& line(const std::string& name);
};

/// Draws the charts side by side into an SVG file.
void write_svg(const std::filesystem::path& path, const std::vector<Chart>& charts);

}  // namespace linnet
