#include "plot/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <sstream>

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"
#include "io/json.h"
#include "plot/axis.h"
#include "plot/canvas.h"
#include "report.h"

namespace linnet {
namespace {

using Point = Canvas::Point;

constexpr double plot_width = 400, plot_height = 300;
constexpr double left = 84, bottom = 58, gap = 16, row_height = 18;
constexpr double small = 11, normal = 12, large = 15;  // sizes of letters
constexpr double label_height = 15;
constexpr std::size_t longest_name = 40;
constexpr const char *grid_colour = "#e4e4e4", *grey = "#555";
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#7f7f7f"};

/// Letters of a text in UTF-8.
std::size_t letters_in(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, is_utf8_continuation));
}

/// A generous estimate: fonts differ.
double text_width(const std::string& text, double size = normal) {
  return 0.56 * size * static_cast<double>(letters_in(text));
}

/// The text in lines of words that are at most `width` wide, as far as single words are.
std::vector<std::string> wrapped(const std::string& text, double width, double size) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.empty() && text_width(lines.back() + " " + word, size) <= width)
      lines.back() += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

/// A name without its middle where it is long. A letter of UTF-8 is kept whole.
std::string without_middle(const std::string& name) {
  if (letters_in(name) <= longest_name) return name;
  std::size_t first = longest_name / 2, last = name.size() - longest_name / 2;
  while (first > 0 && is_utf8_continuation(name[first])) --first;
  while (last < name.size() && is_utf8_continuation(name[last])) ++last;
  return name.substr(0, first) + "…" + name.substr(last);
}

/// "65,536", "2.5M"; fractions with so many digits.
std::string number_text(double value, int digits) {
  if (std::abs(value) >= 1e6 && std::fmod(value, 1e5) == 0) return fmt::format("{:.10g}M", value / 1e6);
  if (std::abs(value) < 1000 || value != std::floor(value)) return fmt::format("{:.{}g}", value, digits);
  std::string text = fmt::format("{:.0f}", value);
  for (std::ptrdiff_t place = std::ssize(text) - 3; place > (value < 0 ? 1 : 0); place -= 3)
    text.insert(static_cast<std::size_t>(place), ",");
  return text;
}

std::string value_text(double value, Chart::Unit unit, int digits) {
  if (unit == Chart::Unit::none) return number_text(value, digits);
  if (unit == Chart::Unit::bytes) {
    const char* units[] = {"B", "kB", "MB", "GB", "TB"};
    std::size_t i = 0;
    for (; value >= 1000 && i + 1 < std::size(units); ++i) value /= 1000;
    return fmt::format("{:.{}g} {}", value, digits, units[i]);
  }
  if (value < 0.9995) return fmt::format("{:.{}g} µs", 1e3 * value, digits);
  return value < 999.5 ? fmt::format("{:.{}g} ms", value, digits)
                       : fmt::format("{:.{}g} s", 1e-3 * value, digits);
}

/// Labels with as many digits as tell them apart and write the values as they are.
std::vector<std::string> labels_of(const std::vector<double>& values, Chart::Unit unit) {
  std::vector<std::string> labels;
  constexpr int fewest = 3, most = 12;
  const auto texts = [&](int digits) {
    std::vector<std::string> result;
    for (const double value : values) result.push_back(value_text(value, unit, digits));
    return result;
  };
  const std::vector<std::string> whole = texts(most);
  for (int digits = fewest; digits <= most; ++digits) {
    labels = texts(digits);
    if (labels == whole) break;
  }
  return labels;
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

/// Without the points that no axis can show. What remains leaves the sums and quotients of axes finite.
Chart drawable(Chart chart) {
  for (std::string* text : {&chart.title, &chart.subtitle, &chart.x_label, &chart.y_label})
    *text = as_line(*text);  // neither pictures nor SVG can have other characters
  for (Chart::Note& note : chart.notes) note.text = as_line(note.text);
  constexpr double least = 1e-100, most = 1e100;
  const auto fits = [](double value) {
    return value == 0 || (std::abs(value) >= least && std::abs(value) <= most);
  };
  for (Chart::Line& line : chart.lines) {
    line.name = as_line(line.name);
    std::erase_if(line.points, [&](const Point& point) { return !fits(point.first) || !fits(point.second); });
  }
  return chart;
}

/// One chart with its place in the picture.
class Panel {
 public:
  /// Without its header, which is as high as the highest of the panels beside it.
  explicit Panel(const Chart& chart) : chart_(chart) {
    for (const Chart::Line& line : chart.lines)
      if (!line.points.empty()) lines_.push_back(&line);
    // Faint lines lie beneath the others, which alone have names.
    const auto named = std::stable_partition(lines_.begin(), lines_.end(),
                                             [](const Chart::Line* line) { return line->faint; });
    unnamed_ = static_cast<std::size_t>(named - lines_.begin());
    for (const Chart::Line* line : std::span(named, lines_.end())) {
      names_.push_back(without_middle(line->name));
      end_width_ = std::max(end_width_, text_width(names_.back()) + 16);
    }
    const double wide = plot_width + end_width_;
    titles_ = wrapped(chart.title, wide, large);
    subtitles_ = wrapped(chart.subtitle, wide, normal);
    for (const Chart::Note& note : chart.notes)
      for (const std::string& line : wrapped(note.text, wide, normal)) notes_.push_back(line);
    double x = 0;
    for (const std::string& name : names_) {
      const double width = 48 + text_width(name);
      if (x > 0 && x + width > wide) {
        x = 0;
        ++legend_rows_;
      }
      legend_.emplace_back(x, legend_rows_ * row_height);
      x += width;
    }
  }

  double width() const { return left + plot_width + end_width_ + gap; }
  double header() const {
    return row_height * static_cast<double>(titles_.size() + subtitles_.size() + notes_.size()) +
           row_height * (legend_rows_ + 1) + (notes_.empty() ? 6 : 12);
  }

  void draw(Canvas& canvas, double origin, double top, double header) {
    canvas_ = &canvas;
    x0_ = origin + left;
    y0_ = top + header;
    scale();
    titles(top);
    grid();
    notes();
    curves();
    marks();
    ends();
  }

 private:
  void scale() {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double x_least = infinity, x_most = -infinity, y_least = infinity, y_most = -infinity;
    for (const Chart::Line* line : lines_) {
      for (const auto& [x, y] : line->points) {
        at_points_.insert(x);
        x_least = std::min(x_least, x);
        x_most = std::max(x_most, x);
        y_least = std::min(y_least, y);
        y_most = std::max(y_most, y);
      }
    }
    // The marks of notes are named below all curves.
    const auto marks =
        std::ranges::count_if(chart_.notes, [](const Chart::Note& note) { return note.x > 0; });
    across_ = Axis(x_least, x_most, x0_, x0_ + plot_width, 0, chart_.linear);
    up_ = Axis(y_least, y_most, y0_ + plot_height, y0_,
               static_cast<double>(marks) * label_height / plot_height, chart_.linear);
  }

  /// The place of a line's colour, which may be beyond the number of colours.
  std::size_t place(std::size_t i) const {
    const int own = lines_[i]->colour;
    return own < 0 ? i : static_cast<std::size_t>(own);
  }
  const char* colour(std::size_t i) const { return colours[place(i) % std::size(colours)]; }
  /// Wider below, narrower above, so that lines that coincide are both seen. Lines of many points are thin:
  /// their points lie closer together than a wide line is.
  Stroke stroke(std::size_t i) const {
    constexpr std::size_t many = 200;
    const bool thin = lines_[i]->points.size() > many;
    // Lines beyond the colours have them again, with dots and then with dots and dashes.
    const std::size_t again = place(i) / std::size(colours);
    const std::vector<double> patterns[] = {{}, {2, 3}, {10, 3, 2, 3}};
    return {colour(i),
            lines_[i]->faint ? 0.6
            : thin           ? 1.0
            : place(i) == 0  ? 4.0
                             : 2.0,
            lines_[i]->dashed ? std::vector<double>{7, 4} : patterns[again % std::size(patterns)]};
  }

  void line(const Point& from, const Point& to, const Stroke& stroke) {
    canvas_->polyline({from, to}, stroke);
  }

  /// Titles, subtitle and legend, from above.
  void titles(double top) {
    double y = top;
    for (const std::string& title : titles_)
      canvas_->text({x0_, y += row_height}, title, {.size = large, .bold = true});
    for (const std::string& subtitle : subtitles_)
      canvas_->text({x0_, y += row_height}, subtitle, {.colour = grey});
    y += row_height;
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      const double x = x0_ + legend_[i].first, row = y + legend_[i].second;
      line({x, row - 4}, {x + 26, row - 4}, stroke(unnamed_ + i));
      canvas_->text({x + 32, row}, names_[i], {});
    }
    const double middle = y0_ + plot_height / 2;
    canvas_->text({x0_ + plot_width / 2, y0_ + plot_height + 44}, chart_.x_label,
                  {.anchor = Letters::Anchor::middle});
    canvas_->text({x0_ - left + 16, middle}, chart_.y_label,
                  {.anchor = Letters::Anchor::middle, .upwards = true});
  }

  /// The values of those labels that do not touch the label before them.
  static std::vector<std::pair<double, std::string>> apart(const Axis& axis,
                                                           const std::vector<double>& values) {
    const std::vector<std::string> labels = labels_of(values, Chart::Unit::none);
    std::vector<std::pair<double, std::string>> kept;
    double last = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = axis.place(values[i]), half = text_width(labels[i]) / 2;
      if (x - half < last + 6) continue;
      last = x + half;
      kept.emplace_back(x, labels[i]);
    }
    return kept;
  }

  void grid() {
    constexpr std::size_t fewest = 4;
    const double end = x0_ + plot_width, base = y0_ + plot_height;
    auto ticks = apart(across_, std::vector<double>(at_points_.begin(), at_points_.end()));
    if (!chart_.ticks_at_points || ticks.size() < fewest) ticks = apart(across_, across_.round_numbers());
    for (const auto& [x, label] : ticks) {
      line({x, y0_}, {x, base}, {grid_colour});
      line({x, base}, {x, base + 5}, {});
      canvas_->text({x, base + 19}, label, {.anchor = Letters::Anchor::middle});
    }
    const std::vector<double> values = up_.round_numbers();
    const std::vector<std::string> labels = labels_of(values, chart_.unit);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double y = up_.place(values[i]);
      line({x0_, y}, {end, y}, {grid_colour});
      line({x0_ - 5, y}, {x0_, y}, {});
      canvas_->text({x0_ - 9, y + 4}, labels[i], {.anchor = Letters::Anchor::end});
    }
    canvas_->rectangle({x0_, y0_}, plot_width, plot_height, "#333", "");
  }

  void notes() {
    double y = y0_ - row_height * static_cast<double>(notes_.size()) + 6;
    for (const std::string& note : notes_) {
      canvas_->text({x0_, y}, note, {.italic = true});
      y += row_height;
    }
  }

  /// The points of notes, named at the foot of their verticals.
  void marks() {
    const double base = y0_ + plot_height;
    double y = base - 5;
    for (const Chart::Note& note : chart_.notes) {
      if (note.x <= 0) continue;
      const double x = across_.place(note.x), height = up_.place(note.y),
                   width = text_width(note.mark, small);
      line({x, height + 7}, {x, base}, {.dashes = {2, 3}});
      canvas_->circle({x, height}, 7, {}, "");
      const double start = std::min(x + 5, x0_ + plot_width - width);
      canvas_->rectangle({start - 2, y - 10}, width, 13, "", "white");
      canvas_->text({start, y}, note.mark, {.size = small});
      y -= label_height;
    }
  }

  /// Points are drawn as such where they are few.
  void curves() {
    constexpr std::size_t many = 30;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::vector<Point> points;
      for (const auto& [x, y] : lines_[i]->points) points.emplace_back(across_.place(x), up_.place(y));
      canvas_->polyline(points, stroke(i));
      if (points.size() > many || lines_[i]->faint) continue;
      for (const Point& point : points)
        canvas_->circle(point, 3, {colour(i)}, lines_[i]->dashed ? "white" : colour(i));
    }
  }

  /// Every line's name beside its last point, or as near as others let it.
  void ends() {
    std::vector<double> wanted;
    for (std::size_t i = unnamed_; i < lines_.size(); ++i)
      wanted.push_back(up_.place(lines_[i]->points.back().second));
    const std::vector<double> placed = spread(wanted, y0_ + 6, y0_ + plot_height - 6);
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const double x = across_.place(lines_[unnamed_ + i]->points.back().first),
                   label = x0_ + plot_width + 12;
      const char* own = colour(unnamed_ + i);
      line({x + 4, wanted[i]}, {label - 3, placed[i]}, {own, 0.8, {1, 2}});
      canvas_->text({label, placed[i] + 4}, names_[i], {.colour = own});
    }
  }

  const Chart& chart_;
  std::vector<const Chart::Line*> lines_;  ///< those with points
  std::size_t unnamed_ = 0;                ///< the first ones, which are faint
  std::vector<std::string> names_, titles_, subtitles_, notes_;
  std::vector<Point> legend_;  ///< of each line, from the legend's first place
  double legend_rows_ = 0, end_width_ = 0;

  Canvas* canvas_ = nullptr;
  double x0_ = 0, y0_ = 0;  ///< of the plot's upper left corner
  std::set<double> at_points_;
  Axis across_, up_;
};

/// Panels beside each other.
struct Row {
  std::span<Panel> panels;
  double width = 0, header = 0;

  double height() const { return header + plot_height + bottom; }
};

/// Few panels make one row; many make as many rows as panels in a row, since pictures have a largest width.
std::vector<Row> rows_of(std::span<Panel> panels) {
  constexpr double few = 4;
  const auto beside =
      static_cast<std::size_t>(std::max(few, std::ceil(std::sqrt(static_cast<double>(panels.size())))));
  std::vector<Row> rows;
  for (std::size_t first = 0; first < panels.size(); first += beside) {
    Row row{panels.subspan(first, std::min(beside, panels.size() - first))};
    for (const Panel& panel : row.panels) {
      row.width += panel.width();
      row.header = std::max(row.header, panel.header());
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

Chart::Line& Chart::line(const std::string& name) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.name == name; });
  if (found != lines.end()) return *found;
  lines.emplace_back();
  lines.back().name = name;
  return lines.back();
}

void require_chart_path(const std::string& path, std::int64_t charts) {
  constexpr std::int64_t most_in_png = 1000;  // with letters that can be read
  const std::string extension = extension_of(path);
  if (!extension.empty() && extension != ".svg" && extension != ".png")
    fail<UsageError>("plot", "expected a file that ends in .svg or .png, got {}", path);
  if (extension == ".png" && !can_draw_png())
    fail<UsageError>("plot",
                     "expected a file that ends in .svg, got {}: this program was built without cairo "
                     "(libcairo2-dev), which draws .png",
                     path);
  if (extension == ".png" && charts > most_in_png)
    fail<UsageError>("plot", "expected a file that ends in .svg for more than {} charts, got {} for {}",
                     most_in_png, charts, path);
}

void write_chart(const std::filesystem::path& path, const std::vector<Chart>& charts,
                 const std::string& title) {
  std::vector<Chart> drawn;
  for (const Chart& chart : charts) drawn.push_back(drawable(chart));
  std::vector<Panel> panels;
  for (const Chart& chart : drawn)
    if (std::ranges::any_of(chart.lines, [](const Chart::Line& line) { return !line.points.empty(); }))
      panels.emplace_back(chart);
  if (panels.empty()) fail("plot", "expected points with numbers from 1e-100 to 1e100 or 0, got none");
  const std::vector<Row> rows = rows_of(panels);
  double width = 0, rows_height = 0;
  for (const Row& row : rows) {
    width = std::max(width, row.width);
    rows_height += row.height();
  }
  constexpr double title_size = 17, title_row = 26;
  const std::vector<std::string> titles = wrapped(as_line(title), width - left - gap, title_size);
  double top = 6 + title_row * static_cast<double>(titles.size());
  const double height = top + rows_height;
  const auto canvas =
      extension_of(path.string()) == ".png" ? make_png_canvas(width, height) : make_svg_canvas(width, height);
  for (std::size_t i = 0; i < titles.size(); ++i)
    canvas->text({left, title_row * static_cast<double>(i + 1)}, titles[i],
                 {.size = title_size, .bold = true});
  for (const Row& row : rows) {
    double origin = 0;
    for (Panel& panel : row.panels) {
      panel.draw(*canvas, origin, top, row.header);
      origin += panel.width();
    }
    top += row.height();
  }
  write_file_atomically(path, canvas->bytes());
}

}  // namespace linnet
