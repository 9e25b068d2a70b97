// Tiles of products of narrow rows by the matrix units of AMX: a tile register holds 16 rows of 64 bytes, and
// one instruction adds the product of two of them to a third. Highway 1.0.3 has none of them. Included like
// simd_math-inl.h.

#if defined(LINNET_KERNELS_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_UNITS_INL_H_
#undef LINNET_KERNELS_UNITS_INL_H_
#else
#define LINNET_KERNELS_UNITS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/groups-inl.h"
#include "kernels/narrow.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// Rows of a tile register, and the bytes of each.
inline constexpr std::int64_t unit_rows = 16, unit_bytes = 64;

/// Most rows that are multiplied at once: two registers of them, whose sums with 32 columns take four more.
inline constexpr std::int64_t most_unit_rows = 2 * unit_rows;

#if HWY_ARCH_X86_64 && HWY_MAX_BYTES == 64

/// Registers 0 … 3 hold sums, two from here on rows, two weights.
inline constexpr int first_rows_unit = 4, first_weights_unit = 6;

/// The registers' shapes, as the processor reads and writes them.
struct UnitShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(UnitShapes) == 64);

/// Of 0 … 16 rows where they hold rows and sums, and whole where they hold weights.
constexpr auto all_unit_shapes() {
  std::array<UnitShapes, unit_rows + 1> all;
  for (std::size_t rows = 0; rows < all.size(); ++rows) {
    for (int i = 0; i < 8; ++i) {
      all[rows].row_bytes[i] = unit_bytes;
      all[rows].rows[i] = static_cast<std::uint8_t>(i < first_weights_unit ? rows : unit_rows);
    }
  }
  return all;
}

/// Gives this thread's registers the shapes for so many rows. They keep them, since setting them takes as
/// long as a small product; whoever else uses the units sets its own, and so what they have is read before.
HWY_INLINE void shape_units(std::int64_t rows) {
  namespace hn = hwy::HWY_NAMESPACE;
  static constexpr auto all = all_unit_shapes();
  const hn::ScalableTag<std::uint32_t> u32;
  const UnitShapes& wanted = all[static_cast<std::size_t>(rows)];
  std::uint32_t present[sizeof wanted / sizeof(std::uint32_t)];
  asm volatile("sttilecfg %0" : "=m"(present));
  const auto words = hn::LoadU(u32, reinterpret_cast<const std::uint32_t*>(&wanted));
  if (!hn::AllTrue(u32, hn::Eq(hn::LoadU(u32, present), words))) asm volatile("ldtilecfg %0" : : "m"(wanted));
}

template <int unit>
HWY_INLINE void zero_unit() {
  asm volatile("tilezero %%tmm%c0" : : "i"(unit));
}
template <int unit>
HWY_INLINE void load_unit(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(unit) : "memory");
}
template <int unit>
HWY_INLINE void store_unit(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(unit) : "memory");
}
template <WeightType type, int sums, int rows, int weights>
HWY_INLINE void multiply_units() {
  if constexpr (type == WeightType::bf16)
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(rows), "i"(weights));
  else
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(rows), "i"(weights));
}

HWY_INLINE void zero_sums() {
  zero_unit<0>();
  zero_unit<1>();
  zero_unit<2>();
  zero_unit<3>();
}

/// Rows of a product as the registers read them, 64 bytes at a time; what is missing at the end of a row is
/// zero.
class UnitRows {
 public:
  explicit UnitRows(const NarrowProduct& product)
      : at_(product.first_row()), stride_(product.row_bytes()), whole_(stride_ / unit_bytes) {
    assert(product.count <= most && !product.columns);
    const std::int64_t rest = stride_ % unit_bytes;
    if (rest == 0) return;
    std::memset(ends_, 0, static_cast<std::size_t>(product.count * unit_bytes));
    for (std::int64_t i = 0; i < product.count; ++i)
      std::memcpy(ends_ + i * unit_bytes, at_ + i * stride_ + whole_ * unit_bytes,
                  static_cast<std::size_t>(rest));
  }

  template <int unit>
  HWY_INLINE void load(std::int64_t row, std::int64_t k) const {
    if (k < whole_) return load_unit<unit>(at_ + row * stride_ + k * unit_bytes, stride_);
    load_unit<unit>(ends_ + row * unit_bytes, unit_bytes);
  }

  /// Most rows of a product.
  static constexpr std::int64_t most = 64;

 private:
  const std::byte* at_;
  std::int64_t stride_, whole_;
  HWY_ALIGN std::byte ends_[most * unit_bytes];
};

/// What is done between the instructions of a tile's product, which take longer than it: the rows of the tile
/// before are finished, and parts of the next panel are asked for.
template <class Sum, class Destination, class Then>
class UnitsBeside {
 public:
  UnitsBeside(const Destination& destination, const Then& then) : destination_(destination), then_(then) {}

  /// From now on rows [begin, end) of columns j … j + n − 1 with these sums are finished, in `steps` steps.
  void start(const Sum* sums, std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t n,
             std::int64_t steps) {
    sums_ = sums;
    next_ = begin;
    end_ = end;
    j_ = j;
    n_ = n;
    rows_ = (end - begin + steps - 1) / std::max<std::int64_t>(steps, 1);
    destination_.fetch(next_, std::min(next_ + rows_, end_), j_, n_);
  }
  /// The panel that follows, of which every step asks for `bytes`.
  void ask(const std::byte* panel, std::int64_t bytes) {
    panel_ = panel;
    bytes_ = bytes;
  }

  HWY_INLINE void step() {
    for (std::int64_t line = 0; line < bytes_; line += 4 * unit_bytes)
      __builtin_prefetch(panel_ + line, 0, 2);
    panel_ += bytes_;
    if (next_ < end_) finish(rows_);
  }

  void finish_all() {
    if (next_ < end_) finish(end_ - next_);
  }

 private:
  HWY_INLINE void finish(std::int64_t rows) {
    const std::int64_t begin = next_, end = std::min(begin + rows, end_);
    destination_.fetch(end, std::min(end + rows, end_), j_, n_);
    then_(sums_, begin, end, j_, n_);
    sums_ += (end - begin) * NarrowLayout::columns;
    next_ = end;
  }

  const Destination& destination_;
  const Then& then_;
  const Sum* sums_ = nullptr;
  std::int64_t next_ = 0, end_ = 0, j_ = 0, n_ = 0, rows_ = 0;
  const std::byte* panel_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// sums [16, 64] = the rows from `row` on · one panel of `steps` · 64 bytes of a row.
template <WeightType type, class Beside>
HWY_INLINE void multiply_one_unit(GroupSum<type>* sums, const UnitRows& rows, std::int64_t row,
                                  const std::byte* panel, std::int64_t steps, Beside& beside) {
  constexpr std::int64_t stride = 4 * NarrowLayout::columns;
  constexpr int r = first_rows_unit, w = first_weights_unit;
  zero_sums();
  for (std::int64_t k = 0; k < steps; ++k, panel += unit_rows * stride) {
    rows.load<r>(row, k);
    load_unit<w>(panel, stride);
    load_unit<w + 1>(panel + unit_bytes, stride);
    multiply_units<type, 0, r, w>();
    load_unit<w>(panel + 2 * unit_bytes, stride);
    multiply_units<type, 1, r, w + 1>();
    load_unit<w + 1>(panel + 3 * unit_bytes, stride);
    multiply_units<type, 2, r, w>();
    multiply_units<type, 3, r, w + 1>();
    beside.step();
  }
  store_unit<0>(sums, stride);
  store_unit<1>(sums + unit_rows, stride);
  store_unit<2>(sums + 2 * unit_rows, stride);
  store_unit<3>(sums + 3 * unit_rows, stride);
}

/// The sums of 16 rows from `row` on and of as many from `second` on with 32 columns at `panel`; those of the
/// latter begin `apart` numbers behind `sums`. Rows in both have the same sums.
template <WeightType type, class Beside>
HWY_INLINE void multiply_two_units(GroupSum<type>* sums, std::int64_t apart, const UnitRows& rows,
                                   std::int64_t row, std::int64_t second, const std::byte* panel,
                                   std::int64_t steps, Beside& beside) {
  constexpr std::int64_t stride = 4 * NarrowLayout::columns;
  constexpr int r = first_rows_unit, w = first_weights_unit;
  zero_sums();
  for (std::int64_t k = 0; k < steps; ++k, panel += unit_rows * stride) {
    rows.load<r>(row, k);
    load_unit<w>(panel, stride);
    multiply_units<type, 0, r, w>();
    load_unit<w + 1>(panel + unit_bytes, stride);
    multiply_units<type, 1, r, w + 1>();
    rows.load<r + 1>(second, k);
    multiply_units<type, 2, r + 1, w>();
    multiply_units<type, 3, r + 1, w + 1>();
    beside.step();
  }
  store_unit<0>(sums, stride);
  store_unit<1>(sums + unit_rows, stride);
  store_unit<2>(sums + apart, stride);
  store_unit<3>(sums + apart + unit_rows, stride);
}

/// Multiplies at most 64 rows with tiles of up to 32 of them and calls then(sums, begin, end, j, n) as
/// `multiply_group_tiles` does, for a few rows of a tile at a time while the next tile is multiplied, and
/// destination.fetch(begin, end, j, n) before. An instruction takes 2 · 16 · 16 · 64 operations of codes,
/// half as many of bf16; four of them come with four loads of a register. Sums of bf16 depend on their row
/// and column alone.
template <WeightType type, class Destination, class Then>
HWY_INLINE void multiply_unit_tiles(const NarrowProduct& product, const Destination& destination,
                                    const Then& then) {
  constexpr std::int64_t columns = NarrowLayout::columns;
  HWY_ALIGN GroupSum<type> memory[2][most_unit_rows * columns];
  const std::int64_t count = product.count, blocks = (count + most_unit_rows - 1) / most_unit_rows;
  const std::int64_t panel_bytes = product.layout.panel_bytes(),
                     steps = panel_bytes / (4 * columns * unit_rows);
  const UnitRows rows(product);
  const std::byte* panel = product.panels;
  shape_units(std::min(count, unit_rows));
  UnitsBeside<GroupSum<type>, Destination, Then> beside(destination, then);
  int which = 0;
  for (std::int64_t j = 0; j < product.outputs; j += columns, panel += panel_bytes) {
    const std::int64_t n = std::min(columns, product.outputs - j);
    beside.ask(panel + panel_bytes, 4 * columns * unit_rows / (count <= unit_rows ? 1 : 2 * blocks));
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t begin = count * block / blocks, end = count * (block + 1) / blocks;
      GroupSum<type>* const sums = memory[which];
      which = 1 - which;
      if (end - begin <= unit_rows) {
        multiply_one_unit<type>(sums, rows, begin, panel, steps, beside);
      } else {
        const std::int64_t second = end - unit_rows, apart = (second - begin) * columns;
        multiply_two_units<type>(sums, apart, rows, begin, second, panel, steps, beside);
        if (n > columns / 2)
          multiply_two_units<type>(sums + columns / 2, apart, rows, begin, second, panel + 2 * unit_bytes,
                                   steps, beside);
      }
      beside.finish_all();
      beside.start(sums, begin, end, j, n, end - begin <= unit_rows ? steps : 2 * steps);
    }
  }
  beside.finish_all();
}

#else

template <WeightType type, class Destination, class Then>
void multiply_unit_tiles(const NarrowProduct&, const Destination&, const Then&) {}

#endif

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
