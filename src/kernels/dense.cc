// Products in f32 are panels.cc's, and so are those of bf16 where the machine has no fast ones: the weights
// are widened as they are read. All others with narrow weights are narrow_matrix.cc's.
#include "kernels/dense.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/pages.h"
#include "base/parallel.h"
#include "kernels/narrow_matrix.h"
#include "kernels/panels.h"
#include "kernels/processor.h"
#include "linnet/instruction_set.h"

namespace linnet::kernels {
namespace {

// From this many rows on threads take blocks of rows, and all columns of each; below they share the columns,
// so that the weights are read once.
constexpr std::int64_t least_rows_for_blocks = 128;

// Rows of a block: the larger where there are enough of them to go round.
constexpr std::int64_t large_block = 64;
constexpr std::int64_t small_block = 32;
constexpr std::int64_t rows_for_large_blocks = 4 * large_block;

// Narrow layers have larger blocks, of at most so many numbers: a panel is read once for each.
constexpr std::int64_t most_block = 256;
constexpr std::int64_t most_block_floats = 3 << 14;

// What is not in blocks is cut into pieces of a few microseconds: of at least about this many multiply-adds,
// or weights to be read.
constexpr std::int64_t least_work = 1 << 17;
constexpr std::int64_t least_weights = 1 << 14;

// So few rows take as long as reading the weights, which is fastest in one go for every thread.
constexpr std::int64_t few_rows = 16;

}  // namespace

bool multiplies_fast(WeightType type) { return type != WeightType::bf16 || multiplies_groups(type); }

bool multiplies_by_units(WeightType type) { return multiplies_groups(type) && has_matrix_units(); }

struct PackedMatrix::Storage {
  float* panels() {
    if (packed.bytes() == 0) packed = SharedPages(static_cast<std::size_t>(layout.floats()) * sizeof(float));
    return packed.as<float>();
  }

  PanelLayout layout;
  SharedPages packed;

  /// Instead of them where weights are bf16 or int8.
  std::optional<NarrowMatrix> narrow;
};

namespace {

std::int64_t block_rows(std::int64_t rows, const PanelLayout& layout) {
  if (rows < rows_for_large_blocks) return small_block;
  std::int64_t block = large_block;
  while (block < most_block && rows >= 32 * block &&
         2 * block * (layout.inputs + layout.outputs) <= most_block_floats)
    block *= 2;
  return block;
}

}  // namespace

PackedMatrix::PackedMatrix(std::int64_t inputs, std::int64_t outputs, WeightType type)
    : inputs_(inputs), outputs_(outputs), type_(type), storage_(std::make_unique<Storage>()) {
  instruction_set();  // throws where LINNET_ISA cannot be obeyed
  storage_->layout = {inputs, outputs};
  if (type != WeightType::f32) storage_->narrow.emplace(NarrowLayout{type, inputs, outputs});
}

PackedMatrix::~PackedMatrix() = default;
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;

void PackedMatrix::pack(Context& context, View<const float> b) {
  assert(b.extent(0) == inputs_ && b.extent(1) == outputs_ && type_ != WeightType::int8);
  if (storage_->narrow) return storage_->narrow->pack(context, b);
  pack_panels(context, storage_->panels(), storage_->layout, b.data(), b.stride(0), 1);
}

void PackedMatrix::pack_transposed(Context& context, View<const float> w) {
  assert(w.extent(0) == outputs_ && w.extent(1) == inputs_);
  if (storage_->narrow) return storage_->narrow->pack_transposed(context, w);
  pack_panels(context, storage_->panels(), storage_->layout, w.data(), 1, w.stride(0));
}

void PackedMatrix::pack_both(Context& context, PackedMatrix& transposed, PackedMatrix& straight,
                             View<const float> w) {
  const bool floats = transposed.type_ == WeightType::f32 && straight.type_ == WeightType::f32;
  if (floats && packs_both(w))
    return pack_both_panels(context, transposed.storage_->panels(), straight.storage_->panels(), w);
  transposed.pack_transposed(context, w);
  straight.pack(context, w);
}

void PackedMatrix::unpack_transposed(View<float> w) const {
  assert(w.extent(0) == outputs_ && w.extent(1) == inputs_);
  if (storage_->narrow) return storage_->narrow->unpack_transposed(w);
  if (storage_->packed.bytes() == 0) {
    for (std::int64_t n = 0; n < outputs_; ++n) std::fill_n(w.at(n), inputs_, 0.0f);
    return;
  }
  unpack_panels(w.data(), 1, w.stride(0), storage_->packed.as<float>(), storage_->layout);
}

std::size_t PackedMatrix::bytes() const {
  return storage_->narrow ? storage_->narrow->bytes() : storage_->packed.bytes();
}

void multiply(Context& context, FloatView c, ConstFloatView a, const PackedMatrix& b,
              const Epilogue& epilogue) {
  const PackedMatrix::Storage& storage = b.storage();
  const PanelLayout& layout = storage.layout;
  const std::int64_t rows = a.extent(0);
  assert(a.extent(1) == b.inputs() && c.extent(0) == rows && c.extent(1) == b.outputs());
  if (rows == 0 || b.outputs() == 0) return;
  if (storage.narrow && !storage.narrow->takes_wide_rows())
    return storage.narrow->multiply(context, c, a, epilogue);
  const View<float> to = c.as<float>();
  const View<const float> from = a.as<const float>();

  // First the blocks; what is left of the rows is cut along panels, then along rows.
  const std::int64_t block = block_rows(rows, layout);
  const std::int64_t blocks = rows >= least_rows_for_blocks ? rows / block : 0;
  const std::int64_t done = blocks * block;
  const std::int64_t left = rows - done;
  const std::int64_t weights = layout.inputs * layout.panels() * PanelLayout::columns;
  const std::int64_t wanted = std::max(left * weights / least_work, weights / least_weights);
  const std::int64_t most = left <= few_rows ? context.threads() : 8 + left / 48;
  const std::int64_t pieces = left == 0 ? 0 : std::clamp<std::int64_t>(wanted, 1, most);
  const std::int64_t column_pieces = std::min(pieces, layout.panels());
  const std::int64_t row_pieces =
      std::min(pieces == 0 ? 0 : (pieces + column_pieces - 1) / column_pieces, left);

  const auto multiply_piece = [&](std::int64_t begin, std::int64_t end, std::int64_t first,
                                  std::int64_t last) {
    const View<float> rows_to = to.slice(0, begin, end);
    const View<const float> rows_from = from.slice(0, begin, end);
    const Epilogue after = epilogue.of_rows(begin, end);
    if (storage.narrow)
      multiply_panels(rows_to, rows_from, storage.narrow->pairs(), layout, first, last, after);
    else
      multiply_panels(rows_to, rows_from, storage.packed.as<const float>(), layout, first, last, after);
  };
  parallel_for(context, blocks + column_pieces * row_pieces, [&](std::int64_t i) {
    if (i < blocks) return multiply_piece(i * block, (i + 1) * block, 0, layout.panels());
    const std::int64_t row_piece = (i - blocks) / column_pieces, column_piece = (i - blocks) % column_pieces;
    multiply_piece(done + left * row_piece / row_pieces, done + left * (row_piece + 1) / row_pieces,
                   layout.panels() * column_piece / column_pieces,
                   layout.panels() * (column_piece + 1) / column_pieces);
  });
}

void multiply_twice(Context& context, View<float> c, View<const float> a, const PackedMatrix& first,
                    const Epilogue& between, const PackedMatrix& second, const Epilogue& after,
                    View<float> hidden) {
  assert(between.residual.data() == nullptr);
  const auto &one = first.storage().narrow, &two = second.storage().narrow;
  const bool shared = context.threads() == 1 || a.extent(0) > NarrowMatrix::block_rows;
  if (one && two && shared && !one->takes_wide_rows())
    return multiply_narrow_twice(context, c, a, *one, between, *two, after);
  multiply(context, hidden, a, first, between);
  multiply(context, c, hidden, second, after);
}

}  // namespace linnet::kernels
