#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command_line.h"
#include "io/safetensors.h"
#include "linnet/mask.h"

namespace linnet {

/// The options of `attend` that say which keys a query sees.
struct MaskOptions {
  std::string mask = "full";
  std::vector<std::int64_t> prefix, window, key_lengths, segments;

  void add_to(Command& command);

  /// Throws UsageError for an option without its mask, and for a mask without its option.
  void check() const;
};

/// A mask and the tensor of the input file that it may look into.
struct FileMask {
  Mask mask = Mask::full();
  Tensor visible;
};

/// The mask of these options; intervals and boolean masks come from `file`. Throws Error where that does not
/// have them.
FileMask read_mask(const MaskOptions& options, const Safetensors& file, const std::string& path);

}  // namespace linnet
