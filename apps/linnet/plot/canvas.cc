#include "plot/canvas.h"

#include <fmt/format.h>

namespace linnet {
namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return result;
}

std::string colour_or_none(const std::string& colour) { return colour.empty() ? "none" : colour; }

class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(double width, double height)
      : svg_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                         "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\">\n"
                         "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
                         width, height)) {}

  void polyline(const std::vector<Point>& points, const Stroke& stroke) override {
    svg_ += "<polyline points=\"";
    for (const auto& [x, y] : points) svg_ += fmt::format("{:.1f},{:.1f} ", x, y);
    svg_ += fmt::format("\" fill=\"none\" {}/>\n", attributes(stroke));
  }

  void circle(const Point& centre, double radius, const Stroke& stroke, const std::string& fill) override {
    svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\" {}/>\n", centre.first,
                        centre.second, radius, colour_or_none(fill), attributes(stroke));
  }

  void rectangle(const Point& corner, double width, double height, const std::string& edge,
                 const std::string& fill) override {
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"{}\"/>\n",
        corner.first, corner.second, width, height, colour_or_none(fill), colour_or_none(edge));
  }

  void text(const Point& at, const std::string& content, const Letters& letters) override {
    const char* anchors[] = {"start", "middle", "end"};
    const auto [x, y] = at;
    svg_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{:g}\"{}{}{} fill=\"{}\">{}"
        "</text>\n",
        x, y, anchors[static_cast<std::size_t>(letters.anchor)], letters.size,
        letters.bold ? " font-weight=\"bold\"" : "", letters.italic ? " font-style=\"italic\"" : "",
        letters.upwards ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "", letters.colour,
        escaped(content));
  }

  std::string bytes() override { return svg_ + "</svg>\n"; }

 private:
  static std::string attributes(const Stroke& stroke) {
    std::string text = fmt::format("stroke=\"{}\" stroke-width=\"{:g}\"", stroke.colour, stroke.width);
    if (!stroke.dashes.empty())
      text += fmt::format(" stroke-dasharray=\"{}\"", fmt::join(stroke.dashes, " "));
    return text;
  }

  std::string svg_;
};

}  // namespace

std::unique_ptr<Canvas> make_svg_canvas(double width, double height) {
  return std::make_unique<SvgCanvas>(width, height);
}

}  // namespace linnet
