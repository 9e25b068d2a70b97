#pragma once

#include <cstdint>

#include "linnet/attention.h"

namespace linnet {

/// Sizes that decide what one head of an attention costs.
struct CostSizes {
  std::int64_t length = 0;     ///< N, queries and keys
  std::int64_t head_dim = 0;   ///< E
  std::int64_t value_dim = 0;  ///< M
  std::int64_t rank = 0;       ///< k, of linformer
};

/// FLOPs of one head over one sequence, a multiplication and an addition counting as two; element work is not
/// counted.
struct AttentionCost {
  double forward = 0;
  double training = 0;  ///< forward and backward
};

/// Pairs of a query and a key that the family multiplies for one sequence: those that the mask shows and that
/// lie in the window (local) or the pattern (strided); of lsh those that meet in all rounds, with buckets
/// that are equally full: fewer cannot be. 0 for linear and linformer. The mask has no key lengths and is not
/// boolean.
double multiplied_pairs(const AttentionOptions& options, const Mask& mask, std::int64_t length);

/// What has to be multiplied, whatever the algorithm; the formulas of `family_table`, with `pairs` as
/// `multiplied_pairs` counts them.
AttentionCost least_cost(const AttentionOptions& options, const CostSizes& sizes, double pairs);

/// Keys that a step multiplies after `visible` tokens, its own included; of a mean position their mean.
double step_keys(const AttentionOptions& options, double visible);

// For the families: what most of them have in common.

/// Pairs that the mask shows of those at most `left` before and `right` behind the query.
double pairs_within(const Mask& mask, std::int64_t length, std::int64_t left, std::int64_t right);

/// The same of a family that multiplies all that the mask shows, and of one that multiplies none.
double all_pairs(const AttentionOptions& options, const Mask& mask, std::int64_t length);
double no_pairs(const AttentionOptions& options, const Mask& mask, std::int64_t length);

/// A family whose work is that of its pairs: 2 (E + M) forward and 8 E + 6 M in training for each.
AttentionCost cost_of_pairs(const AttentionOptions& options, const CostSizes& sizes, double pairs);

/// A step multiplies all visible keys.
double all_keys(const AttentionOptions& options, double visible);

}  // namespace linnet
