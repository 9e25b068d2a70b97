#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "model/transformer.h"

namespace linnet {

/// Tokens [steps, fields] that a stream has still to take, and where it stands before them.
struct Prompt {
  std::int64_t stream;
  std::span<const std::int32_t> tokens;
  std::int64_t fields;
  std::int64_t position;
  std::vector<std::int32_t> next_input;  ///< of every field, before the tokens

  std::int64_t steps() const { return std::ssize(tokens) / fields; }
};

/// Takes all prompts, none of them empty, into the states of their streams, and before anything else the
/// memory that these need. Prompts at the same place of their streams pass through the layers together, in
/// slices of `Session::prefill_slice` steps; no result depends on which ones do. A stream's state moves when
/// its prompt is at its end; then `taken` is called with the stream's new position and next input. `single`
/// is the memory of one stream.
void take_prompts(Context& context, const Network& network, Transformer& layers, RecurrentState& states,
                  RecurrentState& single, std::vector<Prompt> prompts,
                  FunctionReference<void(const Prompt&)> taken);

}  // namespace linnet
