#pragma once

#include "layers/self_attention.h"
#include "linnet/communicator.h"

namespace linnet {

/// The ranks of a communicator, in their order, as the stretches of sequences.
class RankStretches final : public StretchExchange {
 public:
  /// The communicator must live as long.
  explicit RankStretches(Communicator& ranks) : ranks_(ranks) {}

  bool exclusive_scan(std::span<std::byte> bytes, const Combine& combine, bool backwards) override {
    return ranks_.exclusive_scan(
        bytes, combine, backwards ? Communicator::Direction::backwards : Communicator::Direction::forwards);
  }

 private:
  Communicator& ranks_;
};

}  // namespace linnet
