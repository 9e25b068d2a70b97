#pragma once

#include <memory>
#include <span>
#include <string>

#include "linnet/context.h"
#include "linnet/export.h"
#include "linnet/tensor.h"

namespace linnet {

/// sim(q, k) ≥ 0 of the kernel family, on tiles: the similarity in Katharopoulos et al. 2020, equation 3.
/// There is one virtual call per tile, so a similarity of your own costs no more than a built-in one if its
/// code is as fast. Element (i, j) may depend on row i of q and row j of k only. Objects are immutable while
/// in use and called from many threads. `own` is the context of the calling thread, whose working memory may
/// be used.
class LINNET_API Similarity {
 public:
  virtual ~Similarity() = default;

  /// The name of the similarity, also used in errors.
  virtual std::string name() const = 0;

  /// s [rows, keys] from q [rows, E] and k [keys, E]; assigns s. Outer strides are free; nothing overlaps.
  /// The attention throws if finite rows give a negative number, infinity or NaN for a pair that the mask
  /// shows.
  virtual void forward(Context& own, View<float> s, View<const float> q, View<const float> k) const = 0;

  /// Adds the gradients from ds [rows, keys] to dq [rows, E] and dk [keys, E], with q, k and s as in
  /// `forward`. Where the mask hides a pair, ds and s are both 0, whatever `forward` would give: it must add
  /// nothing.
  virtual void backward(Context& own, View<float> dq, View<float> dk, View<const float> ds,
                        View<const float> s, View<const float> q, View<const float> k) const = 0;

  /// sim(q, k) of two rows [E], and the addition of ds times its gradient to dq and dk, in double precision:
  /// for references and tests. Of a similarity that does not define them they are computed in f32.
  virtual double exact_forward(std::span<const double> q, std::span<const double> k) const;
  virtual void exact_backward(std::span<double> dq, std::span<double> dk, double ds,
                              std::span<const double> q, std::span<const double> k) const;
};

/// Parameters of the built-in similarities. Each uses its own.
struct SimilarityParameters {
  double offset = 1;  ///< polynomial: c ≥ 0
  int power = 2;      ///< polynomial: p, even, from 2 to 64
  double sigma = 0;   ///< gaussian: σ ≥ 1e-19; 0 means E^¼, with which 1 / σ² is softmax's scale 1/√E
};

/// (q·k/√E + c)^p. Throws UsageError unless c ≥ 0 is finite and p is even and from 2 to 64. The
/// attention throws where f32 does not hold the power: with p = 64, from q·k/√E + c = 4 on.
LINNET_API std::shared_ptr<const Similarity> polynomial_similarity(double offset = 1, int power = 2);

/// exp(−‖q − k‖² / (2 σ²)). The distance comes from ‖q‖² + ‖k‖² − 2 q·k, so that its relative error is about
/// 1e-7 · (‖q‖² + ‖k‖²) / σ². Throws UsageError unless σ is finite and 0 or at least 1e-19.
LINNET_API std::shared_ptr<const Similarity> gaussian_similarity(double sigma = 0);

/// exp(q·k/√E). The argument is limited to 80 to prevent overflow, and below −86.9 the similarity is 0.
/// Between the two the family computes softmax, except for ε. The f32 sum over the keys overflows with 6,000
/// keys at the limit.
LINNET_API std::shared_ptr<const Similarity> exponential_similarity();

/// A row of the table of similarities that `linnet families` prints.
struct SimilarityInfo {
  std::string name;
  std::string formula;
  std::string parameters;
};

/// All built-in similarities.
LINNET_API std::span<const SimilarityInfo> similarity_table();

/// The built-in similarity of that name. Throws UsageError, naming the nearest known one.
LINNET_API std::shared_ptr<const Similarity> find_similarity(const std::string& name,
                                                             const SimilarityParameters& parameters = {});

}  // namespace linnet
