#include "generation/token_steps.h"

#include <algorithm>
#include <numeric>

#include "base/context_impl.h"
#include "base/float_mode.h"
#include "base/workspace.h"

namespace linnet {

void TokenStream::append(std::span<const std::int32_t> step) {
  std::ranges::copy(step, next_input.begin());
  ++position;
}

TokenSteps::Worker::Worker(const Network& network) {
  samplers.emplace_back(network.head());
  for (const LaterField& field : network.later_fields()) samplers.emplace_back(field.head());
}

TokenSteps::TokenSteps(const Network& network)
    : network_(network), fields_(1 + std::ssize(network.later_fields())), recurrent_(network) {
  workers_.emplace_back(network);
}

/// Steps the layers and calls of_field(f, parameters [slots, outputs of f]) for every field, each given the
/// tokens [slots, fields] of those before.
template <class Parameters>
void TokenSteps::heads(Context& own, std::span<const std::int32_t> inputs,
                       std::span<const std::int64_t> slots, RecurrentState& state,
                       std::span<const std::int32_t> tokens, const Parameters& of_field) const {
  Workspace workspace(own);
  const std::int64_t count = std::ssize(slots);
  const View<float> parameters = workspace.take(count, network_.head().outputs());
  if (fields_ == 1) {
    recurrent_.step(own, parameters, inputs, slots, state);
    return of_field(0, parameters);
  }
  const View<float> hidden = workspace.take(count, network_.config().width);
  recurrent_.hidden(own, hidden, inputs, slots, state);
  network_.head().forward(own, parameters, hidden);
  of_field(0, parameters);
  for (std::int64_t f = 1; f < fields_; ++f) {
    const LaterField& later = network_.later_fields()[static_cast<std::size_t>(f - 1)];
    const View<float> of_later = workspace.take(count, later.head().outputs());
    later.forward(own, of_later, hidden, {tokens, fields_, f - 1}, nullptr);
    of_field(f, of_later);
  }
}

void TokenSteps::reserve(Context& context, std::int64_t count, std::int32_t first_input) {
  const LargestBlocks largest(count, context.threads(), network_.config().weights);
  while (std::ssize(workers_) < largest.blocks) workers_.emplace_back(network_);
  std::vector<std::int64_t> slots(static_cast<std::size_t>(largest.streams));
  std::iota(slots.begin(), slots.end(), 0);
  // Tokens that every later field has.
  const std::vector<std::int32_t> tokens(slots.size() * static_cast<std::size_t>(fields_), 0);
  std::vector<std::int32_t> inputs = tokens;
  for (std::size_t i = 0; i < inputs.size(); i += static_cast<std::size_t>(fields_)) inputs[i] = first_input;
  for (Worker& worker : workers_) {
    worker.ids.reserve(inputs.size());
    worker.lost.reserve(slots.size());
  }
  RecurrentState nothing(network_, largest.streams);
  const auto try_step = [&](Context& own) {
    const FlushSubnormals flush;
    heads(own, inputs, slots, nothing, tokens, [](std::int64_t, View<const float>) {});
    for (const std::int64_t slot : slots) nothing.reset(slot);
  };
  try_step(context);
  for (Context& own : context.impl().contexts_of_threads()) try_step(own);
}

/// The next inputs of the streams, in the worker's memory.
std::span<const std::int32_t> TokenSteps::next_inputs(std::span<const std::int64_t> slots,
                                                      Streams<TokenStream>& streams, Worker& worker) const {
  worker.ids.clear();
  for (const std::int64_t slot : slots) {
    const std::vector<std::int32_t>& next = streams.at(slot).next_input;
    worker.ids.insert(worker.ids.end(), next.begin(), next.end());
  }
  return worker.ids;
}

void TokenSteps::observe(Context& own, std::int64_t block, std::span<const std::int32_t> tokens,
                         std::span<const std::int64_t> slots, Streams<TokenStream>& streams,
                         RecurrentState& state) {
  Worker& worker = workers_[static_cast<std::size_t>(block)];
  recurrent_.step(own, {}, next_inputs(slots, streams, worker), slots, state);
  const auto fields = static_cast<std::size_t>(fields_);
  for (std::size_t i = 0; i < slots.size(); ++i)
    streams.at(slots[i]).append(tokens.subspan(i * fields, fields));
}

void TokenSteps::draw(Context& own, std::int64_t block, std::span<std::int32_t> tokens,
                      std::span<const std::int64_t> slots, Streams<TokenStream>& streams,
                      RecurrentState& state) {
  Worker& worker = workers_[static_cast<std::size_t>(block)];
  worker.lost.assign(slots.size(), 0);
  heads(own, next_inputs(slots, streams, worker), slots, state, tokens,
        [&](std::int64_t field, View<const float> parameters) {
          draw_field(own, tokens, slots, streams, parameters, field, worker);
        });
  const auto fields = static_cast<std::size_t>(fields_);
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (!worker.lost[i]) streams.at(slots[i]).append(tokens.subspan(i * fields, fields));
  if (const auto lost = std::ranges::find(worker.lost, 1); lost != worker.lost.end())
    fail_not_finite(slots[static_cast<std::size_t>(lost - worker.lost.begin())]);
}

/// The tokens of one field of every stream, from its parameters [slots, outputs]. Those of streams that are
/// lost are 0.
void TokenSteps::draw_field(Context& own, std::span<std::int32_t> tokens, std::span<const std::int64_t> slots,
                            Streams<TokenStream>& streams, View<const float> parameters, std::int64_t field,
                            Worker& worker) const {
  Sampler& sampler = worker.samplers[static_cast<std::size_t>(field)];
  for (std::int64_t i = 0; i < std::ssize(slots); ++i) {
    const TokenStream& chosen = streams.at(slots[static_cast<std::size_t>(i)]);
    const View<const float> row = parameters.slice(0, i, i + 1);
    std::uint8_t& lost = worker.lost[static_cast<std::size_t>(i)];
    if (!all_finite(row)) lost = 1;
    tokens[static_cast<std::size_t>(i * fields_ + field)] =
        lost ? 0 : sampler.sample(own, row, chosen.sampling, chosen.position * fields_ + field);
  }
}

void TokenSteps::predict(Context& context, View<float> parameters, std::span<const std::int32_t> input,
                         RecurrentState& state) {
  const std::int64_t slot = 0;
  recurrent_.step(context, parameters, input, std::span(&slot, 1), state);
}

}  // namespace linnet
