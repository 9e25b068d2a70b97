#include "training/stretches.h"

#include "attention/family.h"
#include "base/fail.h"

namespace linnet {
namespace {

constexpr const char* operation = "training.sequence_ranks";

}  // namespace

void check_stretches(const ModelConfig& config, std::int64_t sequence_ranks) {
  if (sequence_ranks == 1) return;
  if (config.length % sequence_ranks != 0)
    fail<UsageError>(operation, "expected a number of ranks that divides model.length = {}, got {}",
                     config.length, sequence_ranks);
  if (config.classifies())
    fail<UsageError>(operation,
                     "expected a model that predicts at every step, got a classifier, whose labels depend on "
                     "the whole sequence");
  if (config.has_encoder())
    fail<UsageError>(operation, "expected a model without an encoder, got model.encoder_layers = {}",
                     config.encoder_layers);
  for (const Family family : layer_families(config.attention, config.layers))
    if (family != Family::linear)
      fail<UsageError>(operation,
                       "expected layers of the family linear, whose states pass from rank to rank, got {}",
                       name_of(family));
}

bool RankStretches::exclusive_scan(std::span<std::byte> bytes, const Combine& combine, bool backwards) {
  return ranks_.exclusive_scan(
      bytes, combine, backwards ? Communicator::Direction::backwards : Communicator::Direction::forwards);
}

}  // namespace linnet
