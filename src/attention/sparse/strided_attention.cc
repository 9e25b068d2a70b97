#include "attention/sparse/strided_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/arguments.h"
#include "attention/score_scale.h"
#include "attention/softmax/softmax_attention.h"
#include "attention/softmax/tiles.h"
#include "attention/sparse/entry.h"
#include "attention/sparse/strided_state.h"
#include "attention/tiles/merge.h"
#include "attention/tiles/wide.h"
#include "base/parallel.h"
#include "base/workspace.h"

namespace linnet {
namespace {

using softmax::held_gradient;
using softmax::HeldGradient;
using sparse::add_token;
using sparse::assign;
using sparse::copy_token;
using sparse::entry_of;
using sparse::joined;
using sparse::StridedState;

constexpr const char* kOperation = "strided attention";

std::int64_t stride_for(std::int64_t stride, std::int64_t keys) {
  return stride != 0 ? stride : default_stride(keys);
}

/// Rows from, from + step, … of x [1, N, H, D], `count` of them.
template <class T>
View<T> rows_of(View<T> x, std::int64_t from, std::int64_t step, std::int64_t count) {
  return {x.at(0, count > 0 ? from : 0),
          {1, count, x.extent(2), x.extent(3)},
          {x.stride(0), step * x.stride(1), x.stride(2), 1}};
}
View<float> numbers_of(View<float> x, std::int64_t from, std::int64_t step, std::int64_t count) {
  return {x.at(0, from), {1, count, x.extent(2)}, {x.stride(0), step * x.stride(1), 1}};
}
View<const float> numbers_of(View<const float> x, std::int64_t from, std::int64_t step, std::int64_t count) {
  return {x.at(0, from), {1, count, x.extent(2)}, {x.stride(0), step * x.stride(1), 1}};
}

/// One batch entry in f32, behind what the initial state holds of it. Positions count from the beginning of
/// the stream.
struct Entry {
  std::int64_t position = 0;   ///< of the first query
  std::int64_t first_key = 0;  ///< of key row 0
  std::int64_t limit = 0;      ///< keys from here on are padding
  Tensor query, key, value;
  Tensor far_key, far_value;  ///< the fixed pattern's summaries, of all blocks but the last one
};

/// Queries from, from + step, … and keys of the same manner, dense softmax attention between them.
struct Part {
  std::int64_t from = 0, step = 1, queries = 0;
  std::int64_t key_from = 0, keys = 0;
  Mask mask = Mask::full();
};

class StridedAttention final : public Attention {
 public:
  explicit StridedAttention(const AttentionOptions& options)
      : stride_(options.strided.stride),
        summary_(options.strided.pattern == SparsePattern::fixed ? options.strided.summary : 0),
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
  void check_call(const AttentionInputs& inputs) const;
  void check_recurrent() const;
  template <class R, class S>
  R* state_of(const char* which, S* state, const AttentionSizes& sizes) const;
  std::int64_t stride(std::int64_t keys) const;

  Entry entry(Context& context, const AttentionInputs& inputs, const StridedState* initial,
              std::int64_t b) const;
  Part near_part(const Entry& entry, std::int64_t stride) const;
  std::vector<Part> far_parts(const Entry& entry, std::int64_t stride) const;

  /// The position of a summary key.
  static std::int64_t position_of(std::int64_t f, std::int64_t stride, std::int64_t summary) {
    return f / summary * stride + stride - summary + f % summary;
  }

  /// Tokens that a slot at that position holds, and the position of its token `t`.
  std::int64_t held_at(std::int64_t position) const {
    return StridedState::held_at(position, stride_, summary_);
  }

  /// Keys that a query at that position sees in the strided pattern.
  std::int64_t seen_at(std::int64_t position) const {
    return std::min(position + 1, stride_) + position / stride_;
  }
  std::int64_t position_in_state(std::int64_t t, std::int64_t position) const {
    if (summary_ == 0) return t;
    const std::int64_t blocks = position / stride_, summaries = blocks * summary_;
    return t < summaries ? position_of(t, stride_, summary_) : blocks * stride_ + t - summaries;
  }

  std::int64_t stride_, summary_;  // summary 0: the strided pattern
  float scale_;
  std::unique_ptr<Attention> softmax_;
};

std::int64_t StridedAttention::stride(std::int64_t keys) const {
  const std::int64_t stride = stride_for(stride_, keys);
  if (summary_ > stride)
    fail(kOperation, "expected a summary of at most the stride {}, got {}", stride, summary_);
  return stride;
}

void StridedAttention::check_call(const AttentionInputs& inputs) const {
  if (inputs.decay.rank() != 0)
    fail(kOperation, "expected no decay, which the linear family alone has, got one");
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
  if (own.stride() != stride_ || own.summary() != summary_)
    fail(kOperation, "expected {} of stride {} and summary {}, got one of {} and {}", which, stride_,
         summary_, own.stride(), own.summary());
  return &own;
}

Entry StridedAttention::entry(Context& context, const AttentionInputs& inputs, const StridedState* initial,
                              std::int64_t b) const {
  const std::int64_t length = inputs.query.extent(1), s = stride(length);
  Entry entry;
  entry.position = initial != nullptr ? initial->position(b) : 0;
  entry.limit = entry.position + visible_keys(inputs.mask, b, length);
  entry.first_key = summary_ == 0 ? 0 : entry.position / s * s;
  // What the state holds of the current block, or of all, comes behind the summaries.
  const std::int64_t summaries = entry.first_key / s * summary_;
  const std::int64_t held = initial != nullptr ? initial->held(b) - summaries : 0;
  const auto held_key = [&](std::int64_t t, std::int64_t h) {
    return initial->cache().head(b, h).key.from(summaries + t).floats();
  };
  const auto held_value = [&](std::int64_t t, std::int64_t h) {
    return initial->cache().head(b, h).value.from(summaries + t).floats();
  };
  entry.query = joined(context, inputs.query, b);
  entry.key = joined(context, inputs.key, b, held, held_key);
  entry.value = joined(context, inputs.value, b, held, held_value);
  if (summary_ == 0 || length == 0) return entry;

  const std::int64_t count = (entry.position + length - 1) / s * summary_;
  const auto gather = [&](const Tensor& tokens, const auto& row_of) {
    Tensor far = Tensor::of<float>({1, count, tokens.shape()[2], tokens.shape()[3]});
    for (std::int64_t f = 0; f < count; ++f) {
      for (std::int64_t h = 0; h < tokens.shape()[2]; ++h) {
        const float* row = f < summaries
                               ? row_of(f - summaries, h)
                               : tokens.view<float>().at(0, position_of(f, s, summary_) - entry.first_key, h);
        std::copy_n(row, tokens.shape()[3], far.view<float>().at(0, f, h));
      }
    }
    return far;
  };
  entry.far_key = gather(entry.key, held_key);
  entry.far_value = gather(entry.value, held_value);
  return entry;
}

Part StridedAttention::near_part(const Entry& entry, std::int64_t stride) const {
  Part part;
  part.queries = entry.query.shape()[1];
  part.key_from = std::max(entry.first_key, entry.position - stride + 1) - entry.first_key;
  part.keys = entry.key.shape()[1] - part.key_from;
  const std::int64_t first = entry.first_key + part.key_from;
  std::vector<std::int64_t> begin, end;
  for (std::int64_t i = 0; i < part.queries; ++i) {
    const std::int64_t at = entry.position + i;
    const std::int64_t from =
        summary_ == 0 ? std::max<std::int64_t>(0, at - stride + 1) : at / stride * stride;
    begin.push_back(from - first);
    end.push_back(std::max<std::int64_t>(first, std::min(at + 1, entry.limit)) - first);
  }
  part.mask = Mask::intervals(std::move(begin), std::move(end));
  return part;
}

std::vector<Part> StridedAttention::far_parts(const Entry& entry, std::int64_t stride) const {
  std::vector<Part> parts;
  const std::int64_t length = entry.query.shape()[1];
  const auto add = [&](Part part, std::int64_t seen_by_block, std::int64_t limit) {
    std::vector<std::int64_t> begin(static_cast<std::size_t>(part.queries)), end;
    for (std::int64_t i = 0; i < part.queries; ++i) {
      const std::int64_t blocks = (entry.position + part.from + i * part.step) / stride;
      end.push_back(std::min({blocks * seen_by_block, limit, part.keys}));
    }
    if (end.empty() || end.back() == 0) return;
    part.mask = Mask::intervals(std::move(begin), std::move(end));
    parts.push_back(std::move(part));
  };
  if (summary_ != 0) {
    const std::int64_t limit = entry.limit / stride * summary_ +
                               std::max<std::int64_t>(0, entry.limit % stride - (stride - summary_));
    const std::int64_t keys = entry.far_key.size() == 0 ? 0 : entry.far_key.shape()[1];
    add({.queries = length, .keys = keys}, summary_, limit);
    return parts;
  }
  // Residue r: the queries and the keys at r, r + s, r + 2s, …; a query sees those before itself.
  const std::int64_t keys = entry.key.shape()[1];
  for (std::int64_t r = 0; r < std::min(stride, keys); ++r) {
    const std::int64_t from = (r + stride - entry.position % stride) % stride;
    if (from >= length) continue;
    const std::int64_t limit = entry.limit > r ? (entry.limit - r + stride - 1) / stride : 0;
    add({.from = from,
         .step = stride,
         .queries = (length - from + stride - 1) / stride,
         .key_from = r,
         .keys = (keys - r + stride - 1) / stride},
        1, limit);
  }
  return parts;
}

/// out and log-sum-exp over both sets of keys, in place of those over the near ones.
void merge_rows(Context& context, View<float> out, View<float> log_sum, View<const float> far,
                View<const float> far_log_sum) {
  for_each_row(context, out.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    merge(out.at(b, i, h), log_sum(b, i, h), far.at(b, i, h), far_log_sum(b, i, h), out.extent(3));
  });
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
  const std::int64_t s = stride(sizes.keys);
  for (std::int64_t b = 0; b < sizes.batch && sizes.queries > 0; ++b) {
    const Entry one = entry(context, inputs, initial, b);
    const Shape shape = {1, sizes.queries, sizes.heads, sizes.value_dim};
    Tensor out = Tensor::of<float>(shape), far = Tensor::of<float>(shape);
    Tensor log_sum = Tensor::of<float>({1, sizes.queries, sizes.heads});
    Tensor far_log_sum = Tensor::of<float>(log_sum.shape());
    std::ranges::fill(far_log_sum.span<float>(), -std::numeric_limits<float>::infinity());
    const auto run = [&](Context& own, const Part& part, const Tensor& keys, const Tensor& values,
                         std::int64_t step, Tensor& to, Tensor& sums) {
      softmax_->forward(own,
                        {rows_of(to.view<float>(), part.from, part.step, part.queries),
                         numbers_of(sums.view<float>(), part.from, part.step, part.queries)},
                        {rows_of(one.query.view<float>(), part.from, part.step, part.queries),
                         rows_of(keys.view<float>(), part.key_from, step, part.keys),
                         rows_of(values.view<float>(), part.key_from, step, part.keys), part.mask});
    };
    run(context, near_part(one, s), one.key, one.value, 1, out, log_sum);
    const std::vector<Part> parts = far_parts(one, s);
    parallel_for(context, static_cast<std::int64_t>(parts.size()), [&](Context& own, std::int64_t p) {
      const Part& part = parts[static_cast<std::size_t>(p)];
      if (summary_ != 0)
        run(own, part, one.far_key, one.far_value, 1, far, far_log_sum);
      else
        run(own, part, one.key, one.value, s, far, far_log_sum);
    });
    merge_rows(context, out.view<float>(), log_sum.view<float>(), std::as_const(far).view<float>(),
               std::as_const(far_log_sum).view<float>());
    assign(context, outputs.out, b, out.view<float>());
    for (std::int64_t i = 0; outputs.normaliser.rank() != 0 && i < sizes.queries; ++i)
      std::copy_n(log_sum.view<float>().at(0, i), sizes.heads, outputs.normaliser.at(b, i));
  }
  for (std::int64_t b = 0; final != nullptr && b < sizes.batch; ++b)
    sparse::leave_state(*final, initial, inputs, b);
}

void add_to(Tensor& sum, const Tensor& other) {
  const auto to = sum.span<float>();
  const auto from = other.span<float>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// With the output and the log-sum-exp over all keys, softmax's backward pass over some keys gives what they
// contribute.
void StridedAttention::backward(Context& context, const AttentionGradients& gradients,
                                ConstFloatView grad_out, const AttentionInputs& inputs, ConstFloatView out,
                                View<const float> normaliser) const {
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  check_call(inputs);
  const StridedState* initial = state_of<const StridedState>("the initial state", inputs.initial, sizes);
  if (gradients.final.rank() != 0) check_recurrent();
  const auto position = [&](std::int64_t b) { return initial != nullptr ? initial->position(b) : 0; };
  const auto last_position = [&](std::int64_t b) {
    return position(b) + visible_keys(inputs.mask, b, sizes.keys);
  };
  check_state_gradient(
      kOperation, "the gradient of the final state", gradients.final, sizes.batch,
      [&](std::int64_t b) { return HeldGradient<float>::floats(sizes.shape(), held_at(last_position(b))); });
  const std::int64_t s = stride(sizes.keys);
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    const HeldGradient<const float> from =
        gradients.final.rank() == 0
            ? HeldGradient<const float>{}
            : held_gradient(gradients.final, b, sizes.shape(), held_at(last_position(b)));
    const HeldGradient<float> to = gradients.initial.rank() == 0
                                       ? HeldGradient<float>{}
                                       : held_gradient(gradients.initial, b, sizes.shape(), initial->held(b));
    if (sizes.queries == 0) {
      // The state stays as it was.
      if (to.data == nullptr) continue;
      std::fill_n(to.data, HeldGradient<float>::floats(sizes.shape(), to.held), 0.0f);
      for (std::int64_t t = 0; from.data != nullptr && t < from.held; ++t) add_token(to, t, from, t);
      continue;
    }
    const Entry one = entry(context, inputs, initial, b);
    const Tensor wide_grad = joined(context, grad_out, b), wide_out = joined(context, out, b);
    const View<const float> log_sum = entry_of(normaliser, b);
    struct Sums {
      Tensor query, key, value;
    };
    const auto sums_for = [&](const Tensor& keys, const Tensor& values) {
      return Sums{Tensor::of<float>(one.query.shape()), Tensor::of<float>(keys.shape()),
                  Tensor::of<float>(values.shape())};
    };
    const auto run = [&](Context& own, const Part& part, const Tensor& keys, const Tensor& values,
                         std::int64_t step, Sums& to) {
      softmax_->backward(own,
                         {rows_of(to.query.view<float>(), part.from, part.step, part.queries),
                          rows_of(to.key.view<float>(), part.key_from, step, part.keys),
                          rows_of(to.value.view<float>(), part.key_from, step, part.keys)},
                         rows_of(wide_grad.view<float>(), part.from, part.step, part.queries),
                         {rows_of(one.query.view<float>(), part.from, part.step, part.queries),
                          rows_of(keys.view<float>(), part.key_from, step, part.keys),
                          rows_of(values.view<float>(), part.key_from, step, part.keys), part.mask},
                         rows_of(wide_out.view<float>(), part.from, part.step, part.queries),
                         numbers_of(log_sum, part.from, part.step, part.queries));
    };
    Sums near = sums_for(one.key, one.value);
    run(context, near_part(one, s), one.key, one.value, 1, near);
    const std::int64_t held = one.key.shape()[1] - sizes.keys;
    const std::int64_t summaries = to.data != nullptr ? to.held - held : 0;
    if (to.data != nullptr) std::fill_n(to.data, HeldGradient<float>::floats(sizes.shape(), to.held), 0.0f);
    const std::vector<Part> parts = far_parts(one, s);
    if (!parts.empty() && summary_ == 0) {
      Sums far = sums_for(one.key, one.value);
      parallel_for(context, static_cast<std::int64_t>(parts.size()), [&](Context& own, std::int64_t p) {
        run(own, parts[static_cast<std::size_t>(p)], one.key, one.value, s, far);
      });
      add_to(near.query, far.query);
      add_to(near.key, far.key);
      add_to(near.value, far.value);
    } else if (!parts.empty()) {
      Sums far = sums_for(one.far_key, one.far_value);
      run(context, parts[0], one.far_key, one.far_value, 1, far);
      add_to(near.query, far.query);
      for (std::int64_t f = 0; f < one.far_key.shape()[1]; ++f) {
        const std::int64_t row = position_of(f, s, summary_) - one.first_key;
        if (row < 0) {  // of the initial state
          if (to.data != nullptr) copy_token(to, f, far.key.view<float>(), far.value.view<float>(), f);
          continue;
        }
        for (const auto& [from, to] : {std::pair(&far.key, &near.key), std::pair(&far.value, &near.value)}) {
          const std::int64_t numbers = from->shape()[2] * from->shape()[3];
          for (std::int64_t x = 0; x < numbers; ++x)
            to->view<float>().at(0, row)[x] += from->view<float>().at(0, f)[x];
        }
      }
    }
    for (std::int64_t t = 0; from.data != nullptr && t < from.held; ++t) {
      const std::int64_t row = position_in_state(t, last_position(b)) - one.first_key;
      if (row >= 0)
        add_token(near.key.view<float>(), near.value.view<float>(), row, from, t);
      else if (to.data != nullptr)
        add_token(to, t, from, t);  // a summary, which stays where it was
    }
    for (std::int64_t r = 0; to.data != nullptr && r < held; ++r)
      copy_token(to, summaries + r, near.key.view<float>(), near.value.view<float>(), r);
    assign(context, gradients.query, b, near.query.view<float>());
    assign(context, gradients.key, b, near.key.view<float>().slice(1, held, held + sizes.keys));
    assign(context, gradients.value, b, near.value.view<float>().slice(1, held, held + sizes.keys));
  }
}

void StridedAttention::check_recurrent() const {
  if (stride_ == 0)
    fail(kOperation,
         "expected a stride for a recurrent form, since a stream has no length whose root it could "
         "be, got none");
}

std::unique_ptr<State> StridedAttention::make_state(std::int64_t slots, const HeadShape& shape,
                                                    std::int64_t capacity, std::span<float> memory) const {
  check_make_state(kOperation, slots, shape, capacity);
  check_memory(kOperation, memory, slots, state_floats(shape, capacity));
  return std::make_unique<StridedState>(slots, shape, capacity, stride_, summary_, memory.data());
}

std::int64_t StridedAttention::state_floats(const HeadShape& shape, std::int64_t capacity) const {
  check_make_state(kOperation, 0, shape, capacity);
  check_recurrent();
  return softmax::Cache::slot_floats(shape, StridedState::kept_at_most(capacity, stride_, summary_));
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
  if (decay.rank() != 0) fail(kOperation, "expected no decay, which the linear family alone has, got one");
  const AttentionSizes sizes = check_step(kOperation, out, query, key, value, state, slots);
  StridedState& own = *state_of<StridedState>("the state", &state, sizes);
  // All memory is taken before a token is: where there is too little, no slot has changed.
  std::int64_t gathered = 0;
  for (const std::int64_t slot : slots) {
    const std::int64_t newest = own.position(slot);
    own.reserve(slot, newest + 1);
    if (summary_ == 0) gathered = std::max(gathered, seen_at(newest));
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
    const std::int64_t seen = summary_ != 0 ? own.held(slot) : seen_at(newest);
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const softmax::KeyRange range = own.cache().head(slot, h);
      softmax::StepHead head;
      head.count = seen;
      head.scale = static_cast<float>(score_scale(scale_, sizes.head_dim));
      head.query = query.at(i, h);
      head.keys = range.key;
      head.values = range.value;
      if (summary_ == 0) {
        gather_seen(keys, range.key.floats(), sizes.head_dim, newest, stride_);
        gather_seen(values, range.value.floats(), sizes.value_dim, newest, stride_);
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

ReferenceInputs patterned(const AttentionOptions& options, const ReferenceInputs& inputs) {
  ReferenceInputs result = inputs;
  const std::int64_t s = stride_for(options.strided.stride, inputs.key.extent(1));
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
  while (root * root < length) ++root;
  return std::max<std::int64_t>(32, (root + 31) / 32 * 32);
}

std::unique_ptr<Attention> make_strided_attention(const AttentionOptions& options) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (options.strided.stride < 0 || options.strided.stride > most)
    fail<UsageError>(kOperation, "expected a stride from 1 to 2^40, or 0 for the root of the length, got {}",
                     options.strided.stride);
  if (options.strided.pattern == SparsePattern::fixed &&
      (options.strided.summary < 1 ||
       (options.strided.stride != 0 && options.strided.summary > options.strided.stride)))
    fail<UsageError>(kOperation, "expected a summary of 1 key to the stride {}, got {}",
                     options.strided.stride, options.strided.summary);
  return std::make_unique<StridedAttention>(options);
}

void strided_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs) {
  softmax_reference_forward(options, out, patterned(options, inputs));
}

void strided_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                View<const double> grad_out, const ReferenceInputs& inputs) {
  softmax_reference_backward(options, gradients, grad_out, patterned(options, inputs));
}

}  // namespace linnet
