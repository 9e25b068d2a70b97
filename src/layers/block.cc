#include "layers/block.h"

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

void Block::pack(std::span<const float> parameters, bool training) {
  norm1_.pack(parameters);
  attention_.pack(parameters, training);
  norm2_.pack(parameters);
  feed_forward_.pack(parameters, training);
}

void Block::add_dropped(View<float> y, View<const float> x, const Dropout& dropout, int part) const {
  kernels::dropout(y, y, dropout.rate, Random(dropout.seed, Draw::dropout, 2 * parts_.layer + part));
  kernels::add(y, y, x);
}

void Block::forward(View<float> y, View<const float> x, Saved& saved, Scratch& scratch,
                    const Dropout& dropout, std::span<const std::int64_t> key_lengths) const {
  const std::int64_t count = x.extent(0) * x.extent(1);
  const auto like_x = [&](Tensor& tensor) {
    return first_rows(tensor.view<float>(), count).reshape({x.extent(0), x.extent(1), x.extent(2)});
  };
  const auto stats = [&](Tensor& tensor) { return first_rows(tensor.view<float>(), count); };
  const View<float> inner1 = like_x(saved.inner1), middle = like_x(saved.middle),
                    inner2 = like_x(saved.inner2);
  const bool fused = dropout.rate == 0;
  const Scratch::Frame frame(scratch);
  const auto attend = [&](View<float> to, View<const float> from) {
    attention_.forward(to, from, fused ? x : View<const float>(), saved.attention, 0, nullptr, nullptr,
                       key_lengths);
  };

  if (parts_.norm_first) {
    norm1_.forward(rows(inner1), stats(saved.stats1), rows(x));
    attend(middle, inner1);
    if (!fused) add_dropped(rows(middle), rows(x), dropout, 0);
    norm2_.forward(rows(inner2), stats(saved.stats2), rows(middle));
    feed_forward_.forward(rows(y), rows(inner2), fused ? rows(middle) : View<float>(), saved.feed_forward);
    if (!fused) add_dropped(rows(y), rows(middle), dropout, 1);
  } else {
    attend(inner1, x);
    if (!fused) add_dropped(rows(inner1), rows(x), dropout, 0);
    norm1_.forward(rows(middle), stats(saved.stats1), rows(inner1));
    feed_forward_.forward(rows(inner2), rows(middle), fused ? rows(middle) : View<float>(),
                          saved.feed_forward);
    if (!fused) add_dropped(rows(inner2), rows(middle), dropout, 1);
    norm2_.forward(rows(y), stats(saved.stats2), rows(inner2));
  }
}

void Block::backward(View<float> d, View<const float> x, const Saved& saved, Scratch& scratch,
                     const Dropout& dropout, std::span<float> gradients) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), width = x.extent(2), count = batch * length;
  const auto part = [&](const Tensor& tensor) { return first_rows(tensor.view<float>(), count); };
  const auto cube = [&](auto view) { return view.reshape({batch, length, width}); };
  const Scratch::Frame frame(scratch);
  const View<float> stream = rows(d);  // gradient along the residual
  const View<float> branch = scratch.take(count, width);

  // The gradient that enters a branch: what flows along the residual, with the branch's dropout applied.
  const auto dropped = [&](int which) -> View<const float> {
    if (dropout.rate == 0) return stream;
    const View<float> result = scratch.take(count, width);
    kernels::dropout(result, stream, dropout.rate,
                     Random(dropout.seed, Draw::dropout, 2 * parts_.layer + which));
    return result;
  };

  if (parts_.norm_first) {
    feed_forward_.backward(branch, dropped(1), part(saved.inner2), saved.feed_forward, scratch, gradients);
    norm2_.backward(stream, branch, part(saved.middle), part(saved.stats2), gradients, true);
    attention_.backward(cube(branch), cube(dropped(0)), cube(part(saved.inner1)), saved.attention, scratch,
                        gradients);
    norm1_.backward(stream, branch, rows(x), part(saved.stats1), gradients, true);
  } else {
    norm2_.backward(stream, stream, part(saved.inner2), part(saved.stats2), gradients, false);
    feed_forward_.backward(branch, dropped(1), part(saved.middle), saved.feed_forward, scratch, gradients);
    kernels::add(stream, stream, branch);
    norm1_.backward(stream, stream, part(saved.inner1), part(saved.stats1), gradients, false);
    attention_.backward(cube(branch), cube(dropped(0)), x, saved.attention, scratch, gradients);
    kernels::add(stream, stream, branch);
  }
}

void Block::apply(View<float> x, SelfAttention::Saved& saved, Scratch& scratch, std::int64_t position,
                  const State* initial, State* final, std::span<const std::int64_t> key_lengths) const {
  const Scratch::Frame frame(scratch);
  const View<float> flat = rows(x);
  const View<float> inner = scratch.take(flat.extent(0), flat.extent(1));
  const View<float> inner_cube = inner.reshape({x.extent(0), x.extent(1), x.extent(2)});
  if (parts_.norm_first) {
    norm1_.forward(inner, {}, flat);
    attention_.forward(x, inner_cube, x, saved, position, initial, final, key_lengths);
    norm2_.forward(inner, {}, flat);
    feed_forward_.apply(flat, inner, flat, scratch);
  } else {
    attention_.forward(inner_cube, x, x, saved, position, initial, final, key_lengths);
    norm1_.forward(flat, {}, inner);
    feed_forward_.apply(inner, flat, flat, scratch);
    norm2_.forward(flat, {}, inner);
  }
}

void Block::step(View<float> x, State& state, std::span<const std::int64_t> slots, Scratch& scratch) const {
  const Scratch::Frame frame(scratch);
  const View<float> inner = scratch.take(x.extent(0), x.extent(1));
  if (parts_.norm_first) {
    norm1_.forward(inner, {}, x);
    attention_.step(x, inner, x, state, slots, scratch);
    norm2_.forward(inner, {}, x);
    feed_forward_.apply(x, inner, x, scratch);
  } else {
    attention_.step(inner, x, x, state, slots, scratch);
    norm1_.forward(x, {}, inner);
    feed_forward_.apply(inner, x, x, scratch);
    norm2_.forward(x, {}, inner);
  }
}

}  // namespace linnet
