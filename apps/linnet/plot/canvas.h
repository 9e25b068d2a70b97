#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

struct Stroke {
  std::string colour = "#333";
  double width = 1;
  std::vector<double> dashes = {};  ///< lengths of line and gap, in turn
};

struct Letters {
  enum class Anchor { start, middle, end };

  Anchor anchor = Anchor::start;  ///< the part of the text that stands at the given point
  double size = 12;
  bool bold = false, italic = false;
  bool upwards = false;  ///< read from below
  std::string colour = "#222";
};

/// A white picture in points from the upper left corner, onto which shapes are drawn.
class Canvas {
 public:
  using Point = std::pair<double, double>;

  virtual ~Canvas() = default;
  virtual void polyline(const std::vector<Point>& points, const Stroke& stroke) = 0;
  virtual void circle(const Point& centre, double radius, const Stroke& stroke, const std::string& fill) = 0;
  /// Without an edge where `edge` is empty, and without an inside where `fill` is.
  virtual void rectangle(const Point& corner, double width, double height, const std::string& edge,
                         const std::string& fill) = 0;
  virtual void text(const Point& at, const std::string& content, const Letters& letters) = 0;

  /// The file's bytes.
  virtual std::string bytes() = 0;
};

std::unique_ptr<Canvas> make_svg_canvas(double width, double height);

/// Whether the program was built with cairo.
bool can_draw_png();

/// Of two pixels a point, or fewer for a picture of many thousand points. Only where `can_draw_png`.
std::unique_ptr<Canvas> make_png_canvas(double width, double height);

}  // namespace linnet
