#include "attention/sparse/entry.h"

#include <algorithm>

#include "attention/tiles/rows.h"

namespace linnet::sparse {

Tensor joined(Context& context, ConstFloatView x, std::int64_t b, std::int64_t held, RowOf row) {
  const std::int64_t length = x.extent(1), heads = x.extent(2), dim = x.extent(3);
  Tensor tokens = Tensor::of<float>({1, held + length, heads, dim});
  const View<float> to = tokens.view<float>();
  parallel_blocks(context, held + length, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        if (t < held)
          std::copy_n(row(t, h), dim, to.at(0, t, h));
        else
          read_row(to.at(0, t, h), rows_of(x, b, h), t - held);
      }
    }
  });
  return tokens;
}

Tensor joined(Context& context, ConstFloatView x, std::int64_t b) {
  return joined(context, x, b, 0, [](std::int64_t, std::int64_t) -> const float* { return nullptr; });
}

void assign(Context& context, FloatView to, std::int64_t b, View<const float> from) {
  parallel_blocks(context, to.extent(1), 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t h = 0; h < to.extent(2); ++h) write_row(rows_of(to, b, h), i, from.at(0, i, h));
    }
  });
}

void add_token(View<float> grad_key, View<float> grad_value, std::int64_t row,
               const softmax::HeldGradient<const float>& from, std::int64_t t) {
  for (std::int64_t h = 0; h < from.shape.heads; ++h) {
    add_row(grad_key.at(0, row, h), from.key(t, h), from.shape.head_dim);
    add_row(grad_value.at(0, row, h), from.value(t, h), from.shape.value_dim);
  }
}

void copy_token(const softmax::HeldGradient<float>& to, std::int64_t t, View<const float> grad_key,
                View<const float> grad_value, std::int64_t row) {
  for (std::int64_t h = 0; h < to.shape.heads; ++h) {
    std::copy_n(grad_key.at(0, row, h), to.shape.head_dim, to.key(t, h));
    std::copy_n(grad_value.at(0, row, h), to.shape.value_dim, to.value(t, h));
  }
}

void add_token(const softmax::HeldGradient<float>& to, std::int64_t to_token,
               const softmax::HeldGradient<const float>& from, std::int64_t t) {
  for (std::int64_t h = 0; h < to.shape.heads; ++h) {
    add_row(to.key(to_token, h), from.key(t, h), to.shape.head_dim);
    add_row(to.value(to_token, h), from.value(t, h), to.shape.value_dim);
  }
}

Mask masked_pattern(const Mask& mask, std::int64_t keys,
                    std::function<bool(std::int64_t i, std::int64_t j)> pattern) {
  return Mask::boolean([mask, keys, pattern = std::move(pattern)](View<std::uint8_t> tile, std::int64_t b,
                                                                  std::int64_t first_query,
                                                                  std::int64_t first_key) {
    mask.fill(tile, b, first_query, first_key, keys);
    for (std::int64_t i = 0; i < tile.extent(0); ++i)
      for (std::int64_t j = 0; j < tile.extent(1); ++j)
        if (!pattern(first_query + i, first_key + j)) tile(i, j) = 0;
  });
}

}  // namespace linnet::sparse
