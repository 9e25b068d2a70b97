#include "generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "base/random.h"
#include "kernels/loss.h"

namespace linnet {
namespace {

/// More probable first; of equal ones the smaller token, so that the order is the same everywhere.
struct MoreProbable {
  std::span<const float> logits;
  bool operator()(std::int32_t a, std::int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

/// Moves the nucleus to the front of `order`, memory for a number per token, and returns it: the fewest of
/// the `top_k` most probable tokens that have the share `top_p` of what these have together, one at least.
/// Takes linear time: shares are added up as whole numbers, in any order, and halves of what is left are
/// looked at alone.
std::span<std::int32_t> find_nucleus(std::span<const float> logits, std::span<const float> shares,
                                     std::span<std::int32_t> order, const SamplingOptions& options) {
  constexpr double units = 1ll << 40;
  constexpr std::ptrdiff_t few = 64;
  const MoreProbable before{logits};
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t kept = std::min(options.top_k, static_cast<std::int64_t>(order.size()));
  auto begin = order.begin(), end = begin + kept;
  // A few of many are found soonest by a heap of them.
  constexpr std::ptrdiff_t many = 8;
  if (many * kept < std::ssize(order))
    std::partial_sort(begin, end, order.end(), before);
  else if (end != order.end())
    std::nth_element(begin, end - 1, order.end(), before);
  if (options.top_p == 1) return {order.begin(), end};
  const auto share_of = [&](auto from, auto to) {
    std::uint64_t sum = 0;
    for (; from != to; ++from) sum += static_cast<std::uint64_t>(static_cast<double>(shares[*from]) * units);
    return static_cast<double>(sum);
  };
  double wanted = options.top_p * share_of(begin, end);
  if (end - begin > few) {
    std::partial_sort(begin, begin + few, end, before);
    if (share_of(begin, begin + few) >= wanted) end = begin + few;
  }
  while (end - begin > few) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    const double first_half = share_of(begin, middle);
    if (first_half >= wanted) {
      end = middle;
    } else {
      wanted -= first_half;
      begin = middle;
    }
  }
  std::sort(begin, end, before);
  while (begin + 1 != end && (wanted -= share_of(begin, begin + 1)) > 0) ++begin;
  return {order.begin(), begin + 1};
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
  Memory memory(context, head_);
  if (all_tokens && options.temperature == 1 && change == nullptr)
    return head_.sample(context, parameters, u1, u2, memory.logits);

  const std::span<float> logits = memory.logits.first(static_cast<std::size_t>(vocabulary));
  const View<float> view(logits.data(), {vocabulary});
  head_.logits(context, view, parameters);
  if (change != nullptr) (*change)(logits);
  if (options.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::span<float> shares = memory.shares;
  const double largest = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < logits.size(); ++i)
    shares[i] = static_cast<float>((logits[i] - largest) / options.temperature);
  if (all_tokens)
    return static_cast<std::int32_t>(draw_from_logits(context, shares.data(), vocabulary, u1, shares));
  const View<float> row(shares.data(), {1, vocabulary});
  kernels::softmax_rows(context, row, row);
  const std::span<std::int32_t> nucleus = find_nucleus(logits, shares, memory.order, options);
  std::sort(nucleus.begin(), nucleus.end());  // the draw is in the order of tokens
  return nucleus[index_at(u1, std::ssize(nucleus), [&](std::int64_t i) { return shares[nucleus[i]]; })];
}

float Sampler::log_probability(Context& context, View<const float> parameters, std::int32_t token) const {
  float loss = 0;
  head_.loss(context, std::span(&loss, 1), {}, parameters, std::span(&token, 1), 1);
  return -loss;
}

}  // namespace linnet
