#include "layers/embedding.h"

#include <fmt/format.h>

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
  const auto add_table = [&](const std::string& own, std::int64_t rows) {
    tables_.push_back({table.add(own, {rows, shape.width}, normal(deviation), true), {}});
  };
  if (shape.tokens > 0) add_table(name + ".weight", shape.tokens);
  for (const std::int64_t rows : shape.more)
    add_table(fmt::format("{}.fields.{}.weight", name, tables_.size()), rows);
  if (shape.columns > 0) {
    const double spread = 0.5 / std::sqrt(static_cast<double>(shape.columns));
    columns_.emplace(
        table, name + ".columns", shape.columns, shape.width,
        Dense::Parts{.bias = true, .weight_initial = normal(spread), .bias_initial = {}, .exact = true});
  }
  if (shape.positions == Positions::learned)
    positions_ = table.add(name + ".positions", {shape.length, shape.width}, normal(0.1), false);
}

void Embedding::pack(Context& context, const ParameterValues& parameters, bool training) {
  for (Table& table : tables_) table.values = parameters.of(table.place);
  if (columns_) columns_->pack(context, parameters, training);
  if (shape_.positions == Positions::learned) position_values_ = parameters.of(positions_);
  if (shape_.positions == Positions::sinusoidal && position_values_.empty()) {
    sinusoids_ = Tensor::of<float>({std::min(shape_.length, most_sinusoids), shape_.width});
    kernels::sinusoidal_positions(context, sinusoids_.view<float>(), 0);
    position_values_ = sinusoids_.view<float>();
  }
}

void Embedding::unpack(std::span<float> parameters) const {
  if (columns_) columns_->unpack(parameters);
}

void Embedding::check_ids(const char* operation, std::span<const std::int32_t> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t rows = tables_[i % tables_.size()].place.shape()[0];
    const std::int64_t least = columns_ ? -1 : 0;
    if (ids[i] >= least && ids[i] < rows) continue;
    if (tables_.size() == 1)
      fail<UsageError>(operation, "expected tokens in {} … {}, got {}", least, rows - 1, ids[i]);
    fail<UsageError>(operation, "expected tokens of field {} in {} … {}, got {}", i % tables_.size(), least,
                     rows - 1, ids[i]);
  }
}

void Embedding::look_up(Context& context, View<float> y, const StepInputs& inputs) const {
  for (std::int64_t f = 0; f < fields(); ++f) {
    const kernels::FieldIds ids(inputs.ids, fields(), f);
    const View<const float> table = tables_[static_cast<std::size_t>(f)].values;
    if (f == 0)
      kernels::embedding_forward(context, y, table, ids);
    else
      kernels::embedding_add(context, y, table, ids);
  }
  if (columns_)
    columns_->forward(context, y, inputs.values, kernels::Activation::none,
                      tables_.empty() ? View<const float>() : View<const float>(y));
}

std::int64_t Embedding::limit() const {
  return shape_.positions == Positions::learned ? shape_.length : State::most_position;
}

void Embedding::check_position(std::int64_t position) const {
  if (shape_.positions == Positions::learned && position >= shape_.length)
    fail("positions",
         "expected at most {} tokens, the learned positions of this model, got position {}; a model with "
         "sinusoidal or rotary positions goes on beyond its trained length",
         shape_.length, position);
  if (position >= State::most_position) fail("positions", "expected a position below 2^53, got {}", position);
}

void Embedding::forward(Context& context, View<float> y, const StepInputs& inputs, std::int64_t first,
                        std::span<const std::int32_t> positions) const {
  const std::int64_t length = y.extent(1);
  check_ids("embedding", inputs.ids);
  if (length == 0) return;
  check_position(first + length - 1);
  const View<float> flat = y.reshape({y.extent(0) * length, shape_.width});
  look_up(context, flat, inputs);
  if (position_values_.empty()) return;
  const auto add = [&](View<const float> rows) {
    if (positions.empty())
      kernels::add_rows(context, y, rows);
    else
      kernels::embedding_add(context, flat, rows, positions);
  };
  if (first + length <= position_values_.extent(0)) {
    add(position_values_.slice(0, first, first + length));
  } else {
    Workspace workspace(context);
    const View<float> rows = workspace.take(length, shape_.width);
    kernels::sinusoidal_positions(context, rows, first);
    add(rows);
  }
}

void Embedding::backward(Context& context, View<const float> dy, const StepInputs& inputs,
                         std::span<float> gradients, std::int64_t first,
                         std::span<const std::int32_t> positions) const {
  const std::int64_t length = dy.extent(1);
  const View<const float> rows = dy.reshape({dy.extent(0) * length, shape_.width});
  for (std::int64_t f = 0; f < fields(); ++f)
    kernels::embedding_backward(context, tables_[static_cast<std::size_t>(f)].place.of(gradients), rows,
                                {inputs.ids, fields(), f});
  if (columns_) columns_->backward(context, {}, rows, inputs.values, gradients);
  if (shape_.positions != Positions::learned) return;
  const View<float> dpositions = positions_.of(gradients);
  if (positions.empty())
    kernels::add_rows_backward(context, dpositions.slice(0, first, first + length), dy);
  else
    kernels::embedding_backward(context, dpositions, rows, positions);
}

void Embedding::step(Context& context, View<float> y, const StepInputs& inputs,
                     std::span<const std::int64_t> positions) const {
  check_ids("embedding", inputs.ids);
  look_up(context, y, inputs);
  if (position_values_.empty()) return;
  Workspace workspace(context);
  const View<float> computed = workspace.take(1, shape_.width);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    View<const float> position = computed;
    if (positions[i] < position_values_.extent(0)) {
      position = position_values_.slice(0, positions[i], positions[i] + 1);
    } else {
      check_position(positions[i]);
      kernels::sinusoidal_positions(context, computed, positions[i]);
    }
    const View<float> row = y.slice(0, i, i + 1);
    kernels::add(context, row, row, position);
  }
}

}  // namespace linnet
