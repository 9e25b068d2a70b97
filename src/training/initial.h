#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "linnet/model.h"
#include "model/network.h"

namespace linnet {

/// Writes the first values of a training that starts from `model`: its parameters where names and shapes are
/// those of the network, the random ones that the seed decides elsewhere. Of embeddings that differ in the
/// rows of other inputs alone (the first input, labels, the mask) those of the tokens are taken. Returns a
/// phrase for every trained parameter that the two do not share; the draws of random feature maps need not be
/// shared, nor the scale of real numbers, of which either all statistics are taken or none.
std::vector<std::string> start_from(std::span<float> values, const Network& network,
                                    const ModelConfig& config, const Model& model, std::uint64_t seed);

}  // namespace linnet
