// Large f32 products go to oneDNN's AVX-512 kernels in blocks of rows. Products of fewer rows, of strided
// rows (which oneDNN 2.6 multiplies by a plain loop), and all products where those kernels are missing or
// would round otherwise than ours, go to panels.cc. Both read the same packed weights and give the same bits.
// Products with narrow weights are narrow_matrix.cc's, but for those of bf16 where the machine has no fast
// ones: panels.cc widens the weights as it reads them.
#include "kernels/dense.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/pages.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "kernels/instruction_set.h"
#include "kernels/library.h"
#include "kernels/narrow_matrix.h"
#include "kernels/panels.h"

namespace linnet::kernels {
namespace {

// Below this many rows our own kernel is as fast, and reads the weights once where every block would read
// them again.
constexpr std::int64_t least_library_rows = 128;

// Rows of a block for oneDNN: the larger where there are enough of them to go round.
constexpr std::int64_t large_block = 64;
constexpr std::int64_t small_block = 32;
constexpr std::int64_t rows_for_large_blocks = 4 * large_block;

// A call takes about a microsecond besides, so that narrow layers have larger blocks, of at most so many
// numbers.
constexpr std::int64_t most_block = 256;
constexpr std::int64_t most_block_floats = 3 << 14;

// Our own kernel's work is cut into pieces of a few microseconds: of at least about this many multiply-adds,
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
  bool library = false;  // oneDNN multiplies by `packed`
  SharedPages packed;

  /// Instead of them where weights are bf16 or int8.
  std::optional<NarrowMatrix> narrow;
};

namespace {

// Whether oneDNN has its AVX-512 kernels for these extents and rounds as ours do, with bias and sum, in a try
// with few rows and as many panels as matter.
bool try_library(std::int64_t inputs, std::int64_t outputs) {
  Context own(1);
  constexpr std::int64_t rows = 7;
  if (outputs > 3 * PanelLayout::columns) outputs = 2 * PanelLayout::columns + outputs % PanelLayout::columns;
  const PanelLayout layout{inputs, outputs};
  Tensor packed = Tensor::of<float>({layout.floats()});
  Tensor a = Tensor::of<float>({rows, inputs}), b = Tensor::of<float>({inputs, outputs});
  Tensor bias = Tensor::of<float>({outputs}), before = Tensor::of<float>({rows, outputs});
  std::uint32_t state = 1;
  for (Tensor* tensor : {&a, &b, &bias, &before})
    for (float& x : tensor->span<float>())
      x = static_cast<float>(static_cast<std::int32_t>(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
  pack_panels(own, packed.span<float>().data(), layout, b.span<float>().data(), outputs, 1);
  for (const bool with_bias : {false, true}) {
    for (const bool add : {false, true}) {
      const LibraryProduct product{rows, inputs, outputs, with_bias, add};
      if (!library_is_fast(product)) return false;
      Tensor ours = before.clone(), theirs = before.clone();
      Epilogue epilogue;
      if (with_bias) epilogue.bias = bias.view<float>();
      if (add) epilogue.residual = ours.view<float>();
      multiply_panels(ours.view<float>(), a.view<float>(), packed.span<float>().data(), layout, 0,
                      layout.panels(), epilogue);
      run_library(own, product, theirs.span<float>().data(), a.span<float>().data(),
                  packed.span<float>().data(), bias.span<float>().data());
      if (std::memcmp(ours.raw(), theirs.raw(), ours.bytes()) != 0) return false;
    }
  }
  return true;
}

bool library_agrees(std::int64_t inputs, std::int64_t outputs) {
  static std::mutex mutex;
  // Never destroyed: a thread may still compute when the program ends.
  static auto& answers = *new std::map<std::pair<std::int64_t, std::int64_t>, bool>;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(inputs, outputs);
  const auto found = answers.find(key);
  if (found != answers.end()) return found->second;
  return answers[key] = try_library(inputs, outputs);
}

// Rows of a block for oneDNN.
std::int64_t block_rows(std::int64_t rows, const PanelLayout& layout) {
  if (rows < rows_for_large_blocks) return small_block;
  std::int64_t block = large_block;
  while (block < most_block && rows >= 32 * block &&
         2 * block * (layout.inputs + layout.outputs) <= most_block_floats)
    block *= 2;
  return block;
}

// One block of rows by oneDNN, which adds the bias, and a residual that is c itself; the rest is ours.
void multiply_block(Context& own, View<float> c, View<const float> a, const PackedMatrix::Storage& b,
                    Epilogue epilogue) {
  Workspace workspace(own);
  const std::int64_t rows = a.extent(0), outputs = b.layout.outputs;
  const bool in_place = epilogue.residual.data() == c.data();
  const bool ends =
      epilogue.activation == Activation::none && epilogue.slope.rank() == 0 && epilogue.factor.rank() == 0;
  const bool add = in_place && ends;
  float* sums = in_place && !add ? workspace.take(rows, outputs).data() : c.data();
  run_library(own, {rows, b.layout.inputs, outputs, epilogue.bias.data() != nullptr, add}, sums, a.data(),
              b.packed.as<float>(), epilogue.bias.data());
  epilogue.bias = {};
  if (add) epilogue.residual = {};
  if (epilogue.residual.data() != nullptr || !ends) finish_rows(c, sums, outputs, epilogue);
}

}  // namespace

PackedMatrix::PackedMatrix(std::int64_t inputs, std::int64_t outputs, WeightType type)
    : inputs_(inputs), outputs_(outputs), type_(type), storage_(std::make_unique<Storage>()) {
  instruction_set();  // throws where LINNET_ISA cannot be obeyed
  storage_->layout = {inputs, outputs};
  if (type == WeightType::f32)
    storage_->library = library_agrees(inputs, outputs);
  else
    storage_->narrow.emplace(NarrowLayout{type, inputs, outputs});
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

  // First the blocks for oneDNN; what is left of the rows is cut along panels, then along rows.
  const bool dense = from.stride(0) == b.inputs() && to.stride(0) == b.outputs() &&
                     (epilogue.residual.data() != to.data() || epilogue.residual.stride(0) == b.outputs());
  const std::int64_t block = block_rows(rows, layout);
  const std::int64_t blocks = storage.library && dense && rows >= least_library_rows ? rows / block : 0;
  const std::int64_t done = blocks * block;
  const std::int64_t left = rows - done;
  const std::int64_t weights = layout.inputs * layout.panels() * PanelLayout::columns;
  const std::int64_t wanted = std::max(left * weights / least_work, weights / least_weights);
  const std::int64_t most = left <= few_rows ? context.threads() : 8 + left / 48;
  const std::int64_t pieces = left == 0 ? 0 : std::clamp<std::int64_t>(wanted, 1, most);
  const std::int64_t column_pieces = std::min(pieces, layout.panels());
  const std::int64_t row_pieces =
      std::min(pieces == 0 ? 0 : (pieces + column_pieces - 1) / column_pieces, left);

  parallel_for(context, blocks + column_pieces * row_pieces, [&](Context& own, std::int64_t i) {
    if (i < blocks) {
      const std::int64_t begin = i * block, end = begin + block;
      multiply_block(own, to.slice(0, begin, end), from.slice(0, begin, end), storage,
                     epilogue.of_rows(begin, end));
      return;
    }
    const std::int64_t row_piece = (i - blocks) / column_pieces, column_piece = (i - blocks) % column_pieces;
    const std::int64_t begin = done + left * row_piece / row_pieces;
    const std::int64_t end = done + left * (row_piece + 1) / row_pieces;
    const std::int64_t first = layout.panels() * column_piece / column_pieces,
                       last = layout.panels() * (column_piece + 1) / column_pieces;
    const auto multiply_piece = [&](const auto* panels) {
      multiply_panels(to.slice(0, begin, end), from.slice(0, begin, end), panels, layout, first, last,
                      epilogue.of_rows(begin, end));
    };
    if (storage.narrow)
      multiply_piece(storage.narrow->pairs());
    else
      multiply_piece(storage.packed.as<const float>());
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
