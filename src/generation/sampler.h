#pragma once

#include <cstdint>
#include <vector>

#include "layers/head.h"
#include "linnet/generation.h"

namespace linnet {

/// Chooses tokens; one object serves one thread and allocates nothing after construction.
class Sampler {
 public:
  explicit Sampler(const OutputHead& head);

  /// A token for `position` of a stream, from the head's parameters [outputs].
  std::int32_t sample(Context& context, View<const float> parameters, const SamplingOptions& options,
                      std::int64_t position);

 private:
  const OutputHead& head_;
  Tensor workspace_;
  std::vector<std::int32_t> order_;
};

}  // namespace linnet
