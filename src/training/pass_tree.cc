#include "training/pass_tree.h"

#include <algorithm>
#include <bit>

namespace linnet {

PassRange passes_of(std::int64_t passes, int rank, int ranks) {
  return {passes * rank / ranks, passes * (rank + 1) / ranks};
}

bool PassTree::last_two_are_halves() const {
  if (stack_.size() < 2) return false;
  const PassRange left = stack_[stack_.size() - 2], right = stack_.back();
  const std::int64_t size = left.count();
  return std::has_single_bit(static_cast<std::uint64_t>(size)) && left.first % (2 * size) == 0 &&
         right.last == std::min(left.last + size, passes_);
}

int PassTree::push(PassRange node) {
  stack_.push_back(node);
  int additions = 0;
  for (; last_two_are_halves(); ++additions) {
    const std::int64_t last = stack_.back().last;
    stack_.pop_back();
    stack_.back().last = last;
  }
  return additions;
}

PartialSums partial_sums(PassRange range, std::int64_t passes) {
  PassTree tree(passes);
  PartialSums result;
  for (std::int64_t pass = range.first; pass < range.last; ++pass) {
    result.most = std::max<std::int64_t>(result.most, std::ssize(tree.stack()) + 1);
    tree.push({pass, pass + 1});
  }
  result.nodes = tree.stack();
  return result;
}

}  // namespace linnet
