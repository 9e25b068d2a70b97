#include "training/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "linnet/communicator.h"
#include "linnet/dataset.h"
#include "linnet/training.h"
#include "model/access.h"
#include "model/transformer.h"
#include "training/examples.h"
#include "training/pass_tree.h"

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
  ValueErrors(const Network& network, const Dataset& dataset) : dataset_(dataset) {
    if (!network.value_head()) return;
    const Columns::Shape& shape = network.columns()->shape();
    const std::int64_t count = network.config().target_count();
    const bool naive = network.config().shifted();
    filters_ = network.config().objective == Objective::same_step && shape.columns == count;
    if (!naive || count % shape.series() != 0) return;
    rows_.resize(static_cast<std::size_t>(count / shape.series()));
    columns_.resize(dataset.column_names().size());
  }

  /// Adds those of the last loss, for examples index(0), index(1), … The last number before a target, in a
  /// next-token model, is that of its column in the last row of the input.
  void add(const Network& network, const Heads& heads, const Batch& batch, const Examples::Index& index) {
    const Columns& columns = *network.columns();
    const View<const float> targets = heads.value_targets(), parameters = heads.value_parameters();
    const std::int64_t count = targets.extent(1), inputs = columns.shape().columns;
    const bool naive = network.config().shifted();
    const std::int64_t series = naive ? columns.shape().series() : 1;
    const View<const float> values(batch.values.data(), {targets.extent(0), inputs});
    for (std::int64_t i = 0; i < targets.extent(0); ++i) {
      const std::int64_t first = columns_.empty() ? 0 : dataset_.first_column(index(i / batch.length));
      for (std::int64_t t = 0; t < count; ++t) {
        if (std::isnan(targets(i, t))) continue;
        const double error = targets(i, t) - parameters(i, t);
        if (filters_) add_noise(batch, i * count + t, columns.deviation(t) * error);
        const float last =
            naive ? columns.last_numbers(values, i)(t % series) : std::numeric_limits<float>::quiet_NaN();
        const float target = batch.value_targets[static_cast<std::size_t>(i * count + t)];
        const double repeated = (target - last) / columns.deviation(t);
        all_.add(error, repeated);
        if (!rows_.empty()) rows_[static_cast<std::size_t>(t / series)].add(error, repeated);
        if (!columns_.empty()) columns_[static_cast<std::size_t>(first + t % series)].add(error, repeated);
      }
    }
  }

  template <class Real, class Count>
  void visit(const Real& real, const Count& count) {
    all_.visit(real, count);
    for (Sums& sums : rows_) sums.visit(real, count);
    for (Sums& sums : columns_) sums.visit(real, count);
    for (double* number : {&signal_, &input_noise_, &noise_}) real(*number);
  }

  void write(Evaluation& result) const {
    const Evaluation::NumberErrors all = all_.means();
    result.squared_error = all.squared;
    result.absolute_error = all.absolute;
    result.naive_squared_error = all.naive_squared;
    result.naive_absolute_error = all.naive_absolute;
    for (const Sums& sums : columns_) result.column_errors.push_back(sums.means());
    for (const Sums& sums : rows_) result.row_errors.push_back(sums.means());
    if (!filters_ || std::isnan(all.squared)) return;
    result.input_signal_to_noise = 10 * std::log10(signal_ / input_noise_);
    result.signal_to_noise = 10 * std::log10(signal_ / noise_);
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

  struct Sums {
    double squared = 0, absolute = 0, naive_squared = 0, naive_absolute = 0;
    std::int64_t count = 0, naive_count = 0;

    /// The errors of the model, and of repeating the last number: NaN where there is none.
    void add(double error, double repeated) {
      squared += error * error;
      absolute += std::abs(error);
      ++count;
      if (std::isnan(repeated)) return;
      naive_squared += repeated * repeated;
      naive_absolute += std::abs(repeated);
      ++naive_count;
    }

    template <class Real, class Count>
    void visit(const Real& real, const Count& of_numbers) {
      for (double* number : {&squared, &absolute, &naive_squared, &naive_absolute}) real(*number);
      for (std::int64_t* number : {&count, &naive_count}) of_numbers(*number);
    }

    Evaluation::NumberErrors means() const {
      Evaluation::NumberErrors result;
      if (count > 0) {
        result.squared = squared / static_cast<double>(count);
        result.absolute = absolute / static_cast<double>(count);
      }
      if (naive_count > 0) {
        result.naive_squared = naive_squared / static_cast<double>(naive_count);
        result.naive_absolute = naive_absolute / static_cast<double>(naive_count);
      }
      return result;
    }
  };

  const Dataset& dataset_;
  Sums all_;
  std::vector<Sums> rows_, columns_;
  double signal_ = 0, input_noise_ = 0, noise_ = 0;
  bool filters_ = false;
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
      const OutputHead& head = network_.field_head(f);
      const View<const float> parameters = f == 0 ? heads.parameters() : heads.field_parameters(f);
      if (fields > 1) {
        head.loss(context, losses_, {}, parameters, targets_, 1);
        for (const float loss : losses_) nats_[f] += loss;
      }
      counted_[f] += std::ranges::count_if(targets_, [](std::int32_t target) { return target >= 0; });
      if (!accuracy) continue;
      const auto found = most_probable(context, head, parameters, targets_);
      for (std::size_t i = 0; i < rows; ++i) right_ += targets_[i] >= 0 && found[i] == targets_[i];
      const std::size_t length = rows / static_cast<std::size_t>(batch.examples);
      for (std::size_t first = 0; first < rows; first += length) {
        const auto of_example = [&](const auto& all) { return std::span(all).subspan(first, length); };
        exact_ += std::ranges::equal(of_example(found), of_example(targets_));
      }
    }
  }

  template <class Real, class Count>
  void visit(const Real& real, const Count& count) {
    for (double& nats : nats_) real(nats);
    for (std::int64_t& tokens : counted_) count(tokens);
    count(right_);
    count(exact_);
  }

  void write(Evaluation& result, bool accuracy) const {
    const auto tokens = std::accumulate(counted_.begin(), counted_.end(), std::int64_t{0});
    if (accuracy)
      result.accuracy = static_cast<double>(right_) / static_cast<double>(std::max<std::int64_t>(tokens, 1));
    if (accuracy && nats_.size() == 1)
      result.exact =
          static_cast<double>(exact_) / static_cast<double>(std::max<std::int64_t>(result.examples, 1));
    if (nats_.size() < 2) return;
    for (std::size_t f = 0; f < nats_.size(); ++f)
      result.field_bits.push_back(nats_[f] / std::numbers::ln2 /
                                  static_cast<double>(std::max<std::int64_t>(counted_[f], 1)));
  }

 private:
  const Network& network_;
  std::vector<double> nats_;
  std::vector<std::int64_t> counted_;
  std::int64_t right_ = 0, exact_ = 0;
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

  template <class Count>
  void visit(const Count& count) {
    count(right_);
    count(counted_);
    for (std::int64_t& labels : table_) count(labels);
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

/// All that is summed over the examples.
struct Sums {
  Sums(const Network& network, const Dataset& dataset)
      : values(network, dataset),
        fields(network),
        confusion(network.config().classifies() ? network.config().classes : 0) {}

  template <class Real, class Count>
  void visit(const Real& real, const Count& count) {
    for (double* number : {&nats, &token_nats, &value_nats}) real(*number);
    for (std::int64_t* number : {&tokens, &numbers, &non_positive}) count(*number);
    values.visit(real, count);
    fields.visit(real, count);
    confusion.visit(count);
  }

  double nats = 0, token_nats = 0, value_nats = 0;
  std::int64_t tokens = 0, numbers = 0, non_positive = 0;
  ValueErrors values;
  FieldLosses fields;
  Confusion confusion;
};

/// Adds the real numbers of every batch in the order of batches, whichever rank has computed them, so that
/// the result does not depend on the number of ranks. Counts are exact in any order.
class SumOverBatches {
 public:
  SumOverBatches(Sums& sums, std::int64_t batches, Communicator* ranks) : sums_(sums), ranks_(ranks) {
    if (ranks_ != nullptr)
      own_ = passes_of(batches, ranks_->rank(), ranks_->size());
    else
      own_ = {0, batches};
    sums_.visit([&](double) { total_.push_back(0); }, [](std::int64_t) {});
    if (ranks_ != nullptr) of_batches_.resize(total_.size() * static_cast<std::size_t>(batches));
  }

  /// Batches of this rank.
  PassRange own() const { return own_; }

  /// The sums of a batch are there. Clears their real numbers.
  void end_batch(std::int64_t batch) {
    std::size_t i = 0;
    double* const kept =
        ranks_ != nullptr ? of_batches_.data() + static_cast<std::size_t>(batch) * total_.size() : nullptr;
    sums_.visit(
        [&](double& number) {
          if (kept != nullptr)
            kept[i] = number;
          else
            total_[i] += number;
          number = 0;
          ++i;
        },
        [](std::int64_t) {});
  }

  /// Leaves the sums over all batches.
  void finish() {
    std::vector<std::int64_t> counts;
    if (ranks_ != nullptr) {
      ranks_->sum(std::span(of_batches_));  // the numbers of one rank, and zeros
      for (std::size_t i = 0; i < of_batches_.size(); ++i) total_[i % total_.size()] += of_batches_[i];
      sums_.visit([](double) {}, [&](std::int64_t count) { counts.push_back(count); });
      ranks_->sum(std::span(counts));
    }
    auto number = total_.begin();
    auto count = counts.begin();
    sums_.visit([&](double& sum) { sum = *number++; },
                [&](std::int64_t& sum) { sum = ranks_ != nullptr ? *count++ : sum; });
  }

 private:
  Sums& sums_;
  Communicator* ranks_;
  PassRange own_;
  std::vector<double> total_, of_batches_;
};

}  // namespace

Evaluation evaluate(Context& context, const Network& network, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy, const TokenLossCallback& on_token,
                    Communicator* ranks) {
  if (examples < 0) fail<UsageError>("evaluate", "expected at least 0 examples (0: all), got {}", examples);
  if (batch < 1) fail<UsageError>("evaluate", "expected a batch of at least 1 example, got {}", batch);
  const ModelConfig& config = network.config();
  check_fit(config, dataset);
  const std::int64_t size = dataset.size();
  const std::int64_t count = examples == 0 ? size : std::min(examples, size);

  if (on_token && (!network.has_head() || config.field_sizes().size() != 1 || network.value_head()))
    fail<UsageError>("evaluate", "expected a model of one token per step for losses by token, got another");
  Transformer transformer(network);
  Examples chosen;
  Evaluation result;
  Sums sums(network, dataset);
  SumOverBatches all(sums, (count + batch - 1) / batch, ranks);
  std::vector<float> losses;
  for (std::int64_t part = all.own().first; part < all.own().last; ++part) {
    const std::int64_t first = part * batch;
    const std::int64_t here = std::min(batch, count - first);
    const auto index = [&](std::int64_t i) { return (first + i) * size / count; };
    const Batch pass = chosen.read(context, dataset, config, here, index,
                                   {Random(0, Draw::masking, evaluation_masks), index});
    check_batch("evaluate", config, pass);
    if (on_token) losses.resize(pass.targets.size());
    sums.nats = transformer.loss(context, pass_of(pass), losses);
    if (!std::isfinite(sums.nats))
      fail("evaluate", "expected a finite loss, got {} from examples {} … {}", sums.nats, index(0),
           index(here - 1));
    if (on_token) report_tokens(pass.targets, losses, config.length, index, on_token);
    sums.tokens += counted_targets(pass);
    const Heads& heads = transformer.heads();
    sums.token_nats = heads.token_nats();
    sums.value_nats = heads.value_nats();
    sums.numbers += std::ranges::count_if(pass.value_targets, [](float value) { return !std::isnan(value); });
    if (network.has_head()) sums.fields.add(context, heads, pass, accuracy);
    if (network.value_head()) sums.values.add(network, heads, pass, index);
    if (network.classifier() != nullptr) sums.confusion.add(context, network, heads, pass.labels);
    all.end_batch(part);
  }
  sums.non_positive = transformer.non_positive();
  all.finish();
  result.examples = count;
  result.tokens = sums.tokens;
  result.bits = sums.nats / std::numbers::ln2 / static_cast<double>(std::max<std::int64_t>(result.tokens, 1));
  const std::int64_t of_decoder = config.length * config.layers * (config.has_encoder() ? 2 : 1),
                     of_encoder = config.source_length * config.encoder_layers;
  const auto queries = static_cast<double>(count * config.heads * (of_decoder + of_encoder));
  result.non_positive = static_cast<double>(sums.non_positive) / std::max(queries, 1.0);
  result.perplexity = std::exp2(result.bits);
  result.accuracy = std::numeric_limits<double>::quiet_NaN();
  if (network.has_head() && network.value_head()) {
    const std::int64_t tokens = result.tokens - sums.numbers;
    result.token_bits =
        sums.token_nats / std::numbers::ln2 / static_cast<double>(std::max<std::int64_t>(tokens, 1));
    result.value_nats = sums.value_nats / static_cast<double>(std::max<std::int64_t>(sums.numbers, 1));
    result.numbers = sums.numbers;
  }
  if (network.has_head()) sums.fields.write(result, accuracy);
  if (network.value_head()) sums.values.write(result);
  if (network.classifier() != nullptr) sums.confusion.write(result);
  return result;
}

Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy, const TokenLossCallback& on_token) {
  check_assets(model.assets(), dataset);
  return evaluate(context, network_of(model), dataset, examples, batch, accuracy, on_token);
}

}  // namespace linnet
