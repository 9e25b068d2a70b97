#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "linnet/attention.h"

namespace linnet {

/// The initial state that the file has: `initial_state`, f32 [batch, floats], a row for each batch entry as
/// State::save writes it with zeros behind, and `initial_position`, i64 or i32 [batch]. Null where the file
/// has neither. Throws Error where they do not fit each other or the attention, whose inputs are `batch`
/// sequences of `shape`.
std::unique_ptr<State> read_initial_state(const Attention& attention, const Safetensors& file,
                                          const std::string& path, std::int64_t batch,
                                          const HeadShape& shape);

/// `final_state` and `final_position` in the same form.
std::vector<std::pair<std::string, Tensor>> tensors_of(const State& state);

/// Zeros [slots, floats] for the gradient of a state.
Tensor zero_gradient(const State& state);

}  // namespace linnet
