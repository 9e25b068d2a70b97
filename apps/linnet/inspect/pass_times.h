#pragma once

#include <string>

#include "linnet/context.h"
#include "linnet/run_config.h"
#include "training/cluster_cost.h"

namespace linnet {

/// What one rank takes for a pass of this configuration, and where the numbers come from.
struct RankTimes {
  PassTimes pass;
  std::string source;         ///< "measured", "estimated" or "given"
  std::int64_t examples = 0;  ///< of a measured pass
};

/// From a rate in tokens per second that the user has measured.
RankTimes times_of_rate(const RunConfig& config, double tokens_per_second);

/// From training passes of this model on this machine. Where a pass would take long, it is of fewer examples,
/// whose rate is lower. Models whose pass cannot be measured in a few seconds or in this memory are estimated
/// from the dense ceiling.
RankTimes times_of_machine(Context& context, const RunConfig& config);

}  // namespace linnet
