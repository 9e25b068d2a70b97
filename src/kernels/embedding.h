#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// One of several tokens of every row: that of row i is ids[i · fields + field].
struct FieldIds {
  FieldIds(std::span<const std::int32_t> ids) : ids(ids) {}
  FieldIds(const std::vector<std::int32_t>& ids) : ids(ids) {}
  FieldIds(std::span<const std::int32_t> ids, std::int64_t fields, std::int64_t field)
      : ids(ids), fields(fields), field(field) {}

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()) / fields; }
  std::int32_t operator[](std::int64_t row) const {
    return ids[static_cast<std::size_t>(row * fields + field)];
  }

  std::span<const std::int32_t> ids;
  std::int64_t fields = 1, field = 0;
};

/// y [rows, d] = table[ids[row]]; table [n, d]. Every id is in 0 … n − 1 (the caller checks), or negative and
/// stands for a row of zeros.
void embedding_forward(Context& context, View<float> y, View<const float> table, const FieldIds& ids);

/// y [rows, d] += table[ids[row]], where an id is not negative.
void embedding_add(Context& context, View<float> y, View<const float> table, const FieldIds& ids);

/// dtable[ids[row]] += dy[row], rows in order.
void embedding_backward(Context& context, View<float> dtable, View<const float> dy, const FieldIds& ids);

/// y [batch, length, d] += rows [length, d] for every batch entry.
void add_rows(Context& context, View<float> y, View<const float> rows);

/// drows [length, d] += sum of dy [batch, length, d] over the batch, in order.
void add_rows_backward(Context& context, View<float> drows, View<const float> dy);

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5): row i holds, for position first + i, sin(p /
/// 10000^(2j/d)) at 2j and the cosine at 2j + 1. Angles are reduced in f64, so that positions up to 2^40 keep
/// f32 accuracy.
void sinusoidal_positions(Context& context, View<float> rows, std::int64_t first);

}  // namespace linnet::kernels
