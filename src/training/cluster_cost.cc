#include "training/cluster_cost.h"

#include <algorithm>
#include <bit>

#include "base/fail.h"
#include "model/config.h"
#include "model/network.h"
#include "training/gradient_sum.h"
#include "training/run_config.h"
#include "training/stretches.h"

namespace linnet {
namespace {

constexpr const char* operation = "clusters";

/// ⌈log2 n⌉: the rounds in which n ranks hear of each other if everybody sends one message a round.
double rounds(std::int64_t n) { return std::bit_width(static_cast<std::uint64_t>(n - 1)); }

/// Of the rank that sends most of them.
double most_partial_sums(std::int64_t passes, int ranks) {
  std::size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    most = std::max(most, partial_sums(passes_of(passes, rank, ranks), passes).nodes.size());
  return static_cast<double>(most);
}

}  // namespace

ExchangeSizes exchange_sizes(const RunConfig& config, std::int64_t sequence_ranks) {
  const ModelConfig& model = config.model;
  ExchangeSizes sizes;
  sizes.gradient = sizeof(float) * static_cast<double>(Network(model).table().parameter_count());
  if (sequence_ranks == 1) return sizes;
  check_stretches(model, sequence_ranks);
  const std::int64_t dim = model.width / model.heads;
  const auto state =
      make_attention(attention_of(model, Family::linear))->make_state(1, {model.heads, dim, dim});
  const double states = static_cast<double>(model.layers) * static_cast<double>(config.training.batch);
  sizes.states = sizeof(float) * states * static_cast<double>(state->saved_floats(model.length));
  sizes.state_gradients = sizeof(float) * states * static_cast<double>(state->gradient_floats(0));
  return sizes;
}

ClusterCost cluster_cost(const RunConfig& config, const ExchangeSizes& sizes, const PassTimes& times,
                         const Cluster& cluster) {
  const std::int64_t ranks = cluster.ranks, stretches = cluster.sequence_ranks;
  if (ranks % stretches != 0)
    fail<UsageError>(operation, "expected sequence ranks that divide the {} ranks, got {}", ranks, stretches);
  check_stretches(config.model, stretches);

  const std::int64_t groups = ranks / stretches, configured = config.training.accumulate;
  ClusterCost cost;
  cost.passes = std::max(configured, groups);
  cost.passes_per_rank = (cost.passes + groups - 1) / groups;
  const double tokens_per_pass =
      static_cast<double>(config.training.batch) * static_cast<double>(config.model.length);
  cost.tokens = static_cast<double>(cost.passes) * tokens_per_pass;
  const double parts = static_cast<double>(stretches), passes = static_cast<double>(cost.passes_per_rank);
  cost.work = PassTimes{times.forward / parts, times.backward / parts, times.update}.of(passes);

  // The states of all layers are scanned one after another, forwards and backwards, and layers wait for them.
  const double scans = rounds(stretches) * passes;
  const double scanned = scans * (sizes.states + sizes.state_gradients);
  const double messages = 2 * scans * static_cast<double>(config.model.layers);
  // Partial sums to the owners of the ranges, and sums from them: of the groups first, during the backward
  // pass, then of the stretches.
  const auto share = [](std::int64_t of) { return static_cast<double>(of - 1) / static_cast<double>(of); };
  const double summed =
      (most_partial_sums(cost.passes, static_cast<int>(groups)) + 1) * sizes.gradient * share(groups);
  const double of_stretches = 2 * sizes.gradient * share(stretches);
  cost.bytes_sent = scanned + summed + of_stretches;
  cost.exchange = (messages + 2 * rounds(groups) + 2 * rounds(stretches)) * cluster.latency +
                  cost.bytes_sent / cluster.bandwidth;
  cost.hidden = std::min(summed / cluster.bandwidth, times.backward / parts);

  RunConfig divided = config;
  divided.training.accumulate = cost.passes;
  divided.training.sequence_ranks = stretches;
  cost.memory = memory_needs(divided, true, ranks).total() + (sizes.states + sizes.state_gradients);

  const double alone =
      static_cast<double>(configured) * tokens_per_pass / times.of(static_cast<double>(configured));
  cost.efficiency = cost.tokens_per_second() / (static_cast<double>(ranks) * alone);
  return cost;
}

}  // namespace linnet
