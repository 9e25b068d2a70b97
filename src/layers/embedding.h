#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "layers/parameters.h"
#include "linnet/layer_types.h"

namespace linnet {

/// x = table[id] + position. Learned positions exist for the trained length alone and are refused beyond it;
/// sinusoidal ones are a formula and go on; `none` leaves the order to the recurrence, rotary positions
/// leave it to the attention.
class Embedding {
 public:
  struct Shape {
    std::int64_t tokens = 0;  ///< rows of the table
    std::int64_t width = 0;
    std::int64_t length = 0;  ///< trained length
    Positions positions = Positions::learned;
    bool tied = false;  ///< the table is the output's weight too
  };

  Embedding(ParameterTable& table, const std::string& name, const Shape& shape);

  void pack(Context& context, const ParameterValues& parameters);

  /// y [batch, length, width] for ids [batch · length]; the first token of each entry stands at position
  /// `first`. Throws Error where an id or a position is outside.
  void forward(Context& context, View<float> y, std::span<const std::int32_t> ids, std::int64_t first) const;

  /// Gradients of `forward` with first = 0 are added.
  void backward(Context& context, View<const float> dy, std::span<const std::int32_t> ids,
                std::span<float> gradients) const;

  /// y [n, width]: row i is ids[i] at positions[i]. Allocates nothing.
  void step(Context& context, View<float> y, std::span<const std::int32_t> ids,
            std::span<const std::int64_t> positions) const;

  /// Throws Error where a position is beyond what the model has learned; `position` counts from 0.
  void check_position(std::int64_t position) const;

  const ParameterPlace& table() const { return table_; }

 private:
  void check_ids(std::span<const std::int32_t> ids) const;

  Shape shape_;
  ParameterPlace table_;
  ParameterPlace positions_;
  View<const float> table_values_;
  View<const float> position_values_;  ///< the first rows, all learned ones; empty where there are none
  Tensor sinusoids_;
};

}  // namespace linnet
