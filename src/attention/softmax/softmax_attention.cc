#include "attention/softmax/softmax_attention.h"

#include <algorithm>
#include <array>

#include "attention/arguments.h"
#include "attention/rounds.h"
#include "attention/score_scale.h"
#include "attention/softmax/cache.h"
#include "attention/softmax/final_state.h"
#include "attention/softmax/held_gradient.h"
#include "attention/softmax/weights.h"
#include "attention/tiles/wide.h"
#include "attention/visible.h"
#include "base/parallel.h"
#include "base/workspace.h"

namespace linnet {
namespace {

using softmax::Cache;
using softmax::held_gradient;
using softmax::HeldGradient;
using softmax::KeyRange;
using softmax::LastTokens;

constexpr const char* kOperation = "softmax attention";

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

class SoftmaxAttention final : public Attention {
 public:
  explicit SoftmaxAttention(const AttentionOptions& options)
      : scale_(options.scale), cache_(options.softmax.cache) {}

  void forward(Context& context, const AttentionOutputs& outputs,
               const AttentionInputs& inputs) const override;
  void backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                const AttentionInputs& inputs, ConstFloatView out,
                View<const float> normaliser) const override;
  std::unique_ptr<State> make_state(std::int64_t slots, const HeadShape& shape, std::int64_t capacity,
                                    std::span<float> memory) const override;
  std::int64_t state_floats(const HeadShape& shape, std::int64_t capacity) const override;
  void step(Context& context, View<float> out, View<const float> query, View<const float> key,
            View<const float> value, State& state, std::span<const std::int64_t> slots,
            View<const float> decay) const override;
  void read(Context& context, View<float> out, View<const float> query, const State& state,
            std::span<const std::int64_t> slots, std::span<const std::int64_t> positions) const override;

 private:
  float scale_of(std::int64_t head_dim) const { return static_cast<float>(score_scale(scale_, head_dim)); }

  /// One query against what a head's cache holds.
  void step_head(float* out, const float* query, const KeyRange& seen, float* scratch) const {
    softmax::step_head({.count = seen.count,
                        .scale = scale_of(seen.key.columns),
                        .query = query,
                        .keys = seen.key,
                        .values = seen.value,
                        .out = out,
                        .scratch = scratch});
  }

  float scale_;
  DType cache_;
};

/// The state as a cache of the call's shape; null stays null.
template <class C, class S>
C* cache_of(const char* which, S* state, const HeadShape& shape) {
  if (state == nullptr) return nullptr;
  C& cache = family_state<C>(kOperation, which, *state);
  check_held_shape(kOperation, which, cache.shape(), shape);
  return &cache;
}

/// Keys [first, first + count) of a head.
KeyRange keys_of(const AttentionInputs& inputs, std::int64_t b, std::int64_t h, std::int64_t first,
                 std::int64_t count) {
  return {rows_of(inputs.key, b, h).from(first), rows_of(inputs.value, b, h).from(first), first, count};
}

/// The tokens that the final state of batch entry b holds.
LastTokens last_tokens(const Cache* initial, const AttentionInputs& inputs, std::int64_t b) {
  return {inputs, b, initial != nullptr ? initial->position(b) : 0};
}

void SoftmaxAttention::forward(Context& context, const AttentionOutputs& outputs,
                               const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(kOperation, outputs, inputs);
  refuse_decay(kOperation, inputs.decay);
  const Cache* initial = cache_of<const Cache>("the initial state", inputs.initial, sizes.shape());
  Cache* final = cache_of<Cache>("the final state", outputs.final, sizes.shape());
  for (std::int64_t b = 0; final != nullptr && b < sizes.batch; ++b)
    final->reserve(b, last_tokens(initial, inputs, b).count());

  const std::int64_t size =
      softmax::queries_in_task(sizes.head_dim, sizes.value_dim, sizes.batch * sizes.heads, sizes.queries);
  const std::int64_t blocks = blocks_of(sizes.queries, size);
  const Sights sights(context, inputs.mask, sizes);
  const auto block_of = [&](std::int64_t b, std::int64_t h, std::int64_t first,
                            std::span<Mask::Interval> intervals) {
    softmax::ForwardBlock block;
    block.head_dim = sizes.head_dim;
    block.value_dim = sizes.value_dim;
    block.scale = scale_of(sizes.head_dim);
    block.query = rows_of(inputs.query, b, h).from(first);
    block.count = std::min(size, sizes.queries - first);
    if (initial) {
      block.cached = initial->head(b, h);
      block.sees_cached =
          sights.cached(intervals.first(static_cast<std::size_t>(block.count)), b, first, block.cached.count);
    }
    block.fresh = keys_of(inputs, b, h, 0, sizes.keys);
    block.sees_fresh = sights.own(b, first);
    block.out = rows_of(outputs.out, b, h).from(first);
    block.stream = outputs.out.size() >= kBeyondCaches;
    if (outputs.normaliser.rank() != 0) {
      block.normaliser = outputs.normaliser.at(b, first, h);
      block.normaliser_stride = outputs.normaliser.stride(1);
    }
    return block;
  };
  const std::int64_t entries = sizes.batch * sizes.heads;
  parallel_runs(context, entries * blocks, [&](Context& own, std::int64_t item, std::int64_t next) {
    std::array<Mask::Interval, softmax::kMaxQueries> intervals;
    const auto block_at = [&](std::int64_t at) {
      // The last blocks, which see the most keys under a causal mask, come first: threads end together.
      const std::int64_t first = (blocks - 1 - at / entries) * size;
      return block_of(at % entries / sizes.heads, at % sizes.heads, first, intervals);
    };
    softmax::ForwardBlock block = block_at(item);
    if (initial == nullptr && next >= 0) block.to_come = softmax::first_rows(block_at(next));
    softmax::forward_block(own, block);
  });

  if (final == nullptr) return;
  for (std::int64_t b = 0; b < sizes.batch; ++b) softmax::leave_state(*final, initial, inputs, b);
}

/// The gradient of the final state goes to the call's keys and values, to which it is added, and to those
/// that the initial state held, to which it is assigned; tokens that the final state does not hold get zeros.
void hand_back(Context& context, const WideOutput& grad_key, const WideOutput& grad_value,
               const AttentionGradients& gradients, const Cache* initial, const AttentionInputs& inputs,
               const AttentionSizes& sizes) {
  const HeadShape shape = sizes.shape();
  parallel_for(context, sizes.batch * sizes.heads, [&](Context&, std::int64_t item) {
    const std::int64_t b = item / sizes.heads, h = item % sizes.heads;
    const LastTokens last = last_tokens(initial, inputs, b);
    const std::int64_t held = initial != nullptr ? initial->position(b) : 0;
    const HeldGradient<const float> from = held_gradient(gradients.final, b, shape, last.count());
    const HeldGradient<float> to = held_gradient(gradients.initial, b, shape, held);
    for (std::int64_t t = 0; to.data != nullptr && t < held; ++t) {
      if (t < last.carried && from.data != nullptr) {
        std::copy_n(from.key(t, h), shape.head_dim, to.key(t, h));
        std::copy_n(from.value(t, h), shape.value_dim, to.value(t, h));
      } else {
        std::fill_n(to.key(t, h), shape.head_dim, 0.0f);
        std::fill_n(to.value(t, h), shape.value_dim, 0.0f);
      }
    }
    for (std::int64_t t = last.carried; from.data != nullptr && t < last.count(); ++t) {
      const std::int64_t key = last.keys.begin + t - last.carried;
      add_row(grad_key.view().at(b, key, h), from.key(t, h), shape.head_dim);
      add_row(grad_value.view().at(b, key, h), from.value(t, h), shape.value_dim);
    }
  });
}

// One pass over all pairs of a chunk of queries and a chunk of keys (rounds.h). Chunks whose scores are large
// take a pass over their keys before that.
void SoftmaxAttention::backward(Context& context, const AttentionGradients& gradients,
                                ConstFloatView grad_out, const AttentionInputs& inputs, ConstFloatView out,
                                View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  refuse_decay(kOperation, inputs.decay);
  const Cache* initial = cache_of<const Cache>("the initial state", inputs.initial, sizes.shape());
  check_state_gradient(
      kOperation, "the gradient of the final state", gradients.final, sizes.batch, [&](std::int64_t b) {
        return HeldGradient<float>::floats(sizes.shape(), last_tokens(initial, inputs, b).count());
      });
  const WideOutput grad_query = WideOutput::zeros(context, gradients.query),
                   grad_key = WideOutput::zeros(context, gradients.key),
                   grad_value = WideOutput::zeros(context, gradients.value);
  if (gradients.initial.rank() != 0 || gradients.final.rank() != 0)
    hand_back(context, grad_key, grad_value, gradients, initial, inputs, sizes);

  const Sights sights(context, inputs.mask, sizes);
  const std::int64_t query_chunk = softmax::backward_queries(sizes.head_dim, sizes.value_dim);
  const std::int64_t key_chunk = softmax::kBackwardKeys;
  const std::int64_t query_chunks = blocks_of(sizes.queries, query_chunk);
  const auto plain_block_of = [&](std::int64_t b, std::int64_t h, std::int64_t chunk) {
    const std::int64_t first = chunk * query_chunk;
    softmax::BackwardBlock block;
    block.head_dim = sizes.head_dim;
    block.value_dim = sizes.value_dim;
    block.scale = scale_of(sizes.head_dim);
    block.query = rows_of(inputs.query, b, h).from(first);
    block.out = rows_of(out, b, h).from(first);
    block.grad_out = rows_of(grad_out, b, h).from(first);
    block.normaliser = normaliser.at(b, first, h);
    block.normaliser_stride = normaliser.stride(1);
    block.count = std::min(query_chunk, sizes.queries - first);
    block.grad_query = rows_of(FloatView(grad_query.view()), b, h).from(first);
    return block;
  };
  // Factors of the chunks' probabilities, empty for those that need none.
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(sizes.batch * sizes.heads * query_chunks));
  const auto weights_of = [&](std::int64_t b, std::int64_t h, std::int64_t chunk) -> std::vector<float>& {
    return weights[static_cast<std::size_t>((b * sizes.heads + h) * query_chunks + chunk)];
  };
  parallel_for(context, sizes.batch * sizes.heads * query_chunks, [&](Context& own, std::int64_t item) {
    const std::int64_t b = item / query_chunks / sizes.heads, h = item / query_chunks % sizes.heads;
    const std::int64_t chunk = item % query_chunks;
    softmax::BackwardBlock block = plain_block_of(b, h, chunk);
    if (!softmax::has_large(block.normaliser, block.normaliser_stride, block.count)) return;
    std::array<double, softmax::kMaxQueries> sums = {};
    std::array<Mask::Interval, softmax::kMaxQueries> intervals;
    if (initial) {
      block.keys = initial->head(b, h);
      block.sees = sights.cached({intervals.data(), static_cast<std::size_t>(block.count)}, b,
                                 chunk * query_chunk, block.keys.count);
      softmax::add_probabilities(own, block, sums.data());
    }
    block.keys = keys_of(inputs, b, h, 0, sizes.keys);
    block.sees = sights.own(b, chunk * query_chunk);
    softmax::add_probabilities(own, block, sums.data());
    weights_of(b, h, chunk).resize(static_cast<std::size_t>(block.count));
    softmax::weigh({sums.data(), static_cast<std::size_t>(block.count)}, weights_of(b, h, chunk).data());
  });
  const auto block_of = [&](std::int64_t b, std::int64_t h, std::int64_t chunk) {
    softmax::BackwardBlock block = plain_block_of(b, h, chunk);
    if (const std::vector<float>& weight = weights_of(b, h, chunk); !weight.empty())
      block.weight = weight.data();
    return block;
  };

  if (gradients.initial.rank() != 0) {
    // In rounds too: in each of them every chunk of queries and of held keys takes part in one pair at most.
    std::int64_t held_chunks = 0;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      held_chunks = std::max(held_chunks, blocks_of(initial->position(b), key_chunk));
    const std::int64_t rounds = held_chunks > 0 ? std::max(query_chunks, held_chunks) : 0;
    for (std::int64_t round = 0; round < rounds; ++round) {
      parallel_for(context, sizes.batch * sizes.heads * query_chunks, [&](Context& own, std::int64_t item) {
        const std::int64_t b = item / query_chunks / sizes.heads, h = item / query_chunks % sizes.heads;
        const std::int64_t chunk = item % query_chunks, held = initial->position(b);
        const std::int64_t first = (chunk + round) % rounds * key_chunk;
        if (first >= held) return;
        softmax::BackwardBlock block = block_of(b, h, chunk);
        const KeyRange all = initial->head(b, h);
        block.keys = {all.key.from(first), all.value.from(first), first, std::min(key_chunk, held - first)};
        std::array<Mask::Interval, softmax::kMaxQueries> intervals;
        block.sees = sights.cached({intervals.data(), static_cast<std::size_t>(block.count)}, b,
                                   chunk * query_chunk, held);
        const HeldGradient<float> to = held_gradient(gradients.initial, b, sizes.shape(), held);
        block.grad_key = dense_rows(to.key(first, h), sizes.head_dim);
        block.grad_value = dense_rows(to.value(first, h), sizes.value_dim);
        softmax::backward_block(own, block);
      });
    }
  } else if (initial) {
    parallel_for(context, sizes.batch * sizes.heads * query_chunks, [&](Context& own, std::int64_t item) {
      const std::int64_t b = item / query_chunks / sizes.heads, h = item / query_chunks % sizes.heads;
      const std::int64_t chunk = item % query_chunks;
      softmax::BackwardBlock block = block_of(b, h, chunk);
      block.keys = initial->head(b, h);
      std::array<Mask::Interval, softmax::kMaxQueries> intervals;
      block.sees = sights.cached({intervals.data(), static_cast<std::size_t>(block.count)}, b,
                                 chunk * query_chunk, block.keys.count);
      softmax::backward_block(own, block);
    });
  }
  const auto block_at = [&](const Rounds::Meeting& meeting) {
    const auto& [b, h, first_query, keys] = meeting;
    softmax::BackwardBlock block = block_of(b, h, first_query / query_chunk);
    block.keys = keys_of(inputs, b, h, keys.begin, keys.end - keys.begin);
    block.sees = sights.own(b, first_query);
    block.grad_key = rows_of(FloatView(grad_key.view()), b, h).from(keys.begin);
    block.grad_value = rows_of(FloatView(grad_value.view()), b, h).from(keys.begin);
    return block;
  };
  Rounds(sights, sizes, query_chunk, key_chunk, true)
      .run(context, [&](Context& own, const Rounds::Meeting& meeting, const Rounds::Meeting* next) {
        softmax::BackwardBlock block = block_at(meeting);
        if (next != nullptr) block.to_come = softmax::first_rows(block_at(*next));
        softmax::backward_block(own, block);
      });
  for (const WideOutput* sum : {&grad_query, &grad_key, &grad_value}) sum->finish(context);
}

std::unique_ptr<State> SoftmaxAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                    std::int64_t capacity, std::span<float> memory) const {
  check_make_state(kOperation, slots, shape, capacity);
  check_memory(kOperation, memory, slots, Cache::slot_floats(shape, capacity, cache_));
  return std::make_unique<Cache>(slots, shape, capacity, memory.data(), cache_);
}

std::int64_t SoftmaxAttention::state_floats(const HeadShape& shape, std::int64_t capacity) const {
  check_make_state(kOperation, 0, shape, capacity);
  return Cache::slot_floats(shape, capacity, cache_);
}

void SoftmaxAttention::step(Context& context, View<float> out, View<const float> query, View<const float> key,
                            View<const float> value, State& state, std::span<const std::int64_t> slots,
                            View<const float> decay) const {
  refuse_decay(kOperation, decay);
  Cache& cache = family_state<Cache>(kOperation, "the state", state);
  const AttentionSizes sizes = check_step(kOperation, out, query, key, value, state, slots);
  check_held_shape(kOperation, "the state", cache.shape(), sizes.shape());
  for (const std::int64_t slot : slots) cache.reserve(slot, cache.position(slot) + 1);
  std::int64_t longest = 1;
  for (std::int64_t i = 0; i < sizes.batch; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    cache.append(slot, key.slice(0, i, i + 1), value.slice(0, i, i + 1));
    longest = std::max(longest, cache.position(slot));
  }
  // A block of heads reads this many numbers, a few microseconds' worth, or is one head.
  constexpr std::int64_t least_work = 1 << 15;
  const std::int64_t block =
      std::max<std::int64_t>(1, least_work / (longest * (sizes.head_dim + sizes.value_dim)));
  parallel_blocks(context, sizes.batch * sizes.heads, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t i = item / sizes.heads, h = item % sizes.heads;
      const std::int64_t slot = slots[static_cast<std::size_t>(i)];
      step_head(out.at(i, h), query.at(i, h), cache.head(slot, h), cache.scratch(slot, h));
    }
  });
}

void SoftmaxAttention::read(Context& context, View<float> out, View<const float> query, const State& state,
                            std::span<const std::int64_t> slots,
                            std::span<const std::int64_t> positions) const {
  const AttentionSizes sizes = check_read(kOperation, out, query, state, slots, positions);
  const Cache& cache = *cache_of<const Cache>("the state", &state, sizes.shape());
  parallel_for(context, sizes.batch, [&](Context& own, std::int64_t i) {
    Workspace workspace(own);
    float* const scratch = workspace.take(softmax::step_scratch(sizes.head_dim, sizes.value_dim));
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const KeyRange seen = cache.head(slots[static_cast<std::size_t>(i)], h);
      if (seen.count == 0) {
        std::fill_n(out.at(i, h), sizes.value_dim, 0.0f);
        continue;
      }
      step_head(out.at(i, h), query.at(i, h), seen, scratch);
    }
  });
}

}  // namespace

std::unique_ptr<Attention> make_softmax_attention(const AttentionOptions& options) {
  check_scale(kOperation, options.scale);
  if (options.softmax.cache != DType::f32 && options.softmax.cache != DType::bf16)
    fail(kOperation, "expected a cache of f32 or bf16, got one of {}", name_of(options.softmax.cache));
  return std::make_unique<SoftmaxAttention>(options);
}

}  // namespace linnet
