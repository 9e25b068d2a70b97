#pragma once

#include <cstddef>
#include <cstdint>

#include "base/pages.h"
#include "kernels/narrow.h"

namespace linnet::kernels {

/// A matrix of bf16 or int8 weights. oneDNN multiplies where it has kernels for this machine, codes.cc the
/// int8 codes elsewhere; turning rows into what the products take, and what follows them, are ours.
class NarrowMatrix {
 public:
  /// Most rows that a thread multiplies at once. Blocks of rows do not depend on the threads.
  static constexpr std::int64_t block_rows = 64;

  explicit NarrowMatrix(const NarrowLayout& layout);

  /// From b [inputs, outputs], for bf16.
  void pack(Context& context, View<const float> b);

  /// From w [outputs, inputs].
  void pack_transposed(Context& context, View<const float> w);

  /// The weights as their type holds them, into w [outputs, inputs]; zeros before the first pack.
  void unpack_transposed(View<float> w) const;

  /// Whether rows stay f32, because this machine has no products of bf16: `multiply_panels` does all the
  /// rest.
  bool takes_wide_rows() const { return layout_.type == WeightType::bf16 && !library_; }
  const bf16* pairs() const { return packed_.as<bf16>(); }

  /// As `kernels::multiply`, where rows do not stay f32.
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
  bool library_;  ///< whether oneDNN multiplies
  SharedPages packed_;
  CodeScales scales_;
};

/// As `kernels::multiply_twice`: what lies between is never written as f32.
void multiply_narrow_twice(Context& context, View<float> c, View<const float> a, const NarrowMatrix& first,
                           const Epilogue& between, const NarrowMatrix& second, const Epilogue& after);

}  // namespace linnet::kernels
