#pragma once

#include "layers/self_attention.h"
#include "linnet/communicator.h"
#include "linnet/model.h"

namespace linnet {

/// Throws UsageError where the sequences of a model cannot be divided among so many processes: their number
/// does not divide the length, a layer has no state of the linear family, or something needs whole sequences.
void check_stretches(const ModelConfig& config, std::int64_t sequence_ranks);

/// The ranks of a communicator, in their order, as the stretches of sequences.
class RankStretches final : public StretchExchange {
 public:
  /// The communicator must live as long.
  explicit RankStretches(Communicator& ranks) : ranks_(ranks) {}

  bool exclusive_scan(std::span<std::byte> bytes, const Combine& combine, bool backwards) override;

 private:
  Communicator& ranks_;
};

}  // namespace linnet
