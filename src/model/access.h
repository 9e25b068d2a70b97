#pragma once

#include <memory>

#include "linnet/model.h"
#include "model/network.h"

namespace linnet {

// What other modules of the library see of a model.

/// A model of these parameters, in the order of the network's table. They are rounded to the type of the
/// weights.
std::shared_ptr<const Model> make_model(const ModelConfig& config, Tensor values,
                                        std::shared_ptr<const FeatureMap> feature_map = nullptr,
                                        ModelAssets assets = {});

/// The layers.
const Network& network_of(const Model& model);

/// A copy of all parameters in the order of the table, as they are used.
Tensor values_of(const Model& model);

}  // namespace linnet
