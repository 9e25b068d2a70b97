#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "linnet/model.h"

namespace linnet {

/// Writes the first values of a training that starts from `model`: its parameters where names and shapes are
/// those of the table, the random ones that the seed decides elsewhere. Of embeddings that differ in the rows
/// of other inputs alone (the first input, labels, the mask) those of the tokens are taken. Returns a phrase
/// for every trained parameter that the two do not share; the draws of random feature maps need not be
/// shared.
std::vector<std::string> start_from(std::span<float> values, const ParameterTable& table,
                                    const ModelConfig& config, const Model& model, std::uint64_t seed);

}  // namespace linnet
