#include "attention/sparse/strided_attention.h"

#include <algorithm>
#include <cmath>

#include "attention/arguments.h"
#include "attention/score_scale.h"
#include "attention/softmax/final_state.h"
#include "attention/softmax/softmax_attention.h"
#include "attention/softmax/tiles.h"
#include "attention/sparse/entry.h"
#include "attention/sparse/strided_passes.h"
#include "attention/sparse/strided_state.h"
#include "attention/tiles/wide.h"
#include "base/workspace.h"

namespace linnet {
namespace {

using softmax::held_gradient;
using softmax::HeldGradient;
using sparse::add_token;
using sparse::assign;
using sparse::copy_token;
using sparse::strided_backward;
using sparse::strided_entries;
using sparse::strided_forward;
using sparse::StridedEntry;
using sparse::StridedPattern;
using sparse::StridedState;
using sparse::StridedSums;

constexpr const char* kOperation = "strided attention";

class StridedAttention final : public Attention {
 public:
  explicit StridedAttention(const AttentionOptions& options)
      : pattern_{options.strided.stride,
                 options.strided.pattern == SparsePattern::fixed ? options.strided.summary : 0},
        scale_(options.scale) {}

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
  void check_call(const AttentionInputs& inputs) const;
  void check_recurrent() const;
  template <class R, class S>
  R* state_of(const char* which, S* state, const AttentionSizes& sizes) const;
  StridedPattern pattern_for(std::int64_t keys) const;
  float scale_of(std::int64_t head_dim) const { return static_cast<float>(score_scale(scale_, head_dim)); }

  /// Keys that a query at that position sees in the strided pattern.
  std::int64_t seen_at(std::int64_t position) const {
    return position + 1 - pattern_.near_begin(position) + pattern_.far_keys(position);
  }

  StridedPattern pattern_;  // a stride of 0 is that of the call's length
  float scale_;
};

/// The pattern of a call of that length.
StridedPattern with_stride(StridedPattern pattern, std::int64_t keys) {
  if (pattern.stride == 0) pattern.stride = default_stride(keys);
  return pattern;
}

StridedPattern StridedAttention::pattern_for(std::int64_t keys) const {
  const StridedPattern pattern = with_stride(pattern_, keys);
  if (pattern.summary > pattern.stride)
    fail(kOperation, "expected a summary of at most the stride {}, got {}", pattern.stride, pattern.summary);
  return pattern;
}

void StridedAttention::check_call(const AttentionInputs& inputs) const {
  refuse_decay(kOperation, inputs.decay);
  if (inputs.mask.kind() != Mask::Kind::causal || inputs.mask.has_segments())
    fail(
        kOperation,
        "expected a causal mask without segments, got the mask {}; use local, or softmax with a boolean mask "
        "of the pattern",
        inputs.mask.name());
}

/// The state as one of the call's shape and of this pattern; null stays null.
template <class R, class S>
R* StridedAttention::state_of(const char* which, S* state, const AttentionSizes& sizes) const {
  if (state == nullptr) return nullptr;
  R& own = family_state<R>(kOperation, which, *state);
  check_held_shape(kOperation, which, own.shape(), sizes.shape());
  if (own.pattern() != pattern_)
    fail(kOperation, "expected {} of stride {} and summary {}, got one of {} and {}", which, pattern_.stride,
         pattern_.summary, own.pattern().stride, own.pattern().summary);
  return &own;
}

void StridedAttention::forward(Context& context, const AttentionOutputs& outputs,
                               const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(kOperation, outputs, inputs);
  check_call(inputs);
  const StridedState* initial = state_of<const StridedState>("the initial state", inputs.initial, sizes);
  StridedState* final = state_of<StridedState>("the final state", outputs.final, sizes);
  for (std::int64_t b = 0; final != nullptr && b < sizes.batch; ++b)
    final->reserve(
        b, (initial != nullptr ? initial->position(b) : 0) + visible_keys(inputs.mask, b, sizes.keys));
  const StridedPattern pattern = pattern_for(sizes.keys);
  const WideInput query(context, inputs.query), key(context, inputs.key), value(context, inputs.value);
  const std::vector<StridedEntry> entries =
      strided_entries(context, pattern, query.view(), key.view(), value.view(), inputs.mask, initial);
  const WideOutput out(outputs.out);
  Tensor own_log_sum;
  if (outputs.normaliser.rank() == 0)
    own_log_sum = Tensor::of<float>({sizes.batch, sizes.queries, sizes.heads});
  strided_forward(context, {sizes, scale_of(sizes.head_dim), entries}, out.view(),
                  outputs.normaliser.rank() != 0 ? outputs.normaliser : own_log_sum.view<float>());
  out.finish(context);
  for (std::int64_t b = 0; final != nullptr && b < sizes.batch; ++b)
    softmax::leave_state(*final, initial, inputs, b);
}

/// Adds to the gradients of an entry's key rows what came for them through its summaries and, `from`, through
/// the final state of a stream that ends at position `last`; `to` receives what goes to the initial one.
void hand_back(const StridedEntry& entry, const StridedSums& sum, const HeldGradient<const float>& from,
               std::int64_t last, const HeldGradient<float>& to) {
  const StridedPattern& pattern = entry.pattern;
  if (to.data != nullptr) std::fill_n(to.data, HeldGradient<float>::floats(to.shape, to.held), 0.0f);
  const std::int64_t summaries = sum.far_key.rank() == 0 ? 0 : sum.far_key.extent(1);
  for (std::int64_t f = 0; f < summaries; ++f) {
    const std::int64_t row = pattern.summary_position(f) - entry.first_key;
    if (row < 0) {  // of the initial state
      if (to.data != nullptr) copy_token(to, f, sum.far_key, sum.far_value, f);
      continue;
    }
    for (std::int64_t h = 0; h < sum.key.extent(2); ++h) {
      add_row(sum.key.at(0, row, h), sum.far_key.at(0, f, h), sum.key.extent(3));
      add_row(sum.value.at(0, row, h), sum.far_value.at(0, f, h), sum.value.extent(3));
    }
  }
  for (std::int64_t t = 0; from.data != nullptr && t < from.held; ++t) {
    const std::int64_t row = pattern.held_position(t, last) - entry.first_key;
    if (row >= 0)
      add_token(sum.key, sum.value, row, from, t);
    else if (to.data != nullptr)
      add_token(to, t, from, t);  // a summary, which stays where it was
  }
  for (std::int64_t r = 0; to.data != nullptr && r < entry.held; ++r)
    copy_token(to, to.held - entry.held + r, sum.key, sum.value, r);
}

void StridedAttention::backward(Context& context, const AttentionGradients& gradients,
                                ConstFloatView grad_out, const AttentionInputs& inputs, ConstFloatView out,
                                View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  check_call(inputs);
  const StridedState* initial = state_of<const StridedState>("the initial state", inputs.initial, sizes);
  if (gradients.final.rank() != 0) check_recurrent();
  const StridedPattern pattern = pattern_for(sizes.keys);
  const auto last_position = [&](std::int64_t b) {
    return (initial != nullptr ? initial->position(b) : 0) + visible_keys(inputs.mask, b, sizes.keys);
  };
  check_state_gradient(kOperation, "the gradient of the final state", gradients.final, sizes.batch,
                       [&](std::int64_t b) {
                         return HeldGradient<float>::floats(sizes.shape(), pattern.held_at(last_position(b)));
                       });
  const WideInput query(context, inputs.query), key(context, inputs.key), value(context, inputs.value),
      wide_out(context, out), wide_grad(context, grad_out);
  const WideOutput grad_query = WideOutput::zeros(context, gradients.query),
                   grad_key = WideOutput::zeros(context, gradients.key),
                   grad_value = WideOutput::zeros(context, gradients.value);
  const std::vector<StridedEntry> entries =
      strided_entries(context, pattern, query.view(), key.view(), value.view(), inputs.mask, initial);
  std::vector<StridedSums> sums;
  std::vector<Tensor> memory;  // of what is not the caller's
  const auto room_for = [&](View<const float> rows) {
    memory.push_back(Tensor::of<float>(Shape(rows.shape().begin(), rows.shape().end())));
    return memory.back().view<float>();
  };
  for (const StridedEntry& entry : entries) {
    const std::int64_t b = std::ssize(sums);
    StridedSums& to = sums.emplace_back();
    to.query = grad_query.view().slice(0, b, b + 1);
    to.key = entry.held > 0 ? room_for(entry.key) : grad_key.view().slice(0, b, b + 1);
    to.value = entry.held > 0 ? room_for(entry.value) : grad_value.view().slice(0, b, b + 1);
    if (entry.far_key.rank() == 0) continue;
    to.far_key = room_for(entry.far_key);
    to.far_value = room_for(entry.far_value);
  }
  if (sizes.queries > 0)
    strided_backward(context, {sizes, scale_of(sizes.head_dim), entries}, sums, wide_grad.view(),
                     wide_out.view(), normaliser);
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    const StridedEntry& entry = entries[static_cast<std::size_t>(b)];
    const StridedSums& sum = sums[static_cast<std::size_t>(b)];
    const std::int64_t last = last_position(b);
    hand_back(entry, sum, held_gradient(gradients.final, b, sizes.shape(), pattern.held_at(last)), last,
              held_gradient(gradients.initial, b, sizes.shape(), initial != nullptr ? initial->held(b) : 0));
    if (entry.held == 0) continue;
    assign(context, grad_key.view(), b, sum.key.slice(1, entry.held, entry.keys()));
    assign(context, grad_value.view(), b, sum.value.slice(1, entry.held, entry.keys()));
  }
  for (const WideOutput* gradient : {&grad_query, &grad_key, &grad_value}) gradient->finish(context);
}

void StridedAttention::check_recurrent() const {
  if (pattern_.stride == 0)
    fail(kOperation,
         "expected a stride for a recurrent form, since a stream has no length whose root it could "
         "be, got none");
}

std::unique_ptr<State> StridedAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                    std::int64_t capacity, std::span<float> memory) const {
  check_make_state(kOperation, slots, shape, capacity);
  check_memory(kOperation, memory, slots, state_floats(shape, capacity));
  return std::make_unique<StridedState>(slots, shape, capacity, pattern_, memory.data());
}

std::int64_t StridedAttention::state_floats(const HeadShape& shape, std::int64_t capacity) const {
  check_make_state(kOperation, 0, shape, capacity);
  check_recurrent();
  return softmax::Cache::slot_floats(shape, pattern_.held_at_most(capacity));
}

/// What the newest token of the strided pattern sees of `dim` numbers a token, one after another.
void gather_seen(float* to, const float* rows, std::int64_t dim, std::int64_t newest, std::int64_t stride) {
  const std::int64_t first = std::max<std::int64_t>(0, newest - stride + 1);
  to = std::copy_n(rows + first * dim, (newest + 1 - first) * dim, to);
  for (std::int64_t j = newest - stride; j >= 0; j -= stride) to = std::copy_n(rows + j * dim, dim, to);
}

void StridedAttention::step(Context& context, View<float> out, View<const float> query, View<const float> key,
                            View<const float> value, State& state, std::span<const std::int64_t> slots,
                            View<const float> decay) const {
  refuse_decay(kOperation, decay);
  const AttentionSizes sizes = check_step(kOperation, out, query, key, value, state, slots);
  StridedState& own = *state_of<StridedState>("the state", &state, sizes);
  // All memory is taken before a token is: where there is too little, no slot has changed.
  std::int64_t gathered = 0;
  for (const std::int64_t slot : slots) {
    const std::int64_t newest = own.position(slot);
    own.reserve(slot, newest + 1);
    if (!pattern_.fixed()) gathered = std::max(gathered, seen_at(newest));
  }
  // Rows are read in whole vectors: 64 bytes behind the last one must be memory of ours.
  constexpr std::int64_t slack = 16;
  Workspace workspace(context);
  float* keys =
      gathered == 0 ? nullptr : workspace.take(static_cast<std::size_t>(gathered * sizes.head_dim + slack));
  float* values =
      gathered == 0 ? nullptr : workspace.take(static_cast<std::size_t>(gathered * sizes.value_dim + slack));
  for (std::int64_t i = 0; i < sizes.batch; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    own.push(slot, key.slice(0, i, i + 1), value.slice(0, i, i + 1));
    const std::int64_t newest = own.position(slot) - 1;
    const std::int64_t seen = pattern_.fixed() ? own.held(slot) : seen_at(newest);
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const softmax::KeyRange range = own.cache().head(slot, h);
      softmax::StepHead head;
      head.count = seen;
      head.scale = scale_of(sizes.head_dim);
      head.query = query.at(i, h);
      head.keys = range.key;
      head.values = range.value;
      if (!pattern_.fixed()) {
        gather_seen(keys, range.key.floats(), sizes.head_dim, newest, pattern_.stride);
        gather_seen(values, range.value.floats(), sizes.value_dim, newest, pattern_.stride);
        head.keys = dense_rows(keys, sizes.head_dim);
        head.values = dense_rows(values, sizes.value_dim);
      }
      head.out = out.at(i, h);
      head.scratch = own.scratch(slot);
      softmax::step_head(head);
    }
    own.forget(slot);
  }
}

/// The inputs under the mask of the pattern, once they fit: softmax's reference sees no other mask. `out` is
/// what has the shape of the output.
ReferenceInputs patterned(const AttentionOptions& options, View<const double> out,
                          const ReferenceInputs& inputs) {
  check_reference("strided attention reference", out, inputs);
  ReferenceInputs result = inputs;
  const std::int64_t s = with_stride({options.strided.stride}, inputs.key.extent(1)).stride;
  result.mask = sparse::masked_pattern(inputs.mask, inputs.key.extent(1),
                                       [s, fixed = options.strided.pattern == SparsePattern::fixed,
                                        c = options.strided.summary](std::int64_t i, std::int64_t j) {
                                         return fixed ? i / s == j / s || j % s >= s - c
                                                      : i - j < s || (i - j) % s == 0;
                                       });
  return result;
}

}  // namespace

std::int64_t default_stride(std::int64_t length) {
  std::int64_t root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(length)));
  while (root > 0 && root < length / root + (length % root != 0 ? 1 : 0)) ++root;
  return std::max<std::int64_t>(32, (root + 31) / 32 * 32);
}

std::unique_ptr<Attention> make_strided_attention(const AttentionOptions& options) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (options.strided.stride < 0 || options.strided.stride > most)
    fail<UsageError>(kOperation, "expected a stride from 1 to 2^40, or 0 for the root of the length, got {}",
                     options.strided.stride);
  if (options.strided.pattern != SparsePattern::strided && options.strided.pattern != SparsePattern::fixed)
    fail<UsageError>(kOperation, "expected the pattern strided or fixed, got the number {}",
                     static_cast<int>(options.strided.pattern));
  if (options.strided.pattern == SparsePattern::fixed &&
      (options.strided.summary < 1 ||
       (options.strided.stride != 0 && options.strided.summary > options.strided.stride)))
    fail<UsageError>(
        kOperation, "expected a summary of at least 1 key{}, got {}",
        options.strided.stride == 0 ? "" : fmt::format(" and at most the stride {}", options.strided.stride),
        options.strided.summary);
  check_scale(kOperation, options.scale);
  return std::make_unique<StridedAttention>(options);
}

void strided_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs) {
  softmax_reference_forward(options, out, patterned(options, out, inputs));
}

void strided_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                View<const double> grad_out, const ReferenceInputs& inputs) {
  softmax_reference_backward(options, gradients, grad_out, patterned(options, grad_out, inputs));
}

}  // namespace linnet
