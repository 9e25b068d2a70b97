#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "base/workspace.h"
#include "layers/head.h"
#include "linnet/generation.h"

namespace linnet {

/// Chooses tokens. Its working memory is that of the context that it is given.
class Sampler {
 public:
  explicit Sampler(const OutputHead& head) : head_(head) {}

  /// Takes the memory of the context that draws need: they allocate nothing then.
  void reserve(Context& context) const;

  /// What changes the logits [vocabulary] of a token before it is drawn.
  using Change = FunctionReference<void(std::span<float>)>;

  /// A token for `position` of a stream, from the head's parameters [1, outputs]; `change` may be null.
  std::int32_t sample(Context& context, View<const float> parameters, const SamplingOptions& options,
                      std::int64_t position, const Change* change = nullptr) const;

  /// Of a token under these parameters, whatever the sampling options.
  float log_probability(Context& context, View<const float> parameters, std::int32_t token) const;

 private:
  /// Working memory of one draw.
  struct Memory {
    Memory(Context& context, const OutputHead& head);
    Workspace workspace;
    std::span<float> logits, shares;  ///< the first one as the head's `sample` needs it
    std::span<std::int32_t> order;
  };

  const OutputHead& head_;
};

}  // namespace linnet
