#include "plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "io/file.h"
#include "report.h"

namespace linnet {
namespace {

constexpr double width = 460, height = 340;
constexpr double left = 70, right = 20, top = 60, bottom = 50;
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

/// Logarithmic axis from whole powers of `base` around the values onto [from, to] of the picture.
struct Axis {
  double first, last, from, to, base;

  Axis(double least, double most, double from, double to, double base)
      : first(std::floor(std::log(least) / std::log(base) + 1e-9)),
        last(std::ceil(std::log(most) / std::log(base) - 1e-9)),
        from(from),
        to(to),
        base(base) {
    if (last <= first) last = first + 1;
  }

  double place(double value) const {
    return from + (std::log(value) / std::log(base) - first) / (last - first) * (to - from);
  }
  /// Exponents of the marks, at most about eight.
  std::vector<double> marks() const {
    const double step = std::max(1.0, std::ceil((last - first) / 8));
    std::vector<double> result;
    for (double exponent = first; exponent <= last; exponent += step) result.push_back(exponent);
    return result;
  }
};

std::string number_text(double value) {
  if (value >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::string text(double x, double y, const std::string& anchor, const std::string& content,
                 const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     content);
}

std::string draw(const Chart& chart, double origin) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double x0 = infinity, x1 = 0, y0 = infinity, y1 = 0;
  for (const Chart::Line& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      x0 = std::min(x0, x);
      x1 = std::max(x1, x);
      y0 = std::min(y0, y);
      y1 = std::max(y1, y);
    }
  }
  const Axis across(x0, x1, origin + left, origin + width - right, 2), up(y0, y1, height - bottom, top, 10);
  const bool bytes = chart.y_label == "bytes";
  std::string svg =
      text(origin + (left + width - right) / 2, 22, "middle", chart.title, " font-weight=\"bold\"");
  for (const double mark : across.marks()) {
    const double x = across.place(std::pow(2, mark));
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#ddd\"/>\n", x,
                       top, height - bottom);
    svg += text(x, height - bottom + 18, "middle", number_text(std::pow(2, mark)));
  }
  for (const double mark : up.marks()) {
    const double value = std::pow(10, mark), y = up.place(value);
    svg +=
        fmt::format("<line x1=\"{1:.1f}\" y1=\"{0:.1f}\" x2=\"{2:.1f}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>\n",
                    y, origin + left, origin + width - right);
    svg += text(origin + left - 8, y + 4, "end", bytes ? bytes_text(value) : number_text(value));
  }
  svg += text(origin + (left + width - right) / 2, height - 10, "middle", chart.x_label);
  if (!bytes) svg += text(origin + left - 8, top - 12, "end", chart.y_label);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    const char* colour = colours[i % std::size(colours)];
    std::string points;
    for (const auto& [x, y] : chart.lines[i].points)
      points += fmt::format("{:.1f},{:.1f} ", across.place(x), up.place(y));
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"/>\n", points,
                       colour);
    for (const auto& [x, y] : chart.lines[i].points)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", across.place(x),
                         up.place(y), colour);
    const double legend = origin + left + 150 * static_cast<double>(i);
    svg +=
        fmt::format("<rect x=\"{:.1f}\" y=\"32\" width=\"14\" height=\"4\" fill=\"{}\"/>\n", legend, colour);
    svg += text(legend + 20, 38, "start", chart.lines[i].name);
  }
  return svg;
}

}  // namespace

void Chart::add(const std::string& name, double x, double y) {
  auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.name == name; });
  if (line == lines.end()) line = lines.insert(lines.end(), Line{name, {}});
  line->points.emplace_back(x, y);
}

void write_svg(const std::filesystem::path& path, const std::vector<Chart>& charts) {
  const double whole = width * static_cast<double>(charts.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      whole, height);
  for (std::size_t i = 0; i < charts.size(); ++i) svg += draw(charts[i], width * static_cast<double>(i));
  write_file_atomically(path, svg + "</svg>\n");
}

}  // namespace linnet
