// Memory that is asked for while products run. Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_AHEAD_INL_H_
#undef LINNET_KERNELS_AHEAD_INL_H_
#else
#define LINNET_KERNELS_AHEAD_INL_H_
#endif

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/cache_line.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// Rows of memory that are needed soon. The products fetch a few of them as they go: all at once they would
/// fill the machine's queue of misses and stall it, and the hardware does not look ahead where rows lie far
/// apart.
class Ahead {
 public:
  /// Products call Fetch once in so many steps of their depth.
  static constexpr std::size_t kSteps = 8;

  /// Forgets what is left; what is added from now on is spread over `fetches` calls of Fetch.
  void start(std::size_t fetches) {
    first_ = last_ = lines_ = due_ = column_ = 0;
    fetches_ = fetches;
  }

  /// `rows` rows of `bytes` bytes, `stride` bytes apart; with `places`, those of these numbers.
  void add(const void* data, std::ptrdiff_t stride, std::size_t rows, std::size_t bytes,
           const std::int64_t* places = nullptr) {
    if (rows == 0) return;
    assert(last_ < std::size(areas_));
    const auto* first = static_cast<const std::byte*>(data);
    areas_[last_++] = {
        places != nullptr ? first + *places * stride : first, stride, rows, bytes, first, places};
    // Where rows begin at other places of their lines than the first one, at the end of a line at worst.
    const bool alike = places == nullptr && stride % static_cast<std::ptrdiff_t>(cache_line) == 0;
    const std::size_t before = alike ? address(data) % cache_line : cache_line - sizeof(float);
    lines_ += rows * ((before + bytes + cache_line - 1) / cache_line);
  }

  HWY_INLINE void fetch() {
    due_ += lines_;
    for (; due_ >= fetches_ && first_ < last_; due_ -= fetches_) {
      Area& area = areas_[first_];
      __builtin_prefetch(area.data + column_, 0, 2);
      column_ += to_next_line(address(area.data + column_));
      if (column_ >= area.bytes) {
        column_ = 0;
        if (--area.rows == 0)
          ++first_;
        else if (area.places == nullptr)
          area.data += area.stride;
        else
          area.data = area.first + *++area.places * area.stride;
      }
    }
  }

 private:
  static std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

  struct Area {
    const std::byte* data;
    std::ptrdiff_t stride;
    std::size_t rows, bytes;
    const std::byte* first;
    const std::int64_t* places;
  };

  Area areas_[14];
  std::size_t first_ = 0, last_ = 0, column_ = 0, lines_ = 0, due_ = 0, fetches_ = 1;
};

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
