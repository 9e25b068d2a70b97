#include "layers/cross_branch.h"

#include "base/random.h"
#include "base/workspace.h"
#include "kernels/elementwise.h"
#include "layers/shapes.h"

namespace linnet {
namespace {

void drop(Context& context, View<float> to, View<const float> from, const Dropout& dropout, int layer) {
  kernels::dropout(context, to, from, dropout.rate, Random(dropout.seed, Draw::dropout, 2 * layer));
}

}  // namespace

CrossBranch::CrossBranch(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(parts),
      norm_(table, name + ".cross_norm", parts.attention.width, parts.norm),
      attention_(table, name + ".cross_attention", parts.attention) {}

void CrossBranch::Saved::reserve(std::int64_t batch, std::int64_t length, std::int64_t source_length,
                                 const Parts& parts) {
  for (Tensor* tensor : {&inner, &out}) *tensor = Tensor::of<float>({batch * length, parts.attention.width});
  stats = Tensor::of<float>({batch * length, 2});
  attention.reserve(batch, length, source_length, parts.attention);
}

double CrossBranch::Saved::floats(std::int64_t length, std::int64_t source_length, const Parts& parts) {
  return static_cast<double>(length) * (2 * static_cast<double>(parts.attention.width) + 2) +
         CrossAttention::Saved::floats(length, source_length, parts.attention);
}

void CrossBranch::pack(Context& context, const ParameterValues& parameters, bool training) {
  norm_.pack(parameters);
  attention_.pack(context, parameters, training);
}

void CrossBranch::unpack(std::span<float> parameters) const { attention_.unpack(parameters); }

template <class Attend>
void CrossBranch::pass(Context& context, View<float> y, View<const float> x, View<float> inner,
                       View<float> stats, const Attend& attend) const {
  if (parts_.norm_first) {
    norm_.forward(context, inner, stats, x);
    attend(y, inner, x);
  } else {
    attend(inner, x, x);
    norm_.forward(context, y, stats, inner);
  }
}

View<float> CrossBranch::forward(Context& context, View<const float> x, const Memory& memory, Saved& saved,
                                 const Dropout& dropout) const {
  const auto part = [&](Tensor& tensor) {
    return tensor.view<float>().slice(0, 0, x.extent(0) * x.extent(1));
  };
  const auto cube = [&](auto view) { return view.reshape({x.extent(0), x.extent(1), x.extent(2)}); };
  const bool fused = dropout.rate == 0;  // the product then adds the residual itself
  const View<float> y = part(saved.out);
  pass(context, y, rows(x), part(saved.inner), part(saved.stats),
       [&](View<float> to, View<const float> from, View<const float> residual) {
         attention_.forward(context, cube(to), cube(from), memory,
                            fused ? cube(residual) : View<const float>(), saved.attention);
         if (fused) return;
         drop(context, to, to, dropout, parts_.layer);
         kernels::add(context, to, to, residual);
       });
  return y;
}

void CrossBranch::backward(Context& context, View<float> d, View<float> dmemory, View<const float> x,
                           const Memory& memory, const Saved& saved, const Dropout& dropout,
                           std::span<float> gradients) const {
  const std::int64_t count = x.extent(0) * x.extent(1), width = x.extent(2);
  const auto part = [&](const Tensor& tensor) { return tensor.view<float>().slice(0, 0, count); };
  const auto cube = [&](auto view) { return view.reshape({x.extent(0), x.extent(1), width}); };
  Workspace workspace(context);
  const View<float> stream = rows(d);  // gradient along the residual
  const auto dropped = [&]() -> View<const float> {
    if (dropout.rate == 0) return stream;
    const View<float> result = workspace.take(count, width);
    drop(context, result, stream, dropout, parts_.layer);
    return result;
  };
  if (parts_.norm_first) {
    const View<float> branch = workspace.take(count, width);
    attention_.backward(context, cube(branch), dmemory, cube(dropped()), cube(part(saved.inner)), memory,
                        saved.attention, gradients);
    norm_.backward(context, stream, branch, rows(x), part(saved.stats), gradients, true);
  } else {
    norm_.backward(context, stream, stream, part(saved.inner), part(saved.stats), gradients, false);
    attention_.backward(context, cube(stream), dmemory, cube(dropped()), x, memory, saved.attention,
                        gradients, cube(stream));
  }
}

void CrossBranch::apply(Context& context, View<float> x, const Memory& memory,
                        CrossAttention::Saved& saved) const {
  const auto cube = [&](auto view) { return view.reshape({x.extent(0), x.extent(1), x.extent(2)}); };
  Workspace workspace(context);
  const View<float> inner = workspace.take(x.extent(0) * x.extent(1), x.extent(2));
  pass(context, rows(x), rows(x), inner, {},
       [&](View<float> to, View<const float> from, View<const float> residual) {
         attention_.forward(context, cube(to), cube(from), memory, cube(residual), saved);
       });
}

void CrossBranch::read(Context& context, View<float> x, const State& state,
                       std::span<const std::int64_t> slots, std::span<const std::int64_t> positions) const {
  Workspace workspace(context);
  pass(context, x, x, workspace.take(x.extent(0), x.extent(1)), {},
       [&](View<float> to, View<const float> from, View<const float> residual) {
         attention_.read(context, to, from, residual, state, slots, positions);
       });
}

}  // namespace linnet
