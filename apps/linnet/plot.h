#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

/// Lines over logarithmic axes.
struct Chart {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< above 0
  };

  std::string title, x_label, y_label;
  std::vector<Line> lines;

  /// Appends a point to the line of that name.
  void add(const std::string& name, double x, double y);
};

/// Draws the charts side by side into an SVG file.
void write_svg(const std::filesystem::path& path, const std::vector<Chart>& charts);

}  // namespace linnet
