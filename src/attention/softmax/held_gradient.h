#pragma once

#include <cstdint>

#include "linnet/attention.h"

namespace linnet::softmax {

/// The gradient of a slot that holds keys and values, in the caller's memory: keys [H, held, E], then values
/// [H, held, M], as `State::save` lays out what it holds. Null data stands for a gradient that is left out.
template <class T>
struct HeldGradient {
  T* data = nullptr;
  HeadShape shape;
  std::int64_t held = 0;

  T* key(std::int64_t token, std::int64_t h) const { return data + (h * held + token) * shape.head_dim; }
  T* value(std::int64_t token, std::int64_t h) const {
    return data + shape.heads * held * shape.head_dim + (h * held + token) * shape.value_dim;
  }
  static std::int64_t floats(const HeadShape& shape, std::int64_t held) {
    return held * shape.heads * (shape.head_dim + shape.value_dim);
  }
};

/// Row b of a gradient of states [B, G], for a slot that holds `held` tokens.
template <class T>
HeldGradient<T> held_gradient(View<T> gradient, std::int64_t b, const HeadShape& shape, std::int64_t held) {
  return {gradient.rank() == 0 ? nullptr : gradient.at(b), shape, held};
}

}  // namespace linnet::softmax
