#include "generation/token_steps.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/context_impl.h"
#include "base/float_mode.h"
#include "base/workspace.h"

namespace linnet {
namespace {

/// Throws UsageError where a processor has left logits that no token can be drawn from.
void check_processed(std::span<const float> logits, std::int64_t stream) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  float most = -infinity;
  for (const float logit : logits) {
    if (!(logit < infinity))
      fail<UsageError>("step", "expected processed logits that are finite or -inf, got {} in stream {}",
                       logit, stream);
    most = std::max(most, logit);
  }
  if (most == -infinity)
    fail<UsageError>("step", "expected processed logits that are not all -inf, got those in stream {}",
                     stream);
}

}  // namespace

void TokenStream::append(std::span<const std::int32_t> step) {
  std::ranges::copy(step, next_input.begin());
  ++position;
}

TokenSteps::TokenSteps(const Network& network)
    : network_(network), fields_(1 + std::ssize(network.later_fields())), recurrent_(network), workers_(1) {
  samplers_.emplace_back(network.head());
  for (const LaterField& field : network.later_fields()) samplers_.emplace_back(field.head());
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
  if (largest.streams <= reserved_streams_ && largest.blocks <= std::ssize(workers_)) return;
  if (std::ssize(workers_) < largest.blocks) workers_.resize(static_cast<std::size_t>(largest.blocks));
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
    heads(own, inputs, slots, nothing, tokens, [&](std::int64_t field, View<const float>) {
      samplers_[static_cast<std::size_t>(field)].reserve(own);
    });
    for (const std::int64_t slot : slots) nothing.reset(slot);
  };
  try_step(context);
  for (Context& own : context.impl().contexts_of_threads()) try_step(own);
  reserved_streams_ = std::max(reserved_streams_, largest.streams);
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

void TokenSteps::draw(Context& own, std::int64_t block, const Draws& draws,
                      std::span<const std::int64_t> slots, Streams<TokenStream>& streams,
                      RecurrentState& state) {
  Worker& worker = workers_[static_cast<std::size_t>(block)];
  worker.lost.assign(slots.size(), 0);
  FirstFailure failure;
  heads(own, next_inputs(slots, streams, worker), slots, state, draws.tokens,
        [&](std::int64_t field, View<const float> parameters) {
          draw_field(own, draws, slots, streams, parameters, field, worker, failure);
        });
  const auto fields = static_cast<std::size_t>(fields_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto step = draws.tokens.subspan(i * fields, fields);
    if (!worker.lost[i]) {
      streams.at(slots[i]).append(step);
      continue;
    }
    std::ranges::fill(step, -1);
    if (!draws.log_probabilities.empty())
      std::ranges::fill(draws.log_probabilities.subspan(i * fields, fields),
                        std::numeric_limits<float>::quiet_NaN());
  }
  failure.rethrow();
}

/// The tokens of one field of every stream, from its parameters [slots, outputs]. Those of streams that are
/// lost are 0, as inputs of the fields behind it.
void TokenSteps::draw_field(Context& own, const Draws& draws, std::span<const std::int64_t> slots,
                            Streams<TokenStream>& streams, View<const float> parameters, std::int64_t field,
                            Worker& worker, FirstFailure& failure) const {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::size_t at = i * static_cast<std::size_t>(fields_) + static_cast<std::size_t>(field);
    draws.tokens[at] = 0;
    if (worker.lost[i]) continue;
    const auto row = static_cast<std::int64_t>(i);
    worker.lost[i] = !failure.guard(row, [&] {
      draw_token(own, draws, at, slots[i], streams.at(slots[i]), parameters.slice(0, row, row + 1), field);
    });
  }
}

void TokenSteps::draw_token(Context& own, const Draws& draws, std::size_t at, std::int64_t slot,
                            const TokenStream& stream, View<const float> parameters,
                            std::int64_t field) const {
  if (!all_finite(parameters)) fail_not_finite("step", slot);
  const Sampler& sampler = samplers_[static_cast<std::size_t>(field)];
  const auto change = [&](std::span<float> logits) {
    draws.process(slot, field, logits);
    check_processed(logits, slot);
  };
  const Sampler::Change reference(change);
  draws.tokens[at] = sampler.sample(own, parameters, stream.sampling, stream.position * fields_ + field,
                                    draws.process ? &reference : nullptr);
  if (!draws.log_probabilities.empty())
    draws.log_probabilities[at] = sampler.log_probability(own, parameters, draws.tokens[at]);
}

void TokenSteps::predict(Context& context, View<float> parameters, std::span<const std::int32_t> input,
                         RecurrentState& state) {
  const std::int64_t slot = 0;
  recurrent_.step(context, parameters, input, std::span(&slot, 1), state);
}

}  // namespace linnet
