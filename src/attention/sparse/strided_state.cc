#include "attention/sparse/strided_state.h"

#include <algorithm>
#include <limits>

#include "attention/arguments.h"

namespace linnet::sparse {
namespace {

constexpr const char* kOperation = "strided attention's state";

}  // namespace

StridedState::StridedState(std::int64_t slots, const HeadShape& shape, std::int64_t capacity,
                           std::int64_t stride, std::int64_t summary, float* memory)
    : stride_(stride),
      summary_(summary),
      most_(memory != nullptr ? capacity : std::numeric_limits<std::int64_t>::max()),
      cache_(slots, shape, kept_at_most(capacity, stride, summary), memory),
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
  cache_.reserve(slot, kept_at_most(tokens, stride_, summary_));
}

void StridedState::copy(std::int64_t slot, const State& source, std::int64_t source_slot) {
  const StridedState& other = family_state<const StridedState>(kOperation, "the source state", source);
  if (other.stride_ != stride_ || other.summary_ != summary_)
    fail(kOperation, "expected a source state of stride {} and summary {}, got one of {} and {}", stride_,
         summary_, other.stride_, other.summary_);
  check_capacity(other.position(source_slot));
  cache_.copy(slot, other.cache_, source_slot);
  positions_[static_cast<std::size_t>(slot)] = other.position(source_slot);
}

void StridedState::restore(std::int64_t slot, std::span<const float> from, std::int64_t position) {
  check_position(kOperation, position);
  check_capacity(position);
  cache_.restore(slot, from, held_at(position, stride_, summary_));
  positions_[static_cast<std::size_t>(slot)] = position;
}

void StridedState::append(std::int64_t slot, ConstFloatView key, ConstFloatView value) {
  std::int64_t& position = positions_[static_cast<std::size_t>(slot)];
  const std::int64_t count = key.extent(0);
  check_capacity(position + count);
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t end = summary_ == 0 ? count : std::min(count, i + stride_ - position % stride_);
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
  if (summary_ == 0 || position == 0 || position % stride_ != 0) return;
  const std::int64_t first = (position / stride_ - 1) * summary_;
  if (held(slot) == first + stride_) cache_.erase(slot, first, stride_ - summary_);
}

}  // namespace linnet::sparse
