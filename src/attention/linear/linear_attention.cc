#include "attention/linear/linear_attention.h"

#include <algorithm>
#include <cmath>

#include "attention/linear/linear_kernels.h"
#include "base/threads.h"

namespace linnet {
namespace {

constexpr const char* operation = "linear attention";

class LinearAttention final : public Attention {
 public:
  explicit LinearAttention(const AttentionOptions& options) : options_(options) {}

  void forward(const AttentionOutputs& outputs, const AttentionInputs& inputs) const override;
  void backward(const AttentionGradients& gradients, ConstFloatView grad_out, const AttentionInputs& inputs,
                ConstFloatView out, View<const float> normaliser) const override;
  std::unique_ptr<State> make_state(std::int64_t slots, const HeadShape& shape,
                                    std::int64_t capacity) const override;
  void step(View<float> out, View<const float> query, View<const float> key, View<const float> value,
            State& state, std::span<const std::int64_t> slots, View<const float> decay) const override;

 private:
  std::int64_t features(std::int64_t head_dim) const {
    const std::int64_t count = options_.feature_map->features(head_dim);
    if (count < 1)
      fail(operation, "expected the feature map {} to have at least 1 feature, got {}",
           options_.feature_map->name(), count);
    return count;
  }

  template <class S>
  auto& own_state(const char* which, S& state, const HeadShape& shape, std::int64_t features) const {
    using Own = std::conditional_t<std::is_const_v<S>, const LinearState, LinearState>;
    Own& own = family_state<Own>(operation, which, state);
    check_held_shape(operation, which, own.shape(), shape);
    if (own.features() != features)
      fail(operation, "expected {} with {} features a head, got {}", which, features, own.features());
    return own;
  }

  LinearCall call(const AttentionSizes& sizes, const AttentionInputs& inputs) const {
    const Mask::Kind kind = inputs.mask.kind();
    if ((kind != Mask::Kind::full && kind != Mask::Kind::causal) || inputs.mask.has_segments())
      fail(operation, "expected a full or causal mask, got {}", inputs.mask.name());
    if (inputs.query.dtype() != DType::f32 || inputs.decay.rank() != 0)
      fail(operation, "expected f32 inputs without decay");
    const std::int64_t count = features(sizes.head_dim);
    const LinearState* initial = nullptr;
    if (inputs.initial != nullptr)
      initial = &own_state("an initial state", *inputs.initial, sizes.shape(), count);
    return {*options_.feature_map,
            count,
            options_.normalise == Normalise::sum,
            options_.epsilon,
            options_.layer,
            sizes,
            inputs,
            initial};
  }

  AttentionOptions options_;
};

// Few heads leave threads idle: two blocks of value columns a head then, each computing what they share for
// itself. Columns do not meet, so the blocks change no bit.
std::int64_t column_blocks(const AttentionSizes& sizes) {
  return sizes.batch * sizes.heads < 4 && sizes.value_dim >= 32 ? 2 : 1;
}

// Heads that one task sweeps side by side. Their rows lie beside each other in memory: together they use what
// one alone would fetch in vain, lines as well as address translations. Their states must fit the
// second-level cache, and every thread should find a task. Heads do not meet, so the grouping changes no bit.
std::int64_t head_group(const AttentionSizes& sizes, std::int64_t features) {
  constexpr std::int64_t cache_floats = 1 << 17;
  const std::int64_t fitting = std::max<std::int64_t>(1, cache_floats / (features * sizes.value_dim));
  const std::int64_t shared = std::max<std::int64_t>(1, sizes.batch * sizes.heads / thread_count());
  return std::min({fitting, shared, sizes.heads});
}

void LinearAttention::forward(const AttentionOutputs& outputs, const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(operation, outputs, inputs);
  const LinearCall call = this->call(sizes, inputs);
  LinearState* final = nullptr;
  if (outputs.final != nullptr)
    final = &own_state("a final state", *outputs.final, sizes.shape(), call.features);
  const std::int64_t blocks = column_blocks(sizes), group = head_group(sizes, call.features);
  const std::int64_t groups = (sizes.heads + group - 1) / group;
  const std::int64_t width = (sizes.value_dim / blocks + 15) / 16 * 16;
  // Every block of a head reads the initial z, whose memory the final one may share: written once all have
  // read it.
  std::vector<float> final_z(final == nullptr ? 0 : sizes.batch * sizes.heads * call.features);
  parallel_for(sizes.batch * groups * blocks, [&](std::int64_t i) {
    const std::int64_t b = i / blocks / groups, h = i / blocks % groups * group;
    const std::int64_t first = i % blocks * width;
    const std::int64_t last = i % blocks + 1 == blocks ? sizes.value_dim : first + width;
    linear_forward_block(call, outputs, {b, h, std::min(h + group, sizes.heads), first, last}, final,
                         final_z.data());
  });
  if (final == nullptr) return;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h)
      std::copy_n(final_z.data() + (b * sizes.heads + h) * call.features, call.features,
                  final->normaliser(b, h));
    const std::int64_t before = call.initial == nullptr ? 0 : call.initial->position(b);
    final->set_position(b, before + call.visible_keys(b));
  }
}

void LinearAttention::backward(const AttentionGradients& gradients, ConstFloatView grad_out,
                               const AttentionInputs& inputs, ConstFloatView out,
                               View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(operation, gradients, grad_out, inputs, out, normaliser);
  const LinearGradientCall call = {this->call(sizes, inputs), grad_out.as<const float>(),
                                   out.as<const float>(), normaliser};
  const std::int64_t group = head_group(sizes, call.forward.features);
  const std::int64_t groups = (sizes.heads + group - 1) / group;
  // The two sweeps of a group are tasks of their own; the longer ones come first.
  parallel_for(2 * sizes.batch * groups, [&](std::int64_t i) {
    const bool of_keys = i < sizes.batch * groups;
    const std::int64_t b = i / groups % sizes.batch, h = i % groups * group;
    const LinearHeads heads = {b, h, std::min(h + group, sizes.heads)};
    if (of_keys)
      linear_key_gradient(call, gradients.key.as<float>(), gradients.value.as<float>(), heads);
    else
      linear_query_gradient(call, gradients.query.as<float>(), heads);
  });
}

std::unique_ptr<State> LinearAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                   std::int64_t capacity) const {
  check_make_state(operation, slots, shape, capacity);
  return std::make_unique<LinearState>(slots, shape, features(shape.head_dim));
}

void LinearAttention::step(View<float> out, View<const float> query, View<const float> key,
                           View<const float> value, State& state, std::span<const std::int64_t> slots,
                           View<const float> decay) const {
  if (decay.rank() != 0) fail(operation, "expected no decay, got one");
  const AttentionSizes sizes = check_step(operation, out, query, key, value, state, slots);
  const FeatureMap& map = *options_.feature_map;
  const std::int64_t count = features(sizes.head_dim);
  LinearState& own = own_state("a state", state, sizes.shape(), count);
  for (std::int64_t i = 0; i < sizes.batch; ++i) {
    const std::int64_t slot = slots[i];
    float* query_features = own.feature_rows(slot);
    float* key_features = query_features + count;
    TileContext context = {options_.layer, 0, own.position(slot), true};
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      context.head = static_cast<int>(h);
      context.query = true;
      map.forward({query_features, {1, count}}, {query.at(i, h), {1, sizes.head_dim}}, context);
      context.query = false;
      map.forward({key_features, {1, count}}, {key.at(i, h), {1, sizes.head_dim}}, context);
      linear_step_head(out.at(i, h), own.sums(slot, h), own.normaliser(slot, h), query_features, key_features,
                       value.at(i, h), count, sizes.value_dim, options_.normalise == Normalise::sum,
                       options_.epsilon);
    }
    own.set_position(slot, own.position(slot) + 1);
  }
}

}  // namespace

std::unique_ptr<Attention> make_linear_attention(const AttentionOptions& options) {
  if (options.feature_map == nullptr) fail<UsageError>(operation, "expected a feature map, got none");
  if (!(options.epsilon >= 0) || !std::isfinite(options.epsilon))
    fail<UsageError>(operation, "expected epsilon of at least 0, got {}", options.epsilon);
  return std::make_unique<LinearAttention>(options);
}

}  // namespace linnet
