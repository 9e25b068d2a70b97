#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "linnet/communicator.h"

namespace linnet {

/// What an evaluation adds up over batches. In a round every rank computes one batch at most, the batches in
/// the order of ranks. The sums of the batches are added one after another in the order of batches on every
/// rank, so that they have the same bits with any number of ranks.
class Tally {
 public:
  explicit Tally(Communicator& ranks) : ranks_(ranks) {}

  /// Places for so many more numbers; the first of them. All ranks ask for the same before the first round.
  std::size_t add_sums(std::size_t count);
  std::size_t add_counts(std::size_t count);

  /// Adds to a sum of this rank's batch, and to a count of what this rank has seen.
  void add(std::size_t place, double number) { batch_[place] += number; }
  void count(std::size_t place, std::int64_t number = 1) { counts_[place] += number; }

  /// Ends a round of so many batches, of ranks 0, 1, …; `after(i)` is called when the sums have those of its
  /// batches 0 … i.
  void end_round(std::int64_t batches, const std::function<void(std::int64_t)>& after);
  /// Ends the last round: counts are those of all ranks from now on.
  void end();

  double sum(std::size_t place) const { return sums_[place]; }
  std::int64_t counted(std::size_t place) const { return counts_[place]; }

 private:
  Communicator& ranks_;
  std::vector<double> batch_, sums_, all_;  // all_: of the batches of a round
  std::vector<std::int64_t> counts_;
};

}  // namespace linnet
