#include "model/transformer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fail.h"
#include "base/memory.h"
#include "base/workspace.h"
#include "model/config.h"

namespace linnet {
namespace {

/// Throws Error where the memory that is free does not hold `floats` for each of `count` things, which `what`
/// names; few are taken without asking.
void require_floats(fmt::format_string<std::int64_t&> what, std::int64_t count, double floats) {
  const double bytes = static_cast<double>(count) * sizeof(float) * floats;
  if (bytes > unasked_bytes) require_memory(fmt::format(what, count), bytes);
}

}  // namespace

RecurrentState::RecurrentState(const Network& network, std::int64_t slots, std::int64_t capacity) {
  if (!network.config().causal()) network.config().check_generates();
  double floats = 0;
  const std::int64_t sources = network.config().source_length;
  for (const Block& block : network.blocks()) {
    floats += static_cast<double>(block.attention().state_floats(capacity));
    if (block.cross() != nullptr)
      floats += static_cast<double>(block.cross()->attention().state_floats(sources));
  }
  require_floats("the states of {} streams", slots, floats);
  for (const Block& block : network.blocks()) {
    layers.push_back(block.attention().make_state(slots, capacity));
    if (block.cross() != nullptr) memories.push_back(block.cross()->attention().make_state(slots, sources));
  }
}

std::size_t RecurrentState::bytes(std::int64_t slot) const {
  std::size_t sum = 0;
  for (const auto& layer : layers) sum += layer->bytes(slot);
  if (!memories.empty()) sum += sizeof(std::int64_t);
  for (const auto& memory : memories) sum += memory->bytes(slot);
  return sum;
}

void RecurrentState::reset(std::int64_t slot) {
  for (const auto& layer : layers) layer->reset(slot);
  for (const auto& memory : memories) memory->reset(slot);
}

void RecurrentState::reserve(std::int64_t slot, std::int64_t tokens) {
  for (const auto& layer : layers) layer->reserve(slot, tokens);
}

bool RecurrentState::stands_at(std::int64_t slot, std::int64_t position) const {
  return std::ranges::all_of(layers, [&](const auto& layer) { return layer->position(slot) == position; });
}

void RecurrentState::copy(std::int64_t slot, const RecurrentState& source, std::int64_t source_slot) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i]->reserve(slot, source.layers[i]->position(source_slot));
  for (std::size_t i = 0; i < memories.size(); ++i)
    memories[i]->reserve(slot, source.memories[i]->position(source_slot));
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i]->copy(slot, *source.layers[i], source_slot);
  for (std::size_t i = 0; i < memories.size(); ++i) memories[i]->copy(slot, *source.memories[i], source_slot);
}

void RecurrentState::summarise(Context& context, const Network& network, const Memory& memory) {
  for (std::size_t i = 0; i < memories.size(); ++i)
    network.blocks()[i].cross()->attention().summarise(context, memory, *memories[i]);
}

std::vector<std::byte> RecurrentState::save(std::int64_t slot) const {
  std::vector<std::byte> bytes;
  std::vector<float> numbers;
  const auto add = [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  const auto add_state = [&](const State& state) {
    numbers.resize(static_cast<std::size_t>(state.saved_floats(state.position(slot))));
    state.save(slot, numbers);
    add(std::as_bytes(std::span(numbers)));
  };
  for (const auto& layer : layers) add_state(*layer);
  const std::int64_t tokens = source_tokens(slot);
  if (!memories.empty()) add(std::as_bytes(std::span(&tokens, 1)));
  for (const auto& memory : memories) add_state(*memory);
  return bytes;
}

void RecurrentState::restore(std::int64_t slot, std::span<const std::byte> bytes, std::int64_t position) {
  const auto bytes_of = [bytes](const auto& states, std::int64_t tokens) {
    std::size_t sum = 0;
    for (const auto& state : states) {
      const auto floats = static_cast<std::size_t>(state->saved_floats(tokens));
      if (floats > bytes.size() / sizeof(float))
        fail("state", "expected more than {} bytes for {} layers at position {}, got as many", bytes.size(),
             states.size(), tokens);
      sum += floats;
    }
    return sum * sizeof(float);
  };
  const std::size_t of_layers = bytes_of(layers, position);
  std::size_t expected = of_layers;
  std::int64_t tokens = 0;  // of the source, which stand between the layers' numbers and the memories'
  if (!memories.empty()) {
    expected += sizeof(tokens);
    if (bytes.size() >= expected) {
      std::memcpy(&tokens, bytes.data() + of_layers, sizeof(tokens));
      if (tokens < 1 || tokens > State::most_position)
        fail("state", "expected a source of 1 … {} tokens, got {}", State::most_position, tokens);
      expected += bytes_of(memories, tokens);
    }
  }
  if (bytes.size() != expected)
    fail("state", "expected {} bytes for {} layers at position {}, got {}", expected, layers.size(), position,
         bytes.size());
  std::vector<float> numbers;
  const auto take = [&](State& state, std::int64_t at) {
    numbers.resize(static_cast<std::size_t>(state.saved_floats(at)));
    const auto own = std::as_writable_bytes(std::span(numbers));
    std::ranges::copy(bytes.first(own.size()), own.begin());
    bytes = bytes.subspan(own.size());
    state.restore(slot, numbers, at);
  };
  for (const auto& layer : layers) take(*layer, position);
  if (!memories.empty()) bytes = bytes.subspan(sizeof(tokens));
  for (const auto& memory : memories) take(*memory, tokens);
}

View<float> Transformer::embed(Context& context, const StepInputs& inputs, std::int64_t batch,
                               std::int64_t length, std::int64_t position,
                               std::span<const std::int32_t> positions) {
  const std::int64_t width = network_.config().width;
  if (batch * length > reserved_batch_ * reserved_length_) {
    const auto memory = [](const Block& block) {
      return SelfAttention::Saved::floats_per_token(block.parts().attention);
    };
    const Block& largest = *std::ranges::max_element(network_.blocks(), {}, memory);
    // A layer also takes what lies between the products of its feed-forward part, which are alike in all.
    const FeedForward::Parts& feed = largest.parts().feed_forward;
    require_floats("a pass of {} tokens", batch * length,
                   2 * static_cast<double>(width) + memory(largest) +
                       (feed.gated() ? 2 : 1) * static_cast<double>(feed.hidden));
    hidden_ = Tensor::of<float>({batch * length, width});
    attention_.reserve(batch, length, largest.parts().attention);
    reserved_batch_ = batch;
    reserved_length_ = length;
  }
  const View<float> hidden(hidden_.span<float>().data(), {batch, length, width});
  network_.embedding().forward(context, hidden, inputs, position, positions);
  return hidden;
}

View<const float> Transformer::forward(Context& context, const StepInputs& inputs, std::int64_t batch,
                                       std::int64_t length, std::int64_t position,
                                       const RecurrentState* initial, RecurrentState* final,
                                       std::span<const std::int64_t> key_lengths,
                                       std::span<const std::int32_t> positions, const Memory& memory) {
  const View<float> hidden = embed(context, inputs, batch, length, position, positions);
  if (!memory.rows.empty() &&
      (batch * length > cross_rows_ || batch * memory.rows.extent(1) > memory_rows_)) {
    cross_rows_ = memory_rows_ = 0;  // where memory fails nothing is left
    cross_.reserve(batch, length, memory.rows.extent(1),
                   network_.blocks().front().cross()->parts().attention);
    cross_rows_ = batch * length;
    memory_rows_ = batch * memory.rows.extent(1);
  }
  for (std::size_t i = 0; i < network_.blocks().size(); ++i) {
    const bool reads_state = memory.rows.empty() && initial != nullptr && !initial->memories.empty();
    network_.blocks()[i].apply(
        context, hidden, attention_,
        {position, initial ? initial->layers[i].get() : nullptr, final ? final->layers[i].get() : nullptr},
        key_lengths, positions, {memory, &cross_, reads_state ? initial->memories[i].get() : nullptr});
  }
  if (network_.final_norm()) {
    const View<float> flat = hidden.reshape({batch * length, network_.config().width});
    network_.final_norm()->forward(context, flat, {}, flat);
  }
  return hidden;
}

Memory Transformer::encode(Context& context, const Encoder::Source& source) {
  const std::int64_t width = network_.config().width;
  if (memory_.size() < source.batch * source.length * width) {
    source_attention_.reserve(source.batch, source.length,
                              network_.encoder()->blocks().front().parts().attention);
    memory_ = Tensor::of<float>({source.batch, source.length, width});  // last: it tells what is reserved
  }
  const View<float> rows(memory_.span<float>().data(), {source.batch, source.length, width});
  network_.encoder()->apply(context, rows, source, source_attention_);
  return {rows, source.key_lengths};
}

View<const float> Transformer::queries_keys_values(Context& context, std::span<const std::int32_t> ids,
                                                   std::int64_t batch, std::int64_t length,
                                                   std::int64_t layer,
                                                   std::span<const std::int64_t> key_lengths) {
  const std::int64_t layers = std::ssize(network_.blocks());
  if (layer < 0 || layer >= layers)
    fail<UsageError>("model", "expected a layer in 0 … {}, got {}", layers - 1, layer);
  if (network_.config().columns > 0 || network_.embedding().fields() != 1)
    fail<UsageError>("model", "expected a model of one token per step, got one of {}",
                     network_.config().columns > 0 ? "real numbers" : "several fields");
  if (network_.encoder() != nullptr)
    fail<UsageError>("model", "expected a model without an encoder, got an encoder–decoder model");
  const SelfAttention::Parts& parts = network_.blocks()[static_cast<std::size_t>(layer)].parts().attention;
  if (parts.projected() != 3 * parts.width)
    fail<UsageError>("model",
                     "expected a layer whose keys are not its queries, got layer {} of the family {}", layer,
                     name_of(parts.attention.family));
  const View<float> hidden = embed(context, ids, batch, length, 0);
  for (std::int64_t i = 0; i <= layer; ++i)
    network_.blocks()[static_cast<std::size_t>(i)].apply(context, hidden, attention_, {}, key_lengths);
  return {attention_.qkv.span<float>().data(), {batch, length, 3 * network_.config().width}};
}

double Transformer::loss(Context& context, std::span<const std::int32_t> ids,
                         std::span<const std::int32_t> targets, std::int64_t batch, std::int64_t length,
                         std::span<float> nll, std::span<const std::int64_t> key_lengths) {
  return loss(context,
              {.batch = batch, .length = length, .ids = ids, .key_lengths = key_lengths, .targets = targets},
              nll);
}

View<const float> Transformer::forward_in_slices(Context& context, const Pass& pass) {
  const std::int64_t width = network_.config().width;
  if (sliced_.size() < pass.rows() * width) sliced_ = Tensor::of<float>({pass.rows(), width});
  const View<float> rows = sliced_.view<float>().slice(0, 0, pass.rows());
  const StepInputs inputs = inputs_.of(network_, pass);
  RecurrentState state(network_, 1);
  for (std::int64_t b = 0; b < pass.batch; ++b) {
    state.reset(0);
    for (std::int64_t first = 0; first < pass.length; first += most_together) {
      const std::int64_t here = std::min(most_together, pass.length - first), row = b * pass.length + first;
      const std::int64_t fields = std::ssize(inputs.ids) / pass.rows();
      const StepInputs part(
          inputs.ids.subspan(static_cast<std::size_t>(row * fields), static_cast<std::size_t>(here * fields)),
          inputs.values.empty() ? inputs.values : inputs.values.slice(0, row, row + here));
      std::int64_t tokens = here;
      if (!pass.key_lengths.empty())
        tokens = std::clamp<std::int64_t>(pass.key_lengths[static_cast<std::size_t>(b)] - first, 0, here);
      const View<const float> hidden =
          forward(context, part, 1, here, first, &state, &state, std::span(&tokens, 1));
      std::copy_n(hidden.data(), here * width, rows.at(row));
    }
  }
  return rows;
}

double Transformer::loss(Context& context, const Pass& pass, std::span<float> nll) {
  if (pass.length > most_together && has_fixed_states(network_.config()) && pass.positions.empty())
    return heads_.loss(context, forward_in_slices(context, pass), pass, nll, nullptr);
  const Memory memory = network_.encoder() != nullptr ? encode(context, pass.source_tokens()) : Memory{};
  const View<const float> hidden = forward(context, inputs_.of(network_, pass), pass.batch, pass.length, 0,
                                           nullptr, nullptr, pass.key_lengths, pass.positions, memory);
  return heads_.loss(context, hidden.reshape({pass.rows(), network_.config().width}), pass, nll, nullptr);
}

void RecurrentTransformer::advance(Context& context, View<float> x, const StepInputs& inputs,
                                   std::span<const std::int64_t> slots, RecurrentState& state) const {
  constexpr std::size_t piece = 64;
  const auto fields = static_cast<std::size_t>(network_.embedding().fields());
  std::array<std::int64_t, piece> positions;
  for (std::size_t first = 0; first < slots.size(); first += piece) {
    const std::size_t count = std::min(piece, slots.size() - first);
    const auto begin = static_cast<std::int64_t>(first), end = static_cast<std::int64_t>(first + count);
    for (std::size_t i = 0; i < count; ++i) positions[i] = state.position(slots[first + i]);
    const View<const float> values =
        inputs.values.empty() ? inputs.values : inputs.values.slice(0, begin, end);
    network_.embedding().step(context, x.slice(0, begin, end),
                              {inputs.ids.subspan(first * fields, count * fields), values},
                              std::span(positions).first(count));
  }
  for (std::size_t i = 0; i < network_.blocks().size(); ++i)
    network_.blocks()[i].step(context, x, *state.layers[i], slots,
                              state.memories.empty() ? nullptr : state.memories[i].get());
}

void RecurrentTransformer::hidden(Context& context, View<float> hidden, const StepInputs& inputs,
                                  std::span<const std::int64_t> slots, RecurrentState& state) const {
  advance(context, hidden, inputs, slots, state);
  if (network_.final_norm()) network_.final_norm()->forward(context, hidden, {}, hidden);
}

void RecurrentTransformer::step(Context& context, View<float> parameters, std::span<const std::int32_t> ids,
                                std::span<const std::int64_t> slots, RecurrentState& state) const {
  Workspace workspace(context);
  const View<float> x = workspace.take(std::ssize(slots), network_.config().width);
  advance(context, x, ids, slots, state);
  if (parameters.data() == nullptr) return;
  if (network_.final_norm()) network_.final_norm()->forward(context, x, {}, x);
  network_.head().forward(context, parameters, x);
}

}  // namespace linnet
