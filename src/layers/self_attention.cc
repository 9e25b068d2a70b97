#include "layers/self_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "attention/state_scan.h"
#include "base/workspace.h"
#include "kernels/elementwise.h"
#include "kernels/rotary.h"
#include "layers/shapes.h"

namespace linnet {

// The input's rounding does not depend on the family: layers of several families may share the memory. The
// other families would widen their queries, keys and values in memory, and rotations are of f32.
SelfAttention::Parts SelfAttention::with_rounding(Parts parts, const ParameterTable& table) {
  parts.rounded_input = Dense::reads_rounded(table, parts.width, parts.width);
  parts.rounded = parts.attention.family == Family::linear && !parts.rotary &&
                  table.weight_type() == kernels::WeightType::f32 && parts.rounded_input &&
                  Dense::reads_rounded(table, parts.width, parts.projected());
  return parts;
}

SelfAttention::SelfAttention(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(with_rounding(parts, table)),
      qkv_(table, name + ".qkv", parts.width, parts.projected()),
      output_(table, name + ".output", parts.width, parts.width,
              {.bias = true, .weight_initial = normal(parts.output_deviation), .bias_initial = {}}),
      decay_(parts.initial_decay),
      decay_slope_(decay_.size()),
      attention_(make_attention(parts.attention)) {
  if (info_of(parts.attention.family).takes_projections) add_projections(table, name);
  if (parts.rotary) frequencies_ = kernels::rotary_frequencies(parts.width / parts.heads);
  if (!parts.random_map.empty()) {
    parts_.random.layer = parts.attention.layer;
    draws_.emplace(table, name, parts.random_map, parts.width / parts.heads, parts_.random);
  }
  if (parts.decay != Decay::learned) return;
  const auto logit = [initial = parts.initial_decay](std::int64_t head, double) {
    const double gamma = initial[static_cast<std::size_t>(head)];
    return static_cast<float>(std::log(gamma / (1 - gamma)));
  };
  decay_logit_ = table.add(name + ".decay", {parts.heads}, logit, false, ParameterTable::Numbers::apart);
}

void SelfAttention::add_projections(ParameterTable& table, const std::string& name) {
  const Projections& wanted = parts_.projections;
  // A compressed key of independent tokens is about as long as a token's.
  const Initialiser initial = normal(1 / std::sqrt(static_cast<double>(wanted.length)));
  constexpr auto apart = ParameterTable::Numbers::apart;
  const Shape shape = {wanted.sharing == ProjectionSharing::none ? parts_.heads : 1, wanted.rank,
                       wanted.length};
  key_projection_ = wanted.sharing == ProjectionSharing::layerwise && wanted.owned != nullptr
                        ? *wanted.owned
                        : table.add(name + ".key_projection", shape, initial, true, apart);
  const bool both =
      wanted.sharing == ProjectionSharing::key_value || wanted.sharing == ProjectionSharing::layerwise;
  value_projection_ =
      both ? *key_projection_ : table.add(name + ".value_projection", shape, initial, true, apart);
}

namespace {

/// [batch, length, width] of bf16 or f32 in what was reserved for as many bytes at least.
template <class Void>
auto view_of(Void* memory, bool rounded, std::int64_t batch, std::int64_t length, std::int64_t width) {
  constexpr bool is_const = std::is_const_v<Void>;
  using Half = std::conditional_t<is_const, const bf16, bf16>;
  using Wide = std::conditional_t<is_const, const float, float>;
  using Result = std::conditional_t<is_const, ConstFloatView, FloatView>;
  return rounded ? Result(View<Half>(static_cast<Half*>(memory), {batch, length, width}))
                 : Result(View<Wide>(static_cast<Wide*>(memory), {batch, length, width}));
}

}  // namespace

void SelfAttention::Saved::reserve(std::int64_t batch, std::int64_t length, const Parts& parts) {
  const DType type = parts.rounded ? DType::bf16 : DType::f32;
  qkv = Tensor(type, {batch, length, parts.projected()});
  attended = Tensor(type, {batch, length, parts.width});
  normaliser = Tensor::of<float>({batch, length, parts.heads});
}

void SelfAttention::pack(Context& context, const ParameterValues& parameters, bool training) {
  qkv_.pack(context, parameters, training);
  output_.pack(context, parameters, training);
  if (key_projection_) {
    key_projection_values_ = parameters.of(*key_projection_);
    value_projection_values_ = parameters.of(*value_projection_);
  }
  if (draws_) {
    if (std::shared_ptr<const FeatureMap> map = draws_->pack(parameters)) {
      parts_.attention.linear.feature_map = std::move(map);
      attention_ = make_attention(parts_.attention);
    }
  }
  if (!decay_logit_) return;
  const View<const float> logit = parameters.of(*decay_logit_);
  for (std::int64_t h = 0; h < parts_.heads; ++h) {
    // σ(l) and its slope σ(l) σ(−l), which is no difference of numbers near 1.
    const double odds = std::exp(-static_cast<double>(logit(h))), gamma = 1 / (1 + odds);
    const auto at = static_cast<std::size_t>(h);
    constexpr float least_decay = 1e-6f;
    decay_[at] = std::max(static_cast<float>(gamma), least_decay);
    decay_slope_[at] = gamma < least_decay ? 0 : static_cast<float>(odds / ((1 + odds) * (1 + odds)));
  }
}

void SelfAttention::unpack(std::span<float> parameters) const {
  qkv_.unpack(parameters);
  output_.unpack(parameters);
}

void SelfAttention::redraw(std::span<float> parameters, std::uint64_t draw) const {
  if (draws_) draws_->redraw(parameters, draw);
}

View<const float> SelfAttention::decay() const {
  return decay_.empty() ? View<const float>() : View<const float>(decay_.data(), {parts_.heads});
}

template <class Byte>
BasicFloatView<Byte> SelfAttention::part(BasicFloatView<Byte> qkv, int index) const {
  return by_heads(qkv, parts_.projected() / parts_.width * parts_.heads)
      .slice(2, index * parts_.heads, (index + 1) * parts_.heads);
}

View<float> SelfAttention::queries_and_keys(View<float> qkv) const {
  const std::int64_t head_dim = parts_.width / parts_.heads;
  return View<float>(qkv.data(), {qkv.extent(0), qkv.extent(1), (key_part() + 1) * parts_.heads, head_dim},
                     {qkv.stride(0), qkv.stride(1), head_dim, 1});
}

View<float> SelfAttention::rows_of_queries_and_keys(View<float> qkv) const {
  const View<float> heads = queries_and_keys(qkv);
  return View<float>(heads.data(), {heads.extent(0) * heads.extent(1), heads.extent(2), heads.extent(3)},
                     {heads.stride(1), heads.stride(2), 1});
}

namespace {

/// The bounds of the sequences of every entry of a batch, whose positions begin at 0.
std::vector<std::vector<std::int64_t>> bounds_of(std::span<const std::int64_t> positions,
                                                 std::int64_t batch) {
  std::vector<std::vector<std::int64_t>> bounds(static_cast<std::size_t>(batch));
  const std::size_t length = positions.size() / bounds.size();
  for (std::size_t b = 0; b < bounds.size(); ++b) {
    for (std::size_t i = 0; i < length; ++i)
      if (positions[b * length + i] == 0) bounds[b].push_back(static_cast<std::int64_t>(i));
    bounds[b].push_back(static_cast<std::int64_t>(length));
  }
  return bounds;
}

}  // namespace

AttentionInputs SelfAttention::inputs(ConstFloatView qkv, const Saved& saved, const State* initial) const {
  Mask mask = parts_.causal ? Mask::causal() : Mask::full();
  // Every query sees all keys here and what the state holds of the others.
  if (!parts_.causal && initial != nullptr)
    mask = Mask::prefix(std::vector<std::int64_t>(static_cast<std::size_t>(qkv.extent(0)), qkv.extent(1)));
  if (!saved.key_lengths.empty()) mask = mask.with_key_lengths(saved.key_lengths);
  if (!saved.positions.empty()) mask = mask.with_segments(bounds_of(saved.positions, qkv.extent(0)));
  return {.query = part(qkv, 0),
          .key = part(qkv, key_part()),
          .value = part(qkv, value_part()),
          .mask = mask,
          .initial = initial,
          .position = saved.first_position,
          .decay = decay(),
          .key_projection = key_projection_values_,
          .value_projection = value_projection_values_};
}

void SelfAttention::forward(Context& context, View<float> y, ConstFloatView x, View<const float> residual,
                            Saved& saved, const SequencePart& part, std::span<const std::int64_t> key_lengths,
                            std::span<const std::int32_t> positions) const {
  const FloatView qkv =
      view_of(saved.qkv.raw(), parts_.rounded, x.extent(0), x.extent(1), parts_.projected());
  const FloatView attended =
      view_of(saved.attended.raw(), parts_.rounded, x.extent(0), x.extent(1), parts_.width);
  const View<float> normaliser =
      View<float>(saved.normaliser.view<float>().data(), {x.extent(0), x.extent(1), parts_.heads});
  qkv_.forward(context, rows(qkv), rows(x));
  saved.key_lengths.assign(key_lengths.begin(), key_lengths.end());
  saved.positions.assign(positions.begin(), positions.end());
  saved.first_position = part.position;
  if (parts_.rotary && positions.empty())
    kernels::rotate(context, queries_and_keys(qkv.as<float>()), part.position, frequencies_);
  else if (parts_.rotary)
    kernels::rotate_rows(context, rows_of_queries_and_keys(qkv.as<float>()), saved.positions, frequencies_);
  if (part.exchange != nullptr) find_state_before(context, qkv, saved, *part.exchange);
  attention_->forward(context,
                      {by_heads(attended, parts_.heads), normaliser, part.final, &saved.non_positive},
                      inputs(qkv, saved, part.exchange != nullptr ? saved.before.get() : part.initial));
  output_.forward(context, rows(y), rows(attended), kernels::Activation::none, rows(residual));
}

void SelfAttention::find_state_before(Context& context, ConstFloatView qkv, Saved& saved,
                                      StretchExchange& exchange) const {
  const std::int64_t batch = qkv.extent(0);
  if (saved.before == nullptr || saved.before->slots() != batch) {
    auto before = make_state(batch, 0), own = make_state(batch, 0);
    saved.before = std::move(before);
    saved.own = std::move(own);
  }
  AttentionInputs keys = inputs(qkv, saved, nullptr);
  if (!parts_.causal) {
    keys.mask = Mask::causal();
    if (!saved.key_lengths.empty()) keys.mask = keys.mask.with_key_lengths(saved.key_lengths);
  }
  attention_->forward(context, {.out = {}, .final = saved.own.get()}, keys);

  const StateScan scan(*saved.own, decay());
  const auto append = [&](std::span<std::byte> earlier, std::span<const std::byte> later) {
    scan.append(earlier, later);
  };
  for (std::int64_t b = 0; b < batch; ++b) saved.before->reset(b);
  std::vector<std::byte> message = scan.message_of(*saved.own);
  const bool any = exchange.exclusive_scan(message, append, false);
  if (any) scan.read(*saved.before, message);
  if (parts_.causal) return;
  std::vector<std::byte> behind = scan.message_of(*saved.own);
  if (exchange.exclusive_scan(behind, append, true)) {
    if (any) scan.append(behind, message);
    scan.read(*saved.before, behind);
  }
  scan.raise_scales(*saved.before, *saved.own);
}

bool SelfAttention::find_final_gradient(Context& context, View<float> gradient, ConstFloatView dattended,
                                        ConstFloatView attended, View<const float> normaliser,
                                        ConstFloatView qkv, const Saved& saved,
                                        StretchExchange& exchange) const {
  attention_->backward(context, {.query = {}, .key = {}, .value = {}, .initial = gradient},
                       by_heads(dattended, parts_.heads), inputs(qkv, saved, saved.before.get()),
                       by_heads(attended, parts_.heads), normaliser);
  const StateScan scan(*saved.own, decay());
  const auto prepend = [&](std::span<std::byte> earlier, std::span<const std::byte> later) {
    scan.prepend_gradient(earlier, later);
  };
  std::vector<std::byte> message = scan.gradient_message_of(gradient, *saved.before, *saved.own);
  std::vector<std::byte> ahead;  // as it is, for the other direction
  if (!parts_.causal) ahead = message;
  const bool any = exchange.exclusive_scan(message, prepend, true);
  if (any) scan.read_gradient(gradient, message);
  if (parts_.causal) return any;
  if (!exchange.exclusive_scan(ahead, prepend, false)) return any;
  if (any) scan.prepend_gradient(ahead, message);
  scan.read_gradient(gradient, ahead);
  return true;
}

void SelfAttention::backward(Context& context, View<float> dx, View<const float> dy, ConstFloatView x,
                             const Saved& saved, std::span<float> gradients, View<const float> residual,
                             const SequencePart& part) const {
  const std::int64_t batch = x.extent(0), length = x.extent(1), projected = parts_.projected();
  Workspace workspace(context);
  const ConstFloatView attended = view_of(saved.attended.raw(), parts_.rounded, batch, length, parts_.width);
  const ConstFloatView qkv = view_of(saved.qkv.raw(), parts_.rounded, batch, length, projected);
  const View<const float> normaliser(saved.normaliser.view<float>().data(), {batch, length, parts_.heads});

  const auto take = [&](std::int64_t width) {
    return workspace.take_floats(qkv.dtype(), batch * length, width).reshape({batch, length, width});
  };
  const FloatView dattended = take(parts_.width);
  output_.backward(context, rows(dattended), rows(dy), rows(attended), gradients);

  const FloatView dqkv = take(projected);
  // Where the key is the query, the family adds up both roles' gradients in the query's and leaves zeros
  // here.
  const bool shared = key_part() == 0;
  const FloatView dkey = shared ? by_heads(take(parts_.width), parts_.heads) : this->part(dqkv, key_part());
  std::vector<float> decay_gradient(decay_logit_ ? decay_.size() : 0);
  const View<float> ddecay =
      decay_logit_ ? View<float>(decay_gradient.data(), {parts_.heads}) : View<float>();
  const auto projection_gradient = [&](const std::optional<ParameterPlace>& place) {
    if (!place) return View<float>();
    const Shape& shape = place->shape();
    return workspace.take(shape[0] * shape[1], shape[2]).reshape({shape[0], shape[1], shape[2]});
  };
  const View<float> dkey_projection = projection_gradient(key_projection_),
                    dvalue_projection = projection_gradient(value_projection_);
  const State* initial = part.initial;
  View<const float> final_gradient = part.final_gradient;
  if (part.exchange != nullptr) {
    initial = saved.before.get();
    const View<float> found = workspace.take(batch, initial->gradient_floats(0));
    if (find_final_gradient(context, found, dattended, attended, normaliser, qkv, saved, *part.exchange))
      final_gradient = found;
  }
  attention_->backward(context,
                       {this->part(dqkv, 0), dkey, this->part(dqkv, value_part()), ddecay, dkey_projection,
                        dvalue_projection, part.initial_gradient, final_gradient},
                       by_heads(dattended, parts_.heads), inputs(qkv, saved, initial),
                       by_heads(attended, parts_.heads), normaliser);
  if (key_projection_) {
    const auto add = [&](View<float> to, View<const float> from) {
      kernels::add(context, to.reshape({to.size()}), to.reshape({to.size()}), from.reshape({from.size()}));
    };
    add(key_projection_->of(gradients), dkey_projection);
    add(value_projection_->of(gradients), dvalue_projection);
  }
  for (std::size_t h = 0; h < decay_gradient.size(); ++h)
    decay_logit_->of(gradients).data()[h] += decay_gradient[h] * decay_slope_[h];
  if (parts_.rotary && saved.positions.empty())
    kernels::rotate(context, queries_and_keys(dqkv.as<float>()), saved.first_position, frequencies_,
                    kernels::Turn::back);
  else if (parts_.rotary)
    kernels::rotate_rows(context, rows_of_queries_and_keys(dqkv.as<float>()), saved.positions, frequencies_,
                         kernels::Turn::back);
  qkv_.backward(context, rows(dx), rows(dqkv), rows(x), gradients, {}, rows(residual));
}

void SelfAttention::rotate_step(Context& context, View<float> qkv, const State& state,
                                std::span<const std::int64_t> slots) const {
  constexpr std::size_t piece = 64;
  const std::int64_t n = qkv.extent(0);
  const View<float> all = rows_of_queries_and_keys(qkv.reshape({1, n, qkv.extent(1)}));
  std::array<std::int64_t, piece> positions;
  for (std::size_t first = 0; first < slots.size(); first += piece) {
    const std::size_t count = std::min(piece, slots.size() - first);
    for (std::size_t i = 0; i < count; ++i) positions[i] = state.position(slots[first + i]);
    kernels::rotate_rows(context, all.slice(0, first, first + count), std::span(positions).first(count),
                         frequencies_);
  }
}

void SelfAttention::step(Context& context, View<float> y, View<const float> x, View<const float> residual,
                         State& state, std::span<const std::int64_t> slots) const {
  const std::int64_t n = x.extent(0), head_dim = parts_.width / parts_.heads;
  Workspace workspace(context);
  const View<float> qkv = workspace.take(n, parts_.projected());
  qkv_.forward(context, qkv, x);
  if (parts_.rotary) rotate_step(context, qkv, state, slots);
  const auto head_part = [&](int index) {
    return View<const float>(qkv.data() + index * parts_.width, {n, parts_.heads, head_dim},
                             {qkv.stride(0), head_dim, 1});
  };
  const View<float> attended = workspace.take(n, parts_.width);
  attention_->step(context, attended.reshape({n, parts_.heads, head_dim}), head_part(0), head_part(1),
                   head_part(2), state, slots, decay());
  output_.forward(context, y, attended, kernels::Activation::none, residual);
}

std::int64_t SelfAttention::state_floats(std::int64_t capacity) const {
  const std::int64_t head_dim = parts_.width / parts_.heads;
  return attention_->state_floats({parts_.heads, head_dim, head_dim}, capacity);
}

std::unique_ptr<State> SelfAttention::make_state(std::int64_t slots, std::int64_t capacity) const {
  const std::int64_t head_dim = parts_.width / parts_.heads;
  return attention_->make_state(slots, {parts_.heads, head_dim, head_dim}, capacity);
}

}  // namespace linnet
