#include "attention/feature_maps/random_draws.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "attention/feature_maps/hadamard.h"
#include "attention/reference_rows.h"
#include "attention/tiles/rows.h"
#include "base/fail.h"
#include "base/names.h"
#include "base/random.h"

namespace linnet {
namespace {

const std::array<FeatureMapInfo, 11> table = {{
    {"favor", "exp(w.y - |y|^2/2) / sqrt(F); y = x / E^(1/4)", "any; E ln E", true},
    {"favor-trig", "exp(|y|^2/2) sqrt(2/F) cos(w.y + b); y = x / E^(1/4)", "any; E ln E", false},
    {"favor-sincos", "exp(|y|^2/2) sqrt(2/F) [cos(w.y), sin(w.y)]; y = x / E^(1/4)", "any even; E ln E",
     false},
    {"favor-hyperbolic", "exp(-|y|^2/2) [exp(w.y), exp(-w.y)] / sqrt(F); y = x / E^(1/4)", "any even; E ln E",
     true},
    {"random-relu", "(max(w.y, 0) + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", true},
    {"random-gelu", "(gelu(w.y) + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", false},
    {"random-sigmoid", "(sigmoid(w.y) + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", true},
    {"random-tanh", "(tanh(w.y) + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", false},
    {"random-abs", "(|w.y| + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", true},
    {"random-cos", "(cos(w.y) + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", false},
    {"random-exp", "(exp(w.y) + 0.001) / sqrt(F); y = x / E^(1/4)", "any; E ln E", true},
}};

/// E ln E, rounded up to a multiple of 16: what theorem 4 of Choromanski et al. 2021 asks for, but for the
/// factors of the wanted error and of the norms.
std::int64_t default_features(std::int64_t head_dim) {
  const double wanted = static_cast<double>(head_dim) * portable_log(static_cast<double>(head_dim));
  return 16 * std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(wanted / 16)));
}

/// The independent sequences of one draw.
enum class Part : std::uint64_t { directions, norms, phases, signs };

/// Each part has 2^32 indices and each draw four parts, so that no two draws share one.
std::uint64_t index_of(const RandomFeatureOptions& options, Part part, std::int64_t i) {
  return options.draw << 34 | static_cast<std::uint64_t>(part) << 32 | static_cast<std::uint64_t>(i);
}

constexpr std::uint64_t most_draws = std::uint64_t{1} << 30;
constexpr std::int64_t most_numbers = std::int64_t{1} << 31;

/// Makes `rows` Gaussian rows orthonormal by modified Gram and Schmidt steps, each done twice, so that they
/// are orthogonal to the last bits. This is the decomposition QR with R's diagonal above 0, the one whose Q
/// is distributed evenly over all rotations (Mezzadri 2007): no signs are left to chance.
void orthonormalise(double* g, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double* row = g + r * width;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t before = 0; before < r; ++before) {
        const double* other = g + before * width;
        const double along = dot(row, other, width);
        for (std::int64_t i = 0; i < width; ++i) row[i] -= along * other[i];
      }
    }
    const double norm = std::sqrt(dot(row, row, width));
    for (std::int64_t i = 0; i < width; ++i) row[i] /= norm;
  }
}

const std::array<const char*, 4> direction_names = {"auto", "orthogonal", "independent", "hadamard"};

/// Row r of H D_3 H D_2 H D_1 / E^(3/2), which is D_1 H D_2 H D_3 H applied to the unit vector r. Its sums
/// are of whole numbers below 2^53.
void hadamard_row(double* row, std::int64_t r, std::span<const float> signs) {
  const std::int64_t width = std::ssize(signs) / kDiagonals;
  std::fill_n(row, width, 0.0);
  row[r] = 1;
  for (std::int64_t k = kDiagonals; k-- > 0;) {
    hadamard_transform(row, width);
    for (std::int64_t i = 0; i < width; ++i) row[i] *= signs[static_cast<std::size_t>(k * width + i)];
  }
  const auto size = static_cast<double>(width);
  for (std::int64_t i = 0; i < width; ++i) row[i] /= size * std::sqrt(size);
}

/// The signs of block b.
std::span<const float> signs_of(const RandomDraws& draws, std::int64_t b) {
  const auto count = static_cast<std::size_t>(kDiagonals * draws.head_dim);
  return std::span(draws.signs).subspan(static_cast<std::size_t>(b) * count, count);
}

/// W [m, E] of Hadamard directions.
std::vector<float> hadamard_directions(const RandomDraws& draws) {
  const std::int64_t width = draws.head_dim, rows = std::ssize(draws.lengths);
  std::vector<float> directions(static_cast<std::size_t>(rows * width));
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    hadamard_row(row.data(), r % width, signs_of(draws, r / width));
    const double length = draws.lengths[static_cast<std::size_t>(r)];
    std::ranges::transform(row, directions.begin() + r * width,
                           [&](double number) { return static_cast<float>(length * number); });
  }
  return directions;
}

/// Whether there are Hadamard directions of n numbers. Of 2 and of 4 there are so few that estimates are
/// biased: 4 and 24 directions for all signs.
bool has_hadamard_directions(std::int64_t n) {
  return n >= 8 && std::has_single_bit(static_cast<std::uint64_t>(n));
}

}  // namespace

bool has_fast_transform(std::int64_t head_dim) {
  return head_dim >= 16 && head_dim <= 256 && has_hadamard_directions(head_dim);
}

Directions directions_drawn(Directions wanted, std::int64_t head_dim) {
  if (wanted != Directions::automatic) return wanted;
  return has_fast_transform(head_dim) ? Directions::hadamard : Directions::orthogonal;
}

std::span<const FeatureMapInfo> random_feature_map_table() { return table; }

const char* name_of(Directions directions) {
  const auto index = static_cast<std::size_t>(directions);
  if (index >= direction_names.size())
    fail<UsageError>("random features", "expected directions of {}, got number {}",
                     fmt::join(direction_names, ", "), static_cast<int>(directions));
  return direction_names[index];
}

Directions find_directions(const std::string& name) {
  const auto found = std::ranges::find(direction_names, name);
  if (found == direction_names.end())
    fail<UsageError>("random features", "expected directions of {}, got '{}'",
                     fmt::join(direction_names, ", "), name);
  return static_cast<Directions>(found - direction_names.begin());
}

bool is_random_feature_map(const std::string& name) {
  return std::ranges::any_of(table, [&](const FeatureMapInfo& row) { return row.name == name; });
}

RandomMap find_random_map(const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) return static_cast<RandomMap>(i);
    names.push_back(table[i].name);
  }
  const std::string nearest = nearest_name(name, names);
  fail<UsageError>("random features", "expected one of {}, got '{}'{}", fmt::join(names, ", "), name,
                   nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

const FeatureMapInfo& info_of(RandomMap map) { return table[static_cast<std::size_t>(map)]; }

std::int64_t directions_of(RandomMap map, std::int64_t head_dim, const RandomFeatureOptions& options) {
  const char* name = info_of(map).name.c_str();
  const std::int64_t each = features_a_direction(map);
  if (head_dim < 1) fail<UsageError>(name, "expected a head size of at least 1, got {}", head_dim);
  if (options.features < 0)
    fail<UsageError>(name, "expected at least 1 feature, or 0 for the default, got {}", options.features);
  if (options.features % each != 0)
    fail<UsageError>(name, "expected an even number of features, two a direction, got {}", options.features);
  if (options.layer < 0) fail<UsageError>(name, "expected a layer from 0, got {}", options.layer);
  if (options.draw >= most_draws)
    fail<UsageError>(name, "expected a draw below {}, got {}", most_draws, options.draw);
  (void)name_of(options.directions);  // throws for none of them
  if (options.directions == Directions::hadamard && !has_hadamard_directions(head_dim))
    fail<UsageError>(name,
                     "expected a head size that is a power of two from 8 on with Hadamard directions, got {}",
                     head_dim);
  const std::int64_t rows = (options.features == 0 ? default_features(head_dim) : options.features) / each;
  if (rows > most_numbers / head_dim)
    fail<UsageError>(name, "expected at most {} numbers of directions, got {} directions of {}", most_numbers,
                     rows, head_dim);
  return rows;
}

LateDraws::LateDraws(const std::string& map, std::int64_t head_dim, const RandomFeatureOptions& options)
    : map_(find_random_map(map)),
      head_dim_(head_dim),
      options_(options),
      directions_(directions_of(map_, head_dim, options)) {}

const RandomDraws& LateDraws::get() const {
  std::call_once(once_, [&] { draws_ = draw_random_features(info_of(map_).name, head_dim_, options_); });
  return draws_;
}

RandomDraws draw_random_features(const std::string& map, std::int64_t head_dim,
                                 const RandomFeatureOptions& options) {
  const RandomMap kind = find_random_map(map);
  const std::int64_t rows = directions_of(kind, head_dim, options);
  const Directions directions = directions_drawn(options.directions, head_dim);
  const Random random(options.seed, Draw::random_features, static_cast<std::uint32_t>(options.layer));
  const auto normal = [&](Part part, std::int64_t i) { return random.normal(index_of(options, part, i)); };
  const auto word = [&](Part part, std::int64_t i) { return random.block(index_of(options, part, i))[0]; };
  const auto length_of = [&](std::int64_t row) {
    double squares = 0;
    for (std::int64_t i = row * head_dim; i < (row + 1) * head_dim; ++i) {
      const double number = normal(Part::norms, i);
      squares += number * number;
    }
    return std::sqrt(squares);
  };
  RandomDraws draws;
  draws.head_dim = head_dim;
  if (directions == Directions::hadamard) {
    for (std::int64_t i = 0; i < number_of_signs(rows, head_dim); ++i)
      draws.signs.push_back(word(Part::signs, i) >> 31 == 0 ? 1.0f : -1.0f);
    for (std::int64_t r = 0; r < rows; ++r) draws.lengths.push_back(static_cast<float>(length_of(r)));
    draws.directions = hadamard_directions(draws);
  } else {
    std::vector<double> block;
    for (std::int64_t first = 0; first < rows; first += head_dim) {
      const std::int64_t count = std::min(head_dim, rows - first);
      block.resize(static_cast<std::size_t>(count * head_dim));
      for (std::int64_t i = 0; i < count * head_dim; ++i)
        block[static_cast<std::size_t>(i)] = normal(Part::directions, first * head_dim + i);
      if (directions == Directions::orthogonal) {
        orthonormalise(block.data(), count, head_dim);
        for (std::int64_t r = 0; r < count; ++r) {
          const double length = length_of(first + r);
          for (std::int64_t i = 0; i < head_dim; ++i)
            block[static_cast<std::size_t>(r * head_dim + i)] *= length;
        }
      }
      draws.directions.insert(draws.directions.end(), block.begin(), block.end());
    }
  }
  if (kind == RandomMap::trig)
    for (std::int64_t r = 0; r < rows; ++r)
      draws.phases.push_back(static_cast<float>(
          2 * std::numbers::pi * (static_cast<double>(word(Part::phases, r)) + 0.5) * 0x1p-32));
  return draws;
}

void complete_draws(RandomMap map, RandomDraws& draws) {
  const char* name = info_of(map).name.c_str();
  const auto check_finite = [&](const std::vector<float>& x) {
    if (!all_finite(x.data(), std::ssize(x)))
      fail(name, "expected draws that are numbers, got one that is not");
  };
  if (!draws.signs.empty() || !draws.lengths.empty()) {
    const std::int64_t count = std::ssize(draws.lengths), width = draws.head_dim;
    if (!has_hadamard_directions(width))
      fail(name, "expected Hadamard directions of 8, 16, 32 … numbers, got {}", width);
    if (count == 0 || std::ssize(draws.signs) != number_of_signs(count, width))
      fail(name, "expected {} signs for {} Hadamard directions and at least one, got {}",
           number_of_signs(count, width), count, draws.signs.size());
    if (std::ranges::any_of(draws.signs, [](float sign) { return sign != 1 && sign != -1; }))
      fail(name, "expected signs of +1 and -1, got another number");
    check_finite(draws.lengths);
    std::vector<float> directions = hadamard_directions(draws);
    if (!draws.directions.empty() && draws.directions != directions)
      fail(name, "expected directions that follow from their signs and lengths, got others");
    draws.directions = std::move(directions);
  }
  const std::size_t numbers = draws.directions.size();
  if (draws.head_dim < 1 || numbers == 0 || numbers % static_cast<std::size_t>(draws.head_dim) != 0)
    fail(name, "expected directions of {} numbers each and at least one, got {} numbers", draws.head_dim,
         numbers);
  const std::size_t rows = numbers / static_cast<std::size_t>(draws.head_dim);
  const std::size_t phases = map == RandomMap::trig ? rows : 0;
  if (draws.phases.size() != phases)
    fail(name, "expected {} phases for {} directions, got {}", phases, rows, draws.phases.size());
  check_finite(draws.directions);
  check_finite(draws.phases);
}

}  // namespace linnet
