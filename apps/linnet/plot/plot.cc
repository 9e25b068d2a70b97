#include "plot/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/memory.h"
#include "io/file.h"
#include "report.h"

namespace linnet {
namespace {

constexpr double plot_width = 400, plot_height = 300;
constexpr double left = 84, bottom = 58, gap = 16, head = 56, legend_row = 18;
constexpr double letter = 6.7;  // mean width at 12 px, generous
constexpr double label_height = 15;
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#7f7f7f"};

double text_width(const std::string& text) {
  const auto letters = std::count_if(text.begin(), text.end(),
                                     [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  return letter * static_cast<double>(letters);
}

/// "65,536"; fractions as they are.
std::string number_text(double value) {
  if (value < 1000 || value != std::floor(value)) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (std::ptrdiff_t place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<std::size_t>(place), ",");
  return digits;
}

std::string value_text(double value, Chart::Unit unit) {
  if (unit == Chart::Unit::bytes) return bytes_text(value);
  if (unit == Chart::Unit::none) return number_text(value);
  if (value < 0.9995) return fmt::format("{:.3g} µs", 1e3 * value);
  return value < 999.5 ? fmt::format("{:.3g} ms", value) : fmt::format("{:.3g} s", 1e-3 * value);
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return result;
}

std::string text(double x, double y, const std::string& anchor, const std::string& content,
                 const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped(content));
}

std::string segment(double x1, double y1, double x2, double y2, const std::string& more) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                     more);
}

/// Logarithmic axis from `least` … `most` onto [from, to] of the picture.
struct Axis {
  double least, most, from, to;

  double place(double value) const {
    return from + std::log(value / least) / std::log(most / least) * (to - from);
  }
};

/// Round numbers in `least` … `most`: powers of ten, with their halves and fifths where those are few.
std::vector<double> ticks(double least, double most) {
  for (const std::vector<double>& digits : {std::vector{1.0}, std::vector{1.0, 2.0, 5.0}}) {
    std::vector<double> result;
    for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10)
      for (const double digit : digits)
        if (digit * power >= least && digit * power <= most) result.push_back(digit * power);
    if (result.size() >= 3 || digits.size() > 1) return result;
  }
  return {};
}

/// Labels of heights `wanted`, moved apart until none touches another, in their order.
std::vector<double> spread(std::vector<double> wanted, double top, double end) {
  std::vector<std::size_t> order(wanted.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  // Down where they would touch; then up again from the end, as far as that pushed too far. A few rounds of
  // half of each leave groups around where they wanted to be.
  for (int round = 0; round < 50; ++round) {
    for (std::size_t i = 1; i < order.size(); ++i) {
      const double missing = wanted[order[i - 1]] + label_height - wanted[order[i]];
      if (missing <= 0) continue;
      wanted[order[i - 1]] -= missing / 2;
      wanted[order[i]] += missing / 2;
    }
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    wanted[order[i]] = std::max(wanted[order[i]], i == 0 ? top : wanted[order[i - 1]] + label_height);
  for (std::size_t i = order.size(); i-- > 0;)
    wanted[order[i]] =
        std::min(wanted[order[i]], i + 1 == order.size() ? end : wanted[order[i + 1]] - label_height);
  return wanted;
}

/// One chart with its place in the picture.
class Panel {
 public:
  Panel(const Chart& chart, double origin, double header) : chart_(chart), x0_(origin + left), y0_(header) {
    double x_least = std::numeric_limits<double>::infinity(), x_most = 0, y_least = x_least, y_most = 0;
    for (const Chart::Line& line : chart.lines) {
      for (const auto& [x, y] : line.points) {
        lengths_.insert(x);
        x_least = std::min(x_least, x);
        x_most = std::max(x_most, x);
        y_least = std::min(y_least, y);
        y_most = std::max(y_most, y);
      }
    }
    // Room around the points; an axis needs an extent even for one of them.
    across_ = {x_least / 1.15, x_most * 1.15, x0_, x0_ + plot_width};
    const double room = std::max(1.2, std::pow(y_most / y_least, 0.06));
    up_ = {y_least / room, y_most * room, y0_ + plot_height, y0_};
    // The marks of notes are named below all curves.
    const double marks = static_cast<double>(std::count_if(
        chart.notes.begin(), chart.notes.end(), [](const Chart::Note& note) { return note.x > 0; }));
    up_.least /= std::pow(up_.most / up_.least, marks * label_height / (plot_height - marks * label_height));
  }

  static double width(const Chart& chart) { return left + plot_width + end_width(chart) + gap; }

  /// Height above the plot: titles, legend and notes.
  static double header(const Chart& chart) {
    int rows = 1;
    double x = 0;
    for (const Chart::Line& line : chart.lines) {
      if (x > 0 && x + legend_width(line) > plot_width) {
        ++rows;
        x = 0;
      }
      x += legend_width(line);
    }
    return head + legend_row * (rows + static_cast<double>(chart.notes.size()));
  }

  std::string draw() const { return titles() + grid() + legend() + notes() + curves() + marks() + ends(); }

 private:
  static double legend_width(const Chart::Line& line) { return 48 + text_width(line.name); }
  static double end_width(const Chart& chart) {
    double width = 0;
    for (const Chart::Line& line : chart.lines) width = std::max(width, text_width(line.name));
    return width + 16;
  }

  const char* colour(std::size_t i) const {
    const int own = chart_.lines[i].colour;
    return colours[(own < 0 ? i : static_cast<std::size_t>(own)) % std::size(colours)];
  }
  /// Wider below, narrower above, so that lines that coincide are both seen.
  std::string stroke(std::size_t i) const {
    const double width = colour(i) == colours[0] ? 4 : 2;
    return fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}", colour(i), width,
                       chart_.lines[i].dashed ? " stroke-dasharray=\"7 4\"" : "");
  }

  std::string titles() const {
    const double y = y0_ + plot_height / 2, x = x0_ - left + 16;
    return text(x0_, 22, "start", chart_.title, " font-size=\"15\" font-weight=\"bold\"") +
           text(x0_, 40, "start", chart_.subtitle, " fill=\"#555\"") +
           text(x0_ + plot_width / 2, y0_ + plot_height + 44, "middle", chart_.x_label) +
           text(x, y, "middle", chart_.y_label,
                fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y));
  }

  std::string grid() const {
    std::string svg;
    const double end = x0_ + plot_width, base = y0_ + plot_height;
    double last = -1e9;
    for (const double length : lengths_) {
      const double x = across_.place(length);
      const std::string label = number_text(length);
      const double half = text_width(label) / 2;
      if (x - half < last + 6) continue;
      last = x + half;
      svg += segment(x, y0_, x, base, "stroke=\"#e4e4e4\"") +
             segment(x, base, x, base + 5, "stroke=\"#333\"") + text(x, base + 19, "middle", label);
    }
    for (const double value : ticks(up_.least, up_.most)) {
      const double y = up_.place(value);
      svg += segment(x0_, y, end, y, "stroke=\"#e4e4e4\"") + segment(x0_ - 5, y, x0_, y, "stroke=\"#333\"") +
             text(x0_ - 9, y + 4, "end", value_text(value, chart_.unit));
    }
    return svg + fmt::format(
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"none\" "
                     "stroke=\"#333\"/>\n",
                     x0_, y0_, plot_width, plot_height);
  }

  std::string legend() const {
    std::string svg;
    double x = 0, y = head + 2;
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) {
      const double width = legend_width(chart_.lines[i]);
      if (x > 0 && x + width > plot_width) {
        x = 0;
        y += legend_row;
      }
      svg += segment(x0_ + x, y, x0_ + x + 26, y, stroke(i)) +
             text(x0_ + x + 32, y + 4, "start", chart_.lines[i].name);
      x += width;
    }
    return svg;
  }

  std::string notes() const {
    std::string svg;
    double y = y0_ - legend_row * static_cast<double>(chart_.notes.size()) + 4;
    for (const Chart::Note& note : chart_.notes) {
      svg += text(x0_, y, "start", note.text, " font-style=\"italic\"");
      y += legend_row;
    }
    return svg;
  }

  /// The points of notes, named at the foot of their verticals.
  std::string marks() const {
    std::string lines, names;
    double y = y0_ + plot_height - 5;
    for (const Chart::Note& note : chart_.notes) {
      if (note.x <= 0) continue;
      const double x = across_.place(note.x), height = up_.place(note.y);
      lines += segment(x, height + 7, x, y0_ + plot_height, "stroke=\"#333\" stroke-dasharray=\"2 3\"") +
               fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"7\" fill=\"none\" stroke=\"#333\"/>\n", x,
                           height);
      const double start = std::min(x + 5, x0_ + plot_width - text_width(note.mark));
      names +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"13\" fill=\"white\"/>\n",
                      start - 2, y - 10, text_width(note.mark)) +
          text(start, y, "start", note.mark, " font-size=\"11\"");
      y -= label_height;
    }
    return lines + names;
  }

  std::string curves() const {
    std::string svg;
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) {
      std::string points;
      for (const auto& [x, y] : chart_.lines[i].points)
        points += fmt::format("{:.1f},{:.1f} ", across_.place(x), up_.place(y));
      svg += fmt::format("<polyline points=\"{}\" {}/>\n", points, stroke(i));
      for (const auto& [x, y] : chart_.lines[i].points)
        svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" stroke=\"{}\"/>\n",
                           across_.place(x), up_.place(y), chart_.lines[i].dashed ? "white" : colour(i),
                           colour(i));
    }
    return svg;
  }

  /// Every line's name beside its last point, or as near as others let it.
  std::string ends() const {
    std::vector<double> wanted;
    for (const Chart::Line& line : chart_.lines) wanted.push_back(up_.place(line.points.back().second));
    const std::vector<double> placed = spread(wanted, y0_ + 6, y0_ + plot_height - 6);
    std::string svg;
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const double x = across_.place(chart_.lines[i].points.back().first), label = x0_ + plot_width + 12;
      svg +=
          segment(x + 4, wanted[i], label - 3, placed[i],
                  fmt::format("stroke=\"{}\" stroke-width=\"0.8\" stroke-dasharray=\"1 2\"", colour(i))) +
          text(label, placed[i] + 4, "start", chart_.lines[i].name, fmt::format(" fill=\"{}\"", colour(i)));
    }
    return svg;
  }

  const Chart& chart_;
  double x0_, y0_;  // of the plot's upper left corner
  std::set<double> lengths_;
  Axis across_{}, up_{};
};

}  // namespace

Chart::Line& Chart::line(const std::string& name) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.name == name; });
  if (found != lines.end()) return *found;
  lines.emplace_back();
  lines.back().name = name;
  return lines.back();
}

void write_svg(const std::filesystem::path& path, const std::vector<Chart>& charts) {
  double header = 0, width = 0;
  for (const Chart& chart : charts) {
    header = std::max(header, Panel::header(chart));
    width += Panel::width(chart);
  }
  const double height = header + plot_height + bottom;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, height);
  double origin = 0;
  for (const Chart& chart : charts) {
    svg += Panel(chart, origin, header).draw();
    origin += Panel::width(chart);
  }
  write_file_atomically(path, svg + "</svg>\n");
}

}  // namespace linnet
