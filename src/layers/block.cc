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
      norm1_(table, name + ".norm1", parts.attention.width),
      attention_(table, name + ".attention", parts.attention),
      norm2_(table, name + ".norm2", parts.attention.width),
      feed_forward_(table, name + ".feed_forward", parts.feed_forward) {}

void Block::Saved::reserve(std::int64_t batch, std::int64_t length, const Parts& parts) {
  const std::int64_t count = batch * length, width = parts.attention.width;
  for (Tensor* tensor : {&inner1, &middle, &inner2}) *tensor = Tensor::of<float>({count, width});
  for (Tensor* tensor : {&stats1, &stats2}) *tensor = Tensor::of<float>({count, 2});
  attention.reserve(batch, length, parts.attention);
  feed_forward.reserve(count, parts.feed_forward);
}

void Block::pack(Context& context, std::span<const float> parameters, bool training) {
  norm1_.pack(parameters);
  attention_.pack(context, parameters, training);
  norm2_.pack(parameters);
  feed_forward_.pack(context, parameters, training);
}

void Block::unpack(std::span<float> parameters) const {
  attention_.unpack(parameters);
  feed_forward_.unpack(parameters);
}

void Block::add_dropped(Context& context, View<float> y, View<const float> x, const Dropout& dropout,
                        int part) const {
  kernels::dropout(context, y, y, dropout.rate, Random(dropout.seed, Draw::dropout, 2 * parts_.layer + part));
  kernels::add(context, y, y, x);
}

void Block::forward(Context& context, View<float> y, View<const float> x, Saved& saved,
                    const Dropout& dropout, std::span<const std::int64_t> key_lengths) const {
  const std::int64_t count = x.extent(0) * x.extent(1);
  const auto like_x = [&](Tensor& tensor) {
    return first_rows(tensor.view<float>(), count).reshape({x.extent(0), x.extent(1), x.extent(2)});
  };
  const auto stats = [&](Tensor& tensor) { return first_rows(tensor.view<float>(), count); };
  const View<float> inner1 = like_x(saved.inner1), middle = like_x(saved.middle),
                    inner2 = like_x(saved.inner2);
  const bool fused = dropout.rate == 0;
  Workspace workspace(context);
  const auto attend = [&](View<float> to, View<const float> from) {
    attention_.forward(context, to, from, fused ? x : View<const float>(), saved.attention, 0, nullptr,
                       nullptr, key_lengths);
  };

  if (parts_.norm_first) {
    norm1_.forward(context, rows(inner1), stats(saved.stats1), rows(x));
    attend(middle, inner1);
    if (!fused) add_dropped(context, rows(middle), rows(x), dropout, 0);
    norm2_.forward(context, rows(inner2), stats(saved.stats2), rows(middle));
    feed_forward_.forward(context, rows(y), rows(inner2), fused ? rows(middle) : View<float>(),
                          saved.feed_forward);
    if (!fused) add_dropped(context, rows(y), rows(middle), dropout, 1);
  } else {
    attend(inner1, x);
    if (!fused) add_dropped(context, rows(inner1), rows(x), dropout, 0);
    norm1_.forward(context, rows(middle), stats(saved.stats1), rows(inner1));
    feed_forward_.forward(context, rows(inner2), rows(middle), fused ? rows(middle) : View<float>(),
                          saved.feed_forward);
    if (!fused) add_dropped(context, rows(inner2), rows(middle), dropout, 1);
    norm2_.forward(context, rows(y), stats(saved.stats2), rows(inner2));
  }
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

void Block::apply(Context& context, View<float> x, SelfAttention::Saved& saved, std::int64_t position,
                  const State* initial, State* final, std::span<const std::int64_t> key_lengths) const {
  Workspace workspace(context);
  const View<float> flat = rows(x);
  const View<float> inner = workspace.take(flat.extent(0), flat.extent(1));
  const View<float> inner_cube = inner.reshape({x.extent(0), x.extent(1), x.extent(2)});
  if (parts_.norm_first) {
    norm1_.forward(context, inner, {}, flat);
    attention_.forward(context, x, inner_cube, x, saved, position, initial, final, key_lengths);
    norm2_.forward(context, inner, {}, flat);
    feed_forward_.apply(context, flat, inner, flat);
  } else {
    attention_.forward(context, inner_cube, x, x, saved, position, initial, final, key_lengths);
    norm1_.forward(context, flat, {}, inner);
    feed_forward_.apply(context, inner, flat, flat);
    norm2_.forward(context, flat, {}, inner);
  }
}

void Block::step(Context& context, View<float> x, State& state, std::span<const std::int64_t> slots) const {
  Workspace workspace(context);
  const View<float> inner = workspace.take(x.extent(0), x.extent(1));
  if (parts_.norm_first) {
    norm1_.forward(context, inner, {}, x);
    attention_.step(context, x, inner, x, state, slots);
    norm2_.forward(context, inner, {}, x);
    feed_forward_.apply(context, x, inner, x);
  } else {
    attention_.step(context, inner, x, x, state, slots);
    norm1_.forward(context, x, {}, inner);
    feed_forward_.apply(context, inner, x, x);
    norm2_.forward(context, x, {}, inner);
  }
}

}  // namespace linnet
