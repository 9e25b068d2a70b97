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
    lines_ += rows * ((bytes + kLine - 1) / kLine);
  }

  HWY_INLINE void fetch() {
    due_ += lines_;
    for (; due_ >= fetches_ && first_ < last_; due_ -= fetches_) {
      Area& area = areas_[first_];
      __builtin_prefetch(area.data + column_, 0, 2);
      column_ += kLine;
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
  static constexpr std::size_t kLine = 64;  // bytes of a cache line

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
