#include "attention/lsh/lsh_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attention/lsh/hash.h"
#include "attention/lsh/plan.h"
#include "attention/lsh/unit_rows.h"
#include "attention/score_scale.h"
#include "attention/softmax/tiles.h"
#include "attention/tiles/merge.h"
#include "attention/tiles/scattered.h"
#include "attention/tiles/wide.h"
#include "base/parallel.h"
#include "base/workspace.h"

namespace linnet {

void check_lsh_mask(const char* operation, const Mask& mask) {
  if ((mask.kind() != Mask::Kind::full && mask.kind() != Mask::Kind::causal) || mask.has_segments())
    fail(operation,
         "expected a full or a causal mask, since tokens that were sorted by bucket have no neighbours in "
         "position (use the softmax or the linear family), got the mask {}",
         mask.name());
}

namespace {

using lsh::FirstMeetings;
using lsh::Plan;
using softmax::KeyRange;

constexpr const char* kOperation = "lsh attention";
constexpr std::int64_t kMostRounds = 64;

/// f32 tensors of one call.
struct Call {
  const AttentionSizes& sizes;
  const Plan& plan;
  std::int64_t rounds;
  float scale;
  View<const float> query, value;
};

/// The positions of the sorted tokens from token `first` on.
auto places(const std::int64_t* order, std::int64_t first) {
  return [from = order + first](std::int64_t s) { return from[s]; };
}

/// 1 / ‖q‖ of `count` tokens.
template <class Place>
const float* inverse_norms(Workspace& workspace, const Plan& plan, std::int64_t count, const Place& place,
                           std::int64_t b, std::int64_t h) {
  float* norms = workspace.take(static_cast<std::size_t>(count));
  for (std::int64_t s = 0; s < count; ++s) norms[s] = plan.inverse_norm(b, place(s), h);
  return norms;
}

/// The keys of tokens from their queries [count, dim], dense: of unit length.
const float* keys_of(Workspace& workspace, const float* queries, const float* norms, std::int64_t count,
                     std::int64_t dim) {
  float* rows = workspace.take(static_cast<std::size_t>(count * dim));
  lsh::unit_rows(rows, queries, norms, count, dim);
  return rows;
}

/// What the block's queries see, before themselves or behind, from query `first` of the block on. `unmet`
/// leaves out what an earlier round has shown; null in the first one.
Visible visible_of(const Plan::Block& block, const std::vector<Mask::Interval>& intervals, const Mask* unmet,
                   std::int64_t first) {
  Visible visible;
  visible.interval = intervals.data() + first;
  visible.boolean = unmet;
  visible.first_query = first;
  visible.keys = block.end - block.first_key;
  return visible;
}

/// Block `index` of a head's sorted tokens in one round.
struct BlockId {
  std::int64_t round = 0, b = 0, h = 0, index = 0;
};

/// The tokens `sorted` of the block's head in a tensor, to be fetched.
softmax::RowsToCome rows_to_come(const Call& call, const ConstFloatView& x, const BlockId& id,
                                 Mask::Interval sorted) {
  return {rows_of(x, id.b, id.h), sorted.end - sorted.begin,
          call.plan.order(id.round, id.b, id.h) + sorted.begin};
}

/// One block's queries in one round, of which the first one writes and the others merge: out with the maxima
/// in `log` and `sum` [B, N, H]. A single round leaves the log-sum-exps in `log`. The thread goes on with the
/// block `next`, unless that is null.
void attend(Context& own, const Call& call, View<float> out, View<float> log, View<float> sum,
            const BlockId& id, const BlockId* next) {
  const auto& [batch, queries, keys, heads, head_dim, value_dim] = call.sizes;
  const auto& [round, b, h, index] = id;
  const Plan::Block block = call.plan.look(round, b, h, index);
  if (block.first == block.end) return;
  const std::int64_t* order = call.plan.order(round, b, h);
  const auto query = places(order, block.first), key = places(order, block.first_key);
  const std::int64_t count = block.end - block.first, key_count = block.end - block.first_key;
  Workspace workspace(own);
  const float* all = gather(workspace, key_count, key, call.query, b, h);
  const float* q = all + (block.first - block.first_key) * head_dim;
  const float* norms = inverse_norms(workspace, call.plan, key_count, key, b, h);
  const float* k = keys_of(workspace, all, norms, key_count, head_dim);
  const float* v = gather(workspace, key_count, key, call.value, b, h);
  // The only round writes where the tokens lie.
  const bool only = call.rounds == 1;
  const OutputRows tokens = rows_of(FloatView(out), b, h);
  float* rows = only ? nullptr : workspace.take(static_cast<std::size_t>(count * value_dim));
  float* logs = workspace.take(static_cast<std::size_t>(count));
  float* sums = only ? nullptr : workspace.take(static_cast<std::size_t>(count));
  const KeyRange range = {dense_rows(k, head_dim), dense_rows(v, value_dim), 0, key_count};
  const FirstMeetings meetings(call.plan, round, b, h, block);
  const Mask before = meetings.within(block.before), behind = meetings.within(block.behind);
  const std::int64_t size = softmax::queries_in_block(head_dim, value_dim);
  for (std::int64_t i = 0; i < count; i += size) {
    softmax::ForwardBlock part;
    part.head_dim = head_dim;
    part.value_dim = value_dim;
    part.scale = call.scale;
    part.query = dense_rows(q, head_dim).from(i);
    part.count = std::min(size, count - i);
    part.fresh = range;
    part.sees_fresh = visible_of(block, block.before, meetings.any() ? &before : nullptr, i);
    if (!block.behind.empty()) {
      part.cached = range;
      part.sees_cached = visible_of(block, block.behind, meetings.any() ? &behind : nullptr, i);
    }
    part.out = only ? tokens : dense_rows(rows, value_dim).from(i);
    part.places = only ? order + block.first + i : nullptr;
    part.stream = only && out.size() >= kBeyondCaches;
    part.normaliser = logs + i;
    part.sum = only ? nullptr : sums + i;
    part.normaliser_stride = part.sum_stride = 1;
    if (next != nullptr && i + size >= count) {
      // The first keys of a head's next block are the last ones here.
      const Mask::Interval to_come = call.plan.queries(next->b, next->index);
      part.to_come = {rows_to_come(call, call.query, *next, to_come),
                      rows_to_come(call, call.value, *next, to_come)};
    }
    softmax::forward_block(own, part);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    float& maximum = log(b, query(i), h);
    if (only) {
      maximum = logs[i];
      continue;
    }
    fetch_ahead(i, count, query, out, b, h);
    float* to = out.at(b, query(i), h);
    if (round > 0) {
      merge(to, maximum, sum(b, query(i), h), rows + i * value_dim, logs[i], sums[i], value_dim);
    } else {
      std::copy_n(rows + i * value_dim, value_dim, to);
      maximum = logs[i];
      sum(b, query(i), h) = sums[i];
    }
  }
}

struct Gradients {
  View<float> query, value;
  View<const float> out, grad_out, log;
};

/// The sorted tokens of a block and the chunk before whose gradients nothing was added to yet, given that the
/// even blocks of a round run before the odd ones: each chunk between two blocks belongs to both.
Mask::Interval first_gradients(const Call& call, const BlockId& id, const Plan::Block& block) {
  if (id.round > 0) return {block.end, block.end};
  if (id.index % 2 == 0) return {block.first_key, block.end};
  const auto [next, behind] = call.plan.queries(id.b, id.index + 1);
  return {block.first, next < behind ? block.end - call.plan.chunk() : block.end};
}

/// Adds the rows, those of the block's keys, to the tokens' gradients, of which those of `fresh` begin with
/// them.
void hand_out(View<float> to, const Plan::Block& block, Mask::Interval fresh, const std::int64_t* order,
              std::int64_t b, std::int64_t h, const float* rows) {
  const auto rows_from = [&](std::int64_t first) { return rows + (first - block.first_key) * to.extent(3); };
  const auto add = [&](std::int64_t first, std::int64_t end) {
    add_scattered(to, end - first, places(order, first), b, h, rows_from(first));
  };
  add(block.first_key, fresh.begin);
  scatter(to, fresh.end - fresh.begin, places(order, fresh.begin), b, h, rows_from(fresh.begin));
  add(fresh.end, block.end);
}

/// What is needed behind the products of a block: the gradients that it adds to and what block `next`, unless
/// that is null, reads first.
std::array<softmax::RowsToCome, 6> rows_behind(const Call& call, const Gradients& gradients,
                                               const BlockId& id, const Plan::Block& block,
                                               const BlockId* next) {
  const Mask::Interval added = {block.first_key, block.end};
  std::array<softmax::RowsToCome, 6> rows = {rows_to_come(call, gradients.query, id, added),
                                             rows_to_come(call, gradients.value, id, added)};
  if (next == nullptr) return rows;
  const auto [first, end] = call.plan.queries(next->b, next->index);
  const Mask::Interval keys = {std::max<std::int64_t>(0, first - call.plan.chunk()), end};
  const Mask::Interval panel = {first, std::min(first + softmax::kPanel, end)};
  rows[2] = rows_to_come(call, call.query, *next, keys);
  rows[3] = rows_to_come(call, call.value, *next, keys);
  rows[4] = rows_to_come(call, gradients.out, *next, panel);
  rows[5] = rows_to_come(call, gradients.grad_out, *next, panel);
  return rows;
}

/// Adds what the block's queries in one round contribute to the gradients of themselves and of their keys;
/// `next` as for `attend`.
void attend_backward(Context& own, const Call& call, const Gradients& gradients, const BlockId& id,
                     const BlockId* next) {
  const auto& [batch, queries, keys, heads, head_dim, value_dim] = call.sizes;
  const auto& [round, b, h, index] = id;
  const Plan::Block block = call.plan.look(round, b, h, index);
  if (block.first == block.end) return;
  const std::int64_t* order = call.plan.order(round, b, h);
  const auto query = places(order, block.first), key = places(order, block.first_key);
  const std::int64_t count = block.end - block.first, key_count = block.end - block.first_key;
  Workspace workspace(own);
  const float* all = gather(workspace, key_count, key, call.query, b, h);
  const float* q = all + (block.first - block.first_key) * head_dim;
  const float* norms = inverse_norms(workspace, call.plan, key_count, key, b, h);
  const float* k = keys_of(workspace, all, norms, key_count, head_dim);
  const float* v = gather(workspace, key_count, key, call.value, b, h);
  const auto take = [&](std::int64_t rows, std::int64_t dim) {
    return workspace.take(static_cast<std::size_t>(rows * dim));
  };
  float* logs = take(count, 1);
  for (std::int64_t i = 0; i < count; ++i) logs[i] = gradients.log(b, query(i), h);
  float* grad_query = take(count, head_dim);
  float* grad_key = take(key_count, head_dim);
  float* grad_value = take(key_count, value_dim);
  const FirstMeetings meetings(call.plan, round, b, h, block);
  const Mask before = meetings.within(block.before), behind = meetings.within(block.behind);
  const std::int64_t size = softmax::backward_queries(head_dim, value_dim);
  for (std::int64_t i = 0; i < count; i += size) {
    softmax::BackwardBlock part;
    part.head_dim = head_dim;
    part.value_dim = value_dim;
    part.scale = call.scale;
    part.query = dense_rows(q, head_dim).from(i);
    part.out = rows_of(ConstFloatView(gradients.out), b, h);
    part.grad_out = rows_of(ConstFloatView(gradients.grad_out), b, h);
    part.places = order + block.first + i;
    // With the log-sum-exp of all rounds exp(score − log) is a key's weight among those of all of them.
    part.normaliser = logs + i;
    part.normaliser_stride = 1;
    part.count = std::min(size, count - i);
    part.keys = {dense_rows(k, head_dim), dense_rows(v, value_dim), 0, key_count};
    part.grad_query = dense_rows(grad_query, head_dim).from(i);
    part.grad_key = dense_rows(grad_key, head_dim);
    part.grad_value = dense_rows(grad_value, value_dim);
    part.begins_queries = true;
    part.begins_keys = i == 0;
    part.sees = visible_of(block, block.before, meetings.any() ? &before : nullptr, i);
    if (i + size >= count) part.to_come = rows_behind(call, gradients, id, block, next);
    softmax::backward_block(own, part);
    part.to_come = {};
    part.begins_queries = part.begins_keys = false;
    if (block.behind.empty()) continue;
    part.sees = visible_of(block, block.behind, meetings.any() ? &behind : nullptr, i);
    softmax::backward_block(own, part);
  }
  // Through the keys' unit length; then what the same tokens have as queries.
  lsh::through_unit_rows(grad_key, k, norms, key_count, head_dim);
  add_row(grad_key + (block.first - block.first_key) * head_dim, grad_query, count * head_dim);
  const Mask::Interval fresh = first_gradients(call, id, block);
  hand_out(gradients.query, block, fresh, order, b, h, grad_key);
  hand_out(gradients.value, block, fresh, order, b, h, grad_value);
}

/// Calls body(own, id, next) for the blocks first, first + step, … of all heads in a round; the thread goes
/// on with block `next`, which is null where that is not known.
template <class Body>
void for_blocks(Context& context, const Call& call, std::int64_t round, std::int64_t first, std::int64_t step,
                const Body& body) {
  const std::int64_t blocks = (call.plan.blocks() - first + step - 1) / step;
  const auto id_of = [&](std::int64_t item) -> BlockId {
    const std::int64_t entry = item / blocks;
    return {round, entry / call.sizes.heads, entry % call.sizes.heads, first + item % blocks * step};
  };
  parallel_runs(context, call.sizes.batch * call.sizes.heads * blocks,
                [&](Context& own, std::int64_t item, std::int64_t next_item) {
                  const BlockId next = id_of(std::max<std::int64_t>(next_item, 0));
                  body(own, id_of(item), next_item >= 0 ? &next : nullptr);
                });
}

class LshAttention final : public Attention {
 public:
  explicit LshAttention(const AttentionOptions& options) : options_(options) {}

  void forward(Context& context, const AttentionOutputs& outputs,
               const AttentionInputs& inputs) const override;
  void backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                const AttentionInputs& inputs, ConstFloatView out,
                View<const float> normaliser) const override;

  std::unique_ptr<State> make_state(std::int64_t, const HeadShape&, std::int64_t,
                                    std::span<float>) const override {
    refuse_state();
  }
  std::int64_t state_floats(const HeadShape&, std::int64_t) const override { refuse_state(); }

  void step(Context&, View<float>, View<const float>, View<const float>, View<const float>, State&,
            std::span<const std::int64_t>, View<const float>) const override {
    refuse_state();
  }

 private:
  [[noreturn]] static void refuse_state() {
    fail(kOperation,
         "expected a call without states, since every new token may move the others to another chunk (use "
         "the softmax or the linear family), got one with a state");
  }
  static void check(const AttentionInputs& inputs);
  float scale_of(std::int64_t head_dim) const {
    return static_cast<float>(score_scale(options_.scale, head_dim));
  }

  AttentionOptions options_;
};

void LshAttention::check(const AttentionInputs& inputs) {
  if (inputs.initial != nullptr) refuse_state();
  refuse_decay(kOperation, inputs.decay);
  check_lsh_mask(kOperation, inputs.mask);
}

/// Throws unless key is query's own view: the hash would not know which keys a query of another kind needs.
void check_shared(const AttentionInputs& inputs) {
  const auto same = [&](auto query, auto key) {
    return query.data() == key.data() && std::ranges::equal(query.shape(), key.shape()) &&
           (query.size() == 0 || std::ranges::equal(query.strides(), key.strides()));
  };
  const bool shared = inputs.query.dtype() == DType::bf16
                          ? same(inputs.query.as<const bf16>(), inputs.key.as<const bf16>())
                          : same(inputs.query.as<const float>(), inputs.key.as<const float>());
  if (!shared)
    fail(kOperation,
         "expected key to be the same view as query, since one hash finds both (its unit length is made "
         "inside), got another one");
}

void LshAttention::forward(Context& context, const AttentionOutputs& outputs,
                           const AttentionInputs& inputs) const {
  if (outputs.final != nullptr) refuse_state();
  check(inputs);
  const AttentionSizes sizes = check_forward(kOperation, outputs, inputs);
  check_shared(inputs);
  const WideInput query(context, inputs.query), value(context, inputs.value);
  const WideOutput out(outputs.out);
  Tensor own_log;
  View<float> log = outputs.normaliser;
  if (log.rank() == 0) {
    own_log = Tensor::of<float>({sizes.batch, sizes.queries, sizes.heads});
    log = own_log.view<float>();
  }
  Workspace workspace(context);
  View<float> sum;
  if (options_.lsh.rounds > 1)
    sum = {workspace.array<float>(sizes.batch * sizes.queries * sizes.heads).data(),
           {sizes.batch, sizes.queries, sizes.heads}};
  const Plan plan(context, options_, query.view(), inputs.mask);
  const Call call = {sizes, plan, options_.lsh.rounds, scale_of(sizes.head_dim), query.view(), value.view()};
  for (std::int64_t round = 0; round < options_.lsh.rounds; ++round) {
    for_blocks(context, call, round, 0, 1, [&](Context& own, const BlockId& id, const BlockId* next) {
      attend(own, call, out.view(), log, sum, id, next);
    });
  }
  for_each_row(context, out.view().shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    if (i >= plan.tokens(b)) {
      std::fill_n(out.view().at(b, i, h), sizes.value_dim, 0.0f);
      log(b, i, h) = -std::numeric_limits<float>::infinity();
      return;
    }
    if (call.rounds > 1) log(b, i, h) += std::log(sum(b, i, h));
    if (!plan.alone(b, i, h)) return;
    std::copy_n(call.value.at(b, i, h), sizes.value_dim, out.view().at(b, i, h));
    const float inverse = plan.inverse_norm(b, i, h);
    log(b, i, h) = inverse == 0 ? 0 : call.scale / inverse;
  });
  out.finish(context);
}

// The blocks of a round share the keys of a chunk with their neighbours, so the even ones run before the odd
// ones: every gradient is summed in this order, whatever the number of threads.
void LshAttention::backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                            const AttentionInputs& inputs, ConstFloatView out,
                            View<const float> normaliser) const {
  if (gradients.initial.rank() != 0 || gradients.final.rank() != 0) refuse_state();
  check(inputs);
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  check_shared(inputs);
  const WideInput query(context, inputs.query), value(context, inputs.value), wide_out(context, out),
      wide_grad(context, grad_out);
  const WideOutput grad_query(gradients.query), grad_key(gradients.key), grad_value(gradients.value);
  const Plan plan(context, options_, query.view(), inputs.mask);
  const Call call = {sizes, plan, options_.lsh.rounds, scale_of(sizes.head_dim), query.view(), value.view()};
  grad_key.clear(context);
  grad_key.finish(context);
  const Gradients sums = {grad_query.view(), grad_value.view(), wide_out.view(), wide_grad.view(),
                          normaliser};
  for (std::int64_t round = 0; round < options_.lsh.rounds; ++round) {
    for (const std::int64_t odd : {0, 1}) {
      for_blocks(context, call, round, odd, 2, [&](Context& own, const BlockId& id, const BlockId* next) {
        attend_backward(own, call, sums, id, next);
      });
    }
  }
  // Padding has no gradients. What is alone has one weight, 1: only its value has one.
  for_each_row(context, sums.grad_out.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    if (i >= plan.tokens(b)) {
      std::fill_n(sums.query.at(b, i, h), sizes.head_dim, 0.0f);
      std::fill_n(sums.value.at(b, i, h), sizes.value_dim, 0.0f);
    }
    if (i >= plan.tokens(b) || !plan.alone(b, i, h)) return;
    for (std::int64_t m = 0; m < sizes.value_dim; ++m)
      *(sums.value.at(b, i, h) + m) += *(sums.grad_out.at(b, i, h) + m);
  });
  grad_query.finish(context);
  grad_value.finish(context);
}

}  // namespace

std::unique_ptr<Attention> make_lsh_attention(const AttentionOptions& options) {
  const LshOptions& lsh = options.lsh;
  if (lsh.buckets < 0 || lsh.buckets > lsh::kMostBuckets || (lsh.buckets > 1 && lsh.buckets % 2 != 0))
    fail<UsageError>(kOperation, "expected 1 or an even number of buckets up to {} (0 chooses one), got {}",
                     lsh::kMostBuckets, lsh.buckets);
  // Every layer has rotations of its own (hash.cc).
  constexpr int most_layer = (1 << 26) - 1;
  if (options.layer < 0 || options.layer > most_layer)
    fail<UsageError>(kOperation, "expected a layer from 0 to {}, got {}", most_layer, options.layer);
  if (lsh.chunk < 1) fail<UsageError>(kOperation, "expected chunks of at least 1 token, got {}", lsh.chunk);
  if (lsh.rounds < 1 || lsh.rounds > kMostRounds)
    fail<UsageError>(kOperation, "expected 1 to {} rounds, got {}", kMostRounds, lsh.rounds);
  check_scale(kOperation, options.scale);
  return std::make_unique<LshAttention>(options);
}

}  // namespace linnet
