#include "attention/linear/linear_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace linnet {
namespace {
constexpr const char* operation = "linear attention state";

const char* name_of_sums(int parts) { return parts == 2 ? "compensated" : "plain"; }
}  // namespace

void write_scale(float* floats, double scale) {
  floats[0] = static_cast<float>(scale);
  floats[1] = std::isfinite(floats[0]) ? static_cast<float>(scale - static_cast<double>(floats[0])) : 0.0f;
}

LinearState::LinearState(std::int64_t slots, const HeadShape& shape, std::int64_t features, StateSums sums,
                         bool scaled, float* memory)
    : shape_(shape),
      features_(features),
      parts_(sums == StateSums::compensated ? 2 : 1),
      numbers_(checked_size(Shape{shape.heads, features, shape.value_dim + 1}, sizeof(float))),
      scales_(scaled ? 2 * shape.heads : 0),
      stride_(memory != nullptr ? saved() : (saved() + 15) / 16 * 16),
      memory_(DType::f32, {memory != nullptr ? 0 : slots, stride_}),
      slots_(memory != nullptr ? memory : memory_.span<float>().data()),
      token_stride_((2 * shape.heads * features + 15) / 16 * 16),
      token_(DType::f32, {slots, token_stride_}),
      token_scales_(scaled ? 2 * slots * shape.heads : 0),
      positions_(slots) {
  for (std::int64_t slot = 0; slot < slots; ++slot) reset(slot);
}

std::int64_t LinearState::slot_floats(const HeadShape& shape, std::int64_t features, StateSums sums,
                                      bool scaled) {
  const std::int64_t parts = sums == StateSums::compensated ? 2 : 1;
  return parts * checked_size(Shape{shape.heads, features, shape.value_dim + 1}, 2 * sizeof(float)) +
         (scaled ? 2 * shape.heads : 0);
}

std::int64_t LinearState::gradient_floats(std::int64_t slot) const {
  check_slot(operation, *this, slot);
  return numbers_;
}

std::int64_t LinearState::position(std::int64_t slot) const {
  check_slot(operation, *this, slot);
  return positions_[slot];
}

std::size_t LinearState::bytes(std::int64_t slot) const {
  check_slot(operation, *this, slot);
  return static_cast<std::size_t>(saved()) * sizeof(float);
}

void LinearState::reset(std::int64_t slot) {
  check_slot(operation, *this, slot);
  std::fill_n(at(slot), saved(), 0.0f);
  for (std::int64_t head = 0; scaled() && head < shape_.heads; ++head)
    set_scale(slot, head, -std::numeric_limits<double>::infinity());
  positions_[slot] = 0;
}

void LinearState::copy(std::int64_t slot, const State& source, std::int64_t source_slot) {
  const auto& other = family_state<const LinearState>(operation, "the source", source);
  check_slot(operation, *this, slot);
  check_slot(operation, other, source_slot);
  check_held_shape(operation, "a source", other.shape_, shape_);
  if (other.features_ != features_)
    fail(operation, "expected a source with {} features, got {}", features_, other.features_);
  if (other.parts_ != parts_) fail(operation, "expected a source with {} sums", name_of_sums(parts_));
  if (other.scaled() != scaled())
    fail(operation, "expected a source {} log-scales", scaled() ? "with" : "without");
  if (other.at(source_slot) != at(slot)) std::copy_n(other.at(source_slot), saved(), at(slot));
  positions_[slot] = other.positions_[source_slot];
}

void LinearState::save(std::int64_t slot, std::span<float> to) const {
  check_slot(operation, *this, slot);
  if (static_cast<std::int64_t>(to.size()) != saved())
    fail(operation, "expected room for {} numbers, got {}", saved(), to.size());
  std::copy_n(at(slot), saved(), to.begin());
}

void LinearState::restore(std::int64_t slot, std::span<const float> from, std::int64_t position) {
  check_slot(operation, *this, slot);
  if (static_cast<std::int64_t>(from.size()) != saved())
    fail(operation, "expected {} numbers, got {}", saved(), from.size());
  check_position(operation, position);
  std::copy(from.begin(), from.end(), at(slot));
  positions_[slot] = position;
}

LinearState::Features LinearState::features_of(std::int64_t slot) {
  float* query = token_.span<float>().data() + slot * token_stride_;
  double* scales = scaled() ? token_scales_.data() + 2 * slot * shape_.heads : nullptr;
  return {{query, {shape_.heads, features_}},
          {query + shape_.heads * features_, {shape_.heads, features_}},
          scales,
          scaled() ? scales + shape_.heads : nullptr};
}

double LinearState::scale(std::int64_t slot, std::int64_t head) const {
  if (!scaled()) return 0;
  const float* floats = const_cast<LinearState*>(this)->scale_floats(slot, head);
  return static_cast<double>(floats[0]) + static_cast<double>(floats[1]);
}

void LinearState::set_scale(std::int64_t slot, std::int64_t head, double scale) {
  if (scaled()) write_scale(scale_floats(slot, head), scale);
}

}  // namespace linnet
