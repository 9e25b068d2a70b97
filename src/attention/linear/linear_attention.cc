#include "attention/linear/linear_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/linear/linear_kernels.h"
#include "attention/linear/sweep_plan.h"
#include "base/parallel.h"
#include "base/workspace.h"

namespace linnet {

// Short enough that the triangle within a chunk, C (F + M) FLOPs a token, stays small beside the 4 F M of the
// state, long enough that loading and storing S once a chunk does. A state beyond the second-level cache is
// loaded rarely.
std::int64_t LinearCall::chunk() const {
  const Mask::Kind kind = inputs.mask.kind();
  const bool plain = (kind == Mask::Kind::full || kind == Mask::Kind::causal) && !inputs.mask.has_segments();
  if (plain && kind == Mask::Kind::full) return features * sizes.value_dim >= (1 << 18) ? 128 : 64;
  return plain && features * sizes.value_dim >= (1 << 18) ? 128 : kTileRows;
}

namespace {

constexpr const char* operation = "linear attention";

class LinearAttention final : public Attention {
 public:
  explicit LinearAttention(const AttentionOptions& options)
      : options_(options), map_(*options.linear.feature_map), traits_(map_.traits()) {}

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
  std::int64_t features(std::int64_t head_dim) const { return checked_features(operation, map_, head_dim); }

  template <class S>
  auto& own_state(const char* which, S& state, const HeadShape& shape, std::int64_t features) const {
    using Own = std::conditional_t<std::is_const_v<S>, const LinearState, LinearState>;
    Own& own = family_state<Own>(operation, which, state);
    check_held_shape(operation, which, own.shape(), shape);
    if (own.features() != features)
      fail(operation, "expected {} with {} features a head, got {}", which, features, own.features());
    if (own.scaled() != (traits_.log_scaled))
      fail(operation, "expected {} of the feature map {}, got one {} log-scales", which, map_.name(),
           own.scaled() ? "with" : "without");
    return own;
  }

  /// φ of one token's heads, y [H, F] and their log-scales [H] from x [H, E].
  void map_heads(View<float> y, double* log_scale, View<const float> x, TileContext context) const {
    const std::int64_t heads = x.extent(0), rows = traits_.row_alone ? heads : 1;
    for (std::int64_t h = 0; h < heads; h += rows) {
      context.head = static_cast<int>(h);
      const View<float> to = y.slice(0, h, h + rows);
      const View<const float> from = x.slice(0, h, h + rows);
      if (traits_.log_scaled)
        map_.forward_scaled(to, {log_scale + h, static_cast<std::size_t>(rows)}, from, context);
      else
        map_.forward(to, from, context);
    }
  }

  /// Takes a key with its log-scale into a head's, which falls by the decay before: scales its features, and
  /// returns what the sums so far are to be multiplied by.
  static double rescale(LinearState& state, std::int64_t slot, std::int64_t head,
                        std::span<float> key_features, double key_scale, double log_decay) {
    const double before = state.scale(slot, head) + log_decay;
    if (!(key_scale <= before))
      state.set_scale(slot, head, key_scale);
    else if (log_decay != 0)
      state.set_scale(slot, head, before);
    const double now = state.scale(slot, head);
    // A key too long for a scale counts as 0, as in the parallel form.
    const auto weight = static_cast<float>(
        now == -std::numeric_limits<double>::infinity() ? 0 : exp_or_zero(key_scale - now));
    for (float& feature : key_features) feature *= weight;
    return now == before ? 1 : exp_or_zero(before - now);
  }

  /// e^x, without the subnormal numbers that slow everything down.
  static double exp_or_zero(double x) { return x < -87 ? 0 : std::exp(x); }

  float epsilon() const { return traits_.log_scaled ? 0.0f : options_.linear.epsilon; }

  LinearCall call(const AttentionSizes& sizes, const AttentionInputs& inputs) const {
    check_decay(operation, inputs.decay, inputs.mask, sizes.heads);
    const std::int64_t count = features(sizes.head_dim);
    const LinearState* initial = nullptr;
    if (inputs.initial != nullptr)
      initial = &own_state("an initial state", *inputs.initial, sizes.shape(), count);
    return {map_,      traits_.log_scaled, count, options_.linear.normalise == Normalise::sum,
            epsilon(), options_.layer,     sizes, inputs,
            initial};
  }

  AttentionOptions options_;
  const FeatureMap& map_;  // of the options
  const FeatureMapTraits traits_;
};

// Few heads leave threads idle: two blocks of value columns a head then, each computing what they share for
// itself. Columns do not meet, so the blocks change no bit.
std::int64_t column_blocks(const AttentionSizes& sizes) {
  return sizes.batch * sizes.heads < 4 && sizes.value_dim >= 32 ? 2 : 1;
}

// Heads that one task sweeps side by side. Their rows lie beside each other in memory: together they use what
// one alone would fetch in vain, lines as well as address translations. What a step touches of their states
// must fit the second-level cache, and every thread should find a task. Heads do not meet, so the grouping
// changes no bit.
std::int64_t head_group(const Context& context, const AttentionSizes& sizes, std::int64_t features,
                        const Mask& mask) {
  constexpr std::int64_t cache_floats = 1 << 17, most_floats = 1 << 22;
  const std::int64_t state = features * sizes.value_dim;
  std::int64_t sums = 1, touched = 1;
  if (sizes.queries > 0 && (mask.kind() == Mask::Kind::window || mask.kind() == Mask::Kind::intervals)) {
    // A sum for every chunk of what a query sees. A step touches six at most: those that a chunk enters and
    // leaves, and what lies between.
    const Mask::Interval seen = mask.interval(0, sizes.queries / 2, sizes.keys);
    sums += (seen.end - seen.begin) / kTileRows;
    touched = std::min<std::int64_t>(sums, 6);
  }
  const std::int64_t fitting =
      std::max<std::int64_t>(1, std::min(cache_floats / (state * touched), most_floats / (state * sums)));
  const std::int64_t shared = std::max<std::int64_t>(1, sizes.batch * sizes.heads / context.threads());
  return std::min({fitting, shared, sizes.heads});
}

void LinearAttention::forward(Context& context, const AttentionOutputs& outputs,
                              const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(operation, outputs, inputs, true);
  const LinearCall call = this->call(sizes, inputs);
  LinearState* final = nullptr;
  if (outputs.final != nullptr)
    final = &own_state("a final state", *outputs.final, sizes.shape(), call.features);
  const std::int64_t blocks = column_blocks(sizes),
                     group = head_group(context, sizes, call.features, inputs.mask);
  const std::int64_t groups = (sizes.heads + group - 1) / group;
  const std::int64_t width = (sizes.value_dim / blocks + 15) / 16 * 16;
  // Every block of a head reads the initial z, whose memory the final one may share: written once all have
  // read it.
  const std::int64_t heads = final == nullptr ? 0 : sizes.batch * sizes.heads;
  std::vector<float> final_z(2 * heads * call.features);
  std::vector<double> final_scale(heads);
  parallel_for(context, sizes.batch * groups * blocks, [&](Context& own, std::int64_t i) {
    const std::int64_t b = i / blocks / groups, h = i / blocks % groups * group;
    const std::int64_t first = i % blocks * width;
    const std::int64_t last = i % blocks + 1 == blocks ? sizes.value_dim : first + width;
    linear_forward_block(own, call, outputs, {b, h, std::min(h + group, sizes.heads), first, last}, final,
                         {final_z.data(), final_scale.data()});
  });
  if (final == nullptr) return;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      for (int part = 0; part < final->parts(); ++part)
        std::copy_n(final_z.data() + ((b * sizes.heads + h) * 2 + part) * call.features, call.features,
                    final->key_sum(b, h, part));
      final->set_scale(b, h, final_scale[b * sizes.heads + h]);
    }
    const std::int64_t before = call.initial == nullptr ? 0 : call.initial->position(b);
    final->set_position(b, before + call.visible_keys(b));
  }
}

/// What the initial state adds to γ dL/dγ where log-scales take the decay.
double decay_sum_of_initial(const LinearGradientCall& call, std::int64_t b, std::int64_t h) {
  if (!call.forward.continues(b)) return 0;
  const LinearState& state = *call.forward.initial;
  const float* gradient = call.grad_initial.at(b);
  const auto product = [&](const float* of, const float* numbers, const float* rest, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(of[i]) *
             (static_cast<double>(numbers[i]) - (state.parts() == 2 ? static_cast<double>(rest[i]) : 0));
    return sum;
  };
  const int rest = state.parts() - 1;
  const std::int64_t features = call.forward.features;
  const double sum =
      product(gradient + call.sums_at(h), state.sums(b, h, 0), state.sums(b, h, rest),
              features * call.forward.sizes.value_dim) +
      product(gradient + call.key_sum_at(h), state.key_sum(b, h, 0), state.key_sum(b, h, rest), features);
  return static_cast<double>(call.decay_origin(b) + 1) * sum;
}

void LinearAttention::backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                               const AttentionInputs& inputs, ConstFloatView out,
                               View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(operation, gradients, grad_out, inputs, out, normaliser, true);
  std::vector<double> decay_sums(2 * sizes.batch * sizes.heads);
  LinearGradientCall call = {this->call(sizes, inputs),
                             grad_out,
                             out,
                             normaliser,
                             gradients.decay.rank() != 0 ? decay_sums.data() : nullptr,
                             gradients.initial,
                             gradients.final};
  call.forward.state_gradients = gradients.initial.rank() != 0 || gradients.final.rank() != 0;
  // γ's gradient takes that of the initial state, where a final one takes part too.
  Tensor of_initial;
  const bool needs_initial = traits_.log_scaled && gradients.decay.rank() != 0 && inputs.initial != nullptr &&
                             gradients.final.rank() != 0;
  if (needs_initial && call.grad_initial.rank() == 0) {
    of_initial = Tensor::of<float>({sizes.batch, call.key_sum_at(sizes.heads)});
    call.grad_initial = of_initial.view<float>();
  }
  check_state_gradient(
      operation, "the gradient of the final state", gradients.final, sizes.batch,
      [&](std::int64_t) { return call.sums_at(sizes.heads) + sizes.heads * call.forward.features; });
  const std::int64_t group = head_group(context, sizes, call.forward.features, inputs.mask);
  const std::int64_t groups = (sizes.heads + group - 1) / group;
  const int sweeps = gradients.query.rank() != 0 ? 2 : 1;
  // The two sweeps of a group are tasks of their own; the longer ones come first.
  parallel_for(context, sweeps * sizes.batch * groups, [&](Context& own, std::int64_t i) {
    const bool of_keys = i < sizes.batch * groups;
    const std::int64_t b = i / groups % sizes.batch, h = i % groups * group;
    const LinearBlock heads = {b, h, std::min(h + group, sizes.heads), 0, sizes.value_dim};
    if (of_keys)
      linear_key_gradient(own, call, gradients.key, gradients.value, heads);
    else
      linear_query_gradient(own, call, gradients.query, heads);
  });
  if (gradients.decay.rank() == 0) return;
  for (std::int64_t h = 0; h < sizes.heads; ++h) {
    double sum = 0;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      sum += call.decay_sum(false, b, h) + call.decay_sum(true, b, h) +
             (needs_initial ? decay_sum_of_initial(call, b, h) : 0);
    gradients.decay(h) = static_cast<float>(sum / inputs.decay(h));
  }
}

std::unique_ptr<State> LinearAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                   std::int64_t capacity, std::span<float> memory) const {
  check_make_state(operation, slots, shape, capacity);
  check_memory(operation, memory, slots, state_floats(shape, capacity));
  return std::make_unique<LinearState>(slots, shape, features(shape.head_dim), options_.linear.sums,
                                       traits_.log_scaled, memory.data());
}

std::int64_t LinearAttention::state_floats(const HeadShape& shape, std::int64_t capacity) const {
  check_make_state(operation, 0, shape, capacity);
  return LinearState::slot_floats(shape, features(shape.head_dim), options_.linear.sums, traits_.log_scaled);
}

void LinearAttention::step(Context& context, View<float> out, View<const float> query, View<const float> key,
                           View<const float> value, State& state, std::span<const std::int64_t> slots,
                           View<const float> decay) const {
  const AttentionSizes sizes = check_step(operation, out, query, key, value, state, slots);
  const std::int64_t count = features(sizes.head_dim);
  LinearState& states = own_state("a state", state, sizes.shape(), count);
  check_decay(operation, decay, Mask::causal(), sizes.heads);
  parallel_for(context, sizes.batch, [&](Context& own, std::int64_t i) {
    const std::int64_t slot = slots[i];
    if (states.position(slot) == 0) states.reset(slot);  // its memory may hold anything
    const LinearState::Features mapped = states.features_of(slot);
    const auto heads_of = [&](View<const float> rows) {
      return View<const float>(rows.at(i), {sizes.heads, sizes.head_dim}, {rows.stride(1), 1});
    };
    map_heads(mapped.query, mapped.query_scale, heads_of(query),
              {options_.layer, 0, states.position(slot), true, &own});
    map_heads(mapped.key, mapped.key_scale, heads_of(key),
              {options_.layer, 0, states.position(slot), false, &own});
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      double fade = decay.rank() == 0 ? 1.0 : decay(h);
      float scale = 1;
      if (traits_.log_scaled) {
        const std::span<float> key_features(mapped.key.at(h), static_cast<std::size_t>(count));
        const double log_decay = decay.rank() == 0 ? 0 : portable_log(decay(h));
        fade = rescale(states, slot, h, key_features, mapped.key_scale[h], log_decay);
        scale = static_cast<float>(exp_or_zero(mapped.query_scale[h] + states.scale(slot, h)));
      }
      linear_step_head({.out = out.at(i, h),
                        .sums = states.sums(slot, h, 0),
                        .z = states.key_sum(slot, h, 0),
                        .sums_rest = states.sums(slot, h, states.parts() - 1),
                        .z_rest = states.key_sum(slot, h, states.parts() - 1),
                        .compensated = states.parts() == 2,
                        .query_features = mapped.query.at(h),
                        .key_features = mapped.key.at(h),
                        .value = value.at(i, h),
                        .features = count,
                        .value_dim = sizes.value_dim,
                        .decay = fade,
                        .normalise = options_.linear.normalise == Normalise::sum,
                        .epsilon = epsilon(),
                        .least = least_denominator(traits_.log_scaled),
                        .must_be_positive = traits_.log_scaled,
                        .scale = scale});
    }
    states.set_position(slot, states.position(slot) + 1);
  });
}

void LinearAttention::read(Context& context, View<float> out, View<const float> query, const State& state,
                           std::span<const std::int64_t> slots,
                           std::span<const std::int64_t> positions) const {
  const AttentionSizes sizes = check_read(operation, out, query, state, slots, positions);
  const std::int64_t count = features(sizes.head_dim);
  // The kernel's pointers serve steps too; it writes nothing where there is no key.
  LinearState& states = const_cast<LinearState&>(own_state("a state", state, sizes.shape(), count));
  parallel_for(context, sizes.batch, [&](Context& own, std::int64_t i) {
    const std::int64_t slot = slots[i];
    Workspace workspace(own);
    const View<float> mapped = workspace.take(sizes.heads, count);
    double* const log_scale = workspace.array<double>(sizes.heads).data();
    map_heads(mapped, log_scale,
              View<const float>(query.at(i), {sizes.heads, sizes.head_dim}, {query.stride(1), 1}),
              {options_.layer, 0, positions.empty() ? 0 : positions[i], true, &own});
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      if (states.position(slot) == 0) {  // its memory may hold anything
        std::fill_n(out.at(i, h), sizes.value_dim, 0.0f);
        continue;
      }
      linear_step_head({.out = out.at(i, h),
                        .sums = states.sums(slot, h, 0),
                        .z = states.key_sum(slot, h, 0),
                        .sums_rest = states.sums(slot, h, states.parts() - 1),
                        .z_rest = states.key_sum(slot, h, states.parts() - 1),
                        .compensated = states.parts() == 2,
                        .query_features = mapped.at(h),
                        .key_features = nullptr,
                        .value = nullptr,
                        .features = count,
                        .value_dim = sizes.value_dim,
                        .decay = 1,
                        .normalise = options_.linear.normalise == Normalise::sum,
                        .epsilon = epsilon(),
                        .least = least_denominator(traits_.log_scaled),
                        .must_be_positive = traits_.log_scaled,
                        .scale = traits_.log_scaled
                                     ? static_cast<float>(exp_or_zero(log_scale[h] + states.scale(slot, h)))
                                     : 1});
    }
  });
}

}  // namespace

std::int64_t checked_features(const char* operation, const FeatureMap& map, std::int64_t head_dim) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  const std::int64_t count = map.features(head_dim);
  if (count < 1 || count > most)
    fail(operation, "expected the feature map {} to have 1 to {} features, got {}", map.name(), most, count);
  return count;
}

std::unique_ptr<Attention> make_linear_attention(const AttentionOptions& options) {
  if (options.linear.feature_map == nullptr) fail<UsageError>(operation, "expected a feature map, got none");
  if (!(options.linear.epsilon >= 0) || !std::isfinite(options.linear.epsilon))
    fail<UsageError>(operation, "expected a finite epsilon of at least 0, got {}", options.linear.epsilon);
  check_normalise(operation, options.linear.normalise);
  return std::make_unique<LinearAttention>(options);
}

}  // namespace linnet
