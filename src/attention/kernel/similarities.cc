#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention/kernel/tile_products.h"
#include "base/fail.h"
#include "base/names.h"
#include "base/workspace.h"
#include "linnet/similarity.h"

namespace linnet {
namespace {

using kernel::padded;

const std::array<SimilarityInfo, 3> table = {{
    {"exponential", "exp(min(q.k / sqrt(E), 80))", "none"},
    {"polynomial", "(q.k / sqrt(E) + c)^p", "offset c = 1, even power p = 2"},
    {"gaussian", "exp(-|q - k|^2 / (2 sigma^2))", "sigma = E^(1/4)"},
}};

double root_of(std::int64_t dim) { return std::sqrt(static_cast<double>(dim)); }

/// q·k/√E.
double scaled_dot(std::span<const double> q, std::span<const double> k) {
  return std::inner_product(q.begin(), q.end(), k.begin(), 0.0) / root_of(std::ssize(q));
}

/// Copies of q and k in padded memory, and memory for what becomes of them.
class PackedTile {
 public:
  PackedTile(Context& own, View<const float> q, View<const float> k)
      : rows_(q.extent(0)),
        keys_(k.extent(0)),
        dim_(q.extent(1)),
        width_(padded(dim_)),
        ld_(padded(keys_)),
        workspace_(own) {
    query_ = pack(q, rows_);
    key_ = pack(k, keys_);
    key_columns_ = take(width_ * ld_);
    pairs_ = take(padded(rows_) * ld_);
    sums_ = take(std::max(padded(rows_), ld_) * width_);
  }

  /// q·k of every pair, rows `ld` apart.
  float* dots() {
    kernel::transpose(key_columns_, ld_, key_, width_, keys_, dim_);
    kernel::multiply(pairs_, ld_, query_, width_, key_columns_, ld_, rows_, keys_, dim_);
    return pairs_;
  }

  std::int64_t ld() const { return ld_; }

  /// A number for every pair, rows `ld` apart.
  float* pairs() { return pairs_; }

  /// dq += w k and dk += wᵀ q, where w is what `pairs` holds.
  void add_products(View<float> dq, View<float> dk) {
    kernel::multiply(sums_, width_, pairs_, ld_, key_, width_, rows_, dim_, keys_);
    add(dq, rows_);
    kernel::multiply_transposed(sums_, width_, pairs_, ld_, query_, width_, keys_, dim_, rows_);
    add(dk, keys_);
  }

 private:
  float* take(std::int64_t floats) { return workspace_.take(static_cast<std::size_t>(floats)); }

  float* pack(View<const float> x, std::int64_t count) {
    float* to = take(padded(count) * width_);
    for (std::int64_t i = 0; i < count; ++i)
      std::fill_n(std::copy_n(x.at(i), dim_, to + i * width_), width_ - dim_, 0.0f);
    std::fill_n(to + count * width_, (padded(count) - count) * width_, 0.0f);
    return to;
  }

  void add(View<float> to, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t e = 0; e < dim_; ++e) to.at(i)[e] += sums_[i * width_ + e];
  }

  std::int64_t rows_, keys_, dim_, width_, ld_;
  Workspace workspace_;
  float *query_, *key_, *key_columns_, *pairs_, *sums_;
};

class Polynomial final : public Similarity {
 public:
  Polynomial(double offset, int power) : offset_(offset), power_(power) {}

  std::string name() const override { return "polynomial"; }

  void forward(Context& own, View<float> s, View<const float> q, View<const float> k) const override {
    PackedTile tile(own, q, k);
    const float* dots = tile.dots();
    for (std::int64_t i = 0; i < s.extent(0); ++i)
      kernel::polynomial_row(s.at(i), dots + i * tile.ld(), s.extent(1), scale(q.extent(1)), offset(),
                             power_);
  }

  void backward(Context& own, View<float> dq, View<float> dk, View<const float> ds, View<const float>,
                View<const float> q, View<const float> k) const override {
    PackedTile tile(own, q, k);
    float* pairs = tile.dots();
    for (std::int64_t i = 0; i < ds.extent(0); ++i) {
      float* row = pairs + i * tile.ld();
      kernel::polynomial_slope_row(row, row, ds.at(i), ds.extent(1), scale(q.extent(1)), offset(), power_);
    }
    tile.add_products(dq, dk);
  }

  double exact_forward(std::span<const double> q, std::span<const double> k) const override {
    return std::pow(scaled_dot(q, k) + offset_, power_);
  }

  void exact_backward(std::span<double> dq, std::span<double> dk, double ds, std::span<const double> q,
                      std::span<const double> k) const override {
    const double slope =
        ds * power_ * std::pow(scaled_dot(q, k) + offset_, power_ - 1) / root_of(std::ssize(q));
    for (std::size_t e = 0; e < q.size(); ++e) {
      dq[e] += slope * k[e];
      dk[e] += slope * q[e];
    }
  }

 private:
  static float scale(std::int64_t dim) { return static_cast<float>(1 / root_of(dim)); }
  float offset() const { return static_cast<float>(offset_); }

  double offset_;
  int power_;
};

class Exponential final : public Similarity {
 public:
  std::string name() const override { return "exponential"; }

  void forward(Context& own, View<float> s, View<const float> q, View<const float> k) const override {
    PackedTile tile(own, q, k);
    const float* dots = tile.dots();
    for (std::int64_t i = 0; i < s.extent(0); ++i)
      kernel::limited_exp_row(s.at(i), dots + i * tile.ld(), s.extent(1), scale(q.extent(1)));
  }

  void backward(Context& own, View<float> dq, View<float> dk, View<const float> ds, View<const float> s,
                View<const float> q, View<const float> k) const override {
    PackedTile tile(own, q, k);
    for (std::int64_t i = 0; i < ds.extent(0); ++i)
      kernel::limited_exp_slope_row(tile.pairs() + i * tile.ld(), s.at(i), ds.at(i), ds.extent(1),
                                    scale(q.extent(1)));
    tile.add_products(dq, dk);
  }

  double exact_forward(std::span<const double> q, std::span<const double> k) const override {
    return std::exp(std::min(scaled_dot(q, k), 80.0));
  }

  void exact_backward(std::span<double> dq, std::span<double> dk, double ds, std::span<const double> q,
                      std::span<const double> k) const override {
    const double argument = scaled_dot(q, k);
    if (argument >= 80) return;
    const double slope = ds * std::exp(argument) / root_of(std::ssize(q));
    for (std::size_t e = 0; e < q.size(); ++e) {
      dq[e] += slope * k[e];
      dk[e] += slope * q[e];
    }
  }

 private:
  static float scale(std::int64_t dim) { return static_cast<float>(1 / root_of(dim)); }
};

class Gaussian final : public Similarity {
 public:
  explicit Gaussian(double sigma) : sigma_(sigma) {}

  std::string name() const override { return "gaussian"; }

  void forward(Context& own, View<float> s, View<const float> q, View<const float> k) const override {
    PackedTile tile(own, q, k);
    const float* dots = tile.dots();
    const float factor = static_cast<float>(0.5 / variance(q.extent(1)));
    Workspace workspace(own);
    const std::span<float> lengths = workspace.array<float>(k.extent(0));
    for (std::size_t j = 0; j < lengths.size(); ++j) lengths[j] = square(k.at(j), k.extent(1));
    for (std::int64_t i = 0; i < s.extent(0); ++i)
      kernel::gaussian_row(s.at(i), dots + i * tile.ld(), lengths.data(), s.extent(1),
                           square(q.at(i), q.extent(1)), factor);
  }

  // With w = ds · s / σ²: dq_i = Σ_j w_ij (k_j − q_i), dk_j = Σ_i w_ij (q_i − k_j).
  void backward(Context& own, View<float> dq, View<float> dk, View<const float> ds, View<const float> s,
                View<const float> q, View<const float> k) const override {
    PackedTile tile(own, q, k);
    const std::int64_t rows = ds.extent(0), keys = ds.extent(1), dim = q.extent(1);
    const float factor = static_cast<float>(1 / variance(dim));
    Workspace workspace(own);
    float* of_key = workspace.take_zeroed(static_cast<std::size_t>(keys));
    for (std::int64_t i = 0; i < rows; ++i) {
      float* w = tile.pairs() + i * tile.ld();
      kernel::product_row(w, s.at(i), ds.at(i), keys, factor);
      float of_query = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        of_query += w[j];
        of_key[j] += w[j];
      }
      for (std::int64_t e = 0; e < dim; ++e) dq.at(i)[e] -= of_query * q.at(i)[e];
    }
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t e = 0; e < dim; ++e) dk.at(j)[e] -= of_key[j] * k.at(j)[e];
    tile.add_products(dq, dk);
  }

  double exact_forward(std::span<const double> q, std::span<const double> k) const override {
    double distance = 0;
    for (std::size_t e = 0; e < q.size(); ++e) distance += (q[e] - k[e]) * (q[e] - k[e]);
    return std::exp(-distance / (2 * variance(std::ssize(q))));
  }

  void exact_backward(std::span<double> dq, std::span<double> dk, double ds, std::span<const double> q,
                      std::span<const double> k) const override {
    const double slope = ds * exact_forward(q, k) / variance(std::ssize(q));
    for (std::size_t e = 0; e < q.size(); ++e) {
      dq[e] += slope * (k[e] - q[e]);
      dk[e] += slope * (q[e] - k[e]);
    }
  }

 private:
  double variance(std::int64_t dim) const { return sigma_ != 0 ? sigma_ * sigma_ : root_of(dim); }

  static float square(const float* x, std::int64_t dim) {
    double sum = 0;
    for (std::int64_t e = 0; e < dim; ++e) sum += static_cast<double>(x[e]) * x[e];
    return static_cast<float>(sum);
  }

  double sigma_;
};

}  // namespace

double Similarity::exact_forward(std::span<const double> q, std::span<const double> k) const {
  const std::vector<float> q32(q.begin(), q.end()), k32(k.begin(), k.end());
  const auto dim = static_cast<std::int64_t>(q.size());
  float s = 0;
  Context own(1);
  forward(own, {&s, {1, 1}}, {q32.data(), {1, dim}}, {k32.data(), {1, dim}});
  return s;
}

void Similarity::exact_backward(std::span<double> dq, std::span<double> dk, double ds,
                                std::span<const double> q, std::span<const double> k) const {
  const std::vector<float> q32(q.begin(), q.end()), k32(k.begin(), k.end());
  const auto dim = static_cast<std::int64_t>(q.size());
  std::vector<float> dq32(q32.size()), dk32(k32.size());
  const float ds32 = static_cast<float>(ds);
  float s = 0;
  Context own(1);
  forward(own, {&s, {1, 1}}, {q32.data(), {1, dim}}, {k32.data(), {1, dim}});
  backward(own, {dq32.data(), {1, dim}}, {dk32.data(), {1, dim}}, {&ds32, {1, 1}}, {&s, {1, 1}},
           {q32.data(), {1, dim}}, {k32.data(), {1, dim}});
  for (std::size_t e = 0; e < q32.size(); ++e) {
    dq[e] += dq32[e];
    dk[e] += dk32[e];
  }
}

std::shared_ptr<const Similarity> polynomial_similarity(double offset, int power) {
  if (!(offset >= 0) || !std::isfinite(offset))
    fail<UsageError>("polynomial similarity", "expected an offset of at least 0, got {}", offset);
  if (power < 2 || power > 64 || power % 2 != 0)
    fail<UsageError>("polynomial similarity", "expected an even power from 2 to 64, got {}", power);
  return std::make_shared<Polynomial>(offset, power);
}

std::shared_ptr<const Similarity> gaussian_similarity(double sigma) {
  if (!(sigma >= 0) || !std::isfinite(sigma))
    fail<UsageError>("gaussian similarity", "expected a finite sigma of at least 0, got {}", sigma);
  constexpr double least = 1e-19;  // f32 holds 1 / σ²
  if (sigma > 0 && sigma < least)
    fail<UsageError>("gaussian similarity", "expected sigma of at least {}, or 0 for E^(1/4), got {}", least,
                     sigma);
  return std::make_shared<Gaussian>(sigma);
}

std::shared_ptr<const Similarity> exponential_similarity() { return std::make_shared<Exponential>(); }

std::span<const SimilarityInfo> similarity_table() { return table; }

std::shared_ptr<const Similarity> find_similarity(const std::string& name,
                                                  const SimilarityParameters& parameters) {
  if (name == "exponential") return exponential_similarity();
  if (name == "polynomial") return polynomial_similarity(parameters.offset, parameters.power);
  if (name == "gaussian") return gaussian_similarity(parameters.sigma);
  std::vector<std::string> names;
  for (const SimilarityInfo& row : table) names.push_back(row.name);
  const std::string nearest = nearest_name(name, names);
  if (nearest.empty())
    fail<UsageError>("similarity", "expected one of {}, got '{}'", fmt::join(names, ", "), name);
  fail<UsageError>("similarity", "expected one of {}, got '{}'; did you mean {}?", fmt::join(names, ", "),
                   name, nearest);
}

}  // namespace linnet
