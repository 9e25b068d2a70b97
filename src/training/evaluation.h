#pragma once

#include <functional>
#include <optional>

#include "linnet/training.h"
#include "model/network.h"

namespace linnet {

/// `evaluate` of linnet/training.h for a network whose parameters are still being trained. `ranks` share the
/// batches, and all have the same result, which does not depend on their number. `should_stop`, which
/// answers all ranks alike, is asked before every batch: where it is true, the evaluation ends without a
/// result.
std::optional<Evaluation> evaluate(Context& context, const Network& network, const Dataset& dataset,
                                   std::int64_t examples, std::int64_t batch, bool accuracy,
                                   const TokenLossCallback& on_token = {}, Communicator* ranks = nullptr,
                                   const std::function<bool()>& should_stop = {});

}  // namespace linnet
