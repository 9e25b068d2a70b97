#include "training/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

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

/// The most probable value under each row of parameters whose target is not negative, −1 elsewhere.
std::vector<std::int32_t> most_probable(Context& context, const OutputHead& head,
                                        View<const float> parameters, std::span<const std::int32_t> targets) {
  std::vector<std::int32_t> found(targets.size(), -1);
  parallel_blocks(
      context, static_cast<std::int64_t>(targets.size()), 256,
      [&](Context& own, std::int64_t begin, std::int64_t end) {
        Workspace workspace(own);
        const std::span<float> values = workspace.array<float>(head.vocabulary());
        for (std::int64_t i = begin; i < end; ++i) {
          if (targets[i] < 0) continue;
          head.logits(own, View<float>(values.data(), {head.vocabulary()}), parameters.slice(0, i, i + 1));
          found[i] =
              static_cast<std::int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
        }
      });
  return found;
}

/// Sums over the real numbers that count, in deviations of the training data.
class ValueErrors {
 public:
  /// Adds those of the last loss. The last number before a step is the input of its row in a next-token
  /// model: target t is compared with column t mod columns.
  void add(const Network& network, const Heads& heads, const Batch& batch) {
    const Columns& columns = *network.columns();
    const View<const float> targets = heads.value_targets(), parameters = heads.value_parameters();
    const std::int64_t count = targets.extent(1), inputs = columns.shape().columns;
    const bool naive = network.config().shifted();
    filters_ = network.config().objective == Objective::same_step && inputs == count;
    for (std::int64_t i = 0; i < targets.extent(0); ++i)
      for (std::int64_t t = 0; t < count; ++t) {
        if (std::isnan(targets(i, t))) continue;
        const double error = targets(i, t) - parameters(i, t);
        squared_ += error * error;
        absolute_ += std::abs(error);
        ++counted_;
        if (filters_) add_noise(batch, i * count + t, columns.deviation(t) * error);
        if (!naive) continue;
        const float last = batch.values[static_cast<std::size_t>(i * inputs + t % inputs)];
        if (std::isnan(last)) continue;
        const float target = batch.value_targets[static_cast<std::size_t>(i * count + t)];
        const double step = (target - last) / columns.deviation(t);
        naive_squared_ += step * step;
        naive_absolute_ += std::abs(step);
        ++naive_counted_;
      }
  }

  void write(Evaluation& result) const {
    if (counted_ == 0) return;
    if (filters_) {
      result.input_signal_to_noise = 10 * std::log10(signal_ / input_noise_);
      result.signal_to_noise = 10 * std::log10(signal_ / noise_);
    }
    result.squared_error = squared_ / static_cast<double>(counted_);
    result.absolute_error = absolute_ / static_cast<double>(counted_);
    if (naive_counted_ == 0) return;
    result.naive_squared_error = naive_squared_ / static_cast<double>(naive_counted_);
    result.naive_absolute_error = naive_absolute_ / static_cast<double>(naive_counted_);
  }

 private:
  /// `error` of number k, in the units of the data. A missing input is no input to compare with.
  void add_noise(const Batch& batch, std::int64_t k, double error) {
    const double input = batch.values[static_cast<std::size_t>(k)],
                 target = batch.value_targets[static_cast<std::size_t>(k)];
    if (std::isnan(input)) return;
    signal_ += target * target;
    input_noise_ += (target - input) * (target - input);
    noise_ += error * error;
  }

  double squared_ = 0, absolute_ = 0, naive_squared_ = 0, naive_absolute_ = 0;
  double signal_ = 0, input_noise_ = 0, noise_ = 0;
  bool filters_ = false;
  std::int64_t counted_ = 0, naive_counted_ = 0;
};

/// Bits per token of every field, and the right tokens of all.
class FieldLosses {
 public:
  explicit FieldLosses(const Network& network)
      : network_(network), nats_(network.config().field_sizes().size()), counted_(nats_.size()) {}

  void add(Context& context, const Heads& heads, const Batch& batch, bool accuracy) {
    const std::size_t fields = nats_.size(), rows = batch.targets.size() / fields;
    targets_.resize(rows);
    losses_.resize(rows);
    for (std::size_t f = 0; f < fields; ++f) {
      for (std::size_t i = 0; i < rows; ++i) targets_[i] = batch.targets[i * fields + f];
      const OutputHead& head = f == 0 ? network_.head() : network_.later_fields()[f - 1].head();
      const View<const float> parameters = f == 0 ? heads.parameters() : heads.field_parameters(f);
      if (fields > 1) {
        head.loss(context, losses_, {}, parameters, targets_, 1);
        for (const float loss : losses_) nats_[f] += loss;
      }
      counted_[f] += std::ranges::count_if(targets_, [](std::int32_t target) { return target >= 0; });
      if (!accuracy) continue;
      const auto found = most_probable(context, head, parameters, targets_);
      for (std::size_t i = 0; i < rows; ++i) right_ += targets_[i] >= 0 && found[i] == targets_[i];
    }
  }

  void write(Evaluation& result, bool accuracy) const {
    const auto tokens = std::accumulate(counted_.begin(), counted_.end(), std::int64_t{0});
    if (accuracy)
      result.accuracy = static_cast<double>(right_) / static_cast<double>(std::max<std::int64_t>(tokens, 1));
    if (nats_.size() < 2) return;
    for (std::size_t f = 0; f < nats_.size(); ++f)
      result.field_bits.push_back(nats_[f] / std::numbers::ln2 /
                                  static_cast<double>(std::max<std::int64_t>(counted_[f], 1)));
  }

 private:
  const Network& network_;
  std::vector<double> nats_;
  std::vector<std::int64_t> counted_;
  std::int64_t right_ = 0;
  std::vector<std::int32_t> targets_;
  std::vector<float> losses_;
};

/// Which labels were given.
class Confusion {
 public:
  explicit Confusion(std::int64_t classes)
      : classes_(classes),
        table_(classes <= Evaluation::most_confused ? static_cast<std::size_t>(classes * classes) : 0) {}

  void add(Context& context, const Network& network, const Heads& heads,
           std::span<const std::int32_t> labels) {
    const auto found = most_probable(context, *network.classifier(), heads.parameters(), labels);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] < 0) continue;
      ++counted_;
      right_ += labels[i] == found[i];
      if (!table_.empty()) ++table_[static_cast<std::size_t>(labels[i] * classes_ + found[i])];
    }
  }

  void write(Evaluation& result) const {
    result.accuracy = static_cast<double>(right_) / static_cast<double>(std::max<std::int64_t>(counted_, 1));
    result.confusion = table_;
  }

 private:
  std::int64_t classes_, counted_ = 0, right_ = 0;
  std::vector<std::int64_t> table_;  // empty for too many classes
};

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

  if (on_token && (!network.has_head() || !network.later_fields().empty() || network.value_head()))
    fail<UsageError>("evaluate", "expected a model of one token per step for losses by token, got another");
  Transformer transformer(network);
  Examples chosen;
  Evaluation result;
  ValueErrors values;
  FieldLosses fields(network);
  Confusion confusion(config.classifies() ? config.classes : 0);
  double nats = 0;
  std::vector<float> losses;
  for (std::int64_t first = 0; first < count; first += batch) {
    const std::int64_t here = std::min(batch, count - first);
    const auto index = [&](std::int64_t i) { return (first + i) * size / count; };
    const Batch pass = chosen.read(context, dataset, config, here, index,
                                   {Random(0, Draw::masking, evaluation_masks), index});
    check_batch("evaluate", config, pass);
    if (on_token) losses.resize(pass.targets.size());
    nats += transformer.loss(context, pass_of(pass), losses);
    if (!std::isfinite(nats))
      fail("evaluate", "expected a finite loss, got {} from examples {} … {}", nats, index(0),
           index(here - 1));
    if (on_token) report_tokens(pass.targets, losses, config.length, index, on_token);
    result.tokens += counted_targets(pass);
    const Heads& heads = transformer.heads();
    if (network.has_head()) fields.add(context, heads, pass, accuracy);
    if (network.value_head()) values.add(network, heads, pass);
    if (network.classifier() != nullptr) confusion.add(context, network, heads, pass.labels);
  }
  result.examples = count;
  result.bits = nats / std::numbers::ln2 / static_cast<double>(std::max<std::int64_t>(result.tokens, 1));
  const auto queries = static_cast<double>(count * config.length * config.layers * config.heads);
  result.non_positive = static_cast<double>(transformer.non_positive()) / std::max(queries, 1.0);
  result.perplexity = std::exp2(result.bits);
  result.accuracy = std::numeric_limits<double>::quiet_NaN();
  if (network.has_head()) fields.write(result, accuracy);
  if (network.value_head()) values.write(result);
  if (network.classifier() != nullptr) confusion.write(result);
  return result;
}

Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy, const TokenLossCallback& on_token) {
  return evaluate(context, network_of(model), dataset, examples, batch, accuracy, on_token);
}

}  // namespace linnet
