#include "layers/block.h"

#include <algorithm>
#include <utility>

#include "base/workspace.h"
#include "kernels/elementwise.h"
#include "layers/shapes.h"

namespace linnet {
namespace {

template <class View>
View first_rows(View x, std::int64_t count) {
  return x.slice(0, 0, count);
}

}  // namespace

Block::Block(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(with_rounding(parts, table)),
      norm1_(table, name + ".norm1", parts.attention.width, parts.norm),
      attention_(table, name + ".attention", parts.attention),
      cross_(parts.cross ? std::make_optional<CrossBranch>(table, name, *parts.cross) : std::nullopt),
      norm2_(table, name + ".norm2", parts.attention.width, parts.norm),
      feed_forward_(table, name + ".feed_forward", parts.feed_forward) {}

Block::Parts Block::with_rounding(Parts parts, const ParameterTable& table) {
  parts.attention = SelfAttention::with_rounding(std::move(parts.attention), table);
  parts.feed_forward = FeedForward::with_rounding(parts.feed_forward, table);
  return parts;
}

void Block::Saved::reserve(std::int64_t batch, std::int64_t length, const Parts& parts,
                           std::int64_t source_length) {
  const std::int64_t count = batch * length, width = parts.attention.width;
  const auto inner = [&](bool rounded) {
    return Tensor(parts.norm_first && rounded ? DType::bf16 : DType::f32, {count, width});
  };
  inner1 = inner(parts.attention.rounded_input);
  middle = Tensor::of<float>({count, width});
  inner2 = inner(parts.feed_forward.rounded_input);
  for (Tensor* tensor : {&stats1, &stats2}) *tensor = Tensor::of<float>({count, 2});
  attention.reserve(batch, length, parts.attention);
  feed_forward.reserve(count, parts.feed_forward);
  if (parts.cross) cross.reserve(batch, length, source_length, *parts.cross);
}

double Block::Saved::floats_per_token(const Parts& parts) {
  const auto inner = [&](bool rounded) { return parts.norm_first && rounded ? 0.5 : 1.0; };
  const double rows = inner(parts.attention.rounded_input) + 1 + inner(parts.feed_forward.rounded_input);
  return rows * static_cast<double>(parts.attention.width) + 4 +
         SelfAttention::Saved::floats_per_token(parts.attention) +
         FeedForward::Saved::floats_per_token(parts.feed_forward);
}

double Block::Saved::floats_per_token(Parts parts, const ParameterTable& table) {
  return floats_per_token(with_rounding(std::move(parts), table));
}

void Block::pack(Context& context, const ParameterValues& parameters, bool training) {
  norm1_.pack(parameters);
  attention_.pack(context, parameters, training);
  if (cross_) cross_->pack(context, parameters, training);
  norm2_.pack(parameters);
  feed_forward_.pack(context, parameters, training);
}

void Block::unpack(std::span<float> parameters) const {
  attention_.unpack(parameters);
  if (cross_) cross_->unpack(parameters);
  feed_forward_.unpack(parameters);
}

template <class Attend, class Cross, class Feed>
void Block::pass(Context& context, const Rows& rows, const Attend& attend, const Cross& cross,
                 const Feed& feed) const {
  if (parts_.norm_first) {
    norm1_.forward(context, rows.inner1, rows.stats1, rows.x);
    attend(rows.middle, rows.inner1, rows.x);
    const View<float> middle = cross(rows.middle);
    norm2_.forward(context, rows.inner2, rows.stats2, middle);
    feed(rows.y, rows.inner2, middle);
  } else {
    const View<float> inner1 = rows.inner1.as<float>(), inner2 = rows.inner2.as<float>();
    attend(inner1, rows.x, rows.x);
    norm1_.forward(context, rows.middle, rows.stats1, inner1);
    const View<float> middle = cross(rows.middle);
    feed(inner2, middle, middle);
    norm2_.forward(context, rows.y, rows.stats2, inner2);
  }
}

void Block::add_dropped(Context& context, View<float> y, View<const float> x, const Dropout& dropout,
                        int part) const {
  kernels::dropout(context, y, y, dropout.rate, Random(dropout.seed, Draw::dropout, 2 * parts_.layer + part));
  kernels::add(context, y, y, x);
}

void Block::forward(Context& context, View<float> y, View<const float> x, Saved& saved,
                    const Dropout& dropout, std::span<const std::int64_t> key_lengths,
                    std::span<const std::int32_t> positions, const Memory& memory,
                    const SequencePart& sequence_part) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), width = x.extent(2);
  const auto part = [&](Tensor& tensor) { return first_rows(tensor.view<float>(), batch * length); };
  const auto inner = [&](Tensor& tensor) { return first_rows(tensor.float_view(), batch * length); };
  const auto cube = [&](auto view) { return view.reshape({batch, length, width}); };
  const bool fused = dropout.rate == 0;  // the products then add the residual themselves
  const auto attend = [&](View<float> to, ConstFloatView from, View<const float> residual) {
    attention_.forward(context, cube(to), cube(from), fused ? cube(residual) : View<const float>(),
                       saved.attention, sequence_part, key_lengths, positions);
    if (!fused) add_dropped(context, to, residual, dropout, 0);
  };
  const auto cross = [&](View<float> middle) {
    return cross_ ? cross_->forward(context, cube(middle), memory, saved.cross, dropout) : middle;
  };
  const auto feed = [&](View<float> to, ConstFloatView from, View<const float> residual) {
    feed_forward_.forward(context, to, from, fused ? residual : View<const float>(), saved.feed_forward);
    if (!fused) add_dropped(context, to, residual, dropout, 1);
  };
  pass(context,
       {rows(x), inner(saved.inner1), part(saved.middle), inner(saved.inner2), rows(y), part(saved.stats1),
        part(saved.stats2)},
       attend, cross, feed);
}

void Block::backward(Context& context, View<float> d, View<const float> x, const Saved& saved,
                     const Dropout& dropout, std::span<float> gradients, const Memory& memory,
                     View<float> dmemory, const SequencePart& sequence_part) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), width = x.extent(2), count = batch * length;
  const auto part = [&](const Tensor& tensor) { return first_rows(tensor.view<float>(), count); };
  const auto inner = [&](const Tensor& tensor) { return first_rows(tensor.float_view(), count); };
  const auto cube = [&](auto view) { return view.reshape({batch, length, width}); };
  Workspace workspace(context);
  const View<float> stream = rows(d);  // gradient along the residual

  // The gradient that enters a branch: what flows along the residual, with the branch's dropout applied.
  const auto dropped = [&](int which) -> View<const float> {
    if (dropout.rate == 0) return stream;
    const View<float> result = workspace.take(count, width);
    kernels::dropout(context, result, stream, dropout.rate,
                     Random(dropout.seed, Draw::dropout, 2 * parts_.layer + which));
    return result;
  };

  // What followed the self-attention, and what entered the feed-forward.
  const View<const float> middle = part(saved.middle);
  const View<const float> fed = cross_ ? part(saved.cross.out) : middle;
  const auto through_cross = [&] {
    if (cross_)
      cross_->backward(context, cube(stream), dmemory, cube(middle), memory, saved.cross, dropout, gradients);
  };

  if (parts_.norm_first) {
    const View<float> branch = workspace.take(count, width);
    feed_forward_.backward(context, branch, dropped(1), inner(saved.inner2), saved.feed_forward, gradients);
    norm2_.backward(context, stream, branch, fed, part(saved.stats2), gradients, true);
    through_cross();
    attention_.backward(context, cube(branch), cube(dropped(0)), cube(inner(saved.inner1)), saved.attention,
                        gradients, {}, sequence_part);
    norm1_.backward(context, stream, branch, rows(x), part(saved.stats1), gradients, true);
  } else {
    norm2_.backward(context, stream, stream, part(saved.inner2), part(saved.stats2), gradients, false);
    feed_forward_.backward(context, stream, dropped(1), fed, saved.feed_forward, gradients, stream);
    through_cross();
    norm1_.backward(context, stream, stream, part(saved.inner1), part(saved.stats1), gradients, false);
    attention_.backward(context, cube(stream), cube(dropped(0)), x, saved.attention, gradients, cube(stream),
                        sequence_part);
  }
}

template <class Attend, class Cross>
void Block::pass_in_place(Context& context, View<float> x, const Attend& attend, const Cross& cross) const {
  Workspace workspace(context);
  const View<float> inner = workspace.take(x.extent(0), x.extent(1));
  const auto crossed = [&](View<float> middle) {
    if (cross_) cross(middle);
    return middle;
  };
  pass(context, {x, inner, x, inner, x, {}, {}}, attend, crossed,
       [&](View<float> to, ConstFloatView from, View<const float> residual) {
         feed_forward_.apply(context, to, from.as<const float>(), residual);
       });
}

void Block::apply(Context& context, View<float> x, SelfAttention::Saved& saved, const SequencePart& part,
                  std::span<const std::int64_t> key_lengths, std::span<const std::int32_t> positions,
                  const CrossInput& cross) const {
  const std::int64_t length = x.extent(1);
  const auto cube = [&](auto view) { return view.reshape({x.extent(0), length, x.extent(2)}); };
  const auto attend = [&](View<float> to, ConstFloatView from, View<const float> residual) {
    attention_.forward(context, cube(to), cube(from), cube(residual), saved, part, key_lengths, positions);
  };
  pass_in_place(context, rows(x), attend, [&](View<float> middle) {
    if (cross.summary == nullptr) return cross_->apply(context, cube(middle), cross.memory, *cross.saved);
    Workspace workspace(context);
    const std::span<std::int64_t> slots = workspace.array<std::int64_t>(middle.extent(0)),
                                  places = workspace.array<std::int64_t>(middle.extent(0));
    for (std::int64_t i = 0; i < middle.extent(0); ++i) {
      slots[static_cast<std::size_t>(i)] = i / length;
      places[static_cast<std::size_t>(i)] = part.position + i % length;
    }
    cross_->read(context, middle, *cross.summary, slots, places);
  });
}

void Block::step(Context& context, View<float> x, State& state, std::span<const std::int64_t> slots,
                 const State* summary) const {
  const auto attend = [&](View<float> to, ConstFloatView from, View<const float> residual) {
    attention_.step(context, to, from.as<const float>(), residual, state, slots);
  };
  pass_in_place(context, x, attend, [&](View<float> middle) {
    Workspace workspace(context);
    const std::span<std::int64_t> positions = workspace.array<std::int64_t>(std::ssize(slots));
    // The self-attention has taken the token already.
    std::ranges::transform(slots, positions.begin(),
                           [&](std::int64_t slot) { return state.position(slot) - 1; });
    cross_->read(context, middle, *summary, slots, positions);
  });
}

}  // namespace linnet
