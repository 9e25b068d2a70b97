#include "base/fail.h"
#include "plot/canvas.h"

#ifdef LINNET_CAIRO

#include <cairo.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace linnet {
namespace {

/// Fewer than wanted where a side would be longer than cairo takes, or the picture larger than a gigabyte.
double pixels_per_point(double width, double height) {
  constexpr double wanted = 2, longest_side = 32766, most_pixels = 1 << 28;
  return std::min(
      {wanted, longest_side / std::max(width, height), std::sqrt(most_pixels / (width * height))});
}

class PngCanvas final : public Canvas {
 public:
  PngCanvas(double width, double height, double scale)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(scale * width)),
                                            static_cast<int>(std::ceil(scale * height)))),
        cairo_(cairo_create(surface_)) {
    set_colour("white");
    cairo_paint(cairo_);
    cairo_scale(cairo_, scale, scale);
  }
  ~PngCanvas() override {
    cairo_destroy(cairo_);
    cairo_surface_destroy(surface_);
  }
  PngCanvas(const PngCanvas&) = delete;
  PngCanvas& operator=(const PngCanvas&) = delete;

  void polyline(const std::vector<Point>& points, const Stroke& stroke) override {
    for (const auto& [x, y] : points) cairo_line_to(cairo_, x, y);
    draw(stroke);
  }

  void circle(const Point& centre, double radius, const Stroke& stroke, const std::string& fill) override {
    cairo_arc(cairo_, centre.first, centre.second, radius, 0, 2 * std::numbers::pi);
    if (!fill.empty()) {
      set_colour(fill);
      cairo_fill_preserve(cairo_);
    }
    draw(stroke);
  }

  void rectangle(const Point& corner, double width, double height, const std::string& edge,
                 const std::string& fill) override {
    cairo_rectangle(cairo_, corner.first, corner.second, width, height);
    if (!fill.empty()) {
      set_colour(fill);
      cairo_fill_preserve(cairo_);
    }
    if (edge.empty())
      cairo_new_path(cairo_);
    else
      draw({edge});
  }

  void text(const Point& at, const std::string& content, const Letters& letters) override {
    cairo_save(cairo_);
    set_colour(letters.colour);
    cairo_select_font_face(cairo_, "sans-serif",
                           letters.italic ? CAIRO_FONT_SLANT_ITALIC : CAIRO_FONT_SLANT_NORMAL,
                           letters.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo_, letters.size);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_, content.c_str(), &extents);
    const double parts[] = {0, 0.5, 1};
    cairo_translate(cairo_, at.first, at.second);
    if (letters.upwards) cairo_rotate(cairo_, -std::numbers::pi / 2);
    cairo_move_to(cairo_, -parts[static_cast<std::size_t>(letters.anchor)] * extents.x_advance, 0);
    cairo_show_text(cairo_, content.c_str());
    cairo_new_path(cairo_);
    cairo_restore(cairo_);
  }

  std::string bytes() override {
    std::string png;
    const auto append = [](void* to, const unsigned char* bytes, unsigned int count) {
      static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), count);
      return CAIRO_STATUS_SUCCESS;
    };
    const cairo_status_t drawn = cairo_status(cairo_);
    const cairo_status_t status =
        drawn == CAIRO_STATUS_SUCCESS ? cairo_surface_write_to_png_stream(surface_, append, &png) : drawn;
    if (status != CAIRO_STATUS_SUCCESS)
      fail("plot", "cannot draw the picture: {}", cairo_status_to_string(status));
    return png;
  }

 private:
  void draw(const Stroke& stroke) {
    set_colour(stroke.colour);
    cairo_set_line_width(cairo_, stroke.width);
    cairo_set_dash(cairo_, stroke.dashes.data(), static_cast<int>(stroke.dashes.size()), 0);
    cairo_stroke(cairo_);
  }

  /// "white", "#rgb" or "#rrggbb".
  void set_colour(const std::string& colour) {
    double parts[3] = {1, 1, 1};
    const std::size_t digits = colour.size() / 3;
    if (colour[0] == '#')
      for (std::size_t i = 0; i < 3; ++i)
        parts[i] = static_cast<double>(std::stoi(colour.substr(1 + i * digits, digits), nullptr, 16)) /
                   (digits == 1 ? 15 : 255);
    cairo_set_source_rgb(cairo_, parts[0], parts[1], parts[2]);
  }

  cairo_surface_t* surface_;
  cairo_t* cairo_;
};

}  // namespace

bool can_draw_png() { return true; }

std::unique_ptr<Canvas> make_png_canvas(double width, double height) {
  return std::make_unique<PngCanvas>(width, height, pixels_per_point(width, height));
}

}  // namespace linnet

#else

namespace linnet {

bool can_draw_png() { return false; }

std::unique_ptr<Canvas> make_png_canvas(double, double) {
  fail("plot", "expected a program that was built with cairo, got one without");
}

}  // namespace linnet

#endif
