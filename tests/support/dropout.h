#pragma once

#include <vector>

#include "layers/block.h"
#include "reference/layers.h"
#include "support/contexts.h"
#include "support/parameters.h"

namespace linnet {

/// The factors by which a layer's dropout multiplies its two branches, seen from outside: with all other
/// parameters 0, a branch's output is its last bias, and the block's output for the input 0 is that bias
/// under the mask.
inline reference::BlockMasks dropout_masks(Block::Parts parts, std::int64_t batch, std::int64_t length,
                                           const Dropout& dropout) {
  parts.norm_first = true;
  ParameterTable table;
  Block block(table, "b", parts);
  const std::int64_t width = parts.attention.width;
  const std::vector<float> x(static_cast<std::size_t>(batch * length * width));
  Block::Saved saved;
  saved.reserve(batch, length, parts);
  const auto under_mask = [&](const char* bias) {
    Tensor values = Tensor::of<float>({table.size()});
    fill(table, values.span<float>(), bias, 1);
    block.pack(any_context(), values.span<float>(), true);
    std::vector<float> y(x.size());
    block.forward(any_context(), view(y, {batch, length, width}), view(x, {batch, length, width}), saved,
                  dropout);
    return in_double(y);
  };
  return {under_mask("b.attention.output.bias"), under_mask("b.feed_forward.second.bias")};
}

}  // namespace linnet
