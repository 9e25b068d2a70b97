#include "attention/sparse/local_attention.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/score_scale.h"
#include "attention/softmax/final_state.h"
#include "attention/softmax/softmax_attention.h"
#include "attention/softmax/tiles.h"
#include "attention/sparse/entry.h"
#include "attention/sparse/ring.h"

namespace linnet {
namespace {

using softmax::held_gradient;
using softmax::HeldGradient;
using softmax::LastTokens;
using sparse::add_token;
using sparse::assign;
using sparse::copy_token;
using sparse::entry_of;
using sparse::joined;
using sparse::Ring;

constexpr const char* kOperation = "local attention";

/// One batch entry in f32, behind what the initial state holds of it, and what its queries see.
struct Entry {
  std::int64_t held = 0;
  Tensor query, key, value;
  Mask mask = Mask::full();

  AttentionInputs inputs() const {
    return {query.view<float>(), key.view<float>(), value.view<float>(), mask};
  }
};

class LocalAttention final : public Attention {
 public:
  explicit LocalAttention(const AttentionOptions& options)
      : left_(options.local.left),
        right_(options.local.right),
        scale_(options.scale),
        softmax_(make_softmax_attention(options)) {}

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

 private:
  /// Whether softmax knows the intersection of mask and window for all batch entries at once.
  static bool at_once(const AttentionInputs& inputs) {
    const Mask::Kind kind = inputs.mask.kind();
    return inputs.initial == nullptr &&
           (kind == Mask::Kind::full || kind == Mask::Kind::causal || kind == Mask::Kind::window);
  }

  void check_mask(const AttentionInputs& inputs, const AttentionSizes& sizes) const;
  void check_recurrent() const;
  template <class R, class S>
  R* ring_of(const char* which, S* state, const AttentionSizes& sizes) const;
  Entry entry(Context& context, const AttentionInputs& inputs, const Ring* initial, std::int64_t b) const;

  std::int64_t left_, right_;
  float scale_;
  std::unique_ptr<Attention> softmax_;
};

void LocalAttention::check_mask(const AttentionInputs& inputs, const AttentionSizes& sizes) const {
  refuse_decay(kOperation, inputs.decay);
  if (inputs.mask.kind() == Mask::Kind::boolean)
    fail(kOperation,
         "expected a mask of intervals, got a boolean one; use softmax with a boolean mask that is 0 outside "
         "the window");
  if (sizes.queries != sizes.keys)
    fail(kOperation, "expected as many queries as keys, got {} and {}", sizes.queries, sizes.keys);
}

/// The state as a ring of the call's shape; null stays null.
template <class R, class S>
R* LocalAttention::ring_of(const char* which, S* state, const AttentionSizes& sizes) const {
  if (state == nullptr) return nullptr;
  R& ring = family_state<R>(kOperation, which, *state);
  check_held_shape(kOperation, which, ring.shape(), sizes.shape());
  if (ring.capacity() != left_ + 1)
    fail(kOperation, "expected {} of {} tokens, got one of {}", which, left_ + 1, ring.capacity());
  return &ring;
}

Entry LocalAttention::entry(Context& context, const AttentionInputs& inputs, const Ring* initial,
                            std::int64_t b) const {
  const std::int64_t length = inputs.query.extent(1);
  Entry entry;
  entry.held = initial != nullptr ? std::min(initial->held(b), left_) : 0;
  entry.query = joined(context, inputs.query, b);
  entry.key = joined(context, inputs.key, b, entry.held,
                     [&](std::int64_t t, std::int64_t h) { return initial->key(b, entry.held - 1 - t, h); });
  entry.value = joined(context, inputs.value, b, entry.held, [&](std::int64_t t, std::int64_t h) {
    return initial->value(b, entry.held - 1 - t, h);
  });
  std::vector<std::int64_t> begin, end;
  const std::int64_t continuing = length > 0 ? segment_of(inputs.mask, b, 0, length).end : 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const Mask::Interval own = inputs.mask.interval(b, i, length);
    // What the state holds lies before the first segment's first key, which its queries see.
    const std::int64_t first = i < continuing ? own.begin - entry.held : own.begin;
    begin.push_back(entry.held + std::max(first, i - left_));
    end.push_back(entry.held + std::min(own.end, i + right_ + 1));
  }
  entry.mask = Mask::intervals(std::move(begin), std::move(end));
  return entry;
}

void LocalAttention::forward(Context& context, const AttentionOutputs& outputs,
                             const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(kOperation, outputs, inputs);
  check_mask(inputs, sizes);
  const Ring* initial = ring_of<const Ring>("the initial state", inputs.initial, sizes);
  Ring* final = ring_of<Ring>("the final state", outputs.final, sizes);
  if (at_once(inputs)) {
    AttentionInputs in = inputs;
    in.mask = inputs.mask.within(left_, right_);
    softmax_->forward(context, {outputs.out, outputs.normaliser}, in);
  } else {
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      const Entry one = entry(context, inputs, initial, b);
      Tensor out = Tensor::of<float>({1, sizes.queries, sizes.heads, sizes.value_dim});
      softmax_->forward(context, {out.view<float>(), entry_of(outputs.normaliser, b)}, one.inputs());
      assign(context, outputs.out, b, out.view<float>());
    }
  }
  for (std::int64_t b = 0; final != nullptr && b < sizes.batch; ++b)
    softmax::leave_state(*final, initial, inputs, b);
}

void LocalAttention::backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                              const AttentionInputs& inputs, ConstFloatView out,
                              View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  check_mask(inputs, sizes);
  const Ring* initial = ring_of<const Ring>("the initial state", inputs.initial, sizes);
  if (gradients.final.rank() != 0) check_recurrent();
  const auto held_by = [](const Ring* ring, std::int64_t b) { return ring != nullptr ? ring->held(b) : 0; };
  // Of the last tokens the final state holds the last ones.
  const auto last_tokens = [&](std::int64_t b) { return LastTokens(inputs, b, held_by(initial, b)); };
  const auto kept_of = [&](const LastTokens& last) { return std::min(last.count(), left_ + 1); };
  check_state_gradient(
      kOperation, "the gradient of the final state", gradients.final, sizes.batch,
      [&](std::int64_t b) { return HeldGradient<float>::floats(sizes.shape(), kept_of(last_tokens(b))); });
  if (at_once(inputs) && gradients.final.rank() == 0) {
    AttentionInputs in = inputs;
    in.mask = inputs.mask.within(left_, right_);
    softmax_->backward(context, gradients, grad_out, in, out, normaliser);
    return;
  }
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    const Entry one = entry(context, inputs, initial, b);
    const Tensor wide_grad = joined(context, grad_out, b), wide_out = joined(context, out, b);
    Tensor dq = Tensor::of<float>(one.query.shape()), dk = Tensor::of<float>(one.key.shape()),
           dv = Tensor::of<float>(one.value.shape());
    softmax_->backward(context, {dq.view<float>(), dk.view<float>(), dv.view<float>()},
                       wide_grad.view<float>(), one.inputs(), wide_out.view<float>(),
                       entry_of(normaliser, b));
    const LastTokens last = last_tokens(b);
    const std::int64_t held = held_by(initial, b), kept = kept_of(last);
    const HeldGradient<const float> from = held_gradient(gradients.final, b, sizes.shape(), kept);
    const HeldGradient<float> to = held_gradient(gradients.initial, b, sizes.shape(), held);
    // Row r of the joined tokens is token r + unseen of the initial state, of which no query sees the first
    // ones, or a key of the call.
    const std::int64_t unseen = held - one.held;
    const auto row_of = [&](std::int64_t t) {
      const std::int64_t token = last.count() - kept + t;
      return token < last.carried ? token - unseen : one.held + last.keys.begin + token - last.carried;
    };
    for (std::int64_t t = 0; from.data != nullptr && t < kept; ++t)
      if (row_of(t) >= 0) add_token(dk.view<float>(), dv.view<float>(), row_of(t), from, t);
    if (to.data != nullptr) {
      std::fill_n(to.data, HeldGradient<float>::floats(sizes.shape(), held), 0.0f);
      for (std::int64_t r = 0; r < one.held; ++r)
        copy_token(to, r + unseen, dk.view<float>(), dv.view<float>(), r);
      for (std::int64_t t = 0; from.data != nullptr && t < kept; ++t)
        if (row_of(t) < 0) add_token(to, row_of(t) + unseen, from, t);
    }
    assign(context, gradients.query, b, dq.view<float>());
    assign(context, gradients.key, b, dk.view<float>().slice(1, one.held, one.held + sizes.keys));
    assign(context, gradients.value, b, dv.view<float>().slice(1, one.held, one.held + sizes.keys));
  }
}

void LocalAttention::check_recurrent() const {
  if (right_ != 0)
    fail(kOperation, "expected a window that ends at the query (right 0) for a recurrent form, got right {}",
         right_);
}

std::unique_ptr<State> LocalAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                  std::int64_t capacity, std::span<float> memory) const {
  check_make_state(kOperation, slots, shape, capacity);
  check_memory(kOperation, memory, slots, state_floats(shape, capacity));
  return std::make_unique<Ring>(slots, shape, left_, memory.data());
}

std::int64_t LocalAttention::state_floats(const HeadShape& shape, std::int64_t capacity) const {
  check_make_state(kOperation, 0, shape, capacity);
  check_recurrent();
  return Ring::slot_floats(shape, left_);
}

void LocalAttention::step(Context&, View<float> out, View<const float> query, View<const float> key,
                          View<const float> value, State& state, std::span<const std::int64_t> slots,
                          View<const float> decay) const {
  refuse_decay(kOperation, decay);
  const AttentionSizes sizes = check_step(kOperation, out, query, key, value, state, slots);
  Ring& ring = *ring_of<Ring>("the state", &state, sizes);
  for (std::int64_t i = 0; i < sizes.batch; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    ring.append(slot, key.slice(0, i, i + 1), value.slice(0, i, i + 1));
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      softmax::StepHead head;
      head.count = ring.held(slot);
      head.scale = static_cast<float>(score_scale(scale_, sizes.head_dim));
      head.query = query.at(i, h);
      head.keys = dense_rows(ring.keys(slot, h), sizes.head_dim);
      head.values = dense_rows(ring.values(slot, h), sizes.value_dim);
      head.out = out.at(i, h);
      head.scratch = ring.scratch(slot);
      softmax::step_head(head);
    }
  }
}

/// The inputs under the mask of the window, once they fit: softmax's reference sees no other mask. `out` is
/// what has the shape of the output.
ReferenceInputs windowed(const AttentionOptions& options, View<const double> out,
                         const ReferenceInputs& inputs) {
  check_reference("local attention reference", out, inputs);
  ReferenceInputs result = inputs;
  result.mask =
      sparse::masked_pattern(inputs.mask, inputs.key.extent(1),
                             [left = options.local.left, right = options.local.right](
                                 std::int64_t i, std::int64_t j) { return i - j <= left && j - i <= right; });
  return result;
}

}  // namespace

std::unique_ptr<Attention> make_local_attention(const AttentionOptions& options) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  for (const std::int64_t width : {options.local.left, options.local.right}) {
    if (width < 0 || width > most)
      fail<UsageError>(kOperation, "expected a window of 0 to 2^40 keys to either side, got {}", width);
  }
  check_scale(kOperation, options.scale);
  return std::make_unique<LocalAttention>(options);
}

void local_reference_forward(const AttentionOptions& options, View<double> out,
                             const ReferenceInputs& inputs) {
  softmax_reference_forward(options, out, windowed(options, out, inputs));
}

void local_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                              View<const double> grad_out, const ReferenceInputs& inputs) {
  softmax_reference_backward(options, gradients, grad_out, windowed(options, grad_out, inputs));
}

}  // namespace linnet
