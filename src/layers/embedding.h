#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/dense.h"
#include "layers/parameters.h"
#include "linnet/layer_types.h"

namespace linnet {

/// What the steps of a pass hold: tokens, real numbers or both.
struct StepInputs {
  StepInputs(std::span<const std::int32_t> ids) : ids(ids) {}
  StepInputs(const std::vector<std::int32_t>& ids) : ids(ids) {}
  StepInputs(std::span<const std::int32_t> ids, View<const float> values) : ids(ids), values(values) {}

  std::span<const std::int32_t> ids;  ///< [rows, fields]; negative for no token where there are numbers
  View<const float> values;           ///< [rows, columns], normalised; empty for steps without numbers
};

/// x = Σ table_f[id_f] + W values + position: the fields of a step have a table each, its real numbers a
/// linear map. Learned positions exist for the trained length alone and are refused beyond it;
/// sinusoidal ones are a formula and go on; `none` leaves the order to the recurrence, rotary
/// positions leave it to the attention.
class Embedding {
 public:
  struct Shape {
    std::int64_t tokens = 0;  ///< rows of the table
    std::int64_t width = 0;
    std::int64_t length = 0;  ///< trained length
    Positions positions = Positions::learned;
    bool tied = false;                    ///< the table is the output's weight too
    std::vector<std::int64_t> more = {};  ///< rows of the tables of further fields
    std::int64_t columns = 0;             ///< real numbers per step
  };

  Embedding(ParameterTable& table, const std::string& name, const Shape& shape);

  /// `training` also packs what a backward needs.
  void pack(Context& context, const ParameterValues& parameters, bool training = false);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// y [batch, length, width] for the inputs of batch · length steps; the first of each entry stands at
  /// position `first`, or step i at positions[i] where `positions` [batch · length], below `length`, are
  /// given. Throws UsageError where an id is outside, Error where a position is.
  void forward(Context& context, View<float> y, const StepInputs& inputs, std::int64_t first,
               std::span<const std::int32_t> positions = {}) const;

  /// Gradients of `forward` are added.
  void backward(Context& context, View<const float> dy, const StepInputs& inputs, std::span<float> gradients,
                std::int64_t first = 0, std::span<const std::int32_t> positions = {}) const;

  /// y [n, width]: row i is step i of the inputs at positions[i]. Allocates nothing.
  void step(Context& context, View<float> y, const StepInputs& inputs,
            std::span<const std::int64_t> positions) const;

  /// Positions of a sequence: those that the model has learned, or State::most_position.
  std::int64_t limit() const;

  /// Throws UsageError where one of `ids` [steps, fields] is none of its field's; `operation` begins the
  /// message.
  void check_ids(const char* operation, std::span<const std::int32_t> ids) const;

  /// Throws Error where a position is beyond what the model has learned; `position` counts from 0.
  void check_position(std::int64_t position) const;

  /// Of the first field.
  const ParameterPlace& table() const { return tables_.front().place; }

  /// Tokens of a step.
  std::int64_t fields() const { return static_cast<std::int64_t>(tables_.size()); }

 private:
  struct Table {
    ParameterPlace place;
    View<const float> values;
  };

  /// y [rows, width] without positions.
  void look_up(Context& context, View<float> y, const StepInputs& inputs) const;

  Shape shape_;
  std::vector<Table> tables_;  // one a field
  std::optional<Dense> columns_;
  ParameterPlace positions_;
  View<const float> position_values_;  ///< the first rows, all learned ones; empty where there are none
  Tensor sinusoids_;
};

}  // namespace linnet
