#include "layers/columns.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"

namespace linnet {

Columns::Columns(ParameterTable& table, const std::string& name, const Shape& shape)
    : shape_(shape),
      mean_(table.add_untrained(name + ".mean", {shape.columns}, constant(0))),
      deviation_(
          table.add_untrained(name + ".deviation", {shape.columns}, constant(1), NumberRange::positive)),
      target_mean_(table.add_untrained(name + ".target_mean", {shape.targets}, constant(0))),
      target_deviation_(table.add_untrained(name + ".target_deviation", {shape.targets}, constant(1),
                                            NumberRange::positive)) {}

void Columns::pack(const ParameterValues& parameters) {
  mean_values_ = parameters.of(mean_);
  deviation_values_ = parameters.of(deviation_);
  target_mean_values_ = parameters.of(target_mean_);
  target_deviation_values_ = parameters.of(target_deviation_);
}

void Columns::set(std::span<float> parameters, std::span<const double> mean,
                  std::span<const double> deviation, std::span<const double> target_mean,
                  std::span<const double> target_deviation) const {
  const auto write = [&](const ParameterPlace& place, std::span<const double> values, bool positive) {
    const View<float> to = place.of(parameters);
    if (to.size() != static_cast<std::int64_t>(values.size()))
      fail<UsageError>("columns", "expected statistics of {} columns, got {}", to.size(), values.size());
    for (std::int64_t i = 0; i < to.size(); ++i) {
      const auto value = static_cast<float>(values[static_cast<std::size_t>(i)]);
      if (!std::isfinite(value) || (positive && value < 0))
        fail<UsageError>("columns", "expected statistics that floats hold, got {} for column {}",
                         values[static_cast<std::size_t>(i)], i);
      to(i) = positive && value == 0 ? 1 : value;
    }
  };
  write(mean_, mean, false);
  write(deviation_, deviation, true);
  write(target_mean_, target_mean, false);
  write(target_deviation_, target_deviation, true);
}

bool Columns::owns(const ParameterPlace& place) const {
  return std::ranges::any_of(std::array{&mean_, &deviation_, &target_mean_, &target_deviation_},
                             [&](const ParameterPlace* own) { return own->offset() == place.offset(); });
}

bool Columns::is_unscaled() const {
  const auto all = [](View<const float> view, float number) {
    return std::ranges::all_of(std::span(view.data(), static_cast<std::size_t>(view.size())),
                               [&](float value) { return value == number; });
  };
  return all(mean_values_, 0) && all(deviation_values_, 1) && all(target_mean_values_, 0) &&
         all(target_deviation_values_, 1);
}

void Columns::normalise(View<float> z, View<const float> values, View<const float> before) const {
  const std::int64_t series = shape_.series();
  for (std::int64_t i = 0; i < values.extent(0); ++i) {
    const View<const float> last = i > 0 ? last_numbers(values, i - 1) : before;
    const auto base = [&](std::int64_t c) {
      if (!shape_.relative_inputs) return mean_values_(c);
      const std::int64_t s = c % series;
      if (last.data() != nullptr && !std::isnan(last(s))) return last(s);
      return std::isnan(values(i, s)) ? mean_values_(s) : values(i, s);
    };
    for (std::int64_t c = 0; c < shape_.columns; ++c)
      z(i, c) = std::isnan(values(i, c)) ? 0 : (values(i, c) - base(c)) / deviation_values_(c);
  }
}

float Columns::base(View<const float> values, std::int64_t i, std::int64_t t) const {
  if (!shape_.relative) return target_mean_values_(t);
  const float last = last_numbers(values, i)(t % shape_.series());
  return std::isnan(last) ? target_mean_values_(t) : last;
}

void Columns::normalise_targets(View<float> z, View<const float> targets, View<const float> values) const {
  for (std::int64_t i = 0; i < targets.extent(0); ++i)
    for (std::int64_t t = 0; t < shape_.targets; ++t)
      z(i, t) = (targets(i, t) - base(values, i, t)) / target_deviation_values_(t);
}

void Columns::restore(View<float> numbers, View<const float> z, View<const float> values) const {
  for (std::int64_t i = 0; i < z.extent(0); ++i)
    for (std::int64_t t = 0; t < shape_.targets; ++t)
      numbers(i, t) = base(values, i, t) + z(i, t) * target_deviation_values_(t);
}

}  // namespace linnet
