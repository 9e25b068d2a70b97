#pragma once

#include <cstddef>
#include <cstdint>

#include "base/pages.h"
#include "kernels/narrow.h"

namespace linnet::kernels {

/// A matrix of bf16 or int8 weights packed for oneDNN, which multiplies; turning rows into what the products
/// take, and what follows them, are ours.
class NarrowMatrix {
 public:
  /// Most rows that a thread multiplies at once. Blocks of rows do not depend on the threads.
  static constexpr std::int64_t block_rows = 64;

  /// Whether this machine has fast products of that type.
  static bool is_fast(WeightType type, std::int64_t inputs, std::int64_t outputs);

  explicit NarrowMatrix(const NarrowLayout& layout);

  /// From b [inputs, outputs], for bf16.
  void pack(Context& context, View<const float> b);

  /// From w [outputs, inputs].
  void pack_transposed(Context& context, View<const float> w);

  /// The weights as their type holds them, into w [outputs, inputs]; zeros before the first pack.
  void unpack_transposed(View<float> w) const;

  /// As `kernels::multiply`.
  void multiply(Context& context, View<float> c, View<const float> a, const Epilogue& epilogue) const;

  const NarrowLayout& layout() const { return layout_; }
  /// Of memory, which the first pack takes.
  std::size_t bytes() const { return static_cast<std::size_t>(layout_.bytes()); }

  /// sums [rows, outputs of the panels first … last − 1] = rows · weights, on the calling thread. `sums` is
  /// memory for 32 bits a number.
  NarrowSums product(Context& own, void* sums, const NarrowRows& rows, std::int64_t count, std::int64_t first,
                     std::int64_t last) const;

 private:
  void multiply_block(Context& own, View<float> c, View<const float> a, std::int64_t first, std::int64_t last,
                      Epilogue epilogue) const;

  NarrowLayout layout_;
  SharedPages packed_;
  CodeScales scales_;
};

/// As `kernels::multiply_twice`: what lies between is never written as f32.
void multiply_narrow_twice(Context& context, View<float> c, View<const float> a, const NarrowMatrix& first,
                           const Epilogue& between, const NarrowMatrix& second, const Epilogue& after);

}  // namespace linnet::kernels
