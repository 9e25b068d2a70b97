// Rows of a head that are asked for while products run. Include it inside a file that is compiled by
// hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_TILES_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_TILES_AHEAD_INL_H_
#undef LINNET_ATTENTION_TILES_AHEAD_INL_H_
#else
#define LINNET_ATTENTION_TILES_AHEAD_INL_H_
#endif

#include <cstddef>

#include "attention/tiles/rows.h"
#include "hwy/highway.h"
#include "kernels/ahead-inl.h"
#include "linnet/mask.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

using kernels::HWY_NAMESPACE::Ahead;

/// Adds the rows `range` of `rows`.
HWY_INLINE void fetch(Ahead& ahead, const InputRows& rows, Mask::Interval range) {
  ahead.add(rows.at(range.begin), rows.stride * rows.element(),
            static_cast<std::size_t>(range.end - range.begin),
            static_cast<std::size_t>(rows.columns * rows.element()));
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
