#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention_options.h"
#include "bench/masks.h"
#include "io/json.h"
#include "linnet/feature_map.h"
#include "linnet/tensor.h"

namespace linnet {

/// One row of `bench attention`: the parallel form, forward or training, or the recurrent form's step, which
/// knows streams instead of a batch of sequences.
struct AttentionRow {
  std::string family, feature_map, mask = "causal", pass;
  DType dtype = DType::f32;
  std::int64_t batch = 1, length = 1, heads = 1, head_dim = 1, value_dim = 1;
  std::int64_t streams = 0;
  double decay = 0;  ///< γ of every head; 0 for none
  BenchMaskSizes mask_sizes;
  FamilyOptions family_options;

  bool is_step() const { return pass == "step"; }
};

/// What is measured: of linear also with the feature map "user", elu written as a user would, with the
/// exported tile mathematics.
AttentionOptions attention_of(const AttentionRow& row);
std::shared_ptr<const FeatureMap> user_map();

/// Why the row cannot be measured, found out by a sequence of one token; empty where it can.
std::string refusal_of(const AttentionRow& row);

/// What grows with the length as the time does: pairs of quadratic and sparse families and under boolean
/// masks, otherwise queries.
double time_units(const AttentionRow& row);

/// Bytes of inputs, projections, outputs, gradients and states.
double tensor_bytes(const AttentionRow& row);

/// Measures a row for at least so many seconds.
Json measure_attention(Context& context, const AttentionRow& row, double seconds);

/// Draws time and peak memory of a sample against the length into an SVG file, and returns where one family
/// becomes the faster one, a sentence for each pass. Rows differ in family, length and pass alone.
std::vector<std::string> plot_scaling(const Json& rows, const std::string& path);

}  // namespace linnet
