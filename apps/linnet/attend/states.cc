#include "attend/states.h"

#include <algorithm>

#include "attend/inputs.h"
#include "base/fail.h"

namespace linnet {
namespace {

constexpr const char* state_name = "initial_state";
constexpr const char* position_name = "initial_position";

}  // namespace

std::unique_ptr<State> read_initial_state(const Attention& attention, const Safetensors& file,
                                          const std::string& path, std::int64_t batch,
                                          const HeadShape& shape) {
  if (!file.contains(state_name) && !file.contains(position_name)) return nullptr;
  for (const char* name : {state_name, position_name})
    if (!file.contains(name))
      fail("attend", "expected {} and {} in {}, or neither, got no {}", state_name, position_name, path,
           name);
  const std::vector<std::int64_t> positions = read_whole_numbers(file, path, position_name, "[batch]");
  if (std::ssize(positions) != batch)
    fail("attend", "expected {} in {} to have a number for each of {} batch entries, got {}", position_name,
         path, batch, positions.size());
  const std::unique_ptr<const State> empty = attention.make_state(0, shape);  // knows sizes
  std::int64_t floats = 0;
  for (const std::int64_t position : positions) {
    if (position < 0 || position > State::most_position)
      fail("attend", "expected {} in {} from 0 to 2^53, got {}", position_name, path, position);
    floats = std::max(floats, empty->saved_floats(position));
  }
  if (file.dtype(state_name) != DType::f32 || file.shape(state_name) != Shape{batch, floats})
    fail("attend", "expected {} in {} to be f32 {} for these positions, got {} {}", state_name, path,
         to_string(Shape{batch, floats}), name_of(file.dtype(state_name)), to_string(file.shape(state_name)));
  const Tensor numbers = file.tensor(state_name);
  std::unique_ptr<State> state = attention.make_state(batch, shape);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t position = positions[static_cast<std::size_t>(b)];
    state->restore(b,
                   numbers.span<float>().subspan(static_cast<std::size_t>(b * floats),
                                                 static_cast<std::size_t>(state->saved_floats(position))),
                   position);
  }
  return state;
}

std::vector<std::pair<std::string, Tensor>> tensors_of(const State& state) {
  const std::int64_t batch = state.slots();
  Tensor positions = Tensor::of<std::int64_t>({batch});
  const auto floats_of = [&](std::int64_t b) { return state.saved_floats(state.position(b)); };
  std::int64_t floats = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    positions.span<std::int64_t>()[static_cast<std::size_t>(b)] = state.position(b);
    floats = std::max(floats, floats_of(b));
  }
  Tensor numbers = Tensor::of<float>({batch, floats});
  for (std::int64_t b = 0; b < batch; ++b)
    state.save(b, numbers.span<float>().subspan(static_cast<std::size_t>(b * floats),
                                                static_cast<std::size_t>(floats_of(b))));
  std::vector<std::pair<std::string, Tensor>> result;
  result.emplace_back("final_state", std::move(numbers));
  result.emplace_back("final_position", std::move(positions));
  return result;
}

Tensor zero_gradient(const State& state) {
  std::int64_t floats = 0;
  for (std::int64_t b = 0; b < state.slots(); ++b) floats = std::max(floats, state.gradient_floats(b));
  return Tensor::of<float>({state.slots(), floats});
}

}  // namespace linnet
