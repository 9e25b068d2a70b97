#include "attention/sparse/strided_passes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/rounds.h"
#include "attention/softmax/tiles.h"
#include "attention/softmax/weights.h"
#include "attention/tiles/merge.h"
#include "attention/tiles/scattered.h"
#include "attention/tiles/wide.h"
#include "base/workspace.h"

namespace linnet::sparse {
namespace {

using softmax::BackwardBlock;
using softmax::ForwardBlock;
using softmax::KeyRange;
using Intervals = std::array<Mask::Interval, softmax::kMaxQueries>;

/// Fills `intervals` with seen(i) for `count` queries; the result refers to them.
template <class Seen>
Visible visible_of(Intervals& intervals, std::int64_t count, const Seen& seen) {
  for (std::int64_t i = 0; i < count; ++i) intervals[static_cast<std::size_t>(i)] = seen(i);
  Visible visible;
  visible.interval = intervals.data();
  return visible;
}

KeyRange keys_of(View<const float> key, View<const float> value, std::int64_t h, std::int64_t first,
                 std::int64_t count) {
  return {rows_of(ConstFloatView(key), 0, h).from(first), rows_of(ConstFloatView(value), 0, h).from(first),
          first, count};
}

/// The queries of an entry with one remainder of the stride that see far keys, and these keys. The first
/// remainders are those of the first such queries.
struct Remainder {
  Remainder(const StridedEntry& entry, std::int64_t index)
      : stride(entry.pattern.stride),
        first_query(entry.first_far_query() + index),
        queries(first_query < entry.queries() ? (entry.queries() - first_query + stride - 1) / stride : 0),
        first_key((entry.position + first_query) % stride),
        keys(queries > 0 ? entry.far(query(queries - 1)).end : 0) {}

  std::int64_t query(std::int64_t i) const { return first_query + i * stride; }
  std::int64_t key(std::int64_t j) const { return first_key + j * stride; }

  std::int64_t stride, first_query, queries, first_key, keys;
};

/// Calls body(own, b, remainder, h) for those of the strided pattern that have far keys; the remainders of
/// one entry share neither queries nor keys.
template <class Body>
void for_each_remainder(Context& context, const StridedCall& call, const Body& body) {
  if (call.entries.empty() || call.entries[0].pattern.fixed()) return;
  const std::int64_t heads = call.sizes.heads;
  const std::int64_t remainders = std::min(call.entries[0].pattern.stride, call.sizes.keys);
  parallel_for(context, call.sizes.batch * remainders * heads, [&](Context& own, std::int64_t item) {
    // The heads of a token are neighbours in memory.
    const std::int64_t b = item / heads / remainders, h = item % heads;
    const StridedEntry& entry = call.entries[static_cast<std::size_t>(b)];
    const Remainder part(entry, item / heads % remainders);
    if (part.keys > 0) body(own, b, part, h);
  });
}

ForwardBlock forward_of(const StridedCall& call) {
  ForwardBlock block;
  block.head_dim = call.sizes.head_dim;
  block.value_dim = call.sizes.value_dim;
  block.scale = call.scale;
  return block;
}

/// The near keys, and the far ones of the fixed pattern with them: `log_sum` receives the log-sum-exps, or
/// with `sum` [B, N, H] the maxima.
void attend_near(Context& context, const StridedCall& call, View<float> out, View<float> log_sum,
                 View<float> sum) {
  const std::int64_t batch = call.sizes.batch, heads = call.sizes.heads, queries = call.sizes.queries;
  const std::int64_t size =
      softmax::queries_in_task(call.sizes.head_dim, call.sizes.value_dim, batch * heads, queries);
  const std::int64_t blocks = (queries + size - 1) / size;
  parallel_for(context, batch * heads * blocks, [&](Context& own, std::int64_t item) {
    const std::int64_t b = item / blocks / heads, h = item / blocks % heads, first = item % blocks * size;
    const StridedEntry& entry = call.entries[static_cast<std::size_t>(b)];
    ForwardBlock block = forward_of(call);
    block.count = std::min(size, queries - first);
    block.query = rows_of(ConstFloatView(entry.query), 0, h).from(first);
    Intervals near, far;
    block.fresh = keys_of(entry.key, entry.value, h, 0, entry.keys());
    block.sees_fresh = visible_of(near, block.count, [&](std::int64_t i) { return entry.near(first + i); });
    if (entry.pattern.fixed()) {
      block.cached = keys_of(entry.far_key, entry.far_value, h, 0, entry.far_key.extent(1));
      block.sees_cached = visible_of(far, block.count, [&](std::int64_t i) { return entry.far(first + i); });
    }
    block.out = rows_of(FloatView(out), b, h).from(first);
    block.normaliser = log_sum.at(b, first, h);
    block.normaliser_stride = log_sum.stride(1);
    if (sum.rank() != 0) {
      block.sum = sum.at(b, first, h);
      block.sum_stride = sum.stride(1);
    }
    softmax::forward_block(own, block);
  });
}

/// The far keys of the strided pattern, whose outputs, maxima and sums are merged with those of the near
/// ones.
void attend_far(Context& context, const StridedCall& call, View<float> out, View<float> maximum,
                View<float> sum) {
  const std::int64_t head_dim = call.sizes.head_dim, value_dim = call.sizes.value_dim;
  const std::int64_t size = softmax::queries_in_block(head_dim, value_dim);
  for_each_remainder(context, call, [&](Context& own, std::int64_t b, const Remainder& part, std::int64_t h) {
    const StridedEntry& entry = call.entries[static_cast<std::size_t>(b)];
    const auto query = [&](std::int64_t i) { return part.query(i); };
    const auto key = [&](std::int64_t j) { return part.key(j); };
    Workspace workspace(own);
    const float* q = gather(workspace, part.queries, query, entry.query, 0, h);
    const float* k = gather(workspace, part.keys, key, entry.key, 0, h);
    const float* v = gather(workspace, part.keys, key, entry.value, 0, h);
    float* rows = workspace.take(static_cast<std::size_t>(part.queries * value_dim));
    float* maxima = workspace.take(static_cast<std::size_t>(part.queries));
    float* sums = workspace.take(static_cast<std::size_t>(part.queries));
    for (std::int64_t first = 0; first < part.queries; first += size) {
      ForwardBlock block = forward_of(call);
      block.count = std::min(size, part.queries - first);
      block.query = dense_rows(q, head_dim).from(first);
      Intervals seen;
      block.fresh = {dense_rows(k, head_dim), dense_rows(v, value_dim), 0, part.keys};
      block.sees_fresh =
          visible_of(seen, block.count, [&](std::int64_t i) { return entry.far(part.query(first + i)); });
      block.out = dense_rows(rows, value_dim).from(first);
      block.normaliser = maxima + first;
      block.sum = sums + first;
      block.normaliser_stride = block.sum_stride = 1;
      softmax::forward_block(own, block);
    }
    for (std::int64_t i = 0; i < part.queries; ++i) {
      fetch_ahead(i, part.queries, query, out, b, h);
      merge(out.at(b, part.query(i), h), maximum(b, part.query(i), h), sum(b, part.query(i), h),
            rows + i * value_dim, maxima[i], sums[i], value_dim);
    }
  });
}

/// One backward pass. With the output and the log-sum-exp over all keys, that of softmax over some keys gives
/// what they contribute.
class Backward {
 public:
  Backward(const StridedCall& call, View<const float> grad_out, View<const float> out,
           View<const float> log_sum)
      : call_(call),
        grad_out_(grad_out),
        out_(out),
        log_sum_(log_sum),
        chunk_(softmax::backward_queries(call.sizes.head_dim, call.sizes.value_dim)) {}

  /// The factors of the queries' probabilities, where some need one.
  void weigh(Context& context);

  void near(Context& context, std::span<const StridedSums> sums) const;
  void remainders(Context& context, std::span<const StridedSums> sums) const;
  void summaries(Context& context, std::span<const StridedSums> sums) const;

 private:
  const StridedEntry& entry(std::int64_t b) const { return call_.entries[static_cast<std::size_t>(b)]; }
  std::size_t place(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((b * call_.sizes.heads + h) * call_.sizes.queries + i);
  }

  /// A block without queries and keys.
  BackwardBlock plain() const {
    BackwardBlock block;
    block.head_dim = call_.sizes.head_dim;
    block.value_dim = call_.sizes.value_dim;
    block.scale = call_.scale;
    return block;
  }

  /// The block of the chunk of consecutive queries that begins with query `first`, without keys.
  BackwardBlock chunk_at(std::int64_t b, std::int64_t h, std::int64_t first) const;

  /// The same with the near keys that it sees.
  BackwardBlock near_block(Intervals& intervals, std::int64_t b, std::int64_t h, std::int64_t first) const;

  /// Calls body(block, first) for the chunks of a remainder's queries, from its query `first` on, and the far
  /// keys that they see, all rows gathered.
  template <class Body>
  void for_chunks(Workspace& workspace, std::int64_t b, const Remainder& part, std::int64_t h,
                  const Body& body) const;

  const StridedCall& call_;
  View<const float> grad_out_, out_, log_sum_;
  std::int64_t chunk_;
  std::vector<float> weights_;  // [B, H, N], or empty
};

BackwardBlock Backward::chunk_at(std::int64_t b, std::int64_t h, std::int64_t first) const {
  BackwardBlock block = plain();
  block.count = std::min(chunk_, call_.sizes.queries - first);
  block.query = rows_of(ConstFloatView(entry(b).query), 0, h).from(first);
  block.out = rows_of(ConstFloatView(out_), b, h).from(first);
  block.grad_out = rows_of(ConstFloatView(grad_out_), b, h).from(first);
  block.normaliser = log_sum_.at(b, first, h);
  block.normaliser_stride = log_sum_.stride(1);
  if (!weights_.empty()) block.weight = weights_.data() + place(b, h, first);
  return block;
}

BackwardBlock Backward::near_block(Intervals& intervals, std::int64_t b, std::int64_t h,
                                   std::int64_t first) const {
  BackwardBlock block = chunk_at(b, h, first);
  block.sees = visible_of(intervals, block.count, [&](std::int64_t i) { return entry(b).near(first + i); });
  const std::int64_t begin = intervals[0].begin;
  const std::int64_t end = intervals[static_cast<std::size_t>(block.count - 1)].end;
  block.keys = keys_of(entry(b).key, entry(b).value, h, begin, end - begin);
  return block;
}

template <class Body>
void Backward::for_chunks(Workspace& workspace, std::int64_t b, const Remainder& part, std::int64_t h,
                          const Body& body) const {
  const std::int64_t head_dim = call_.sizes.head_dim, value_dim = call_.sizes.value_dim;
  const auto query = [&](std::int64_t i) { return part.query(i); };
  const auto key = [&](std::int64_t j) { return part.key(j); };
  const float* q = gather(workspace, part.queries, query, entry(b).query, 0, h);
  const float* k = gather(workspace, part.keys, key, entry(b).key, 0, h);
  const float* v = gather(workspace, part.keys, key, entry(b).value, 0, h);
  const float* out = gather(workspace, part.queries, query, out_, b, h);
  const float* grad_out = gather(workspace, part.queries, query, grad_out_, b, h);
  const std::span<float> logs = workspace.array<float>(part.queries);
  const std::span<float> weights = workspace.array<float>(weights_.empty() ? 0 : part.queries);
  for (std::int64_t i = 0; i < part.queries; ++i)
    logs[static_cast<std::size_t>(i)] = log_sum_(b, part.query(i), h);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = weights_[place(b, h, part.query(static_cast<std::int64_t>(i)))];
  for (std::int64_t first = 0; first < part.queries; first += chunk_) {
    BackwardBlock block = plain();
    block.count = std::min(chunk_, part.queries - first);
    block.query = dense_rows(q, head_dim).from(first);
    block.out = dense_rows(out, value_dim).from(first);
    block.grad_out = dense_rows(grad_out, value_dim).from(first);
    block.normaliser = logs.data() + first;
    block.normaliser_stride = 1;
    if (!weights.empty()) block.weight = weights.data() + first;
    Intervals seen;
    block.sees =
        visible_of(seen, block.count, [&](std::int64_t i) { return entry(b).far(part.query(first + i)); });
    const std::int64_t end = seen[static_cast<std::size_t>(block.count - 1)].end;
    block.keys = {dense_rows(k, head_dim), dense_rows(v, value_dim), 0, end};
    body(block, first);
  }
}

void Backward::weigh(Context& context) {
  const std::int64_t batch = call_.sizes.batch, heads = call_.sizes.heads, queries = call_.sizes.queries;
  bool large = false;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < queries; ++i)
      large = large || softmax::has_large(log_sum_.at(b, i), log_sum_.stride(2), heads);
  if (!large) return;
  std::vector<double> sums(static_cast<std::size_t>(batch * heads * queries));
  const std::int64_t chunks = (queries + chunk_ - 1) / chunk_;
  parallel_for(context, batch * heads * chunks, [&](Context& own, std::int64_t item) {
    const std::int64_t b = item / chunks / heads, h = item / chunks % heads, first = item % chunks * chunk_;
    Intervals intervals;
    BackwardBlock block = near_block(intervals, b, h, first);
    softmax::add_probabilities(own, block, sums.data() + place(b, h, first));
    if (!entry(b).pattern.fixed()) return;
    block.sees = visible_of(intervals, block.count, [&](std::int64_t i) { return entry(b).far(first + i); });
    block.keys = keys_of(entry(b).far_key, entry(b).far_value, h, 0, entry(b).far_key.extent(1));
    softmax::add_probabilities(own, block, sums.data() + place(b, h, first));
  });
  for_each_remainder(context, call_,
                     [&](Context& own, std::int64_t b, const Remainder& part, std::int64_t h) {
                       Workspace workspace(own);
                       for_chunks(workspace, b, part, h, [&](const BackwardBlock& block, std::int64_t first) {
                         std::array<double, softmax::kMaxQueries> of_chunk = {};
                         softmax::add_probabilities(own, block, of_chunk.data());
                         for (std::int64_t i = 0; i < block.count; ++i)
                           sums[place(b, h, part.query(first + i))] += of_chunk[static_cast<std::size_t>(i)];
                       });
                     });
  weights_.resize(sums.size());
  softmax::weigh(sums, weights_.data());
}

// A task has at least as many queries as the stride, so that it shares keys with its neighbours alone: even
// ones run before odd ones, and every gradient is summed in this order, whatever the number of threads.
void Backward::near(Context& context, std::span<const StridedSums> sums) const {
  const std::int64_t batch = call_.sizes.batch, heads = call_.sizes.heads, queries = call_.sizes.queries;
  const std::int64_t stride = std::min(call_.entries[0].pattern.stride, queries);
  const std::int64_t size = (stride + chunk_ - 1) / chunk_ * chunk_;
  for (const std::int64_t odd : {0, 1}) {
    const std::int64_t tasks = ((queries + size - 1) / size + 1 - odd) / 2;
    parallel_for(context, batch * heads * tasks, [&](Context& own, std::int64_t item) {
      const std::int64_t b = item / tasks / heads, h = item / tasks % heads;
      const std::int64_t begin = (2 * (item % tasks) + odd) * size, end = std::min(begin + size, queries);
      const StridedSums& to = sums[static_cast<std::size_t>(b)];
      for (std::int64_t first = begin; first < end; first += chunk_) {
        Intervals intervals;
        BackwardBlock block = near_block(intervals, b, h, first);
        block.grad_query = rows_of(FloatView(to.query), 0, h).from(first);
        block.grad_key = rows_of(FloatView(to.key), 0, h).from(block.keys.first);
        block.grad_value = rows_of(FloatView(to.value), 0, h).from(block.keys.first);
        softmax::backward_block(own, block);
      }
    });
  }
}

void Backward::remainders(Context& context, std::span<const StridedSums> sums) const {
  const std::int64_t head_dim = call_.sizes.head_dim, value_dim = call_.sizes.value_dim;
  for_each_remainder(
      context, call_, [&](Context& own, std::int64_t b, const Remainder& part, std::int64_t h) {
        Workspace workspace(own);
        const auto zeros = [&](std::int64_t rows, std::int64_t dim) {
          return workspace.take_zeroed(static_cast<std::size_t>(rows * dim));
        };
        float* grad_query = workspace.take(static_cast<std::size_t>(part.queries * head_dim));
        float* grad_key = zeros(part.keys, head_dim);
        float* grad_value = zeros(part.keys, value_dim);
        for_chunks(workspace, b, part, h, [&](BackwardBlock& block, std::int64_t first) {
          block.grad_query = dense_rows(grad_query, head_dim).from(first);
          block.begins_queries = true;
          block.grad_key = dense_rows(grad_key, head_dim);
          block.grad_value = dense_rows(grad_value, value_dim);
          softmax::backward_block(own, block);
        });
        const StridedSums& to = sums[static_cast<std::size_t>(b)];
        const auto key = [&](std::int64_t j) { return part.key(j); };
        add_scattered(
            to.query, part.queries, [&](std::int64_t i) { return part.query(i); }, 0, h, grad_query);
        add_scattered(to.key, part.keys, key, 0, h, grad_key);
        add_scattered(to.value, part.keys, key, 0, h, grad_value);
      });
}

void Backward::summaries(Context& context, std::span<const StridedSums> sums) const {
  for (std::int64_t b = 0; b < call_.sizes.batch; ++b) {
    const StridedEntry& entry = this->entry(b);
    const StridedSums& to = sums[static_cast<std::size_t>(b)];
    AttentionSizes sizes = call_.sizes;
    sizes.batch = 1;
    sizes.keys = entry.far_key.extent(1);
    std::vector<std::int64_t> begin(static_cast<std::size_t>(sizes.queries)), end;
    for (std::int64_t i = 0; i < sizes.queries; ++i) end.push_back(entry.far(i).end);
    const Mask seen = Mask::intervals(std::move(begin), std::move(end));
    const Sights sights(context, seen, sizes);
    Rounds(sights, sizes, chunk_, softmax::kBackwardKeys)
        .run(context, [&](Context& own, const Rounds::Meeting& meeting, const Rounds::Meeting*) {
          const auto& [none, h, first, keys] = meeting;
          BackwardBlock block = chunk_at(b, h, first);
          block.sees = sights.own(0, first);
          block.keys = keys_of(entry.far_key, entry.far_value, h, keys.begin, keys.end - keys.begin);
          block.grad_query = rows_of(FloatView(to.query), 0, h).from(first);
          block.grad_key = rows_of(FloatView(to.far_key), 0, h).from(keys.begin);
          block.grad_value = rows_of(FloatView(to.far_value), 0, h).from(keys.begin);
          softmax::backward_block(own, block);
        });
  }
}

}  // namespace

void strided_forward(Context& context, const StridedCall& call, View<float> out, View<float> log_sum) {
  if (call.entries.empty()) return;
  if (call.entries[0].pattern.fixed()) {
    attend_near(context, call, out, log_sum, {});
    return;
  }
  const std::int64_t batch = call.sizes.batch, queries = call.sizes.queries, heads = call.sizes.heads;
  Workspace workspace(context);
  const View<float> sum(workspace.array<float>(batch * queries * heads).data(), {batch, queries, heads});
  attend_near(context, call, out, log_sum, sum);
  attend_far(context, call, out, log_sum, sum);
  for_each_row(context, out.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    log_sum(b, i, h) += std::log(sum(b, i, h));
  });
}

void strided_backward(Context& context, const StridedCall& call, std::span<const StridedSums> sums,
                      View<const float> grad_out, View<const float> out, View<const float> log_sum) {
  if (call.entries.empty()) return;
  Backward backward(call, grad_out, out, log_sum);
  backward.weigh(context);
  backward.near(context, sums);
  if (call.entries[0].pattern.fixed())
    backward.summaries(context, sums);
  else
    backward.remainders(context, sums);
}

}  // namespace linnet::sparse
