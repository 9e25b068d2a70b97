#pragma once

#include "linnet/model.h"

namespace linnet {

/// FLOPs of one token, a multiplication and an addition counting as two; element work is not counted.
struct TokenCost {
  double dense = 0;  ///< products with weights, forward
  double attention =
      0;  ///< forward, with `visible` keys for softmax; 4FM a head for linear whatever the position
  double forward() const { return dense + attention; }
};

/// Cost of generating a token that sees `visible` tokens, itself included.
TokenCost generation_cost(const ModelConfig& config, double visible);

/// FLOPs a token of a training step over sequences of model.length: 3 × the dense products, and the
/// attention's forward and backward (linear 14FM a head; softmax 8E + 6M a head and visible key; linformer
/// that for its k compressed keys and 6k(E + M) a head for the products with its projections).
double training_flops(const ModelConfig& config);

}  // namespace linnet
