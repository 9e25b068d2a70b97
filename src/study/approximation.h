#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linnet/feature_map.h"

// How well softmax attention is approximated: by random features, and by matrices of low rank. Double
// precision and quadratic; for measuring, on a few hundred tokens. All throw Error for a head with numbers
// that are not finite.

namespace linnet {

/// One head of one sequence: q, k [length, head_dim], v [length, value_dim].
struct HeadRows {
  std::int64_t length = 0, head_dim = 0, value_dim = 0;
  bool causal = false;
  std::vector<double> q = {}, k = {}, v = {};
};

/// Of an estimate over several draws, each relative to the norm of what is estimated (Frobenius):
/// error² = bias² + deviation², up to the number of draws.
struct EstimateError {
  double error = 0;      ///< root of the mean squared error
  double bias = 0;       ///< of the mean, without what a mean of so many draws deviates by itself; at least 0
  double deviation = 0;  ///< root of the variance
};

struct RandomFeatureError {
  EstimateError weights;    ///< φ(q)·φ(k) against exp(q·k/√E)
  EstimateError attention;  ///< the same divided by the sums of its rows: against softmax
  EstimateError output;     ///< attention times v
  double predicted = 0;     ///< error of the weights by the closed form, independent directions
  double non_positive = 0;  ///< share of the rows whose sum is not above 0; their output is 0
};

/// Measured over `draws` draws, from options.draw on. Throws UsageError for a map that does not approximate
/// softmax, or fewer than 2 draws, Error for values that are all 0, and where the features of all draws do
/// not fit into memory.
RandomFeatureError random_feature_error(Context& context, const HeadRows& head, const std::string& map,
                                        const RandomFeatureOptions& options, std::int64_t draws);

/// Whether φ(q)·φ(k) of the random map estimates exp(q·k/√E).
bool estimates_softmax(const std::string& map);

/// log of the mean squared error of φ(x)·φ(y) for independent directions, with x and y as a map takes them
/// (before the factor E^-1/4): lemma 2 of Choromanski et al. 2021, and for favor-trig the same with the
/// variance of its phases.
double log_mean_squared_error(const std::string& map, std::int64_t features, const double* x, const double* y,
                              std::int64_t head_dim);

/// What the norms of queries and keys make of the weights exp(q·k/√E).
struct HeadNorms {
  double query = 0, key = 0;  ///< mean ‖q‖ and ‖k‖
  double largest_logit = 0;   ///< largest q·k/√E that is seen
  double effective_keys = 0;  ///< mean of exp(entropy) of the rows of softmax
};
HeadNorms head_norms(Context& context, const HeadRows& head);

/// The attention matrix softmax(q·k/√E) [length, length], rows of queries.
std::vector<double> attention_matrix(Context& context, const HeadRows& head);

/// Singular values of a square matrix [size, size], the largest first: one-sided Jacobi rotations (Hestenes
/// 1958).
std::vector<double> singular_values(std::vector<double> matrix, std::int64_t size);

/// √(Σ_{i>rank} σ_i²) / √(Σ σ_i²): the least error of a matrix of that rank (Eckart and Young 1936).
double rank_error(const std::vector<double>& singular_values, std::int64_t rank);

}  // namespace linnet
