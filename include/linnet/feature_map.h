#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linnet/context.h"
#include "linnet/export.h"
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

/// What the attention must know of a map.
struct FeatureMapTraits {
  /// Every feature is ≥ 0 for every input, so that the denominator of linear attention cannot cancel.
  bool non_negative = true;
  /// φ(x) = e^s y, where `forward_scaled` gives y and the log-scale s of each row (see LogScaledMap).
  bool log_scaled = false;
  /// A row's features depend on that row alone, not on its layer, head or position, so that rows of several
  /// heads may stand in one tile. The maps of the library are like that.
  bool row_alone = false;
};

/// The map φ of linear attention (Katharopoulos et al. 2020, equation 4), on tiles of rows. There is one
/// virtual call per tile, so a map of your own costs no more than a built-in one if its code is as fast.
/// `tile_exp` and `tile_tanh` below are the vector mathematics of the built-in maps. Objects are immutable
/// while in use and called from many threads.
class LINNET_API FeatureMap {
 public:
  virtual ~FeatureMap() = default;

  /// The name that a saved model gives to its map: one of `find_feature_map`, or that of a map passed to
  /// `Model::load`.
  virtual std::string name() const = 0;

  virtual FeatureMapTraits traits() const { return {}; }

  /// F, the number of features of a row of `head_dim` numbers.
  virtual std::int64_t features(std::int64_t head_dim) const { return head_dim; }

  /// φ: y [rows, F] from x [rows, head_dim]. Outer strides are free; y and x do not overlap.
  virtual void forward(View<float> y, View<const float> x, const TileContext& context) const = 0;

  /// y [rows, F] and the log-scales s [rows], with φ = e^s y. Of a map without log-scales y = φ and s = 0.
  virtual void forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                              const TileContext& context) const;

  /// Gradient dx [rows, head_dim] from dy [rows, F], with x and y as in `forward`, or in `forward_scaled` of
  /// a log-scaled map. Assigns dx. dx and dy may be the same memory if F = head_dim.
  virtual void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                        const TileContext& context) const = 0;

  /// `forward_scaled` and `backward` in double precision, for references and tests; dy = e^s ∂L/∂φ. Of a map
  /// that does not define them they are computed in f32.
  virtual void exact_forward(View<double> y, std::span<double> log_scale, View<const double> x,
                             const TileContext& context) const;
  virtual void exact_backward(View<double> dx, View<const double> dy, View<const double> x,
                              const TileContext& context) const;
};

/// A map whose features may exceed the range of f32: φ(x) = e^s y with a log-scale s for every row. The
/// linear family keeps a running maximum of the log-scales of the keys and rescales its sums by it, as online
/// softmax does. The log-scales of the queries cancel in the quotient. ε is 0, and a query whose denominator
/// is not positive gives zeros.
class LINNET_API LogScaledMap : public FeatureMap {
 public:
  /// Those of a map that overrides this must have log_scaled = true.
  FeatureMapTraits traits() const override { return {.log_scaled = true}; }

  /// y [rows, F] and log_scale [rows], s, from x [rows, head_dim].
  void forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                      const TileContext& context) const override = 0;

  /// e^s y, which may overflow.
  void forward(View<float> y, View<const float> x, const TileContext& context) const final;

  /// As in FeatureMap, with y as `forward_scaled` gave it and dy = e^s ∂L/∂φ. dx includes the derivative of
  /// s.
  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext& context) const override = 0;
};

/// φ(x) = x + 1 for x > 0, α(exp(x) − 1) + 1 otherwise; Katharopoulos et al. 2020, equation 7 with α = 1.
/// 0 < α ≤ 1 keeps it non-negative. Throws UsageError for an α that is not above 0 or not finite.
LINNET_API std::shared_ptr<const FeatureMap> elu_map(float alpha = 1.0f);

/// φ(x) = max(x, 0).
LINNET_API std::shared_ptr<const FeatureMap> relu_map();

/// φ(x) = max(x, 0)².
LINNET_API std::shared_ptr<const FeatureMap> squared_relu_map();

/// φ(x) = exp(x), x limited to at most 32: products of two features, summed over 1,024 features and a million
/// keys, do not overflow.
LINNET_API std::shared_ptr<const FeatureMap> exp_map();

/// φ(x) = x. Features may be negative, and denominators near 0: use it with Normalise::none.
LINNET_API std::shared_ptr<const FeatureMap> identity_map();

/// A row of the table of feature maps that `linnet families` prints.
struct FeatureMapInfo {
  std::string name;
  std::string formula;
  std::string features;  ///< F as a formula of the head size
  bool non_negative = true;
};

/// All built-in maps without random draws.
LINNET_API std::span<const FeatureMapInfo> feature_map_table();

/// Random features: maps of w_f·x with random directions w_f, x first multiplied by E^-1/4.
///
/// For the maps `favor…` the mean of φ(q)·φ(k) is exp(q·k/√E), the weight of softmax attention:
/// - `favor-trig`: exp(‖x‖²/2) √(2/F) cos(w·x + b), b uniform in (0, 2π), and `favor-sincos`: the same with
///   [cos(w·x), sin(w·x)]. Rahimi and Recht 2007; their factors exp(‖x‖²/2) are D_Q and D_K in Choromanski
///   et al. 2020, "Masked Language Modeling for Proteins via Linearly Scalable Long-Context Transformers".
///   Features have either sign.
/// - `favor`: exp(w·x − ‖x‖²/2)/√F, and `favor-hyperbolic`: [exp(w·x), exp(−w·x)] exp(−‖x‖²/2)/√F, positive;
///   Choromanski et al. 2021, "Rethinking Attention with Performers", lemma 1.
/// Its lemma 2 gives the errors of favor-sincos, favor and favor-hyperbolic for independent directions; that
/// of favor-trig is larger by the variance of its phases. Theorem 2 proves smaller ones of orthogonal
/// directions for `favor` with at most E of them; for the others that is measured (linnet approximate).
///
/// The other maps are (f(w·x) + 0.001)/√F, the generalised attention of the same paper.
///
/// The maps with exponentials are LogScaledMaps.
LINNET_API std::span<const FeatureMapInfo> random_feature_map_table();

/// Whether the table of random maps has that name.
LINNET_API bool is_random_feature_map(const std::string& name);

/// How the directions of random features are drawn. Each is distributed as E independent normal numbers, or
/// nearly so:
/// - `automatic`: `hadamard` where E is 16, 32, 64, 128 or 256, `orthogonal` elsewhere.
/// - `orthogonal`: blocks of E orthogonal directions, uniform (Haar), with independent lengths; Yu et al.
///   2016, "Orthogonal Random Features".
/// - `independent`: E independent normal numbers each.
/// - `hadamard`: blocks of E orthogonal directions that are the rows of H D_3 H D_2 H D_1 / E^(3/2), with the
///   Hadamard matrix H and diagonals D of random signs, times independent lengths; section 4 of the same
///   paper, and H-ORF in Choromanski et al. 2020. A row's products with E of them take 3 E log2(E) additions
///   instead of 2 E^2 FLOPs. E is a power of two from 8 on; from 16 to 256 it is faster. Means over draws
///   differ from those of normal directions by terms that vanish as E grows.
enum class Directions { automatic, orthogonal, independent, hadamard };

/// The directions of that name; `auto` is `automatic`. Throws UsageError for an unknown one.
LINNET_API Directions find_directions(const std::string& name);
/// Throws UsageError for a number that is none of them, as maps with such directions do.
LINNET_API const char* name_of(Directions directions);

/// What decides the draws of a random map.
struct RandomFeatureOptions {
  std::int64_t features = 0;  ///< F; 0: E ln E, rounded up to a multiple of 16. Even if a direction gives two
  Directions directions = Directions::automatic;
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;  ///< number of the draw, below 2^30
  int layer = 0;           ///< every layer has its own directions, which its heads share
};

/// The random numbers of a map, which are saved with a model.
struct RandomDraws {
  std::int64_t head_dim = 0;           ///< E
  std::vector<float> directions = {};  ///< W [m, E]: m = F, or F/2 for favor-sincos and favor-hyperbolic
  std::vector<float> phases = {};      ///< b [m]; only for favor-trig
  std::vector<float> signs = {};       ///< D_1, D_2, D_3 [blocks, 3, E] of Hadamard directions, +1 and -1
  std::vector<float> lengths = {};     ///< [m], of Hadamard directions, which follow from signs and lengths
};

/// The draws of a random map, with the same bits on every machine. Throws UsageError for invalid options, and
/// for Hadamard directions of a head size that is no power of two.
LINNET_API RandomDraws draw_random_features(const std::string& map, std::int64_t head_dim,
                                            const RandomFeatureOptions& options = {});

/// The random map of that name with these draws, where `directions` may be empty beside `signs` and
/// `lengths`. Throws UsageError for an unknown name, and Error if the draws do not fit the map. `features` of
/// the map throws UsageError for a head size other than that of the draws.
LINNET_API std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, RandomDraws draws);

/// The same with new draws.
LINNET_API std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, std::int64_t head_dim,
                                                                const RandomFeatureOptions& options = {});

/// Whether one of the two tables has that name.
LINNET_API bool is_feature_map(const std::string& name);

/// Options of `find_feature_map`.
struct FeatureMapOptions {
  float alpha = 1;            ///< of elu
  std::int64_t head_dim = 0;  ///< of the random maps
  RandomFeatureOptions random = {};
};

/// The map of that name: from either table, or registered. Throws UsageError: for an unknown name with the
/// nearest known one, for a random map without a head size.
LINNET_API std::shared_ptr<const FeatureMap> find_feature_map(const std::string& name,
                                                              const FeatureMapOptions& options = {});

/// Makes a map of your own known by its name to the whole process, so that configurations with that
/// `attention.feature_map` train, and models load, also through the C interface, without being given the
/// object. Any thread may call it. Throws UsageError without a map, and for a name that is empty, of a
/// built-in map or registered already.
LINNET_API void register_feature_map(std::shared_ptr<const FeatureMap> map);

/// Vector mathematics for maps of your own: y[i] = f(x[i]) for i < count, at least 0; y may be x. Relative
/// error below 4e-7 for exp (x limited to ±87) and absolute error below 4e-7 for tanh; for every instruction
/// set.
LINNET_API void tile_exp(float* y, const float* x, std::int64_t count);
LINNET_API void tile_tanh(float* y, const float* x, std::int64_t count);

}  // namespace linnet
