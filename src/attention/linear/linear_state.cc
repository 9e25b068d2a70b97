#include "attention/linear/linear_state.h"

#include <algorithm>

namespace linnet {
namespace {
constexpr const char* operation = "linear attention state";

const char* name_of_sums(int parts) { return parts == 2 ? "compensated" : "plain"; }
}  // namespace

LinearState::LinearState(std::int64_t slots, const HeadShape& shape, std::int64_t features, StateSums sums)
    : shape_(shape),
      features_(features),
      parts_(sums == StateSums::compensated ? 2 : 1),
      numbers_(checked_size(Shape{shape.heads, features, shape.value_dim + 1}, sizeof(float))),
      stride_((parts_ * numbers_ + 2 * features + 15) / 16 * 16),
      memory_(DType::f32, {slots, stride_}),
      positions_(slots) {}

std::int64_t LinearState::position(std::int64_t slot) const {
  check_slot(operation, *this, slot);
  return positions_[slot];
}

std::size_t LinearState::bytes(std::int64_t slot) const {
  check_slot(operation, *this, slot);
  return static_cast<std::size_t>(parts_ * numbers_) * sizeof(float);
}

void LinearState::reset(std::int64_t slot) {
  check_slot(operation, *this, slot);
  std::fill_n(at(slot), parts_ * numbers_, 0.0f);
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
  if (other.at(source_slot) != at(slot)) std::copy_n(other.at(source_slot), parts_ * numbers_, at(slot));
  positions_[slot] = other.positions_[source_slot];
}

void LinearState::save(std::int64_t slot, std::span<float> to) const {
  check_slot(operation, *this, slot);
  if (static_cast<std::int64_t>(to.size()) != parts_ * numbers_)
    fail(operation, "expected room for {} numbers, got {}", parts_ * numbers_, to.size());
  std::copy_n(at(slot), parts_ * numbers_, to.begin());
}

void LinearState::restore(std::int64_t slot, std::span<const float> from, std::int64_t position) {
  check_slot(operation, *this, slot);
  if (static_cast<std::int64_t>(from.size()) != parts_ * numbers_)
    fail(operation, "expected {} numbers, got {}", parts_ * numbers_, from.size());
  if (position < 0) fail(operation, "expected a position of at least 0, got {}", position);
  std::copy(from.begin(), from.end(), at(slot));
  positions_[slot] = position;
}

}  // namespace linnet
