#include "model/segments.h"

#include <algorithm>
#include <cmath>

#include "attention/family.h"
#include "base/fail.h"
#include "base/random.h"
#include "linnet/attention_config.h"
#include "model/config.h"

namespace linnet {
namespace {

constexpr const char* operation = "training.segment";

/// The steps [first, first + count) of every one of `batch` entries, one behind the other.
template <class T>
std::span<const T> cut(std::span<const T> all, std::int64_t batch, std::int64_t length, std::int64_t first,
                       std::int64_t count, std::vector<T>& memory) {
  if (all.empty()) return all;
  const std::int64_t each = std::ssize(all) / (batch * length);
  if (batch == 1)
    return all.subspan(static_cast<std::size_t>(first * each), static_cast<std::size_t>(count * each));
  memory.resize(static_cast<std::size_t>(batch * count * each));
  for (std::int64_t b = 0; b < batch; ++b)
    std::copy_n(all.begin() + (b * length + first) * each, count * each, memory.begin() + b * count * each);
  return memory;
}

/// Of a layer's state for one entry: compensated sums of the linear family, the keys and values of local.
double state_floats(const ModelConfig& config, Family family) {
  const AttentionOptions options = attention_of(config, family);
  const double width = static_cast<double>(config.width), heads = static_cast<double>(config.heads);
  if (family == Family::local) return 2 * static_cast<double>(options.local.left + 1) * width;
  const std::int64_t head_dim = config.width / config.heads;
  const std::int64_t features = options.linear.feature_map->features(head_dim);
  return 2 * heads * static_cast<double>(features * (head_dim + 1));
}

/// With a seed that is mixed through the generator itself.
Dropout mixed(const Dropout& dropout, std::uint32_t stream, std::int64_t index) {
  const auto words = Random(dropout.seed, Draw::dropout, stream).block(static_cast<std::uint64_t>(index));
  return {dropout.rate, (std::uint64_t{words[0]} << 32) | words[1]};
}

}  // namespace

Dropout dropout_of_pass(const Dropout& dropout, std::int64_t pass) {
  return mixed(dropout, 0xffffffffu, pass);
}

Dropout dropout_of_part(const Dropout& dropout, std::int64_t part) {
  return mixed(dropout, 0xfffffffeu, part);
}

void check_segments(const ModelConfig& config) {
  if (has_fixed_states(config)) return;
  if (!config.causal())
    fail<UsageError>(operation, "expected a causal model, got one whose steps see later ones");
  if (config.classifies())
    fail<UsageError>(operation,
                     "expected a model that predicts at every step, got a classifier, whose labels depend on "
                     "the whole sequence");
  if (config.has_encoder())
    fail<UsageError>(operation, "expected a model without an encoder, got an encoder–decoder model");
  for (const Family family : layer_families(config.attention, config.layers))
    if (!entry_of(family).fixed_state)
      fail<UsageError>(operation,
                       "expected layers of the families linear and local, whose states have a fixed size, "
                       "got {}",
                       name_of(family));
}

SegmentedTransformer::SegmentedTransformer(const Network& network, std::int64_t batch, std::int64_t length,
                                           const PassBounds& bounds)
    : network_(network),
      bounds_(bounds),
      transformer_(network, batch, bounds.together(length), bounds.recompute) {
  if (bounds.cuts(length)) check_segments(network.config());
}

double SegmentedTransformer::floats(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                                    const PassBounds& bounds, kernels::WeightType precision) {
  const double tokens = static_cast<double>(batch) * static_cast<double>(bounds.together(length));
  const double pass = tokens * TrainingTransformer::floats_per_token(config, bounds.recompute, precision);
  if (!bounds.cuts(length)) return pass;
  double state = 0;  // of all layers and one entry
  for (const Family family : layer_families(config.attention, config.layers))
    state += state_floats(config, family);
  const double kept = bounds.truncate ? 2 : std::ceil(static_cast<double>(length) / bounds.segment) - 1;
  return pass + static_cast<double>(batch) * state * (kept + 2);  // and the gradients of two
}

Pass PassPiece::of(const Pass& pass, std::int64_t first, std::int64_t count) {
  const auto part = [&](const auto& all, auto& memory) {
    return cut(all, pass.batch, pass.length, first, count, memory);
  };
  Pass result = pass;
  result.length = count;
  result.ids = part(pass.ids, ids_);
  result.values = part(pass.values, values_);
  result.targets = part(pass.targets, targets_);
  result.conditions = part(pass.conditions, conditions_);
  result.value_targets = part(pass.value_targets, value_targets_);
  if (first > 0 && !pass.values.empty())
    result.values_before = cut(pass.values, pass.batch, pass.length, first - 1, 1, values_before_);
  if (pass.key_lengths.empty()) return result;
  key_lengths_.resize(pass.key_lengths.size());
  std::ranges::transform(pass.key_lengths, key_lengths_.begin(), [&](std::int64_t tokens) {
    return std::clamp<std::int64_t>(tokens - first, 0, count);
  });
  result.key_lengths = key_lengths_;
  return result;
}

Pass SegmentedTransformer::segment_of(const Pass& pass, std::int64_t index) {
  const std::int64_t first = index * bounds_.segment;
  return piece_.of(pass, first, std::min(bounds_.segment, pass.length - first));
}

void SegmentedTransformer::reserve_states(std::int64_t batch, std::int64_t count) {
  if (batch != state_batch_) states_.clear();
  state_batch_ = batch;
  while (std::ssize(states_) < count) states_.emplace_back(network_, batch);
}

std::vector<View<float>> SegmentedTransformer::state_gradients(std::int64_t batch, std::size_t which) {
  std::vector<Tensor>& memory = state_gradients_[which];
  memory.resize(network_.blocks().size());
  std::vector<View<float>> result;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const std::int64_t floats = network_.blocks()[i].attention().state_floats(0);
    if (memory[i].size() < batch * floats) memory[i] = Tensor::of<float>({batch, floats});
    result.emplace_back(memory[i].span<float>().data(), Shape{batch, floats});
  }
  return result;
}

double SegmentedTransformer::accumulate(Context& context, const Pass& pass, float weight,
                                        const Dropout& dropout, std::span<float> gradients,
                                        const PassPart& part, const GradientsComplete& complete) {
  if (!bounds_.cuts(pass.length)) {
    const double nats = transformer_.forward(context, pass, weight, dropout, part);
    // Other processes may wait for the states of this one.
    if (std::isfinite(nats) || part.exchange != nullptr)
      transformer_.backward(context, gradients, part, complete);
    return nats;
  }
  if (!pass.positions.empty())
    fail<UsageError>(operation, "expected one sequence per example (data.packing = false), got several");
  return bounds_.truncate ? truncated(context, pass, weight, dropout, gradients, complete)
                          : exact(context, pass, weight, dropout, gradients, complete);
}

double SegmentedTransformer::truncated(Context& context, const Pass& pass, float weight,
                                       const Dropout& dropout, std::span<float> gradients,
                                       const GradientsComplete& complete) {
  reserve_states(pass.batch, 2);
  double nats = 0;
  const RecurrentState* before = nullptr;
  for (std::int64_t i = 0; i * bounds_.segment < pass.length; ++i) {
    RecurrentState& after = states_[static_cast<std::size_t>(i % 2)];
    const PassPart part{.position = i * bounds_.segment, .initial = before, .final = &after};
    nats += transformer_.forward(context, segment_of(pass, i), weight, dropout_of_part(dropout, i), part);
    if (!std::isfinite(nats)) break;
    const bool last = (i + 1) * bounds_.segment >= pass.length;
    transformer_.backward(context, gradients, part, last ? complete : GradientsComplete());
    before = &after;
  }
  return nats;
}

double SegmentedTransformer::exact(Context& context, const Pass& pass, float weight, const Dropout& dropout,
                                   std::span<float> gradients, const GradientsComplete& complete) {
  const std::int64_t count = (pass.length + bounds_.segment - 1) / bounds_.segment;
  reserve_states(pass.batch, count - 1);
  const auto part_of = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return PassPart{.position = i * bounds_.segment,
                    .initial = i > 0 ? &states_[at - 1] : nullptr,
                    .final = i + 1 < count ? &states_[at] : nullptr};
  };
  for (std::int64_t i = 0; i + 1 < count; ++i)
    transformer_.advance(context, segment_of(pass, i), dropout_of_part(dropout, i), part_of(i));
  double nats = 0;
  for (std::int64_t i = count - 1; i >= 0; --i) {
    PassPart part = part_of(i);
    part.final = nullptr;  // it is there already
    nats += transformer_.forward(context, segment_of(pass, i), weight, dropout_of_part(dropout, i), part);
    if (!std::isfinite(nats)) break;
    const std::vector<View<float>> before = state_gradients(pass.batch, static_cast<std::size_t>(i % 2)),
                                   after = state_gradients(pass.batch, static_cast<std::size_t>(1 - i % 2));
    if (i > 0) part.initial_gradients = before;
    if (i + 1 < count) part.final_gradients = after;
    transformer_.backward(context, gradients, part, i == 0 ? complete : GradientsComplete());
  }
  return nats;
}

}  // namespace linnet
