#pragma once

#include <cstdint>

#include "linnet/run_config.h"

namespace linnet {

// What training on several machines would take: a calculation, from the time that one process takes by itself
// and the speed of the network. docs/clusters.md explains it. A rank is a process; R ranks form R/Q groups of
// Q = `sequence_ranks` each. A group computes whole passes, and its ranks divide the sequences among them.

/// Seconds that one rank takes for a pass by itself, training.batch examples of model.length tokens.
struct PassTimes {
  double forward = 0;
  double backward = 0;
  double update = 0;  ///< norm, optimiser and packing of weights, once an update and on every rank

  /// Of an update of that many passes.
  double of(double passes) const { return passes * (forward + backward) + update; }
};

struct Cluster {
  std::int64_t ranks = 1;
  std::int64_t sequence_ranks = 1;
  double bandwidth = 0;  ///< bytes per second that a rank sends, while it receives as many
  double latency = 0;    ///< seconds of a message without its bytes
};

/// Of an update, for the rank that has most to do.
struct ClusterCost {
  std::int64_t passes = 0;           ///< of all ranks together; at least one for every group
  std::int64_t passes_per_rank = 0;  ///< of the group that has most of them
  double tokens = 0;                 ///< of all ranks together
  double bytes_sent = 0;             ///< as many are received
  double work = 0;                   ///< seconds without exchange
  double exchange = 0;               ///< seconds in which something is sent
  double hidden = 0;                 ///< of them, those behind the backward pass of the last pass
  double memory = 0;                 ///< bytes of a rank at the least, buffers of the exchange included
  double efficiency = 0;  ///< `tokens_per_second` over R times that of one rank with this configuration

  double seconds() const { return work + exchange - hidden; }
  double tokens_per_second() const { return tokens / seconds(); }
};

/// Sizes of what is exchanged.
struct ExchangeSizes {
  double gradient = 0;         ///< bytes of the gradient of all parameters, f32
  double states = 0;           ///< bytes of the states of all layers after a stretch of a batch
  double state_gradients = 0;  ///< bytes of their gradients
};

/// Throws UsageError, with sequence_ranks above 1, for layers whose state grows or that have none. The
/// configuration is fitted to its data.
ExchangeSizes exchange_sizes(const RunConfig& config, std::int64_t sequence_ranks);

/// Throws UsageError where the sequence ranks divide the ranks or the length with a remainder, or where the
/// exchange is not possible as above.
ClusterCost cluster_cost(const RunConfig& config, const ExchangeSizes& sizes, const PassTimes& times,
                         const Cluster& cluster);

}  // namespace linnet
