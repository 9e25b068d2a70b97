#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/embedding.h"
#include "layers/dense.h"
#include "layers/head.h"

namespace linnet {

/// The distribution of a field of a step, given the fields before it: u ← u + table[the field before], then
/// a categorical distribution from gelu(W u + b). The u of the first of these layers is the hidden row, so
/// that it sums up all fields before.
class LaterField {
 public:
  /// `before` and `values`: how many values the field before and this one have.
  LaterField(ParameterTable& table, const std::string& name, std::int64_t width, std::int64_t before,
             std::int64_t values);

  /// What `backward` needs of a forward pass, [rows, width] each.
  struct Saved {
    Tensor input, before, after;  ///< u, the activation's input and output
    void reserve(std::int64_t rows, std::int64_t width);
    static double floats_per_token(std::int64_t width) { return 3 * static_cast<double>(width); }
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// parameters [rows, outputs] of this field. u [rows, width] is that of the layer before and becomes this
  /// one's; `tokens` are those of the field before, negative ones add nothing. `saved` may be null.
  void forward(Context& context, View<float> parameters, View<float> u, const kernels::FieldIds& tokens,
               Saved* saved) const;

  /// du [rows, width] holds the gradient of this layer's u that comes from the fields behind, or zeros, and
  /// becomes that of the u before. Gradients of parameters are added.
  void backward(Context& context, View<float> du, View<const float> dparameters,
                const kernels::FieldIds& tokens, const Saved& saved, std::span<float> gradients) const;

  const OutputHead& head() const { return *head_; }

 private:
  std::int64_t width_;
  ParameterPlace table_;
  View<const float> table_values_;
  Dense mix_;
  std::unique_ptr<OutputHead> head_;
};

}  // namespace linnet
