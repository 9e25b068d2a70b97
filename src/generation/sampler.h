#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "layers/head.h"
#include "linnet/generation.h"

namespace linnet {

/// Chooses tokens; one object serves one thread and allocates nothing after construction.
class Sampler {
 public:
  explicit Sampler(const OutputHead& head);

  /// What changes the logits [vocabulary] of a token before it is drawn.
  using Change = FunctionReference<void(std::span<float>)>;

  /// A token for `position` of a stream, from the head's parameters [1, outputs]; `change` may be null.
  std::int32_t sample(Context& context, View<const float> parameters, const SamplingOptions& options,
                      std::int64_t position, const Change* change = nullptr);

  /// Of a token under these parameters, whatever the sampling options.
  float log_probability(Context& context, View<const float> parameters, std::int32_t token) const;

 private:
  const OutputHead& head_;
  Tensor workspace_;
  std::vector<std::int32_t> order_;
};

}  // namespace linnet
