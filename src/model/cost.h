#pragma once

#include <cstddef>

#include "linnet/model.h"

namespace linnet {

class Network;

/// FLOPs of one token, a multiplication and an addition counting as two; element work is not counted.
struct TokenCost {
  double dense = 0;      ///< products with weights, forward
  double attention = 0;  ///< forward, by `least_cost`
  double forward() const { return dense + attention; }
};

/// Numbers of the weights of the dense products of all layers.
double layer_weights(const ModelConfig& config);

/// Weights of the products of the encoder's layers and of the cross attention of all layers; 0 without an
/// encoder.
double encoder_weights(const ModelConfig& config);

/// Cost of generating a token that sees `visible` tokens, itself included.
TokenCost generation_cost(const ModelConfig& config, double visible);

/// FLOPs of reading a prompt of `length` tokens, from which nothing is predicted yet: the decoder's layers
/// alone.
double prompt_flops(const ModelConfig& config, std::int64_t length);

/// Bytes of the weights that a step reads: all but the encoder's and the tables of the embedding, of each of
/// which a step reads one row. A table that is also the output head's counts.
std::size_t step_weight_bytes(const Network& network);

/// Bytes of the weights that a prompt reads: those of the decoder's layers, but for the keys and values of a
/// source.
std::size_t prompt_weight_bytes(const Network& network);

/// FLOPs a token of a training step over sequences of model.length: 3 × the dense products, and the
/// attention's forward and backward by `least_cost`.
double training_flops(const ModelConfig& config);

}  // namespace linnet
