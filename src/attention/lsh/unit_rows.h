#pragma once

#include <cstdint>

namespace linnet::lsh {

/// units [count, dim] = factors[i] · rows[i], which are of unit length where a factor is 1 / ‖row‖.
void unit_rows(float* units, const float* rows, const float* factors, std::int64_t count, std::int64_t dim);

/// The gradients [count, dim] of unit rows u become those of the rows: factor (g − (u·g) u).
void through_unit_rows(float* gradients, const float* units, const float* factors, std::int64_t count,
                       std::int64_t dim);

}  // namespace linnet::lsh
