#include "kernels/narrow_matrix.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "kernels/codes.h"
#include "kernels/pairs.h"

namespace linnet::kernels {
namespace {

/// Terms of a sum of products of codes, at most 127 · 127 each, that 32 bits hold, and of what is subtracted
/// from it, 128 times a sum of codes. Before that sums may wrap around.
constexpr std::int64_t most_int8_inputs = std::numeric_limits<std::int32_t>::max() / (127 * 128);

const NarrowLayout& checked(const NarrowLayout& layout) {
  if (layout.type == WeightType::int8 && layout.inputs > most_int8_inputs)
    fail<UsageError>("int8 weights", "expected at most {} inputs, whose sums are exact, got {}",
                     most_int8_inputs, layout.inputs);
  return layout;
}

/// Memory for `count` narrow rows with their scales.
NarrowRows take_rows(Workspace& workspace, WeightType type, std::int64_t count, std::int64_t inputs) {
  const std::int64_t element = NarrowLayout{type}.element();
  return {type, workspace.array<std::byte>(count * inputs * element).data(),
          workspace.take(static_cast<std::size_t>(count))};
}

}  // namespace

NarrowMatrix::NarrowMatrix(const NarrowLayout& layout)
    : layout_(checked(layout)),
      groups_(multiplies_groups(layout.type)),
      matrix_units_(multiplies_by_units(layout.type)) {
  if (layout.type == WeightType::bf16) return;
  scales_.scale.resize(static_cast<std::size_t>(layout.outputs));
  scales_.excess.resize(static_cast<std::size_t>(layout.outputs));
}

void NarrowMatrix::pack(Context& context, View<const float> b) {
  assert(layout_.type == WeightType::bf16);
  if (packed_.bytes() == 0) packed_ = SharedPages(bytes());
  parallel_for(context, layout_.padded_inputs() / pair_band, [&](std::int64_t band) {
    pack_pairs(packed_.as<bf16>(), layout_.padded_inputs(), b, band * pair_band);
  });
}

void NarrowMatrix::pack_transposed(Context& context, View<const float> w) {
  // What pads the panels is zero from the beginning and is never written as anything else.
  if (packed_.bytes() == 0) packed_ = SharedPages(bytes());
  if (layout_.type == WeightType::bf16) {
    parallel_for(context, layout_.panels(), [&](Context& own, std::int64_t panel) {
      Workspace workspace(own);
      bf16* to = packed_.as<bf16>() + panel * layout_.panel_bytes() / layout_.element();
      pack_pairs_transposed(to, w, panel * NarrowLayout::columns, layout_.padded_inputs(),
                            workspace.array<bf16>(NarrowLayout::columns * layout_.padded_inputs()).data());
    });
    return;
  }
  parallel_for(context, layout_.panels(),
               [&](Context& own, std::int64_t panel) { pack_codes(own, panel, w); });
}

void NarrowMatrix::pack_codes(Context& own, std::int64_t panel, View<const float> w) {
  constexpr std::int64_t columns = NarrowLayout::columns, group = sizeof(std::uint32_t);
  const std::int64_t padded = layout_.padded_inputs(), begin = panel * columns,
                     count = std::min(columns, layout_.outputs - begin);
  Workspace workspace(own);
  const std::span<std::int8_t> rows = workspace.array<std::int8_t>(columns * padded);
  std::ranges::fill(rows, std::int8_t{0});
  for (std::int64_t n = 0; n < count; ++n) {
    const auto row =
        rows.subspan(static_cast<std::size_t>(n * padded), static_cast<std::size_t>(layout_.inputs));
    scales_.scale[begin + n] = quantise_weights(row, {w.at(begin + n), row.size()});
    scales_.excess[begin + n] = 128 * std::accumulate(row.begin(), row.end(), std::int32_t{0});
  }
  // A group of codes after another, each of them 32 bits.
  std::byte* to = packed_.data() + panel * layout_.panel_bytes();
  for (std::int64_t k = 0; k < padded; k += group)
    for (std::int64_t n = 0; n < columns; ++n, to += group)
      std::memcpy(to, rows.data() + n * padded + k, group);
}

void NarrowMatrix::unpack_transposed(View<float> w) const {
  if (packed_.bytes() == 0) {
    for (std::int64_t n = 0; n < layout_.outputs; ++n) std::fill_n(w.at(n), layout_.inputs, 0.0f);
    return;
  }
  const auto* halves = packed_.as<bf16>();
  const auto* codes = packed_.as<std::int8_t>();
  for (std::int64_t n = 0; n < layout_.outputs; ++n) {
    for (std::int64_t k = 0; k < layout_.inputs; ++k) {
      const std::int64_t at = layout_.offset(k, n);
      w(n, k) = layout_.type == WeightType::bf16 ? to_float(halves[at])
                                                 : scales_.scale[n] * static_cast<float>(codes[at]);
    }
  }
}

NarrowProduct NarrowMatrix::part(const NarrowRows& rows, std::int64_t count, std::int64_t first,
                                 std::int64_t last) const {
  const std::int64_t columns = NarrowLayout::columns;
  // Tiles of few rows are empty for the most part. Sums of codes are exact anyway; those of bf16 follow the
  // order of one kind of instruction, whatever their rows' company.
  constexpr std::int64_t least_rows_of_codes = 5;
  const bool units = matrix_units_ && (layout_.type == WeightType::bf16 || count >= least_rows_of_codes);
  return {layout_,
          rows,
          count,
          packed_.data() + first * layout_.panel_bytes(),
          std::min(last * columns, layout_.outputs) - first * columns,
          false,
          units};
}

NarrowSums NarrowMatrix::product(Context& own, void* sums, const NarrowRows& rows, std::int64_t count,
                                 std::int64_t first, std::int64_t last) const {
  const NarrowProduct product = part(rows, count, first, last);
  const Shape shape = {count, product.outputs};
  if (groups_ && layout_.type == WeightType::bf16)
    multiply_groups(View<float>(static_cast<float*>(sums), shape), false, product);
  else if (groups_)
    multiply_groups(View<std::int32_t>(static_cast<std::int32_t*>(sums), shape), false, product);
  else
    multiply_codes(own, static_cast<std::int32_t*>(sums), layout_,
                   static_cast<const std::uint8_t*>(rows.rows), count, product.panels, product.outputs);
  return {layout_.type, sums, product.outputs, rows.scales, &scales_, first * NarrowLayout::columns};
}

void NarrowMatrix::multiply(Context& own, FloatView c, const NarrowRows& rows, std::int64_t first,
                            std::int64_t last, const Epilogue& epilogue) const {
  const std::int64_t count = c.extent(0), outputs = c.extent(1);
  if (groups_)
    return multiply_groups(c, part(rows, count, first, last), &scales_, first * NarrowLayout::columns,
                           epilogue);
  Workspace workspace(own);
  if (c.dtype() == DType::bf16)
    return finish_narrow(c, product(own, workspace.take(count, outputs).data(), rows, count, first, last),
                         epilogue);
  const View<float> to = c.as<float>();
  const bool in_place = epilogue.residual.data() != to.data() && to.stride(0) == outputs;
  float* sums = in_place ? to.data() : workspace.take(count, outputs).data();
  finish_narrow(to, product(own, sums, rows, count, first, last), epilogue);
}

void NarrowMatrix::multiply(Context& own, const NarrowRows& to, const NarrowRows& rows, std::int64_t count,
                            const Epilogue& between) const {
  if (to.type == WeightType::bf16)
    return multiply(own, View<bf16>(static_cast<bf16*>(to.rows), {count, layout_.outputs}), rows, 0,
                    layout_.panels(), between);
  Workspace workspace(own);
  const View<float> hidden = workspace.take(count, layout_.outputs);
  if (groups_) {
    multiply(own, hidden, rows, 0, layout_.panels(), between);
    return narrow_rows(to, hidden);
  }
  finish_narrow(to, count, workspace.array<float>(layout_.outputs),
                product(own, hidden.data(), rows, count, 0, layout_.panels()), between);
}

// Columns of panels [first, last) of a block of rows. The rows are made narrow once for all panels of a
// block, again for every piece of the columns.
void NarrowMatrix::multiply_block(Context& own, FloatView c, ConstFloatView a, std::int64_t first,
                                  std::int64_t last, const Epilogue& epilogue) const {
  const std::int64_t rows = a.extent(0), begin = first * NarrowLayout::columns,
                     end = std::min(last * NarrowLayout::columns, layout_.outputs);
  Workspace workspace(own);
  NarrowRows narrow{layout_.type, nullptr, nullptr};
  if (a.dtype() == DType::bf16) {
    assert(layout_.type == WeightType::bf16 && a.stride(0) == layout_.inputs);
    narrow.rows = const_cast<bf16*>(a.as<const bf16>().data());  // which products only read
  } else {
    narrow = take_rows(workspace, layout_.type, rows, layout_.inputs);
    narrow_rows(narrow, a.as<const float>());
  }
  multiply(own, c.slice(1, begin, end), narrow, first, last, epilogue.of_columns(begin, end));
}

void NarrowMatrix::multiply(Context& context, FloatView c, ConstFloatView a, const Epilogue& epilogue) const {
  const std::int64_t rows = a.extent(0), panels = layout_.panels();
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  // Pieces of columns may depend on the threads, since columns do not meet.
  const std::int64_t pieces = blocks == 1 ? std::min<std::int64_t>(context.threads(), panels) : 1;
  parallel_for(context, blocks * pieces, [&](Context& own, std::int64_t i) {
    const std::int64_t block = i / pieces, piece = i % pieces;
    const std::int64_t begin = block * block_rows, end = std::min(rows, begin + block_rows);
    multiply_block(own, c.slice(0, begin, end), a.slice(0, begin, end), panels * piece / pieces,
                   panels * (piece + 1) / pieces, epilogue.of_rows(begin, end));
  });
}

void multiply_narrow_twice(Context& context, View<float> c, View<const float> a, const NarrowMatrix& first,
                           const Epilogue& between, const NarrowMatrix& second, const Epilogue& after) {
  const NarrowLayout &one = first.layout(), &two = second.layout();
  assert(one.type == two.type && one.outputs == two.inputs);
  assert(a.extent(1) == one.inputs && c.extent(1) == two.outputs);
  parallel_blocks(context, a.extent(0), NarrowMatrix::block_rows,
                  [&](Context& own, std::int64_t begin, std::int64_t end) {
                    const std::int64_t rows = end - begin;
                    Workspace workspace(own);
                    const NarrowRows narrow = take_rows(workspace, one.type, rows, one.inputs),
                                     hidden = take_rows(workspace, two.type, rows, two.inputs);
                    narrow_rows(narrow, a.slice(0, begin, end));
                    first.multiply(own, hidden, narrow, rows, between.of_rows(begin, end));
                    second.multiply(own, c.slice(0, begin, end), hidden, 0, two.panels(),
                                    after.of_rows(begin, end));
                  });
}

}  // namespace linnet::kernels
