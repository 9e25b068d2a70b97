#pragma once

#include <memory>
#include <span>
#include <string>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet {

/// sim(q, k) ≥ 0 of the kernel family, on tiles: of Katharopoulos et al. 2020, equation 3, "any similarity".
/// One virtual call a tile, so a similarity of your own costs no more than a built-in one as long as its
/// inside is fast. Element (i, j) may depend on row i of q and row j of k alone. Objects are immutable while
/// in use and called from many threads. `own` is the context of the calling thread, whose working memory may
/// be used.
class Similarity {
 public:
  virtual ~Similarity() = default;

  /// The name under which it is found, and that errors give.
  virtual std::string name() const = 0;

  /// s [rows, keys] from q [rows, E] and k [keys, E]; assigns s. Outer strides are free; nothing overlaps.
  /// A number below 0 or NaN that finite rows give is refused by the attention, where the mask shows it.
  virtual void forward(Context& own, View<float> s, View<const float> q, View<const float> k) const = 0;

  /// Adds to dq [rows, E] and dk [keys, E] what ds [rows, keys] makes of them, with q and k as in `forward`
  /// and s what it gave. Where ds is 0 because of the mask, s is 0 too, whatever `forward` gave.
  virtual void backward(Context& own, View<float> dq, View<float> dk, View<const float> ds,
                        View<const float> s, View<const float> q, View<const float> k) const = 0;
};

/// What the built-in similarities are made with; each takes what is its own.
struct SimilarityParameters {
  double offset = 1;  ///< polynomial: c ≥ 0
  int power = 2;      ///< polynomial: p, even, from 2 to 64
  double sigma = 0;   ///< gaussian: σ; 0 means E^¼, with which 1 / σ² is softmax's scale 1/√E
};

/// (q·k/√E + c)^p. Throws UsageError unless c ≥ 0 is finite and p is even and from 2 to 64.
std::shared_ptr<const Similarity> polynomial_similarity(double offset = 1, int power = 2);

/// exp(−‖q − k‖² / (2 σ²)). The distance comes from ‖q‖² + ‖k‖² − 2 q·k, so that its relative error is about
/// 1e-7 · (‖q‖² + ‖k‖²) / σ². Throws UsageError unless σ ≥ 0 is finite.
std::shared_ptr<const Similarity> gaussian_similarity(double sigma = 0);

/// exp(q·k/√E), its argument limited to 80 so that it does not overflow; where nothing is limited the family
/// gives softmax, but for its ε. The f32 sum over the keys overflows with 6,000 of them at the limit.
std::shared_ptr<const Similarity> exponential_similarity();

/// A row of the table of similarities that `linnet families` prints.
struct SimilarityInfo {
  std::string name;
  std::string formula;
  std::string parameters;
};

/// All built-in similarities.
std::span<const SimilarityInfo> similarity_table();

/// The built-in similarity of that name. Throws UsageError, naming the nearest known one.
std::shared_ptr<const Similarity> find_similarity(const std::string& name,
                                                  const SimilarityParameters& parameters = {});

}  // namespace linnet
