#include "generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "base/random.h"
#include "kernels/loss.h"

namespace linnet {
namespace {

/// The token at `u` of the nucleus among the `top_k` most probable ones: the fewest that have the share
/// `top_p` of what these have together. Most probable first; ties by the smaller token, so that the order is
/// the same everywhere. No more of the order is found than the nucleus needs.
std::int32_t draw_among_the_most_probable(std::span<const float> logits, std::span<const float> shares,
                                          std::span<std::int32_t> order, const SamplingOptions& options,
                                          float u) {
  constexpr std::int64_t first_part = 64, growth = 4;
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::int64_t sorted = 0;
  const auto sort_up_to = [&](std::int64_t end) {
    std::partial_sort(order.begin() + sorted, order.begin() + end, order.end(), before);
    sorted = end;
  };
  const std::int64_t all = std::ssize(order), kept = std::min(options.top_k, all);
  double total = 0;
  if (kept == all) {
    for (const float share : shares) total += share;
  } else {
    sort_up_to(kept);
    for (const std::int32_t token : order.first(static_cast<std::size_t>(kept))) total += shares[token];
  }
  double nucleus = 0;
  std::int64_t count = 0;
  while (count < kept && (count == 0 || nucleus < options.top_p * total)) {
    if (count == sorted) sort_up_to(std::min(kept, std::max(first_part, growth * sorted)));
    nucleus += shares[order[count++]];
  }
  double rest = u * nucleus;
  for (std::int64_t rank = 0; rank + 1 < count; ++rank) {
    rest -= shares[order[rank]];
    if (rest < 0) return order[rank];
  }
  return order[count - 1];
}

}  // namespace

void SamplingOptions::check() const {
  if (!(temperature >= 0) || !std::isfinite(temperature))
    fail<UsageError>("sampling", "expected a finite temperature of at least 0, got {}", temperature);
  if (top_k < 1) fail<UsageError>("sampling", "expected top-k of at least 1, got {}", top_k);
  if (!(top_p > 0 && top_p <= 1))
    fail<UsageError>("sampling", "expected top-p above 0 and at most 1, got {}", top_p);
}

Sampler::Memory::Memory(Context& context, const OutputHead& head)
    : workspace(context),
      logits(workspace.array<float>(std::max(head.vocabulary(), head.outputs()))),
      shares(workspace.array<float>(head.vocabulary())),
      order(workspace.array<std::int32_t>(head.vocabulary())) {}

void Sampler::reserve(Context& context) const { Memory(context, head_); }

std::int32_t Sampler::sample(Context& context, View<const float> parameters, const SamplingOptions& options,
                             std::int64_t position, const Change* change) const {
  const Random random(options.seed, Draw::sampling);
  const std::uint64_t index = 2 * static_cast<std::uint64_t>(position);
  const float u1 = random.uniform(index), u2 = random.uniform(index + 1);
  const std::int64_t vocabulary = head_.vocabulary();
  const bool all_tokens = options.top_k >= vocabulary && options.top_p == 1;
  const bool as_they_are = all_tokens && options.temperature == 1;
  Memory memory(context, head_);
  if (as_they_are && change == nullptr) return head_.sample(context, parameters, u1, u2, memory.logits);

  const std::span<float> logits = memory.logits.first(static_cast<std::size_t>(vocabulary));
  const View<float> view(logits.data(), {vocabulary});
  head_.logits(context, view, parameters);
  if (change != nullptr) (*change)(logits);
  if (options.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::span<float> shares = memory.shares;
  const double largest = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < logits.size(); ++i)
    shares[i] = as_they_are ? logits[i] : static_cast<float>((logits[i] - largest) / options.temperature);
  if (all_tokens)
    return static_cast<std::int32_t>(draw_from_logits(context, shares.data(), vocabulary, u1, shares));
  const View<float> row(shares.data(), {1, vocabulary});
  kernels::softmax_rows(context, row, row);
  return draw_among_the_most_probable(logits, shares, memory.order, options, u1);
}

float Sampler::log_probability(Context& context, View<const float> parameters, std::int32_t token) const {
  float loss = 0;
  head_.loss(context, std::span(&loss, 1), {}, parameters, std::span(&token, 1), 1);
  return -loss;
}

}  // namespace linnet
