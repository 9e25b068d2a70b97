#include "generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "base/random.h"

namespace linnet {

void SamplingOptions::check() const {
  if (!(temperature >= 0) || !std::isfinite(temperature))
    fail<UsageError>("sampling", "expected a finite temperature of at least 0, got {}", temperature);
  if (top_k < 1) fail<UsageError>("sampling", "expected top-k of at least 1, got {}", top_k);
  if (!(top_p > 0 && top_p <= 1))
    fail<UsageError>("sampling", "expected top-p above 0 and at most 1, got {}", top_p);
}

Sampler::Sampler(const OutputHead& head)
    : head_(head),
      workspace_(Tensor::of<float>({std::max(head.vocabulary(), head.outputs())})),
      order_(static_cast<std::size_t>(head.vocabulary())) {}

std::int32_t Sampler::sample(Context& context, View<const float> parameters, const SamplingOptions& options,
                             std::int64_t position, const Change* change) {
  const Random random(options.seed, Draw::sampling);
  const std::uint64_t index = 2 * static_cast<std::uint64_t>(position);
  const float u1 = random.uniform(index), u2 = random.uniform(index + 1);
  const std::int64_t vocabulary = head_.vocabulary();
  const bool as_they_are = options.temperature == 1 && options.top_k >= vocabulary && options.top_p == 1;
  if (as_they_are && change == nullptr)
    return head_.sample(context, parameters, u1, u2, workspace_.span<float>());

  const View<float> view = workspace_.view<float>().slice(0, 0, vocabulary);
  head_.logits(context, view, parameters);
  const std::span<float> logits(view.data(), static_cast<std::size_t>(vocabulary));
  if (change != nullptr) (*change)(logits);
  if (as_they_are)
    return static_cast<std::int32_t>(draw_from_logits(context, logits.data(), vocabulary, u1, logits));
  if (options.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

  // Most probable first; ties by the smaller token, so that the order is the same everywhere.
  std::iota(order_.begin(), order_.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const std::int64_t kept = std::min(options.top_k, vocabulary);
  std::partial_sort(order_.begin(), order_.begin() + kept, order_.end(), before);
  const double largest = logits[order_[0]];
  const auto weight = [&](std::int64_t rank) {
    return std::exp((logits[order_[rank]] - largest) / options.temperature);
  };
  double total = 0;
  for (std::int64_t rank = 0; rank < kept; ++rank) total += weight(rank);
  double nucleus = 0;
  std::int64_t count = 0;
  while (count < kept && (count == 0 || nucleus < options.top_p * total)) nucleus += weight(count++);
  double rest = u1 * nucleus;
  for (std::int64_t rank = 0; rank + 1 < count; ++rank) {
    rest -= weight(rank);
    if (rest < 0) return order_[rank];
  }
  return order_[count - 1];
}

float Sampler::log_probability(Context& context, View<const float> parameters, std::int32_t token) const {
  float loss = 0;
  head_.loss(context, std::span(&loss, 1), {}, parameters, std::span(&token, 1), 1);
  return -loss;
}

}  // namespace linnet
