#include "attention/sparse/strided_state.h"

#include <algorithm>
#include <limits>

#include "attention/arguments.h"

namespace linnet::sparse {
namespace {

constexpr const char* kOperation = "strided attention's state";

}  // namespace

StridedState::StridedState(std::int64_t slots, const HeadShape& shape, std::int64_t capacity,
                           const StridedPattern& pattern, float* memory)
    : pattern_(pattern),
      most_(memory != nullptr ? capacity : std::numeric_limits<std::int64_t>::max()),
      cache_(slots, shape, pattern.held_at_most(capacity), memory),
      positions_(static_cast<std::size_t>(slots)) {}

void StridedState::check_capacity(std::int64_t position) const {
  if (position > most_)
    fail(kOperation, "expected at most {} tokens, which the memory given to the state holds, got {}", most_,
         position);
}

std::int64_t StridedState::position(std::int64_t slot) const {
  check_slot(kOperation, *this, slot);
  return positions_[static_cast<std::size_t>(slot)];
}

void StridedState::reset(std::int64_t slot) {
  cache_.reset(slot);
  positions_[static_cast<std::size_t>(slot)] = 0;
}

void StridedState::reserve(std::int64_t slot, std::int64_t tokens) {
  check_capacity(tokens);
  cache_.reserve(slot, pattern_.held_at_most(tokens));
}

void StridedState::copy(std::int64_t slot, const State& source, std::int64_t source_slot) {
  const StridedState& other = family_state<const StridedState>(kOperation, "the source state", source);
  if (other.pattern_ != pattern_)
    fail(kOperation, "expected a source state of stride {} and summary {}, got one of {} and {}",
         pattern_.stride, pattern_.summary, other.pattern_.stride, other.pattern_.summary);
  check_capacity(other.position(source_slot));
  cache_.copy(slot, other.cache_, source_slot);
  positions_[static_cast<std::size_t>(slot)] = other.position(source_slot);
}

void StridedState::restore(std::int64_t slot, std::span<const float> from, std::int64_t position) {
  check_position(kOperation, position);
  check_capacity(position);
  cache_.restore(slot, from, pattern_.held_at(position));
  positions_[static_cast<std::size_t>(slot)] = position;
}

void StridedState::append(std::int64_t slot, ConstFloatView key, ConstFloatView value) {
  std::int64_t& position = positions_[static_cast<std::size_t>(slot)];
  const std::int64_t count = key.extent(0);
  check_capacity(position + count);
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t end =
        pattern_.fixed() ? std::min(count, i + pattern_.stride - position % pattern_.stride) : count;
    cache_.append(slot, key.slice(0, i, end), value.slice(0, i, end));
    position += end - i;
    forget(slot);
    i = end;
  }
}

void StridedState::push(std::int64_t slot, ConstFloatView key, ConstFloatView value) {
  cache_.append(slot, key, value);
  ++positions_[static_cast<std::size_t>(slot)];
}

void StridedState::forget(std::int64_t slot) {
  const std::int64_t position = this->position(slot);
  const auto& [stride, summary] = pattern_;
  if (!pattern_.fixed() || position == 0 || position % stride != 0) return;
  const std::int64_t first = (position / stride - 1) * summary;
  if (held(slot) == first + stride) cache_.erase(slot, first, stride - summary);
}

}  // namespace linnet::sparse
