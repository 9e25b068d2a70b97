#include "training/gradient_sum.h"

#include <algorithm>
#include <exception>

#include "kernels/elementwise.h"

namespace linnet {
namespace {

/// Numbers of a bucket: small enough that many are under way during a backward pass and that every rank owns
/// some, large enough that latency does not count. Whole lines of the cache.
std::int64_t bucket_floats(std::int64_t all, int ranks) {
  constexpr std::int64_t most = std::int64_t{1} << 20, least = std::int64_t{1} << 12, line = 16;
  const std::int64_t shares = 4 * ranks;
  return std::clamp((all / shares + line) / line * line, least, most);
}

View<float> numbers(float* first, std::int64_t count) { return {first, {count}}; }

}  // namespace

GradientSum::GradientSum(Communicator& ranks, std::span<float> gradients, std::int64_t passes)
    : ranks_(ranks),
      gradients_(gradients),
      passes_(passes),
      own_(passes_of(passes, ranks.rank(), ranks.size())),
      tree_(passes) {
  const PartialSums own = partial_sums(own_, passes);
  for (std::int64_t i = 1; i < own.most; ++i)
    stack_.push_back(Tensor::of<float>({static_cast<std::int64_t>(gradients.size())}));
  if (alone()) return;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::size_t place = 0;
    for (const PassRange& node : partial_sums(passes_of(passes, rank, ranks.size()), passes).nodes)
      nodes_.push_back({node, rank, place++});
  }
  make_buckets();
}

double GradientSum::bytes(double gradient_bytes, std::int64_t passes, int ranks) {
  double all = 0, most = 0;
  std::vector<PartialSums> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    sums.push_back(partial_sums(passes_of(passes, rank, ranks), passes));
    all += static_cast<double>(sums.back().nodes.size());
  }
  for (const PartialSums& own : sums) {
    const double others = (all - static_cast<double>(own.nodes.size())) / ranks;
    most = std::max(most, static_cast<double>(own.most - 1) + (ranks > 1 ? others : 0));
  }
  return most * gradient_bytes;
}

void GradientSum::make_buckets() {
  const std::int64_t all = std::ssize(gradients_), each = bucket_floats(all, ranks_.size());
  std::int64_t owned = 0;
  int index = 0;
  for (std::int64_t last = all; last > 0; ++index) {
    Bucket bucket(passes_);
    bucket.first = std::max<std::int64_t>(0, last - each);
    bucket.count = last - bucket.first;
    bucket.owner = index % ranks_.size();
    bucket.tag = index % (Communicator::most_tag + 1);
    if (bucket.owner == ranks_.rank()) owned += bucket.count;
    last = bucket.first;
    buckets_.push_back(std::move(bucket));
  }

  const std::int64_t others =
      std::ranges::count_if(nodes_, [&](const Node& node) { return node.rank != ranks_.rank(); });
  parts_ = Tensor::of<float>({owned * others});
  float* free = parts_.span<float>().data();
  for (Bucket& bucket : buckets_) {
    if (bucket.owner != ranks_.rank()) {
      bucket.transfers.resize(nodes_.size() - static_cast<std::size_t>(others));
      bucket.sums.resize(1);
      continue;
    }
    bucket.transfers.resize(nodes_.size());
    bucket.sums.resize(static_cast<std::size_t>(ranks_.size()));
    bucket.stack.reserve(nodes_.size());
    for (const Node& node : nodes_) {
      const bool own = node.rank == ranks_.rank();
      bucket.parts.push_back(own ? stacked(node.place).data() + bucket.first : free);
      if (!own) free += bucket.count;
    }
  }
}

std::span<std::byte> GradientSum::bytes_of(const Bucket& bucket, float* numbers) const {
  return std::as_writable_bytes(std::span(numbers, static_cast<std::size_t>(bucket.count)));
}

void GradientSum::run(Context& context, const Compute& compute) {
  if (alone()) return compute_all(context, compute);
  try {
    begin();
    compute_all(context, compute);
    finish(context);
  } catch (const std::exception& error) {
    ranks_.fail(error.what());  // before transfers under way are destroyed, which would wait for others
    throw;
  }
}

/// Owners wait for partial sums from now on, so that these arrive where they belong.
void GradientSum::begin() {
  completed_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.complete = bucket.summed = false;
    bucket.next = 0;
    bucket.tree.clear();
    bucket.stack.clear();
    for (std::size_t i = 0; i < bucket.parts.size(); ++i)
      if (nodes_[i].rank != ranks_.rank())
        bucket.transfers[i] = ranks_.receive(bytes_of(bucket, bucket.parts[i]), nodes_[i].rank, bucket.tag);
  }
}

void GradientSum::compute_all(Context& context, const Compute& compute) {
  tree_.clear();
  for (std::int64_t pass = own_.first; pass < own_.last; ++pass) {
    const std::span<float> buffer = stacked(tree_.stack().size());
    kernels::set_zero(context, buffer);
    additions_ = tree_.push({pass, pass + 1});
    if (alone() || pass + 1 < own_.last) {
      compute(pass, buffer, {});
      add_last(context, 0, std::ssize(gradients_));
    } else {
      compute(pass, buffer, [this, &context](std::int64_t offset) { complete_from(context, offset); });
      complete_from(context, 0);
    }
  }
}

/// The additions on the stack after the present pass, for a part of the numbers.
void GradientSum::add_last(Context& context, std::int64_t first, std::int64_t count) {
  const std::size_t left = tree_.stack().size() - 1;
  for (std::size_t i = static_cast<std::size_t>(additions_); i-- > 0;) {
    const View<float> sum = numbers(stacked(left + i).data() + first, count);
    kernels::add(context, sum, sum, numbers(stacked(left + i + 1).data() + first, count));
  }
}

/// The present pass is the rank's last one, and has computed all gradients from `offset` on.
void GradientSum::complete_from(Context& context, std::int64_t offset) {
  for (; completed_ < buckets_.size() && buckets_[completed_].first >= offset; ++completed_) {
    Bucket& bucket = buckets_[completed_];
    add_last(context, bucket.first, bucket.count);
    bucket.complete = true;
    if (bucket.owner != ranks_.rank()) send_parts(bucket);
  }
  for (Bucket& bucket : buckets_) proceed(context, bucket, false);
}

void GradientSum::send_parts(Bucket& bucket) {
  for (std::size_t place = 0; place < bucket.transfers.size(); ++place)
    bucket.transfers[place] =
        ranks_.send(bytes_of(bucket, stacked(place).data() + bucket.first), bucket.owner, bucket.tag);
}

/// What can be done for a bucket now; with `wait`, all that leads to its sum.
void GradientSum::proceed(Context& context, Bucket& bucket, bool wait) {
  if (bucket.summed) return;
  if (bucket.owner == ranks_.rank()) return add_parts(context, bucket, wait);
  // The sum takes the place of a partial sum that has to be sent before.
  const auto sent = [](const Transfer& transfer) { return transfer.done(); };
  if (!bucket.complete || (!wait && !std::ranges::all_of(bucket.transfers, sent))) return;
  for (Transfer& transfer : bucket.transfers) transfer.wait();
  bucket.sums[0] =
      ranks_.receive(bytes_of(bucket, gradients_.data() + bucket.first), bucket.owner, bucket.tag);
  bucket.summed = true;
}

/// In the order of nodes, as far as they have arrived.
void GradientSum::add_parts(Context& context, Bucket& bucket, bool wait) {
  float* const result = gradients_.data() + bucket.first;
  for (; bucket.next < nodes_.size(); ++bucket.next) {
    const Node& node = nodes_[bucket.next];
    Transfer& transfer = bucket.transfers[bucket.next];
    if (node.rank == ranks_.rank() ? !bucket.complete : !wait && !transfer.done()) return;
    transfer.wait();
    bucket.stack.push_back(bucket.parts[bucket.next]);
    for (int additions = bucket.tree.push(node.passes); additions > 0; --additions) {
      float* const right = bucket.stack.back();
      bucket.stack.pop_back();
      float*& left = bucket.stack.back();
      const bool last = bucket.next + 1 == nodes_.size() && additions == 1;
      float* const sum = last ? result : left;
      kernels::add(context, numbers(sum, bucket.count), numbers(left, bucket.count),
                   numbers(right, bucket.count));
      left = sum;
    }
  }
  for (int other = 0; other < ranks_.size(); ++other)
    if (other != ranks_.rank())
      bucket.sums[static_cast<std::size_t>(other)] = ranks_.send(bytes_of(bucket, result), other, bucket.tag);
  bucket.summed = true;
}

void GradientSum::finish(Context& context) {
  for (Bucket& bucket : buckets_) proceed(context, bucket, true);
  for (Bucket& bucket : buckets_)
    for (Transfer& transfer : bucket.sums) transfer.wait();
}

}  // namespace linnet
