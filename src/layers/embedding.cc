#include "layers/embedding.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/workspace.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "linnet/attention.h"

namespace linnet {
namespace {

/// Rows of sinusoidal positions that are kept; those behind them are computed when they are needed.
constexpr std::int64_t most_sinusoids = 1 << 16;

}  // namespace

Embedding::Embedding(ParameterTable& table, const std::string& name, const Shape& shape) : shape_(shape) {
  // A tied table doubles as output weights, whose logits should begin near 0.
  const double deviation = shape.tied ? 1 / std::sqrt(static_cast<double>(shape.width)) : 0.5;
  table_ = table.add(name + ".weight", {shape.tokens, shape.width}, normal(deviation), true);
  if (shape.positions == Positions::learned)
    positions_ = table.add(name + ".positions", {shape.length, shape.width}, normal(0.1), false);
}

void Embedding::pack(Context& context, const ParameterValues& parameters) {
  table_values_ = parameters.of(table_);
  if (shape_.positions == Positions::learned) position_values_ = parameters.of(positions_);
  if (shape_.positions == Positions::sinusoidal && position_values_.empty()) {
    sinusoids_ = Tensor::of<float>({std::min(shape_.length, most_sinusoids), shape_.width});
    kernels::sinusoidal_positions(context, sinusoids_.view<float>(), 0);
    position_values_ = sinusoids_.view<float>();
  }
}

void Embedding::check_ids(std::span<const std::int32_t> ids) const {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= shape_.tokens)
      fail("embedding", "expected tokens in 0 … {}, got {}", shape_.tokens - 1, id);
  }
}

void Embedding::check_position(std::int64_t position) const {
  if (shape_.positions == Positions::learned && position >= shape_.length)
    fail("positions",
         "expected at most {} tokens, the learned positions of this model, got position {}; a model with "
         "sinusoidal or rotary positions goes on beyond its trained length",
         shape_.length, position);
  if (position >= State::most_position) fail("positions", "expected a position below 2^53, got {}", position);
}

void Embedding::forward(Context& context, View<float> y, std::span<const std::int32_t> ids,
                        std::int64_t first) const {
  const std::int64_t length = y.extent(1);
  check_ids(ids);
  if (length == 0) return;
  check_position(first + length - 1);
  kernels::embedding_forward(context, y.reshape({y.extent(0) * length, shape_.width}), table_values_, ids);
  if (position_values_.empty()) return;
  if (first + length <= position_values_.extent(0)) {
    kernels::add_rows(context, y, position_values_.slice(0, first, first + length));
  } else {
    Workspace workspace(context);
    const View<float> rows = workspace.take(length, shape_.width);
    kernels::sinusoidal_positions(context, rows, first);
    kernels::add_rows(context, y, rows);
  }
}

void Embedding::backward(Context& context, View<const float> dy, std::span<const std::int32_t> ids,
                         std::span<float> gradients) const {
  const std::int64_t length = dy.extent(1);
  kernels::embedding_backward(context, table_.of(gradients),
                              dy.reshape({dy.extent(0) * length, shape_.width}), ids);
  if (shape_.positions == Positions::learned)
    kernels::add_rows_backward(context, positions_.of(gradients).slice(0, 0, length), dy);
}

void Embedding::step(Context& context, View<float> y, std::span<const std::int32_t> ids,
                     std::span<const std::int64_t> positions) const {
  check_ids(ids);
  kernels::embedding_forward(context, y, table_values_, ids);
  if (position_values_.empty()) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const View<float> row = y.slice(0, i, i + 1);
    if (positions[i] < position_values_.extent(0)) {
      kernels::add(context, row, row, position_values_.slice(0, positions[i], positions[i] + 1));
    } else {
      check_position(positions[i]);
      kernels::sinusoidal_positions(context, row, positions[i]);
      kernels::add(context, row, row, table_values_.slice(0, ids[i], ids[i] + 1));
    }
  }
}

}  // namespace linnet
