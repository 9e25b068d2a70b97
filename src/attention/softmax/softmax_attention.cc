#include "attention/softmax/softmax_attention.h"

#include <algorithm>
#include <cmath>

#include "attention/arguments.h"
#include "attention/scratch.h"
#include "attention/softmax/cache.h"
#include "attention/softmax/tiles.h"
#include "base/threads.h"

namespace linnet {
namespace {

using softmax::Cache;
using softmax::KeyRange;
using softmax::MutableRows;
using softmax::Rows;

constexpr const char* kOperation = "softmax attention";

Rows rows_of(View<const float> x, std::int64_t b, std::int64_t first, std::int64_t h) {
  return {x.at(b, first, h), x.stride(1)};
}

MutableRows rows_of(View<float> x, std::int64_t b, std::int64_t first, std::int64_t h) {
  return {x.at(b, first, h), x.stride(1)};
}

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

void refuse_decay(View<const float> decay) {
  if (decay.rank() != 0) fail(kOperation, "expected no decay, which the linear family alone has, got one");
}

/// What the tiles below are made for.
void check_tiles(const AttentionInputs& inputs) {
  const Mask::Kind kind = inputs.mask.kind();
  if ((kind != Mask::Kind::full && kind != Mask::Kind::causal) || inputs.mask.has_segments())
    fail(kOperation, "expected a full or causal mask, got {}", inputs.mask.name());
  if (inputs.query.dtype() != DType::f32)
    fail(kOperation, "expected f32 inputs, got {}", name_of(inputs.query.dtype()));
}

/// Zeros for a gradient [B, N, H, D].
void clear(View<float> x) {
  parallel_blocks(x.extent(0) * x.extent(1), 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t h = 0; h < x.extent(2); ++h)
        std::fill_n(x.at(row / x.extent(1), row % x.extent(1), h), x.extent(3), 0.0f);
  });
}

class SoftmaxAttention final : public Attention {
 public:
  explicit SoftmaxAttention(float scale) : scale_(scale) {}

  void forward(const AttentionOutputs& outputs, const AttentionInputs& inputs) const override;
  void backward(const AttentionGradients& gradients, ConstFloatView grad_out, const AttentionInputs& inputs,
                ConstFloatView out, View<const float> normaliser) const override;
  std::unique_ptr<State> make_state(std::int64_t slots, const HeadShape& shape,
                                    std::int64_t capacity) const override;
  void step(View<float> out, View<const float> query, View<const float> key, View<const float> value,
            State& state, std::span<const std::int64_t> slots, View<const float> decay) const override;

 private:
  float scale_of(std::int64_t head_dim) const {
    return scale_ != 0 ? scale_ : static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  }

  float scale_;
};

/// The state as a cache of the call's shape; null stays null.
template <class C, class S>
C* cache_of(const char* which, S* state, const HeadShape& shape) {
  if (state == nullptr) return nullptr;
  C& cache = family_state<C>(kOperation, which, *state);
  check_held_shape(kOperation, which, cache.shape(), shape);
  return &cache;
}

/// Keys [first, first + count) of a head, of which those behind the batch entry's last are left out.
KeyRange keys_of(const AttentionInputs& inputs, std::int64_t b, std::int64_t h, std::int64_t first,
                 std::int64_t count) {
  KeyRange range;
  range.key = rows_of(inputs.key.as<const float>(), b, first, h);
  range.value = rows_of(inputs.value.as<const float>(), b, first, h);
  range.first = first;
  range.count = std::clamp<std::int64_t>(inputs.mask.visible_keys(b, inputs.key.extent(1)) - first, 0, count);
  return range;
}

void SoftmaxAttention::forward(const AttentionOutputs& outputs, const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(kOperation, outputs, inputs);
  refuse_decay(inputs.decay);
  check_tiles(inputs);
  const Cache* initial = cache_of<const Cache>("the initial state", inputs.initial, sizes.shape());
  Cache* final = cache_of<Cache>("the final state", outputs.final, sizes.shape());

  // Large blocks read the keys less often; smaller ones where they would be too few for many threads.
  std::int64_t size = softmax::queries_in_block(sizes.head_dim, sizes.value_dim);
  while (size > softmax::kPanel && sizes.batch * sizes.heads * blocks_of(sizes.queries, size) < 16) size /= 2;
  const std::int64_t blocks = blocks_of(sizes.queries, size);
  parallel_for(sizes.batch * sizes.heads * blocks, [&](std::int64_t item) {
    const std::int64_t entries = sizes.batch * sizes.heads, b = item % entries / sizes.heads,
                       h = item % sizes.heads;
    // The last blocks, which see the most keys under a causal mask, come first: threads end together.
    const std::int64_t first = (blocks - 1 - item / entries) * size;
    softmax::ForwardBlock block;
    block.head_dim = sizes.head_dim;
    block.value_dim = sizes.value_dim;
    block.scale = scale_of(sizes.head_dim);
    block.causal = inputs.mask.kind() == Mask::Kind::causal;
    block.query = rows_of(inputs.query.as<const float>(), b, first, h);
    block.first = first;
    block.count = std::min(size, sizes.queries - first);
    if (initial) block.cached = initial->head(b, h);
    block.fresh = keys_of(inputs, b, h, 0, sizes.keys);
    block.out = rows_of(outputs.out.as<float>(), b, first, h);
    if (outputs.normaliser.rank() != 0) block.normaliser = rows_of(outputs.normaliser, b, first, h);
    Scratch scratch(softmax::forward_scratch(sizes.head_dim, sizes.value_dim));
    block.scratch = scratch.take(softmax::forward_scratch(sizes.head_dim, sizes.value_dim));
    softmax::forward_block(block);
  });

  if (final == nullptr) return;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    if (initial)
      final->copy(b, *initial, b);
    else
      final->reset(b);
    const std::int64_t count = inputs.mask.visible_keys(b, sizes.keys);
    const auto entry = [&](View<const float> x) {
      return View<const float>(x.at(b), {count, x.extent(2), x.extent(3)}, {x.stride(1), x.stride(2), 1});
    };
    final->append(b, entry(inputs.key.as<const float>()), entry(inputs.value.as<const float>()));
  }
}

// One pass over all pairs of a chunk of queries and a chunk of keys, in rounds: in round t chunk c of the
// keys meets chunk c + t of the queries, so that a round writes every gradient from one place only, and every
// gradient is summed in the order of the rounds, whatever the number of threads.
void SoftmaxAttention::backward(const AttentionGradients& gradients, ConstFloatView grad_out,
                                const AttentionInputs& inputs, ConstFloatView out,
                                View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  refuse_decay(inputs.decay);
  check_tiles(inputs);
  const Cache* initial = cache_of<const Cache>("the initial state", inputs.initial, sizes.shape());
  clear(gradients.query.as<float>());
  clear(gradients.key.as<float>());
  clear(gradients.value.as<float>());

  const bool causal = inputs.mask.kind() == Mask::Kind::causal;
  const std::int64_t query_chunk = softmax::backward_queries(sizes.head_dim, sizes.value_dim);
  const std::int64_t key_chunk = softmax::kBackwardKeys;
  const std::int64_t query_chunks = blocks_of(sizes.queries, query_chunk);
  const std::int64_t key_chunks = blocks_of(sizes.keys, key_chunk);
  const std::size_t scratch_size = softmax::backward_scratch(sizes.head_dim, sizes.value_dim);
  const auto block_of = [&](std::int64_t b, std::int64_t h, std::int64_t chunk) {
    const std::int64_t first = chunk * query_chunk;
    softmax::BackwardBlock block;
    block.head_dim = sizes.head_dim;
    block.value_dim = sizes.value_dim;
    block.scale = scale_of(sizes.head_dim);
    block.query = rows_of(inputs.query.as<const float>(), b, first, h);
    block.out = rows_of(out.as<const float>(), b, first, h);
    block.grad_out = rows_of(grad_out.as<const float>(), b, first, h);
    block.normaliser = rows_of(normaliser, b, first, h);
    block.first = first;
    block.count = std::min(query_chunk, sizes.queries - first);
    block.grad_query = rows_of(gradients.query.as<float>(), b, first, h);
    return block;
  };

  if (initial) {
    parallel_for(sizes.batch * sizes.heads * query_chunks, [&](std::int64_t item) {
      const std::int64_t b = item / query_chunks / sizes.heads, h = item / query_chunks % sizes.heads;
      softmax::BackwardBlock block = block_of(b, h, item % query_chunks);
      block.keys = initial->head(b, h);
      Scratch scratch(scratch_size);
      block.scratch = scratch.take(scratch_size);
      softmax::backward_block(block);
    });
  }
  const std::int64_t rounds = std::max(query_chunks, key_chunks);
  for (std::int64_t round = 0; round < rounds; ++round) {
    parallel_for(sizes.batch * sizes.heads * key_chunks, [&](std::int64_t item) {
      const std::int64_t b = item / key_chunks / sizes.heads, h = item / key_chunks % sizes.heads;
      const std::int64_t of_keys = item % key_chunks, of_queries = (of_keys + round) % rounds;
      if (of_queries >= query_chunks) return;
      softmax::BackwardBlock block = block_of(b, h, of_queries);
      const std::int64_t first = of_keys * key_chunk;
      if (causal && block.first + block.count <= first) return;
      block.causal = causal;
      block.keys = keys_of(inputs, b, h, first, std::min(key_chunk, sizes.keys - first));
      if (block.keys.count == 0) return;
      block.grad_key = rows_of(gradients.key.as<float>(), b, first, h);
      block.grad_value = rows_of(gradients.value.as<float>(), b, first, h);
      Scratch scratch(scratch_size);
      block.scratch = scratch.take(scratch_size);
      softmax::backward_block(block);
    });
  }
}

std::unique_ptr<State> SoftmaxAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                    std::int64_t capacity) const {
  check_make_state(kOperation, slots, shape, capacity);
  return std::make_unique<Cache>(slots, shape, capacity);
}

void SoftmaxAttention::step(View<float> out, View<const float> query, View<const float> key,
                            View<const float> value, State& state, std::span<const std::int64_t> slots,
                            View<const float> decay) const {
  refuse_decay(decay);
  Cache& cache = family_state<Cache>(kOperation, "the state", state);
  const AttentionSizes sizes = check_step(kOperation, out, query, key, value, state, slots);
  check_held_shape(kOperation, "the state", cache.shape(), sizes.shape());
  for (std::int64_t i = 0; i < sizes.batch; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    cache.append(slot, key.slice(0, i, i + 1), value.slice(0, i, i + 1));
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const KeyRange seen = cache.head(slot, h);
      softmax::StepHead head;
      head.head_dim = sizes.head_dim;
      head.value_dim = sizes.value_dim;
      head.count = seen.count;
      head.scale = scale_of(sizes.head_dim);
      head.query = query.at(i, h);
      head.keys = seen.key.data;
      head.values = seen.value.data;
      head.out = out.at(i, h);
      head.scratch = cache.scratch(slot);
      softmax::step_head(head);
    }
  }
}

}  // namespace

std::unique_ptr<Attention> make_softmax_attention(const AttentionOptions& options) {
  if (!std::isfinite(options.scale) || options.scale < 0)
    fail(kOperation, "expected a scale of at least 0, got {}", options.scale);
  return std::make_unique<SoftmaxAttention>(options.scale);
}

}  // namespace linnet
