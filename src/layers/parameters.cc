#include "layers/parameters.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "base/random.h"

namespace linnet {

Initialiser constant(float value) {
  return [value](std::int64_t, double) { return value; };
}

Initialiser normal(double deviation) {
  return [deviation](std::int64_t, double normal) { return static_cast<float>(deviation * normal); };
}

const char* name_of(NumberRange range) {
  switch (range) {
    case NumberRange::positive:
      return "positive numbers";
    case NumberRange::not_negative:
      return "numbers from 0";
    case NumberRange::sign:
      return "signs of 1 and -1";
    case NumberRange::any:
      break;
  }
  return "finite numbers";
}

bool holds(NumberRange range, float number) {
  switch (range) {
    case NumberRange::positive:
      return number > 0;
    case NumberRange::not_negative:
      return number >= 0;
    case NumberRange::sign:
      return std::abs(number) == 1;
    case NumberRange::any:
      break;
  }
  return true;
}

ParameterPlace ParameterTable::add(std::string name, Shape shape, Initialiser initial, bool weight_decay,
                                   Numbers numbers) {
  constexpr std::uint32_t first_apart = std::uint32_t{1} << 31;
  constexpr std::int64_t aligned_floats = 16;
  constexpr std::int64_t most_floats = std::numeric_limits<std::int64_t>::max() / std::int64_t{sizeof(float)};
  const std::int64_t count = checked_size(shape, sizeof(float));
  ParameterPlace place(size_, std::move(shape));
  rows_.push_back({.name = std::move(name),
                   .place = place,
                   .count = count,
                   .weight_decay = weight_decay,
                   .initial = std::move(initial),
                   .random = numbers == Numbers::common ? common_++ : first_apart + apart_++});
  const std::int64_t taken = (count + aligned_floats - 1) / aligned_floats * aligned_floats;
  if (taken > most_floats - size_)
    fail("parameters", "expected a model of fewer than 2^63 bytes, got {} {} behind {} numbers",
         rows_.back().name, to_string(rows_.back().place.shape()), size_);
  size_ += taken;
  return place;
}

ParameterPlace ParameterTable::add_weights(std::string name, Shape shape, Initialiser initial, bool exact) {
  ParameterPlace place = add(std::move(name), std::move(shape), std::move(initial), true);
  rows_.back().packed = true;
  rows_.back().product = !exact;
  return place;
}

ParameterPlace ParameterTable::add_untrained(std::string name, Shape shape, Initialiser initial,
                                             NumberRange range) {
  ParameterPlace place = add(std::move(name), std::move(shape), std::move(initial), false, Numbers::apart);
  rows_.back().trained = false;
  rows_.back().range = range;
  return place;
}

void ParameterTable::round_row(std::size_t row, std::span<float> values) const {
  if (!rows_[row].product) return;
  const std::span<const std::int64_t> shape = rows_[row].place.shape();
  kernels::round_weights(View<float>(values.data(), shape), weight_type_);
}

std::size_t ParameterTable::row_at(const ParameterPlace& place) const {
  const auto offset = [](const Row& row) { return row.place.offset(); };
  auto found = std::ranges::lower_bound(rows_, place.offset(), {}, offset);
  // A row without numbers has the offset of the one behind it.
  const bool empty = std::ranges::count(place.shape(), 0) > 0;
  while (!empty && found->count == 0) ++found;
  assert(found != rows_.end() && found->place.offset() == place.offset());
  return static_cast<std::size_t>(found - rows_.begin());
}

std::size_t ParameterTable::bytes() const {
  std::size_t sum = 0;
  for (const Row& row : rows_) sum += bytes(row);
  return sum;
}

std::size_t ParameterTable::bytes(const Row& row) const {
  const auto count = static_cast<std::size_t>(row.count);
  if (!row.product || weight_type_ == kernels::WeightType::f32) return count * sizeof(float);
  if (weight_type_ == kernels::WeightType::bf16) return count * sizeof(bf16);
  return count + static_cast<std::size_t>(row.place.shape()[0]) * sizeof(float);
}

std::int64_t ParameterTable::parameter_count() const {
  std::int64_t count = 0;
  for (const Row& row : rows_) count += row.trained ? row.count : 0;
  return count;
}

void ParameterTable::initialise(std::span<float> values, std::uint64_t seed) const {
  for (std::size_t r = 0; r < rows_.size(); ++r)
    initialise_row(values.subspan(static_cast<std::size_t>(rows_[r].place.offset())), r, seed);
}

void ParameterTable::initialise_row(std::span<float> values, std::size_t row, std::uint64_t seed) const {
  const Random random(seed, Draw::initial_weights, rows_[row].random);
  for (std::int64_t i = 0; i < rows_[row].count; ++i)
    values[static_cast<std::size_t>(i)] = rows_[row].initial(i, random.normal(i));
}

}  // namespace linnet
