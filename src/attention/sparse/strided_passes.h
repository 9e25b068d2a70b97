#pragma once

#include <span>

#include "attention/arguments.h"
#include "attention/sparse/strided_entry.h"

namespace linnet::sparse {

/// The factor of q·k and the entries of one call.
struct StridedCall {
  AttentionSizes sizes;
  float scale = 1;
  std::span<const StridedEntry> entries;
};

/// out [B, N, H, M] and the log-sum-exps [B, N, H] of the queries' scores. Working memory: some panels of
/// queries, a tile of keys and the rows of one remainder for each thread; of the strided pattern a float for
/// each query.
void strided_forward(Context& context, const StridedCall& call, View<float> out, View<float> log_sum);

/// What the gradients of one entry are added to: of its queries, of its key rows, and of its summaries [1, F,
/// H, D].
struct StridedSums {
  View<float> query, key, value, far_key, far_value;
};

/// Adds the gradients of out, which with its log-sum-exps is the forward pass's.
void strided_backward(Context& context, const StridedCall& call, std::span<const StridedSums> sums,
                      View<const float> grad_out, View<const float> out, View<const float> log_sum);

}  // namespace linnet::sparse
