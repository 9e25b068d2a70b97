#pragma once

#include <cstddef>
#include <cstdint>

#include "base/pages.h"
#include "kernels/narrow.h"

namespace linnet::kernels {

/// A matrix of bf16 or int8 weights. narrow.cc multiplies on machines that multiply groups, codes.cc the int8
/// codes elsewhere.
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

  /// Whether rows stay f32, because this machine has no fast products of bf16: `multiply_panels` does all the
  /// rest.
  bool takes_wide_rows() const { return layout_.type == WeightType::bf16 && !groups_; }
  const bf16* pairs() const { return packed_.as<bf16>(); }

  /// As `kernels::multiply`, where rows do not stay f32.
  void multiply(Context& context, FloatView c, ConstFloatView a, const Epilogue& epilogue) const;

  const NarrowLayout& layout() const { return layout_; }
  /// Of memory, which the first pack takes.
  std::size_t bytes() const { return static_cast<std::size_t>(layout_.bytes()); }

  /// sums [rows, outputs of the panels first … last − 1], dense, = rows · weights, on the calling thread.
  /// `sums` is memory for 32 bits a number.
  NarrowSums product(Context& own, void* sums, const NarrowRows& rows, std::int64_t count, std::int64_t first,
                     std::int64_t last) const;

  /// c [rows, outputs of the panels first … last − 1] = epilogue(rows · weights), on the calling thread.
  void multiply(Context& own, FloatView c, const NarrowRows& rows, std::int64_t first, std::int64_t last,
                const Epilogue& epilogue) const;

  /// The rows of a next product [count, outputs] = between(rows · weights).
  void multiply(Context& own, const NarrowRows& to, const NarrowRows& rows, std::int64_t count,
                const Epilogue& between) const;

 private:
  /// Of int8 weights: the codes of a panel's outputs, and what comes with them.
  void pack_codes(Context& own, std::int64_t panel, View<const float> w);
  void multiply_block(Context& own, FloatView c, ConstFloatView a, std::int64_t first, std::int64_t last,
                      const Epilogue& epilogue) const;
  NarrowProduct part(const NarrowRows& rows, std::int64_t count, std::int64_t first, std::int64_t last) const;

  NarrowLayout layout_;
  bool groups_;        ///< whether this machine multiplies groups
  bool matrix_units_;  ///< whether it has matrix units (AMX), which may be used
  SharedPages packed_;
  CodeScales scales_;
};

/// As `kernels::multiply_twice`: what lies between is never written as f32.
void multiply_narrow_twice(Context& context, View<float> c, View<const float> a, const NarrowMatrix& first,
                           const Epilogue& between, const NarrowMatrix& second, const Epilogue& after);

}  // namespace linnet::kernels
