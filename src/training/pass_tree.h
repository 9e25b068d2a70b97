#pragma once

#include <cstdint>
#include <vector>

namespace linnet {

/// Consecutive passes [first, last) of an update.
struct PassRange {
  std::int64_t first = 0, last = 0;

  std::int64_t count() const { return last - first; }
  bool operator==(const PassRange&) const = default;
};

/// The passes of a rank where `ranks` share `passes`, as evenly as possible; at least one each where there
/// are as many.
PassRange passes_of(std::int64_t passes, int rank, int ranks);

/// The order in which the gradients of the passes of an update are added: a balanced binary tree over their
/// indices. The node of level l and index i is the sum of the passes [i 2^l, (i + 1) 2^l), as far as there
/// are so many, and adds its two halves. So the sum does not depend on who computes which passes. Whoever has
/// nodes of consecutive passes, given one after another, keeps a stack of sums: after each node the last two
/// are added as often as they are the halves of one node.
class PassTree {
 public:
  explicit PassTree(std::int64_t passes) : passes_(passes) {}

  /// A further node, which lies behind those of the stack. Returns how often the last two sums of the stack
  /// are added then, each time into the place of the first of them.
  int push(PassRange node);

  /// Nodes whose sums are on the stack.
  const std::vector<PassRange>& stack() const { return stack_; }

  void clear() { stack_.clear(); }

 private:
  bool last_two_are_halves() const;

  std::int64_t passes_;
  std::vector<PassRange> stack_;
};

/// The nodes that are left of a range of passes, in their order, and the most sums on the stack on the way.
struct PartialSums {
  std::vector<PassRange> nodes;
  std::int64_t most = 0;
};
PartialSums partial_sums(PassRange range, std::int64_t passes);

}  // namespace linnet
