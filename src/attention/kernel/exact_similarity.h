#pragma once

#include <cstdint>

#include "linnet/similarity.h"

namespace linnet {

/// A built-in similarity, which knows itself in double precision: for the reference.
class ExactSimilarity : public Similarity {
 public:
  /// sim(q, k) of two rows of `dim` numbers.
  virtual double exact(const double* q, const double* k, std::int64_t dim) const = 0;

  /// Adds ds times the gradient of sim(q, k) to dq and dk.
  virtual void add_exact_gradient(double* dq, double* dk, double ds, const double* q, const double* k,
                                  std::int64_t dim) const = 0;
};

/// The same for any similarity; one of a user's own is asked in f32, pair by pair.
double reference_similarity(const Similarity& similarity, const double* q, const double* k, std::int64_t dim);
void add_reference_gradient(const Similarity& similarity, double* dq, double* dk, double ds, const double* q,
                            const double* k, std::int64_t dim);

}  // namespace linnet
