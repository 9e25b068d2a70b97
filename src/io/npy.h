#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/file.h"
#include "linnet/tensor.h"

namespace linnet {

/// What a NumPy file says of its array, whose elements are one behind another in C order, little-endian.
struct NpyHeader {
  char kind = 0;          ///< 'i' integers, 'u' integers of at least 0, 'f' numbers, 'b' booleans
  std::size_t bytes = 0;  ///< of an element
  Shape shape;
  std::uint64_t data = 0;  ///< where the elements begin in the file
};

/// Reads the header of a file of version 1, 2 or 3 (numpy.lib.format). Throws Error naming `origin` where it
/// is damaged, where the elements are no plain numbers, big-endian or in Fortran order, and where the file
/// does not end with the last of them.
NpyHeader read_npy_header(const InputFile& file, const std::string& origin);

}  // namespace linnet
