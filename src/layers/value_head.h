#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "layers/columns.h"
#include "layers/dense.h"
#include "linnet/layer_types.h"

namespace linnet {

/// The density of real numbers, from a hidden row: a linear map to its parameters, and its loss. Each number
/// has a density of its own.
class ValueHead {
 public:
  /// `targets` numbers per row.
  ValueHead(ParameterTable& table, const std::string& name, std::int64_t width, std::int64_t targets,
            ValueDistribution distribution);

  void pack(Context& context, const ParameterValues& parameters, bool training) {
    projection_.pack(context, parameters, training);
  }

  /// As in Dense.
  void unpack(std::span<float> parameters) const { projection_.unpack(parameters); }

  /// Numbers that describe the densities of a row, laid out as in kernels::value_loss: the means come first.
  std::int64_t outputs() const { return projection_.outputs(); }
  std::int64_t targets() const { return targets_; }

  /// parameters [rows, outputs] from hidden [rows, width].
  void forward(Context& context, View<float> parameters, View<const float> hidden) const {
    projection_.forward(context, parameters, hidden);
  }

  /// dhidden is assigned from dparameters; gradients of the weights are added.
  void backward(Context& context, View<float> dhidden, View<const float> dparameters,
                View<const float> hidden, std::span<float> gradients) const {
    projection_.backward(context, dhidden, dparameters, hidden, gradients);
  }

  /// As kernels::value_loss.
  void loss(Context& context, std::span<float> nll, View<float> dparameters, View<const float> parameters,
            View<const float> targets, float weight) const;

  /// The densities that rows of parameters stand for, in the units of the data: mean, scale and ν [rows,
  /// targets], as in `Densities` of linnet/model.h; `values` [rows, columns] are the inputs of the rows.
  void densities(const Columns& columns, View<float> mean, View<float> scale, View<float> freedom,
                 View<const float> parameters, View<const float> values) const;

  /// One draw of each number of a row: numbers [targets] from parameters [1, outputs] and `uniform`, two
  /// numbers in (0, 1) for each target. With `temperature` 0 the means; the scales are multiplied by it.
  void sample(std::span<float> numbers, View<const float> parameters, std::span<const float> uniform,
              float temperature) const;

 private:
  /// Of one target, whose mean stands at row[0].
  float scale_of(const float* row) const;
  float freedom_of(const float* row) const;

  std::int64_t targets_;
  ValueDistribution distribution_;
  Dense projection_;
};

}  // namespace linnet
