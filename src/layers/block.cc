#include "layers/block.h"

#include "base/workspace.h"
#include "kernels/elementwise.h"

namespace linnet {
namespace {

template <class T>
View<T> rows(View<T> x) {
  return x.rank() == 2 ? x : x.reshape({x.extent(0) * x.extent(1), x.extent(2)});
}

template <class T>
View<T> first_rows(View<T> x, std::int64_t count) {
  return x.slice(0, 0, count);
}

}  // namespace

Block::Block(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(parts),
      norm1_(table, name + ".norm1", parts.attention.width, parts.norm),
      attention_(table, name + ".attention", parts.attention),
      norm2_(table, name + ".norm2", parts.attention.width, parts.norm),
      feed_forward_(table, name + ".feed_forward", parts.feed_forward) {}

void Block::Saved::reserve(std::int64_t batch, std::int64_t length, const Parts& parts) {
  const std::int64_t count = batch * length, width = parts.attention.width;
  for (Tensor* tensor : {&inner1, &middle, &inner2}) *tensor = Tensor::of<float>({count, width});
  for (Tensor* tensor : {&stats1, &stats2}) *tensor = Tensor::of<float>({count, 2});
  attention.reserve(batch, length, parts.attention);
  feed_forward.reserve(count, parts.feed_forward);
}

double Block::Saved::floats_per_token(const Parts& parts) {
  return 3 * static_cast<double>(parts.attention.width) + 4 +
         SelfAttention::Saved::floats_per_token(parts.attention) +
         FeedForward::Saved::floats_per_token(parts.feed_forward);
}

void Block::pack(Context& context, const ParameterValues& parameters, bool training) {
  norm1_.pack(parameters);
  attention_.pack(context, parameters, training);
  norm2_.pack(parameters);
  feed_forward_.pack(context, parameters, training);
}

void Block::unpack(std::span<float> parameters) const {
  attention_.unpack(parameters);
  feed_forward_.unpack(parameters);
}

template <class Attend, class Feed>
void Block::pass(Context& context, const Rows& rows, const Attend& attend, const Feed& feed) const {
  if (parts_.norm_first) {
    norm1_.forward(context, rows.inner1, rows.stats1, rows.x);
    attend(rows.middle, rows.inner1, rows.x);
    norm2_.forward(context, rows.inner2, rows.stats2, rows.middle);
    feed(rows.y, rows.inner2, rows.middle);
  } else {
    attend(rows.inner1, rows.x, rows.x);
    norm1_.forward(context, rows.middle, rows.stats1, rows.inner1);
    feed(rows.inner2, rows.middle, rows.middle);
    norm2_.forward(context, rows.y, rows.stats2, rows.inner2);
  }
}

void Block::add_dropped(Context& context, View<float> y, View<const float> x, const Dropout& dropout,
                        int part) const {
  kernels::dropout(context, y, y, dropout.rate, Random(dropout.seed, Draw::dropout, 2 * parts_.layer + part));
  kernels::add(context, y, y, x);
}

void Block::forward(Context& context, View<float> y, View<const float> x, Saved& saved,
                    const Dropout& dropout, std::span<const std::int64_t> key_lengths,
                    std::span<const std::int32_t> positions) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), width = x.extent(2);
  const auto part = [&](Tensor& tensor) { return first_rows(tensor.view<float>(), batch * length); };
  const auto cube = [&](auto view) { return view.reshape({batch, length, width}); };
  const bool fused = dropout.rate == 0;  // the products then add the residual themselves
  const auto attend = [&](View<float> to, View<const float> from, View<const float> residual) {
    attention_.forward(context, cube(to), cube(from), fused ? cube(residual) : View<const float>(),
                       saved.attention, 0, nullptr, nullptr, key_lengths, positions);
    if (!fused) add_dropped(context, to, residual, dropout, 0);
  };
  const auto feed = [&](View<float> to, View<const float> from, View<const float> residual) {
    feed_forward_.forward(context, to, from, fused ? residual : View<const float>(), saved.feed_forward);
    if (!fused) add_dropped(context, to, residual, dropout, 1);
  };
  pass(context,
       {rows(x), part(saved.inner1), part(saved.middle), part(saved.inner2), rows(y), part(saved.stats1),
        part(saved.stats2)},
       attend, feed);
}

void Block::backward(Context& context, View<float> d, View<const float> x, const Saved& saved,
                     const Dropout& dropout, std::span<float> gradients) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), width = x.extent(2), count = batch * length;
  const auto part = [&](const Tensor& tensor) { return first_rows(tensor.view<float>(), count); };
  const auto cube = [&](auto view) { return view.reshape({batch, length, width}); };
  Workspace workspace(context);
  const View<float> stream = rows(d);  // gradient along the residual
  const View<float> branch = workspace.take(count, width);

  // The gradient that enters a branch: what flows along the residual, with the branch's dropout applied.
  const auto dropped = [&](int which) -> View<const float> {
    if (dropout.rate == 0) return stream;
    const View<float> result = workspace.take(count, width);
    kernels::dropout(context, result, stream, dropout.rate,
                     Random(dropout.seed, Draw::dropout, 2 * parts_.layer + which));
    return result;
  };

  if (parts_.norm_first) {
    feed_forward_.backward(context, branch, dropped(1), part(saved.inner2), saved.feed_forward, gradients);
    norm2_.backward(context, stream, branch, part(saved.middle), part(saved.stats2), gradients, true);
    attention_.backward(context, cube(branch), cube(dropped(0)), cube(part(saved.inner1)), saved.attention,
                        gradients);
    norm1_.backward(context, stream, branch, rows(x), part(saved.stats1), gradients, true);
  } else {
    norm2_.backward(context, stream, stream, part(saved.inner2), part(saved.stats2), gradients, false);
    feed_forward_.backward(context, branch, dropped(1), part(saved.middle), saved.feed_forward, gradients);
    kernels::add(context, stream, stream, branch);
    norm1_.backward(context, stream, stream, part(saved.inner1), part(saved.stats1), gradients, false);
    attention_.backward(context, cube(branch), cube(dropped(0)), x, saved.attention, gradients);
    kernels::add(context, stream, stream, branch);
  }
}

template <class Attend>
void Block::pass_in_place(Context& context, View<float> x, const Attend& attend) const {
  Workspace workspace(context);
  const View<float> inner = workspace.take(x.extent(0), x.extent(1));
  pass(context, {x, inner, x, inner, x, {}, {}}, attend,
       [&](View<float> to, View<const float> from, View<const float> residual) {
         feed_forward_.apply(context, to, from, residual);
       });
}

void Block::apply(Context& context, View<float> x, SelfAttention::Saved& saved, std::int64_t position,
                  const State* initial, State* final, std::span<const std::int64_t> key_lengths,
                  std::span<const std::int32_t> positions) const {
  const auto cube = [&](auto view) { return view.reshape({x.extent(0), x.extent(1), x.extent(2)}); };
  pass_in_place(context, rows(x), [&](View<float> to, View<const float> from, View<const float> residual) {
    attention_.forward(context, cube(to), cube(from), cube(residual), saved, position, initial, final,
                       key_lengths, positions);
  });
}

void Block::step(Context& context, View<float> x, State& state, std::span<const std::int64_t> slots) const {
  pass_in_place(context, x, [&](View<float> to, View<const float> from, View<const float> residual) {
    attention_.step(context, to, from, residual, state, slots);
  });
}

}  // namespace linnet
