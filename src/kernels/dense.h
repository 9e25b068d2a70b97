#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "linnet/context.h"
#include "linnet/layer_types.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// How the weights of a product are held. bf16: weights and the rows they multiply rounded to bf16, sums f32.
/// int8: an integer code and one scale an output for the weights, codes and one scale a row, found anew every
/// time, for what they multiply, sums exact (of at most 132,104 inputs; UsageError for more). Where a machine
/// has no fast products of bf16, the rounded weights are multiplied in f32 by rows that are not rounded.
using linnet::Activation;
using linnet::WeightType;

/// By its name: "f32", "bf16" or "int8". Throws UsageError.
WeightType find_weight_type(const std::string& name);

/// Whether this machine multiplies numbers of that type as they are; it widens bf16 where it has to, or gains
/// by that.
bool multiplies_fast(WeightType type);

/// Whether it has matrix units (AMX) for products with such weights.
bool multiplies_by_units(WeightType type);

/// A matrix B [inputs, outputs] in the layout that the dense products want it in. Packed once for generation,
/// after every update in training. Memory is taken by the first pack. Immutable but for `pack`; products may
/// share it across threads.
class PackedMatrix {
 public:
  PackedMatrix(std::int64_t inputs, std::int64_t outputs, WeightType type = WeightType::f32);
  ~PackedMatrix();
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;

  /// From b [inputs, outputs], for f32 and bf16.
  void pack(Context& context, View<const float> b);

  /// From the transpose, w [outputs, inputs]: how weights are stored.
  void pack_transposed(Context& context, View<const float> w);

  /// transposed.pack_transposed(w) and straight.pack(w), which read w once where it is large.
  static void pack_both(Context& context, PackedMatrix& transposed, PackedMatrix& straight,
                        View<const float> w);

  /// What was packed, as the type holds it, into w [outputs, inputs]; zeros before the first pack.
  void unpack_transposed(View<float> w) const;

  std::int64_t inputs() const { return inputs_; }
  std::int64_t outputs() const { return outputs_; }
  WeightType type() const { return type_; }
  std::size_t bytes() const;

  struct Storage;
  const Storage& storage() const { return *storage_; }

 private:
  std::int64_t inputs_;
  std::int64_t outputs_;
  WeightType type_;
  std::unique_ptr<Storage> storage_;
};

/// What follows a product, in this order: + bias [outputs], activation (as in activation.h), · factor,
/// + residual. Empty views do nothing. The residual may be the product's own destination. After products with
/// narrow weights GELU has an absolute error below 1e-6, and its slope one below 2e-5. All but the bias are
/// [rows, outputs].
struct Epilogue {
  View<const float> bias = {};
  Activation activation = Activation::none;
  View<const float> residual = {};
  FloatView slope = {};  ///< receives the activation's derivative where it is applied
  ConstFloatView factor = {};

  /// What follows rows begin … end − 1, or columns.
  Epilogue of_rows(std::int64_t begin, std::int64_t end) const { return part(0, begin, end); }
  Epilogue of_columns(std::int64_t begin, std::int64_t end) const {
    Epilogue result = part(1, begin, end);
    if (bias.data() != nullptr) result.bias = bias.slice(0, begin, end);
    return result;
  }

  /// What lies between two rows, 0 where there is nothing.
  struct Steps {
    std::int64_t residual, slope, rounded_slope, factor, rounded_factor;
  };
  Steps steps() const {
    const auto step = [](auto view, DType type) {
      return view.rank() != 0 && view.dtype() == type ? view.stride(0) : 0;
    };
    return {residual.rank() != 0 ? residual.stride(0) : 0, step(slope, DType::f32), step(slope, DType::bf16),
            step(factor, DType::f32), step(factor, DType::bf16)};
  }

  /// Where row i begins, from column j on; null where there is nothing. Of slope and factor one pointer at
  /// most is not null.
  struct Row {
    const float *bias, *residual;
    float* slope;
    bf16* rounded_slope;
    const float* factor;
    const bf16* rounded_factor;

    /// Goes on to the next row.
    void advance(const Steps& steps) {
      residual += steps.residual;
      slope += steps.slope;
      rounded_slope += steps.rounded_slope;
      factor += steps.factor;
      rounded_factor += steps.rounded_factor;
    }
  };
  Row row(std::int64_t i, std::int64_t j) const {
    return {bias.data() != nullptr ? bias.data() + j : nullptr,
            residual.data() != nullptr ? residual.at(i, j) : nullptr,
            slope.at<float>(i, j),
            slope.at<bf16>(i, j),
            factor.at<float>(i, j),
            factor.at<bf16>(i, j)};
  }

 private:
  Epilogue part(int dimension, std::int64_t begin, std::int64_t end) const {
    const auto slice = [&](auto view) { return view.rank() != 0 ? view.slice(dimension, begin, end) : view; };
    return {bias, activation, slice(residual), slice(slope), slice(factor)};
  }
};

/// c [rows, outputs] = epilogue(a [rows, inputs] · B). Outer strides of a, c and residual are free. Where
/// `reads_rounded`, a and c may be bf16, a dense: c rounded, a as products round it otherwise. 2 · rows ·
/// inputs · outputs FLOPs. Row i of c depends on row i of a alone, bit for bit: not on the number of rows,
/// their order or the threads.
void multiply(Context& context, FloatView c, ConstFloatView a, const PackedMatrix& b,
              const Epilogue& epilogue = {});

/// c = after(between(a · first) · second), without a residual between them. `hidden` [rows, outputs of first]
/// is room that may be used or not. A thread takes a block of rows through both, so that what lies between
/// stays in its caches, narrow where the weights are.
void multiply_twice(Context& context, View<float> c, View<const float> a, const PackedMatrix& first,
                    const Epilogue& between, const PackedMatrix& second, const Epilogue& after,
                    View<float> hidden);

/// dw [outputs, inputs] += dyᵀ · x for dy [rows, outputs], x [rows, inputs]; db [outputs] += column sums of
/// dy (an empty db is left out). The bits do not depend on the threads. With bf16, dy and x are rounded for
/// the products where `rounds_factors`, and sums are f32; where `reads_rounded`, they may be bf16.
void accumulate_weight_gradient(Context& context, View<float> dw, View<float> db, ConstFloatView dy,
                                ConstFloatView x, WeightType type = WeightType::f32);

/// Whether products of bf16 make a gradient of that shape faster on this machine.
bool rounds_factors(std::int64_t rows, std::int64_t outputs, std::int64_t inputs);

/// Whether products with such weights, and their gradients, round what they read on this machine: it can
/// then be kept as bf16.
bool reads_rounded(WeightType type, std::int64_t outputs, std::int64_t inputs);

/// The nearest weights that `type` can hold, w [outputs, inputs], in place: packing them rounds nothing more.
void round_weights(View<float> w, WeightType type);

/// The int8 codes of a row of weights and the scale they are multiples of, the largest one over 127; 0 for a
/// row of zeros.
float quantise_weights(std::span<std::int8_t> codes, std::span<const float> row);

/// The dense ceiling of this machine in GFLOP/s for a type of weights: the best of 256×256×1024 and
/// 2048×1024×1024 with packed weights on the context's threads, median of several runs; and its copy
/// bandwidth in GB/s: bytes read plus bytes written, 256 MB.
double measure_gemm_gflops(Context& context, WeightType type = WeightType::f32);
double measure_copy_gbs(Context& context);

/// Reads all of x as fast as the machine can, for measurements of how long that takes. Returns its largest
/// number.
float read_all(Context& context, std::span<const float> x);

}  // namespace linnet::kernels
