#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "layers/parameters.h"
#include "linnet/communicator.h"
#include "linnet/context.h"
#include "linnet/tensor.h"
#include "training/pass_tree.h"

namespace linnet {

/// Adds the gradients of the passes of an update, which ranks share, in the order of PassTree: all ranks have
/// the same bits at the end, whatever their number. The buffer is exchanged in pieces ("buckets") while the
/// last pass of the rank computes its gradients. Every bucket has an owner, to which the others send their
/// partial sums. It adds them and sends the sum to all.
class GradientSum {
 public:
  /// `gradients` is a buffer of all parameters, which receives the sums and stays the caller's. Memory for
  /// partial sums is taken here: none for a single pass on one rank.
  GradientSum(Communicator& ranks, std::span<float> gradients, std::int64_t passes);

  /// Bytes of that memory, on the rank that takes most.
  static double bytes(double gradient_bytes, std::int64_t passes, int ranks);

  /// Passes of all ranks, and those of this one.
  std::int64_t passes() const { return passes_; }
  PassRange own() const { return own_; }

  /// Adds the gradients of one pass to the zeros in `buffer`, and tells `complete` how far it is if that is
  /// given.
  using Compute =
      std::function<void(std::int64_t pass, std::span<float> buffer, const GradientsComplete& complete)>;

  /// Calls `compute` for each of the rank's own passes. Afterwards the buffer of the constructor has the sum
  /// of all passes. Throws RankFailure where another rank has failed. With several ranks, this one has failed
  /// where `compute` throws.
  void run(Context& context, const Compute& compute);

 private:
  /// A node of the tree that some rank computes.
  struct Node {
    PassRange passes;
    int rank = 0;
    std::size_t place = 0;  ///< in the stack of its rank
  };
  /// Numbers of the buffer that have one owner.
  struct Bucket {
    explicit Bucket(std::int64_t passes) : tree(passes) {}

    std::int64_t first = 0, count = 0;
    int owner = 0, tag = 0;
    bool complete = false;            ///< whether this rank has computed its partial sums
    bool summed = false;              ///< whether the sum is under way: to others, or from its owner
    std::vector<Transfer> transfers;  ///< of partial sums: to the owner, or on the owner from each node
    std::vector<Transfer> sums;       ///< of sums: from the owner, or on the owner to each rank
    // Of the owner alone: the sum of each node, the tree that adds them, and the node that is added next.
    std::vector<float*> parts, stack;
    PassTree tree;
    std::size_t next = 0;
  };

  bool alone() const { return ranks_.size() == 1; }
  std::span<float> stacked(std::size_t place) {
    return place == 0 ? gradients_ : stack_[place - 1].span<float>();
  }
  std::span<std::byte> bytes_of(const Bucket& bucket, float* numbers) const;
  void make_buckets();
  void begin();
  void compute_all(Context& context, const Compute& compute);
  void add_last(Context& context, std::int64_t first, std::int64_t count);
  void complete_from(Context& context, std::int64_t offset);
  void send_parts(Bucket& bucket);
  void proceed(Context& context, Bucket& bucket, bool wait);
  void add_parts(Context& context, Bucket& bucket, bool wait);
  void finish(Context& context);

  Communicator& ranks_;
  std::span<float> gradients_;
  std::int64_t passes_;
  PassRange own_;
  std::vector<Node> nodes_;    ///< of all ranks, in the order of passes
  std::vector<Tensor> stack_;  ///< sums of this rank above its first one, which is in `gradients_`
  Tensor parts_;               ///< partial sums of other ranks for the buckets of this one
  PassTree tree_;
  int additions_ = 0;            ///< after the present pass
  std::size_t completed_ = 0;    ///< buckets
  std::vector<Bucket> buckets_;  ///< from the end of the buffer to its beginning; after all memory
};

}  // namespace linnet
