#include "data/digits.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "data/digit_skeletons.h"
#include "data/idx.h"
#include "data/mnist_files.h"
#include "io/file.h"

namespace linnet {
namespace {

// Every picture owns this many blocks of random numbers; one decides the label.
constexpr std::uint64_t blocks_per_digit = 64;

// The random numbers of one picture, one after another.
class Draws {
 public:
  Draws(const Random& random, std::uint64_t index)
      : random_(random), next_block_(index * blocks_per_digit + 1) {}

  // In (0, 1).
  double uniform() {
    if (next_word_ == 4) {
      words_ = random_.block(next_block_++);
      next_word_ = 0;
    }
    return (static_cast<double>(words_[next_word_++]) + 0.5) * 0x1p-32;
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Bell-shaped around 0 with that standard deviation, never beyond three of it.
  double bell(double deviation) { return deviation * 2 * (uniform() + uniform() + uniform() - 1.5); }

 private:
  const Random& random_;
  std::uint64_t next_block_;
  std::array<std::uint32_t, 4> words_{};
  std::size_t next_word_ = 4;
};

// A straight piece of a stroke from (x, y) on, of length (dx, dy), with the pen's radius at both ends.
struct Piece {
  Point from, to;
  double radius_from = 0, radius_to = 0;
};

// Catmull and Rom's cubic through b and c, at t in [0, 1], with neighbours a and d.
double curve(double a, double b, double c, double d, double t) {
  return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

void add_stroke(std::vector<Piece>& pieces, const std::vector<Point>& points, const std::vector<int>& stroke,
                double pressure_from, double pressure_to) {
  constexpr int steps = 7;
  const int count = static_cast<int>(stroke.size());
  const bool closed = count > 2 && stroke.front() == stroke.back();
  const auto point = [&](int i) {
    if (i < 0) i = closed ? count - 2 : 0;
    if (i >= count) i = closed ? 1 : count - 1;
    return points[static_cast<std::size_t>(stroke[static_cast<std::size_t>(i)])];
  };
  for (int i = 0; i + 1 < count; ++i) {
    const Point a = point(i - 1), b = point(i), c = point(i + 1), d = point(i + 2);
    Point from = b;
    for (int step = 1; step <= steps; ++step) {
      const double t = static_cast<double>(step) / steps;
      const Point to = {curve(a.x, b.x, c.x, d.x, t), curve(a.y, b.y, c.y, d.y, t)};
      const double pressure_range = (pressure_to - pressure_from) / (count - 1);
      pieces.push_back({from, to, pressure_from + pressure_range * (i + t - 1.0 / steps),
                        pressure_from + pressure_range * (i + t)});
      from = to;
    }
  }
}

// The strokes of one picture, in units of its side.
std::vector<Piece> draw_strokes(int digit, Draws& draws) {
  const std::vector<Skeleton>& skeletons = skeletons_of(digit);
  const double choice = draws.uniform();
  const Skeleton& skeleton =
      skeletons[static_cast<std::size_t>(choice * static_cast<double>(skeletons.size()))];

  // The hand's habits: bends of the whole figure, width, slant, rotation.
  const double bend_x = draws.bell(0.12), bend_y = draws.bell(0.10), twist_x = draws.bell(0.14),
               twist_y = draws.bell(0.10);
  const double squeeze = draws.bell(0.14);
  const double aspect = draws.uniform(0.56, 0.86);
  const double slant = 0.10 + draws.bell(0.17);
  const double half_turn = draws.bell(0.045);  // tangent of half the angle
  const double cosine = (1 - half_turn * half_turn) / (1 + half_turn * half_turn);
  const double sine = 2 * half_turn / (1 + half_turn * half_turn);
  std::vector<Point> points = skeleton.points;
  for (Point& point : points) {
    const double x = point.x - 0.5 + draws.bell(0.028);
    const double y = point.y - 0.5 + draws.bell(0.022);
    // A positive squeeze makes the lower half large and the upper one small.
    const double u = aspect * (x + bend_x * (y * y - 0.1) + twist_x * x * y);
    const double v = y + bend_y * x * x + twist_y * x * y + squeeze * (0.25 - y * y);
    const double slanted = u - slant * v;
    point = {cosine * slanted - sine * v, sine * slanted + cosine * v};
  }

  const double radius = draws.uniform(0.031, 0.062);
  std::vector<Piece> pieces;
  for (const std::vector<int>& stroke : skeleton.strokes) {
    const double pressure_from = radius * (1 + draws.bell(0.12));
    const double pressure_to = radius * (1 + draws.bell(0.12));
    add_stroke(pieces, points, stroke, pressure_from, pressure_to);
  }

  // Fits the figure, not its pen, into the picture.
  double left = 1e9, right = -1e9, top = 1e9, bottom = -1e9;
  for (const Piece& piece : pieces) {
    for (const Point& point : {piece.from, piece.to}) {
      left = std::min(left, point.x);
      right = std::max(right, point.x);
      top = std::min(top, point.y);
      bottom = std::max(bottom, point.y);
    }
  }
  const double scale = std::min(draws.uniform(0.62, 0.76) / (bottom - top), 0.74 / (right - left));
  const double x = 0.5 - scale * (left + right) / 2 + draws.bell(0.022);
  const double y = 0.5 - scale * (top + bottom) / 2 + draws.bell(0.022);
  for (Piece& piece : pieces)
    for (Point* point : {&piece.from, &piece.to}) *point = {x + scale * point->x, y + scale * point->y};
  return pieces;
}

// Raises `inside`, by how far every pixel's centre lies within the strokes (in pixels), to what this piece
// gives.
void ink(std::vector<double>& inside, std::int64_t size, const Piece& piece, double margin) {
  const double side = static_cast<double>(size);
  const double ax = piece.from.x * side - 0.5, ay = piece.from.y * side - 0.5;
  const double dx = piece.to.x * side - 0.5 - ax, dy = piece.to.y * side - 0.5 - ay;
  const double radius_from = piece.radius_from * side, radius_to = piece.radius_to * side;
  const double reach = std::max(radius_from, radius_to) + margin;
  const double squared_length = dx * dx + dy * dy;
  const auto clamped = [&](double value) { return static_cast<std::int64_t>(std::clamp(value, 0.0, side)); };
  for (std::int64_t row = clamped(std::min(ay, ay + dy) - reach);
       row < clamped(std::max(ay, ay + dy) + reach + 1); ++row) {
    for (std::int64_t column = clamped(std::min(ax, ax + dx) - reach);
         column < clamped(std::max(ax, ax + dx) + reach + 1); ++column) {
      const double px = static_cast<double>(column) - ax, py = static_cast<double>(row) - ay;
      const double along =
          squared_length > 0 ? std::clamp((px * dx + py * dy) / squared_length, 0.0, 1.0) : 0.0;
      const double x = px - along * dx, y = py - along * dy;
      const double depth = radius_from + along * (radius_to - radius_from) - std::sqrt(x * x + y * y);
      double& pixel = inside[static_cast<std::size_t>(row * size + column)];
      pixel = std::max(pixel, depth);
    }
  }
}

}  // namespace

void draw_digit(std::span<std::uint8_t> pixels, std::int64_t size, int digit, const Random& random,
                std::uint64_t index) {
  if (size < 8 || size > 64) fail<UsageError>("digits", "expected a size of 8 to 64 pixels, got {}", size);
  assert(pixels.size() == static_cast<std::size_t>(size * size));
  Draws draws(random, index);
  const std::vector<Piece> pieces = draw_strokes(digit, draws);
  // Edges fade over this many pixels, as they do in a scan.
  const double softness = draws.uniform(1.0, 1.5);
  std::vector<double> inside(pixels.size(), -softness);
  for (const Piece& piece : pieces) ink(inside, size, piece, softness);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] =
        static_cast<std::uint8_t>(std::lround(255 * std::clamp(0.5 + inside[i] / softness, 0.0, 1.0)));
}

void draw_digits(Context& context, std::span<std::uint8_t> pixels, std::span<std::uint8_t> labels,
                 std::int64_t size, const Random& random) {
  const std::size_t area = static_cast<std::size_t>(size * size);
  assert(pixels.size() == labels.size() * area);
  parallel_blocks(
      context, static_cast<std::int64_t>(labels.size()), 256, [&](std::int64_t begin, std::int64_t end) {
        for (std::size_t i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          labels[i] = static_cast<std::uint8_t>(random.below(10, i * blocks_per_digit));
          draw_digit(pixels.subspan(i * area, area), size, labels[i], random, i);
        }
      });
}

void write_digits(const std::filesystem::path& folder, std::int64_t training, std::int64_t test,
                  std::int64_t size, std::uint64_t seed) {
  constexpr std::int64_t most = 10'000'000;
  if (training < 1 || training > most || test < 1 || test > most)
    fail<UsageError>("digits", "expected 1 to {} images, got {} for training and {} for testing", most,
                     training, test);
  if (size < 8 || size > 64) fail<UsageError>("digits", "expected a size of 8 to 64 pixels, got {}", size);
  Context context;
  AtomicFolder written(folder, AtomicFolder::Place::new_or_empty);
  std::uint32_t stream = 0;
  for (const MnistFiles& files : {mnist_training, mnist_test}) {
    const std::int64_t count = stream == 0 ? training : test;
    require_memory("the digits", static_cast<double>(count * size * size));
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * size * size));
    std::vector<std::uint8_t> labels(static_cast<std::size_t>(count));
    draw_digits(context, pixels, labels, size, Random(seed, Draw::synthetic_data, stream++));
    write_idx(written.path() / files.images, Shape{count, size, size}, pixels);
    write_idx(written.path() / files.labels, Shape{count}, labels);
  }
  written.commit();
}

}  // namespace linnet
