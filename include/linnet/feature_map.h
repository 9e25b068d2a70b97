#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet {

/// Where the rows of a tile come from.
struct TileContext {
  int layer = 0;
  int head = 0;
  std::int64_t position = 0;   ///< of the tile's first row in its sequence
  bool query = true;           ///< rows are queries, otherwise keys
  Context* context = nullptr;  ///< whose working memory the map may use; null: the map allocates its own
};

/// The map φ of linear attention, on tiles of rows: one virtual call a tile, so a map of your own costs no
/// more than a built-in one as long as its inside is fast; `tile_exp` and its siblings below are the vector
/// mathematics that the built-in maps are made of. Objects are immutable while in use and called from many
/// threads.
class FeatureMap {
 public:
  virtual ~FeatureMap() = default;

  /// The name under which a saved model finds its map: `find_feature_map` here, or yours given at loading.
  virtual std::string name() const = 0;

  /// F, the number of features of a row of `head_dim` numbers.
  virtual std::int64_t features(std::int64_t head_dim) const { return head_dim; }

  /// φ: y [rows, F] from x [rows, head_dim]. Outer strides are free; y and x do not overlap.
  virtual void forward(View<float> y, View<const float> x, const TileContext& context) const = 0;

  /// Gradient of x [rows, head_dim] from that of y [rows, F], with x as in `forward` and y what it gave.
  /// Assigns dx. dx and dy may be the same memory where F = head_dim.
  virtual void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                        const TileContext& context) const = 0;

  /// Whether every feature is ≥ 0 for every input, so that the denominator of linear attention cannot cancel.
  virtual bool non_negative() const { return true; }
};

/// A map whose features may leave the range of floats: φ(x) = e^s y with a log-scale s for every row. The
/// linear family keeps a running maximum of the keys' log-scales and rescales its sums by it, as online
/// softmax does; those of the queries cancel in the quotient. Its ε is 0, and a query whose denominator is
/// not positive gives zeros.
class LogScaledMap : public FeatureMap {
 public:
  /// y [rows, F] and log_scale [rows], s, from x [rows, head_dim].
  virtual void forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                              const TileContext& context) const = 0;

  /// e^s y, which may overflow.
  void forward(View<float> y, View<const float> x, const TileContext& context) const final;

  /// As in FeatureMap, with y as `forward_scaled` gave it and dy = e^s ∂L/∂φ; dx has the part of s too.
  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext& context) const override = 0;
};

/// φ(x) = x + 1 for x > 0, α(exp(x) − 1) + 1 otherwise; Katharopoulos et al. 2020, equation 7 with α = 1.
/// 0 < α ≤ 1 keeps it non-negative.
std::shared_ptr<const FeatureMap> elu_map(float alpha = 1.0f);

/// φ(x) = max(x, 0).
std::shared_ptr<const FeatureMap> relu_map();

/// φ(x) = max(x, 0)².
std::shared_ptr<const FeatureMap> squared_relu_map();

/// φ(x) = exp(x), x limited to at most 80 so that nothing overflows.
std::shared_ptr<const FeatureMap> exp_map();

/// φ(x) = x. May be negative: use it with Normalise::none, or expect denominators near 0.
std::shared_ptr<const FeatureMap> identity_map();

/// A row of the table of feature maps that `linnet families` prints.
struct FeatureMapInfo {
  std::string name;
  std::string formula;
  std::string features;  ///< F as a formula of the head size
  bool non_negative = true;
};

/// All built-in maps that need nothing drawn.
std::span<const FeatureMapInfo> feature_map_table();

/// Random features: maps of w_f·x with random directions w_f, x first multiplied by E^-1/4.
///
/// Of the maps `favor…` the products φ(q)·φ(k) are exp(q·k/√E) on average, the weights of softmax attention:
/// - `favor-trig`: exp(‖x‖²/2) √(2/F) cos(w·x + b), b uniform in (0, 2π), and `favor-sincos`: the same with
///   [cos(w·x), sin(w·x)]. Rahimi and Recht 2007; their factors exp(‖x‖²/2) are D_Q and D_K in Choromanski
///   et al. 2020, "Masked Language Modeling for Proteins via Linearly Scalable Long-Context Transformers".
///   Features of either sign.
/// - `favor`: exp(w·x − ‖x‖²/2)/√F, and `favor-hyperbolic`: [exp(w·x), exp(−w·x)] exp(−‖x‖²/2)/√F, positive;
///   Choromanski et al. 2021, "Rethinking Attention with Performers", lemma 1. Lemma 2 gives their errors and
///   those of sines and cosines for independent directions; theorem 2 says that orthogonal ones err less.
///
/// The others are (f(w·x) + 0.001)/√F, the generalised attention of the same paper: kernels of their own.
///
/// The maps with exponentials are LogScaledMaps.
std::span<const FeatureMapInfo> random_feature_map_table();

/// Whether the table of random maps has that name.
bool is_random_feature_map(const std::string& name);

/// How directions are drawn.
struct RandomFeatureOptions {
  std::int64_t features = 0;  ///< F; 0: E ln E, rounded up to a multiple of 16. Even for two a direction
  bool orthogonal = true;     ///< blocks of E orthogonal directions, otherwise all independent
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;  ///< how often drawn anew, below 2^30
  int layer = 0;           ///< every layer has directions of its own; its heads share them
};

/// What is drawn, to be kept with a model.
struct RandomDraws {
  std::int64_t head_dim = 0;           ///< E
  std::vector<float> directions = {};  ///< W [m, E]: m = F, or F/2 for favor-sincos and favor-hyperbolic
  std::vector<float> phases = {};      ///< b [m], of favor-trig alone
};

/// The draws of a random map, the same bits on every machine. Every direction is distributed as E independent
/// normal numbers; orthogonal ones have evenly distributed directions (Haar) and independent lengths. Throws
/// UsageError where the options make no sense.
RandomDraws draw_random_features(const std::string& map, std::int64_t head_dim,
                                 const RandomFeatureOptions& options = {});

/// The random map of that name with these draws. Throws UsageError for an unknown name, Error where the draws
/// do not fit. Its `features` throws UsageError for another head size than that of the draws.
std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, RandomDraws draws);

/// The same, drawn here.
std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, std::int64_t head_dim,
                                                     const RandomFeatureOptions& options = {});

/// Whether one of the two tables has that name.
bool is_feature_map(const std::string& name);

/// What `find_feature_map` needs besides a name.
struct FeatureMapOptions {
  float alpha = 1;            ///< of elu
  std::int64_t head_dim = 0;  ///< of the random maps
  RandomFeatureOptions random = {};
};

/// The built-in map of that name, from either table. Throws UsageError: for an unknown name with the nearest
/// known one, for a random map without a head size.
std::shared_ptr<const FeatureMap> find_feature_map(const std::string& name,
                                                   const FeatureMapOptions& options = {});

/// Vector mathematics for maps of your own: y[i] = f(x[i]) for i < count, y may be x. Relative error below
/// 4e-7 for exp (x limited to ±87) and absolute error below 4e-7 for tanh; for every instruction set.
void tile_exp(float* y, const float* x, std::int64_t count);
void tile_tanh(float* y, const float* x, std::int64_t count);

}  // namespace linnet
