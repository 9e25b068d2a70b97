#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generation/sampler.h"
#include "generation/streams.h"
#include "linnet/generation.h"
#include "model/transformer.h"

namespace linnet {

/// A stream of tokens, apart from its state.
struct TokenStream {
  SamplingOptions sampling = {};
  std::vector<std::int32_t> next_input = {};  ///< of every field; appended, but not yet seen by the state
  std::int64_t position = 0;                  ///< steps appended
  std::vector<std::int32_t> history = {};     ///< all inputs, without a cache only
  bool broken = false;                        ///< a step failed between two layers of its state

  std::int64_t steps() const { return position; }
  void append(std::span<const std::int32_t> step);
};

/// Where a step's draws go, and what changes their logits before.
struct Draws {
  std::span<std::int32_t> tokens;      ///< [streams, fields]
  std::span<float> log_probabilities;  ///< the same, or empty
  const LogitsProcessor& process;      ///< may be empty

  /// Those of `count` streams from the `first` one on.
  Draws of(std::size_t first, std::size_t count, std::size_t fields) const {
    return {tokens.subspan(first * fields, count * fields),
            log_probabilities.empty() ? log_probabilities
                                      : log_probabilities.subspan(first * fields, count * fields),
            process};
  }
};

/// Steps of streams in the recurrent form, a block of streams at a time: the layers, the output head of every
/// field, the draws. Blocks of one step have different indices and may run side by side.
class TokenSteps {
 public:
  explicit TokenSteps(const Network& network);

  /// Takes what steps of up to `count` streams need: every thread's memory makes a step with as many streams
  /// of its own. `first_input` is any input of the first field.
  void reserve(Context& context, std::int64_t count, std::int32_t first_input);

  /// The streams take tokens [slots, fields].
  void observe(Context& own, std::int64_t block, std::span<const std::int32_t> tokens,
               std::span<const std::int64_t> slots, Streams<TokenStream>& streams, RecurrentState& state);

  /// Draws tokens, which the streams take. Throws for a stream whose prediction is not finite, or whose
  /// logits could not be processed, after the others have moved.
  void draw(Context& own, std::int64_t block, const Draws& draws, std::span<const std::int64_t> slots,
            Streams<TokenStream>& streams, RecurrentState& state);

  /// Draws the token of a stream's first field, which is draws.tokens[at], from its parameters [1, outputs].
  void draw_first(Context& context, const Draws& draws, std::size_t at, std::int64_t slot,
                  const TokenStream& stream, View<const float> parameters) {
    draw_token(context, draws, at, slot, stream, parameters, 0);
  }

  /// parameters [1, outputs] of the first field's next token, for a state that takes the input.
  void predict(Context& context, View<float> parameters, std::span<const std::int32_t> input,
               RecurrentState& state);

 private:
  /// What one block needs while it is stepped.
  struct Worker {
    std::vector<std::int32_t> ids;   ///< [streams, fields]
    std::vector<std::uint8_t> lost;  ///< streams for which no token could be drawn
  };

  std::span<const std::int32_t> next_inputs(std::span<const std::int64_t> slots,
                                            Streams<TokenStream>& streams, Worker& worker) const;
  void draw_field(Context& own, const Draws& draws, std::span<const std::int64_t> slots,
                  Streams<TokenStream>& streams, View<const float> parameters, std::int64_t field,
                  Worker& worker, FirstFailure& failure) const;
  void draw_token(Context& own, const Draws& draws, std::size_t at, std::int64_t slot,
                  const TokenStream& stream, View<const float> parameters, std::int64_t field) const;
  template <class Parameters>
  void heads(Context& own, std::span<const std::int32_t> inputs, std::span<const std::int64_t> slots,
             RecurrentState& state, std::span<const std::int32_t> tokens, const Parameters& of_field) const;

  const Network& network_;
  const std::int64_t fields_;
  RecurrentTransformer recurrent_;
  std::vector<Sampler> samplers_;      ///< of every field
  std::vector<Worker> workers_;        ///< of every block
  std::int64_t reserved_streams_ = 0;  ///< of a block that steps allocate nothing for
};

}  // namespace linnet
