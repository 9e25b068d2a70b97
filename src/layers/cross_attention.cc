#include "layers/cross_attention.h"

#include <utility>

#include "base/workspace.h"
#include "layers/shapes.h"

namespace linnet {
namespace {

/// The first [batch, length, width] of a tensor's memory.
template <class T>
View<T> first(std::span<T> memory, std::int64_t batch, std::int64_t length, std::int64_t width) {
  return View<T>(memory.data(), {batch, length, width});
}

/// Keys (part 0) or values (part 1) of [batch, length, 2 · width], by heads.
template <class T>
View<T> part(View<T> key_value, int index, std::int64_t heads) {
  const std::int64_t width = key_value.extent(2) / 2, head_dim = width / heads;
  return View<T>(key_value.data() + index * width,
                 {key_value.extent(0), key_value.extent(1), heads, head_dim},
                 {key_value.stride(0), key_value.stride(1), head_dim, 1});
}

Mask mask_of(Mask mask, const Memory& memory) {
  if (memory.key_lengths.empty()) return mask;
  return mask.with_key_lengths({memory.key_lengths.begin(), memory.key_lengths.end()});
}

}  // namespace

CrossAttention::CrossAttention(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(parts),
      query_(table, name + ".query", parts.width, parts.width),
      key_value_(table, name + ".key_value", parts.width, 2 * parts.width),
      output_(table, name + ".output", parts.width, parts.width,
              {.bias = true, .weight_initial = normal(parts.output_deviation), .bias_initial = {}}),
      attention_(make_attention(parts.attention)) {
  if (parts.random_map.empty()) return;
  parts_.random.layer = parts.attention.layer;
  draws_.emplace(table, name, parts.random_map, parts.width / parts.heads, parts_.random);
}

void CrossAttention::Saved::reserve(std::int64_t batch, std::int64_t length, std::int64_t source_length,
                                    const Parts& parts) {
  query = Tensor::of<float>({batch, length, parts.width});
  key_value = Tensor::of<float>({batch, source_length, 2 * parts.width});
  attended = Tensor::of<float>({batch, length, parts.width});
  normaliser = Tensor::of<float>({batch, length, parts.heads});
}

double CrossAttention::Saved::floats(std::int64_t length, std::int64_t source_length, const Parts& parts) {
  const double width = static_cast<double>(parts.width);
  return static_cast<double>(length) * (2 * width + static_cast<double>(parts.heads)) +
         static_cast<double>(source_length) * 2 * width;
}

void CrossAttention::pack(Context& context, const ParameterValues& parameters, bool training) {
  query_.pack(context, parameters, training);
  key_value_.pack(context, parameters, training);
  output_.pack(context, parameters, training);
  if (!draws_) return;
  if (std::shared_ptr<const FeatureMap> map = draws_->pack(parameters)) {
    parts_.attention.linear.feature_map = std::move(map);
    attention_ = make_attention(parts_.attention);
  }
}

void CrossAttention::unpack(std::span<float> parameters) const {
  query_.unpack(parameters);
  key_value_.unpack(parameters);
  output_.unpack(parameters);
}

void CrossAttention::redraw(std::span<float> parameters, std::uint64_t draw) const {
  if (draws_) draws_->redraw(parameters, draw);
}

void CrossAttention::forward(Context& context, View<float> y, View<const float> x, const Memory& memory,
                             View<const float> residual, Saved& saved) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), sources = memory.rows.extent(1);
  const std::int64_t width = parts_.width, heads = parts_.heads;
  const View<float> query = first(saved.query.span<float>(), batch, length, width);
  const View<float> key_value = first(saved.key_value.span<float>(), batch, sources, 2 * width);
  const View<float> attended = first(saved.attended.span<float>(), batch, length, width);
  query_.forward(context, rows(query), rows(x));
  key_value_.forward(context, rows(key_value), rows(memory.rows));
  attention_->forward(context,
                      {.out = by_heads(attended, heads),
                       .normaliser = first(saved.normaliser.span<float>(), batch, length, heads),
                       .non_positive = &saved.non_positive},
                      {.query = by_heads(query, heads),
                       .key = part(key_value, 0, heads),
                       .value = part(key_value, 1, heads),
                       .mask = mask_of(Mask::full(), memory)});
  output_.forward(context, rows(y), rows(View<const float>(attended)), kernels::Activation::none,
                  rows(residual));
}

void CrossAttention::backward(Context& context, View<float> dx, View<float> dmemory, View<const float> dy,
                              View<const float> x, const Memory& memory, const Saved& saved,
                              std::span<float> gradients, View<const float> residual) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), sources = memory.rows.extent(1);
  const std::int64_t width = parts_.width, heads = parts_.heads;
  const auto attended = first(saved.attended.span<float>(), batch, length, width);
  const auto query = first(saved.query.span<float>(), batch, length, width);
  const auto key_value = first(saved.key_value.span<float>(), batch, sources, 2 * width);
  Workspace workspace(context);
  const auto cube = [&](std::int64_t rows, std::int64_t columns) {
    return workspace.take(batch * rows, columns).reshape({batch, rows, columns});
  };
  const View<float> dattended = cube(length, width), dquery = cube(length, width),
                    dkey_value = cube(sources, 2 * width);
  output_.backward(context, rows(dattended), rows(dy), rows(attended), gradients);
  attention_->backward(context,
                       {.query = by_heads(dquery, heads),
                        .key = part(dkey_value, 0, heads),
                        .value = part(dkey_value, 1, heads)},
                       by_heads(View<const float>(dattended), heads),
                       {.query = by_heads(query, heads),
                        .key = part(key_value, 0, heads),
                        .value = part(key_value, 1, heads),
                        .mask = mask_of(Mask::full(), memory)},
                       by_heads(attended, heads),
                       first(saved.normaliser.span<float>(), batch, length, heads));
  query_.backward(context, rows(dx), rows(View<const float>(dquery)), rows(x), gradients, {}, rows(residual));
  key_value_.backward(context, rows(dmemory), rows(View<const float>(dkey_value)), rows(memory.rows),
                      gradients, {}, rows(View<const float>(dmemory)));
}

// The state that a causal pass over the source leaves holds every key. The linear family computes it alone.
void CrossAttention::summarise(Context& context, const Memory& memory, State& state) const {
  const std::int64_t batch = memory.rows.extent(0), sources = memory.rows.extent(1);
  Workspace workspace(context);
  const View<float> key_value =
      workspace.take(batch * sources, 2 * parts_.width).reshape({batch, sources, 2 * parts_.width});
  key_value_.forward(context, rows(key_value), rows(memory.rows));
  const View<const float> key = part(View<const float>(key_value), 0, parts_.heads);
  FloatView out;
  if (parts_.attention.family != Family::linear) {
    const View<float> unused = workspace.take(batch * sources, parts_.width);
    out = by_heads(unused.reshape({batch, sources, parts_.width}), parts_.heads);
  }
  attention_->forward(context, {.out = out, .final = &state},
                      {.query = key,
                       .key = key,
                       .value = part(View<const float>(key_value), 1, parts_.heads),
                       .mask = mask_of(Mask::causal(), memory)});
}

void CrossAttention::read(Context& context, View<float> y, View<const float> x, View<const float> residual,
                          const State& state, std::span<const std::int64_t> slots,
                          std::span<const std::int64_t> positions) const {
  const std::int64_t n = x.extent(0), head_dim = parts_.width / parts_.heads;
  Workspace workspace(context);
  const View<float> query = workspace.take(n, parts_.width), attended = workspace.take(n, parts_.width);
  query_.forward(context, query, x);
  attention_->read(context, attended.reshape({n, parts_.heads, head_dim}),
                   query.reshape({n, parts_.heads, head_dim}), state, slots, positions);
  output_.forward(context, y, attended, kernels::Activation::none, residual);
}

std::unique_ptr<State> CrossAttention::make_state(std::int64_t slots, std::int64_t capacity) const {
  return attention_->make_state(slots, shape(), capacity);
}

std::int64_t CrossAttention::state_floats(std::int64_t capacity) const {
  return attention_->state_floats(shape(), capacity);
}

}  // namespace linnet
