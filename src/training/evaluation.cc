#include "training/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "linnet/dataset.h"
#include "linnet/training.h"
#include "model/access.h"
#include "model/transformer.h"
#include "training/examples.h"

namespace linnet {
namespace {

/// Targets that are the most probable value under their row of parameters.
std::int64_t count_right(Context& context, const OutputHead& head, View<const float> parameters,
                         std::span<const std::int32_t> targets) {
  std::vector<std::uint8_t> right(targets.size());
  parallel_blocks(
      context, static_cast<std::int64_t>(targets.size()), 256,
      [&](Context& own, std::int64_t begin, std::int64_t end) {
        Workspace workspace(own);
        const std::span<float> values = workspace.array<float>(head.vocabulary());
        for (std::int64_t i = begin; i < end; ++i) {
          if (targets[i] < 0) continue;
          head.logits(own, View<float>(values.data(), {head.vocabulary()}), parameters.slice(0, i, i + 1));
          right[i] = std::max_element(values.begin(), values.end()) - values.begin() == targets[i];
        }
      });
  return std::count(right.begin(), right.end(), 1);
}

void report_tokens(std::span<const std::int32_t> targets, std::span<const float> losses, std::int64_t length,
                   const Examples::Index& index, const TokenLossCallback& on_token) {
  for (std::int64_t i = 0; i < std::ssize(targets); ++i)
    if (targets[i] >= 0) on_token({index(i / length), i % length, targets[i], losses[i]});
}

}  // namespace

Evaluation evaluate(Context& context, const Network& network, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy, const TokenLossCallback& on_token) {
  if (examples < 0) fail<UsageError>("evaluate", "expected at least 0 examples (0: all), got {}", examples);
  if (batch < 1) fail<UsageError>("evaluate", "expected a batch of at least 1 example, got {}", batch);
  const ModelConfig& config = network.config();
  check_fit(config, dataset);
  const std::int64_t size = dataset.size();
  const std::int64_t count = examples == 0 ? size : std::min(examples, size);

  Transformer transformer(network);
  Examples chosen;
  Evaluation result;
  double nats = 0;
  std::int64_t right = 0;
  std::vector<float> losses;
  for (std::int64_t first = 0; first < count; first += batch) {
    const std::int64_t here = std::min(batch, count - first);
    const auto index = [&](std::int64_t i) { return (first + i) * size / count; };
    const Batch pass = chosen.read(context, dataset, config, here, index,
                                   {Random(0, Draw::masking, evaluation_masks), index});
    check_batch("evaluate", config, pass);
    if (on_token) losses.resize(pass.targets.size());
    nats +=
        transformer.loss(context, pass.inputs, pass.targets, here, config.length, losses, pass.key_lengths);
    if (!std::isfinite(nats))
      fail("evaluate", "expected a finite loss, got {} from examples {} … {}", nats, index(0),
           index(here - 1));
    if (on_token) report_tokens(pass.targets, losses, config.length, index, on_token);
    result.tokens += counted_targets(pass);
    if (accuracy) right += count_right(context, network.head(), transformer.parameters(), pass.targets);
  }
  result.examples = count;
  result.bits = nats / std::numbers::ln2 / static_cast<double>(std::max<std::int64_t>(result.tokens, 1));
  const auto queries = static_cast<double>(count * config.length * config.layers * config.heads);
  result.non_positive = static_cast<double>(transformer.non_positive()) / std::max(queries, 1.0);
  result.perplexity = std::exp2(result.bits);
  result.accuracy =
      accuracy ? static_cast<double>(right) / static_cast<double>(std::max<std::int64_t>(result.tokens, 1))
               : std::numeric_limits<double>::quiet_NaN();
  return result;
}

Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy, const TokenLossCallback& on_token) {
  return evaluate(context, network_of(model), dataset, examples, batch, accuracy, on_token);
}

}  // namespace linnet
