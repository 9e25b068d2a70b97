#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/narrow.h"

namespace linnet::kernels {

/// sums [count, outputs] = rows · panels for rows of codes [count, inputs]: whole numbers, and so the same on
/// every machine. 2 · count · inputs · outputs operations, two terms of a sum to each 32 bits of a vector.
/// For machines without VNNI.
void multiply_codes(Context& own, std::int32_t* sums, const NarrowLayout& layout, const std::uint8_t* rows,
                    std::int64_t count, const std::byte* panels, std::int64_t outputs);

}  // namespace linnet::kernels
