#include "attention/linformer/linformer_attention.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/linformer/projection.h"
#include "attention/softmax/softmax_attention.h"
#include "attention/tiles/wide.h"
#include "base/parallel.h"
#include "base/workspace.h"

namespace linnet {

template <class T>
void check_linformer(const char* operation, const Mask& mask, View<const T> key_projection,
                     View<const T> value_projection, std::int64_t heads, std::int64_t keys) {
  if (mask.kind() != Mask::Kind::full || mask.has_segments())
    fail(operation,
         "expected the full mask, since the projections mix all positions before a mask could keep them "
         "apart (use the linear or the softmax family), got the mask {}",
         mask.name());
  const auto check = [&](const char* name, View<const T> projection) {
    if (projection.rank() != 3 || (projection.extent(0) != heads && projection.extent(0) != 1))
      fail(operation, "expected {} [{} or 1, rank, length], got {}", name, heads,
           to_string(projection.shape()));
    if (projection.extent(1) < 1 || projection.extent(1) > projection.extent(2))
      fail(operation, "expected {} of a rank from 1 to its length {}, got {}", name, projection.extent(2),
           projection.extent(1));
    if (projection.extent(2) < keys)
      fail(operation, "expected at most {} keys, the length of {}, got {}", projection.extent(2), name, keys);
    expect_memory(operation, name, projection);
  };
  check("key_projection", key_projection);
  check("value_projection", value_projection);
  if (key_projection.extent(1) != value_projection.extent(1))
    fail(operation, "expected value_projection of rank {} as key_projection, got {}",
         key_projection.extent(1), value_projection.extent(1));
}
template void check_linformer(const char*, const Mask&, View<const float>, View<const float>, std::int64_t,
                              std::int64_t);
template void check_linformer(const char*, const Mask&, View<const double>, View<const double>, std::int64_t,
                              std::int64_t);

namespace {

constexpr const char* kOperation = "linformer attention";

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

/// The one head of a tensor [B, N, H, D], tokens [begin, end).
template <class T>
View<T> rows_of(View<T> x, std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t end) {
  return {x.at(b, begin, h), {end - begin, x.extent(3)}, {x.stride(1), 1}};
}

/// Ranks [begin, end) of a head's projection, which may be all heads'.
View<const float> ranks_of(View<const float> projection, std::int64_t h, std::int64_t begin,
                           std::int64_t end) {
  return {projection.at(projection.extent(0) == 1 ? 0 : h, begin),
          {end - begin, projection.extent(2)},
          {projection.stride(1), 1}};
}

/// P x for every batch entry and head: [B, k, H, D].
Tensor compress_all(Context& context, View<const float> projection, View<const float> x, const Mask& mask) {
  const std::int64_t batch = x.extent(0), heads = x.extent(2), dim = x.extent(3);
  const std::int64_t rank = projection.extent(1), blocks = blocks_of(rank, linformer::kRanks);
  Tensor compressed = Tensor::of<float>({batch, rank, heads, dim});
  const View<float> to = compressed.view<float>();
  parallel_for(context, batch * heads * blocks, [&](Context& own, std::int64_t item) {
    const std::int64_t b = item / blocks / heads, h = item / blocks % heads;
    const std::int64_t begin = item % blocks * linformer::kRanks;
    const std::int64_t end = std::min(begin + linformer::kRanks, rank);
    linformer::compress(own, rows_of(to, b, h, begin, end), ranks_of(projection, h, begin, end),
                        rows_of(x, b, h, 0, visible_keys(mask, b, x.extent(1))));
  });
  return compressed;
}

/// grad [B, N, H, D] = Pᵀ compressed, zeros where tokens are padding.
void expand_all(Context& context, View<float> grad, View<const float> projection,
                View<const float> compressed, const Mask& mask) {
  const std::int64_t heads = grad.extent(2), length = grad.extent(1), dim = grad.extent(3);
  const std::int64_t blocks = blocks_of(length, linformer::kTokens), rank = projection.extent(1);
  parallel_for(context, grad.extent(0) * heads * blocks, [&](Context& own, std::int64_t item) {
    const std::int64_t b = item / blocks / heads, h = item / blocks % heads;
    const std::int64_t begin = item % blocks * linformer::kTokens;
    const std::int64_t end = std::min(begin + linformer::kTokens, length);
    const std::int64_t seen = std::clamp(visible_keys(mask, b, length), begin, end);
    linformer::expand(own, rows_of(grad, b, h, begin, seen), ranks_of(projection, h, 0, rank), begin,
                      rows_of(compressed, b, h, 0, rank));
    for (std::int64_t i = seen; i < end; ++i) std::fill_n(grad.at(b, i, h), dim, 0.0f);
  });
}

/// grad [H or 1, k, N] = Σ compressed xᵀ over the batch and the heads that share a projection, in this order.
void projection_gradient(Context& context, View<float> grad, View<const float> compressed,
                         View<const float> x, const Mask& mask) {
  const std::int64_t batch = x.extent(0), length = x.extent(1), heads = x.extent(2);
  const std::int64_t rank = grad.extent(1), columns = grad.extent(2);
  const std::int64_t rank_blocks = blocks_of(rank, linformer::kRanks);
  const std::int64_t token_blocks = blocks_of(columns, linformer::kTokens);
  constexpr std::int64_t tile = linformer::kRanks * linformer::kTokens;
  parallel_for(context, grad.extent(0) * rank_blocks * token_blocks, [&](Context& own, std::int64_t item) {
    const std::int64_t owner = item / token_blocks / rank_blocks;
    const std::int64_t first_rank = item / token_blocks % rank_blocks * linformer::kRanks;
    const std::int64_t last_rank = std::min(first_rank + linformer::kRanks, rank);
    const std::int64_t begin = item % token_blocks * linformer::kTokens;
    const std::int64_t end = std::min(begin + linformer::kTokens, columns);
    const std::int64_t first_head = grad.extent(0) == 1 ? 0 : owner;
    const std::int64_t last_head = grad.extent(0) == 1 ? heads : owner + 1;
    Workspace workspace(own);
    float* sums = workspace.take_zeroed(tile);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t seen = std::min(visible_keys(mask, b, length), end);
      for (std::int64_t h = first_head; h < last_head && begin < seen; ++h)
        linformer::add_projection_gradient(own, sums, rows_of(compressed, b, h, first_rank, last_rank),
                                           rows_of(x, b, h, begin, seen));
    }
    for (std::int64_t r = first_rank; r < last_rank; ++r)
      std::copy_n(sums + (r - first_rank) * linformer::kTokens, end - begin, grad.at(owner, r, begin));
  });
}

class LinformerAttention final : public Attention {
 public:
  explicit LinformerAttention(const AttentionOptions& options) : softmax_(make_softmax_attention(options)) {}

  void forward(Context& context, const AttentionOutputs& outputs,
               const AttentionInputs& inputs) const override {
    if (outputs.final != nullptr) refuse_state();
    check(inputs);
    check_forward(kOperation, outputs, inputs);
    const WideInput query(context, inputs.query), key(context, inputs.key), value(context, inputs.value);
    const WideOutput out(outputs.out);
    const Tensor keys = compress_all(context, inputs.key_projection, key.view(), inputs.mask);
    const Tensor values = compress_all(context, inputs.value_projection, value.view(), inputs.mask);
    softmax_->forward(context, {out.view(), outputs.normaliser},
                      {query.view(), keys.view<float>(), values.view<float>()});
    out.finish(context);
  }

  void backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                const AttentionInputs& inputs, ConstFloatView out,
                View<const float> normaliser) const override {
    if (gradients.initial.rank() != 0 || gradients.final.rank() != 0) refuse_state();
    check(inputs);
    check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
    check_gradients(gradients, inputs);
    const WideInput query(context, inputs.query), key(context, inputs.key), value(context, inputs.value);
    const WideInput wide_out(context, out), wide_grad(context, grad_out);
    const WideOutput grad_query(gradients.query), grad_key(gradients.key), grad_value(gradients.value);
    const Tensor keys = compress_all(context, inputs.key_projection, key.view(), inputs.mask);
    const Tensor values = compress_all(context, inputs.value_projection, value.view(), inputs.mask);
    Tensor grad_keys = Tensor::of<float>(keys.shape()), grad_values = Tensor::of<float>(values.shape());
    softmax_->backward(context, {grad_query.view(), grad_keys.view<float>(), grad_values.view<float>()},
                       wide_grad.view(), {query.view(), keys.view<float>(), values.view<float>()},
                       wide_out.view(), normaliser);
    const View<const float> of_keys = grad_keys.view<float>(), of_values = grad_values.view<float>();
    expand_all(context, grad_key.view(), inputs.key_projection, of_keys, inputs.mask);
    expand_all(context, grad_value.view(), inputs.value_projection, of_values, inputs.mask);
    if (gradients.key_projection.rank() != 0)
      projection_gradient(context, gradients.key_projection, of_keys, key.view(), inputs.mask);
    if (gradients.value_projection.rank() != 0)
      projection_gradient(context, gradients.value_projection, of_values, value.view(), inputs.mask);
    for (const WideOutput* gradient : {&grad_query, &grad_key, &grad_value}) gradient->finish(context);
  }

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
         "expected a call without states, since compressed keys sum over all positions and cannot grow token "
         "by token (use the linear or the softmax family), got one with a state");
  }

  static void check(const AttentionInputs& inputs) {
    if (inputs.initial != nullptr) refuse_state();
    refuse_decay(kOperation, inputs.decay);
    if (inputs.query.rank() != 4 || inputs.key.rank() != 4) return;  // for the checks of shapes to say
    check_linformer(kOperation, inputs.mask, inputs.key_projection, inputs.value_projection,
                    inputs.query.extent(2), inputs.key.extent(1));
  }

  static void check_gradients(const AttentionGradients& gradients, const AttentionInputs& inputs) {
    check_projection_gradients(kOperation, gradients, inputs);
    if (gradients.key_projection.rank() != 0 &&
        gradients.key_projection.data() == gradients.value_projection.data())
      fail(kOperation, "expected memory of its own for the gradient of each projection, got the same twice");
  }

  std::unique_ptr<Attention> softmax_;
};

}  // namespace

std::unique_ptr<Attention> make_linformer_attention(const AttentionOptions& options) {
  check_scale(kOperation, options.scale);
  return std::make_unique<LinformerAttention>(options);
}

}  // namespace linnet
