#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "linnet/context.h"

namespace linnet {

/// The scale of a model's real numbers: the means and standard deviations of its training data, of each
/// input column and of each number that it predicts. They are kept with the parameters and not trained.
class Columns {
 public:
  struct Shape {
    std::int64_t columns = 0;  ///< real numbers of a step's input
    std::int64_t targets = 0;  ///< real numbers that are predicted for a step
    /// Whether target t is predicted as its difference from the last number of its series in the same row.
    bool relative = false;
    /// Whether inputs are differences from the last numbers of the row before.
    bool relative_inputs = false;
    /// Steps of the series in a row: its inputs are [patch, series], its targets [steps, series].
    std::int64_t patch = 1;

    std::int64_t series() const { return columns / patch; }
    bool operator==(const Shape&) const = default;
  };

  Columns(ParameterTable& table, const std::string& name, const Shape& shape);

  void pack(const ParameterValues& parameters);

  /// Writes means and deviations [columns], and those of the targets [targets], to their places in the
  /// buffer. A deviation that is 0 as a float becomes 1. Throws UsageError for other sizes and for numbers
  /// that are not finite as floats.
  void set(std::span<float> parameters, std::span<const double> mean, std::span<const double> deviation,
           std::span<const double> target_mean, std::span<const double> target_deviation) const;

  /// z [rows, columns] = (values − mean) / deviation, and 0 where a value is NaN. Consecutive rows are those
  /// of one sequence. With relative inputs, the last numbers of the row before take the place of the mean,
  /// and where one is NaN the first number of its series in the row itself; `before` [series] are those
  /// before the first row, an empty view where there are none.
  void normalise(View<float> z, View<const float> values, View<const float> before = {}) const;

  /// The last numbers [series] of row i of `values`, where the next ones are counted from.
  View<const float> last_numbers(View<const float> values, std::int64_t i) const {
    return View<const float>(values.at(i) + shape_.columns - shape_.series(), {shape_.series()});
  }

  /// z [rows, targets] likewise, NaN where a target is; `values` [rows, columns] are the inputs of the rows.
  void normalise_targets(View<float> z, View<const float> targets, View<const float> values) const;

  /// The number that z [rows, targets] stands for, the inverse; `numbers` may be `z`.
  void restore(View<float> numbers, View<const float> z, View<const float> values) const;

  /// Standard deviation of target t.
  float deviation(std::int64_t t) const { return target_deviation_values_(t); }

  /// Whether it is one of the statistics.
  bool owns(const ParameterPlace& place) const;

  /// Whether all means are 0 and all deviations 1, as those of data that are normalised already.
  bool is_unscaled() const;

  const Shape& shape() const { return shape_; }

 private:
  /// What target t of row i is counted from.
  float base(View<const float> values, std::int64_t i, std::int64_t t) const;

  Shape shape_;
  ParameterPlace mean_, deviation_, target_mean_, target_deviation_;
  View<const float> mean_values_, deviation_values_, target_mean_values_, target_deviation_values_;
};

}  // namespace linnet
