#pragma once

#include <algorithm>
#include <cstdint>

#include "base/fail.h"
#include "kernels/dense.h"
#include "linnet/layer_types.h"

namespace linnet {

// What sessions of tokens and of numbers share.

/// Throws UsageError, naming the kind of session, for a number of streams that none can have.
inline void check_streams(const char* session, std::int64_t streams) {
  constexpr std::int64_t most = 1 << 20;
  if (streams < 1 || streams > most)
    fail<UsageError>(session, "expected 1 … {} streams, got {}", most, streams);
}

/// Throws Error for a stream in which a step failed between two layers of its state.
inline void check_whole(const char* operation, bool broken, std::int64_t index) {
  if (broken)
    fail(operation,
         "expected a stream that can continue, got stream {}, in which a step failed halfway: begin it anew, "
         "or restore it",
         index);
}

/// Streams that one thread takes through all layers together where `count` are stepped of a model with
/// weights of that type. Rows do not influence each other, so the split may follow the number of threads.
inline std::int64_t block_of(std::int64_t count, std::int64_t threads, WeightType weights) {
  constexpr std::int64_t most_block = 64;
  // Up to so many streams reading the weights takes longer than anything else: they stay together, and all
  // threads share their products. Narrow weights are read sooner.
  static const std::int64_t most_of_bf16 = kernels::multiplies_fast(WeightType::bf16) ? 4 : 8;
  const std::int64_t most_together = weights == WeightType::f32    ? 8
                                     : weights == WeightType::bf16 ? most_of_bf16
                                                                   : 2;
  const std::int64_t share = count <= most_together ? count : (count + threads - 1) / threads;
  return std::clamp<std::int64_t>(share, 1, most_block);
}

}  // namespace linnet
