#include "training/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "comm/gather.h"
#include "linnet/dataset.h"
#include "linnet/training.h"
#include "model/access.h"
#include "model/transformer.h"
#include "training/examples.h"
#include "training/tally.h"

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

/// The errors of the model, of repeating the last number and of repeating the last step, of some of the real
/// numbers.
class ErrorSums {
 public:
  /// In this order; of the others NaN where there is no last number or step.
  using Errors = std::array<double, 3>;

  explicit ErrorSums(Tally& tally) : tally_(&tally), sums_(tally.add_sums(6)), counts_(tally.add_counts(3)) {}

  void add(const Errors& errors) const {
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (i > 0 && std::isnan(errors[i])) continue;
      tally_->add(sums_ + 2 * i, errors[i] * errors[i]);
      tally_->add(sums_ + 2 * i + 1, std::abs(errors[i]));
      tally_->count(counts_ + i);
    }
  }

  Evaluation::NumberErrors means() const {
    Evaluation::NumberErrors result;
    double* const means[] = {&result.squared,        &result.absolute,         &result.naive_squared,
                             &result.naive_absolute, &result.seasonal_squared, &result.seasonal_absolute};
    for (std::size_t i = 0; i < std::size(means); ++i)
      if (const auto count = static_cast<double>(tally_->counted(counts_ + i / 2)); count > 0)
        *means[i] = tally_->sum(sums_ + i) / count;
    return result;
  }

 private:
  Tally* tally_;
  std::size_t sums_, counts_;
};

/// Sums over the real numbers that count, in deviations of the training data.
class ValueErrors {
 public:
  ValueErrors(const Network& network, const Dataset& dataset, Tally& tally)
      : network_(network), dataset_(dataset), tally_(tally), all_(tally), noise_(tally.add_sums(3)) {
    const ModelConfig& config = network.config();
    const std::int64_t count = config.target_count();
    filters_ = config.objective == Objective::same_step && config.columns == count;
    if (!config.shifted()) return;
    series_ = network.columns()->shape().series();
    if (count % series_ != 0) return;
    for (std::int64_t row = 0; row < count / series_; ++row) rows_.emplace_back(tally);
    const std::size_t names = dataset.column_names().size();
    if (names > 0 && std::ssize(dataset.column_names()) < series_)
      fail<UsageError>("evaluate", "expected names of at least {} columns, got {}", series_, names);
    for (std::size_t column = 0; column < names; ++column) columns_.emplace_back(tally);
  }

  /// Adds those of the last loss, for examples index(0), index(1), … The last number before a target, in a
  /// next-token model, is that of its column in the last row of the input.
  void add(const Heads& heads, const Batch& batch, const Examples::Index& index) {
    const Columns& columns = *network_.columns();
    const View<const float> targets = heads.value_targets(), parameters = heads.value_parameters();
    const std::int64_t count = targets.extent(1), inputs = columns.shape().columns;
    const View<const float> values(batch.values.data(), {targets.extent(0), inputs});
    for (std::int64_t i = 0; i < targets.extent(0); ++i) {
      const std::int64_t first = columns_.empty() ? 0 : dataset_.first_column(index(i / batch.length));
      if (!columns_.empty() && (first < 0 || first > std::ssize(columns_) - series_))
        fail<UsageError>("evaluate", "expected a first column in 0 … {}, got {}",
                         std::ssize(columns_) - series_, first);
      for (std::int64_t t = 0; t < count; ++t) {
        if (std::isnan(targets(i, t))) continue;
        const double error = targets(i, t) - parameters(i, t);
        if (filters_) add_noise(batch, i * count + t, columns.deviation(t) * error);
        const bool shifted = network_.config().shifted();
        const float target = batch.value_targets[static_cast<std::size_t>(i * count + t)];
        constexpr float none = std::numeric_limits<float>::quiet_NaN();
        const float last = shifted ? columns.last_numbers(values, i)(t % series_) : none;
        const float season = shifted && inputs > series_ ? values(i, t % inputs) : none;
        const ErrorSums::Errors errors = {error, (target - last) / columns.deviation(t),
                                          (target - season) / columns.deviation(t)};
        all_.add(errors);
        if (!rows_.empty()) rows_[static_cast<std::size_t>(t / series_)].add(errors);
        if (!columns_.empty()) columns_[static_cast<std::size_t>(first + t % series_)].add(errors);
      }
    }
  }

  void write(Evaluation& result) const {
    const Evaluation::NumberErrors all = all_.means();
    result.squared_error = all.squared;
    result.absolute_error = all.absolute;
    result.naive_squared_error = all.naive_squared;
    result.naive_absolute_error = all.naive_absolute;
    result.seasonal_squared_error = all.seasonal_squared;
    result.seasonal_absolute_error = all.seasonal_absolute;
    const std::vector<double> applied = dataset_.applied_statistics().deviation;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      result.column_errors.push_back(columns_[i].means());
      const double own = network_.columns()->deviation(static_cast<std::int64_t>(i) % series_);
      result.column_deviations.push_back(i < applied.size() && applied[i] > 0 ? own * applied[i] : own);
    }
    for (const ErrorSums& sums : rows_) result.row_errors.push_back(sums.means());
    if (!filters_ || std::isnan(all.squared)) return;
    const double signal = tally_.sum(noise_);
    result.input_signal_to_noise = 10 * std::log10(signal / tally_.sum(noise_ + 1));
    result.signal_to_noise = 10 * std::log10(signal / tally_.sum(noise_ + 2));
  }

 private:
  /// `error` of number k, in the units of the data. A missing input is no input to compare with.
  void add_noise(const Batch& batch, std::int64_t k, double error) {
    const double input = batch.values[static_cast<std::size_t>(k)],
                 target = batch.value_targets[static_cast<std::size_t>(k)];
    if (std::isnan(input)) return;
    tally_.add(noise_, target * target);
    tally_.add(noise_ + 1, (target - input) * (target - input));
    tally_.add(noise_ + 2, error * error);
  }

  const Network& network_;
  const Dataset& dataset_;
  Tally& tally_;
  ErrorSums all_;
  std::vector<ErrorSums> rows_, columns_;
  std::size_t noise_;  ///< squares of the signal, of the noise in inputs and of that in outputs
  std::int64_t series_ = 1;
  bool filters_ = false;
};

/// Bits per token of every field, and the right tokens of all.
class FieldLosses {
 public:
  FieldLosses(const Network& network, Tally& tally)
      : network_(network),
        tally_(tally),
        fields_(network.config().field_sizes().size()),
        nats_(tally.add_sums(fields_)),
        counted_(tally.add_counts(fields_)),
        right_(tally.add_counts(1)),
        exact_(tally.add_counts(1)) {}

  void add(Context& context, const Heads& heads, const Batch& batch, bool accuracy) {
    const std::size_t rows = batch.targets.size() / fields_;
    targets_.resize(rows);
    for (std::size_t f = 0; f < fields_; ++f) {
      for (std::size_t i = 0; i < rows; ++i) targets_[i] = batch.targets[i * fields_ + f];
      const OutputHead& head = network_.field_head(f);
      const View<const float> parameters = f == 0 ? heads.parameters() : heads.field_parameters(f);
      if (fields_ > 1)
        for (const float loss : heads.field_nll(f)) tally_.add(nats_ + f, loss);
      tally_.count(counted_ + f,
                   std::ranges::count_if(targets_, [](std::int32_t target) { return target >= 0; }));
      if (!accuracy) continue;
      const auto found = most_probable(context, head, parameters, targets_);
      for (std::size_t i = 0; i < rows; ++i)
        tally_.count(right_, targets_[i] >= 0 && found[i] == targets_[i]);
      const std::size_t length = rows / static_cast<std::size_t>(batch.examples);
      for (std::size_t first = 0; first < rows; first += length) {
        const auto of_example = [&](const auto& all) { return std::span(all).subspan(first, length); };
        tally_.count(exact_, std::ranges::equal(of_example(found), of_example(targets_)));
      }
    }
  }

  void write(Evaluation& result, bool accuracy) const {
    std::int64_t tokens = 0;
    for (std::size_t f = 0; f < fields_; ++f) tokens += tally_.counted(counted_ + f);
    if (accuracy)
      result.accuracy = static_cast<double>(tally_.counted(right_)) /
                        static_cast<double>(std::max<std::int64_t>(tokens, 1));
    if (accuracy && fields_ == 1)
      result.exact = static_cast<double>(tally_.counted(exact_)) /
                     static_cast<double>(std::max<std::int64_t>(result.examples, 1));
    if (fields_ < 2) return;
    for (std::size_t f = 0; f < fields_; ++f)
      result.field_bits.push_back(
          tally_.sum(nats_ + f) / std::numbers::ln2 /
          static_cast<double>(std::max<std::int64_t>(tally_.counted(counted_ + f), 1)));
  }

 private:
  const Network& network_;
  Tally& tally_;
  std::size_t fields_, nats_, counted_, right_, exact_;
  std::vector<std::int32_t> targets_;
};

/// Which labels were given.
class Confusion {
 public:
  Confusion(std::int64_t classes, Tally& tally)
      : classes_(classes),
        cells_(classes <= Evaluation::most_confused ? static_cast<std::size_t>(classes * classes) : 0),
        tally_(tally),
        counted_(tally.add_counts(1)),
        right_(tally.add_counts(1)),
        table_(tally.add_counts(cells_)) {}

  void add(Context& context, const Network& network, const Heads& heads,
           std::span<const std::int32_t> labels) {
    const auto found = most_probable(context, *network.classifier(), heads.parameters(), labels);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] < 0) continue;
      tally_.count(counted_);
      tally_.count(right_, labels[i] == found[i]);
      if (cells_ > 0) tally_.count(table_ + static_cast<std::size_t>(labels[i] * classes_ + found[i]));
    }
  }

  void write(Evaluation& result) const {
    result.accuracy = static_cast<double>(tally_.counted(right_)) /
                      static_cast<double>(std::max<std::int64_t>(tally_.counted(counted_), 1));
    for (std::size_t i = 0; i < cells_; ++i) result.confusion.push_back(tally_.counted(table_ + i));
  }

 private:
  std::int64_t classes_;
  std::size_t cells_;  // none for too many classes
  Tally& tally_;
  std::size_t counted_, right_, table_;
};

/// The measures of a network that its heads and options ask for, batch by batch.
class Measures {
 public:
  Measures(const Network& network, const Dataset& dataset, bool accuracy, bool by_token, Communicator& ranks)
      : network_(network),
        dataset_(dataset),
        accuracy_(accuracy),
        by_token_(by_token),
        transformer_(network),
        tally_(ranks),
        nats_(tally_.add_sums(1)),
        token_nats_(tally_.add_sums(1)),
        value_nats_(tally_.add_sums(1)),
        tokens_(tally_.add_counts(1)),
        numbers_(tally_.add_counts(1)),
        non_positive_(tally_.add_counts(1)) {
    if (network.has_head()) fields_.emplace(network, tally_);
    if (network.value_head()) values_.emplace(network, dataset, tally_);
    if (network.classifier() != nullptr) confusion_.emplace(network.config().classes, tally_);
  }

  Tally& tally() { return tally_; }
  double nats() const { return tally_.sum(nats_); }
  /// Of the last batch of this rank.
  std::vector<TokenLoss>& token_losses() { return token_losses_; }

  void add(Context& context, std::int64_t examples, const Examples::Index& index) {
    const ModelConfig& config = network_.config();
    const Batch pass = chosen_.read(context, dataset_, config, examples, index,
                                    {Random(0, Draw::masking, evaluation_masks), index});
    check_batch("evaluate", config, pass);
    if (by_token_) losses_.resize(pass.targets.size());
    tally_.add(nats_, transformer_.loss(context, pass_of(pass), losses_));
    if (by_token_) keep_tokens(pass.targets, index);
    tally_.count(tokens_, counted_targets(pass));
    const Heads& heads = transformer_.heads();
    tally_.add(token_nats_, heads.token_nats());
    tally_.add(value_nats_, heads.value_nats());
    tally_.count(numbers_,
                 std::ranges::count_if(pass.value_targets, [](float value) { return !std::isnan(value); }));
    if (fields_) fields_->add(context, heads, pass, accuracy_);
    if (values_) values_->add(heads, pass, index);
    if (confusion_) confusion_->add(context, network_, heads, pass.labels);
  }

  Evaluation result(std::int64_t examples) {
    tally_.count(non_positive_, transformer_.non_positive());
    tally_.end();
    const auto per = [](double sum, std::int64_t count) {
      return sum / static_cast<double>(std::max<std::int64_t>(count, 1));
    };
    const ModelConfig& config = network_.config();
    Evaluation result;
    result.examples = examples;
    result.tokens = tally_.counted(tokens_);
    if (result.tokens == 0)
      fail("evaluate", "expected examples with {} that count, got none in {} examples",
           config.classifies() ? "labels" : "targets", examples);
    result.bits = per(nats() / std::numbers::ln2, result.tokens);
    const std::int64_t of_decoder = config.length * config.layers * (config.has_encoder() ? 2 : 1),
                       of_encoder = config.source_length * config.encoder_layers;
    result.non_positive = per(static_cast<double>(tally_.counted(non_positive_)),
                              examples * config.heads * (of_decoder + of_encoder));
    result.perplexity = std::exp2(result.bits);
    result.accuracy = std::numeric_limits<double>::quiet_NaN();
    if (fields_ && values_) {
      result.numbers = tally_.counted(numbers_);
      result.token_bits = per(tally_.sum(token_nats_) / std::numbers::ln2, result.tokens - result.numbers);
      result.value_nats = per(tally_.sum(value_nats_), result.numbers);
    }
    if (fields_) fields_->write(result, accuracy_);
    if (values_) values_->write(result);
    if (confusion_) confusion_->write(result);
    return result;
  }

 private:
  void keep_tokens(std::span<const std::int32_t> targets, const Examples::Index& index) {
    const std::int64_t length = network_.config().length;
    token_losses_.clear();
    for (std::int64_t i = 0; i < std::ssize(targets); ++i)
      if (targets[i] >= 0) token_losses_.push_back({index(i / length), i % length, targets[i], losses_[i]});
  }

  const Network& network_;
  const Dataset& dataset_;
  bool accuracy_, by_token_;
  Transformer transformer_;
  Examples chosen_;
  Tally tally_;
  std::size_t nats_, token_nats_, value_nats_, tokens_, numbers_, non_positive_;
  std::optional<FieldLosses> fields_;
  std::optional<ValueErrors> values_;
  std::optional<Confusion> confusion_;
  std::vector<float> losses_;
  std::vector<TokenLoss> token_losses_;
};

}  // namespace

std::optional<Evaluation> evaluate(Context& context, const Network& network, const Dataset& dataset,
                                   std::int64_t examples, std::int64_t batch, bool accuracy,
                                   const TokenLossCallback& on_token, Communicator* ranks,
                                   const std::function<bool()>& should_stop) {
  if (examples < 0) fail<UsageError>("evaluate", "expected at least 0 examples (0: all), got {}", examples);
  if (batch < 1) fail<UsageError>("evaluate", "expected a batch of at least 1 example, got {}", batch);
  const ModelConfig& config = network.config();
  check_fit(config, dataset);
  if (on_token && (!network.has_head() || config.field_sizes().size() != 1 || network.value_head()))
    fail<UsageError>("evaluate", "expected a model of one token per step for losses by token, got another");
  const std::unique_ptr<Communicator> alone = ranks == nullptr ? Communicator::alone() : nullptr;
  Communicator& all = ranks == nullptr ? *alone : *ranks;
  const std::int64_t size = dataset.size(), count = examples == 0 ? size : std::min(examples, size),
                     batches = count / batch + (count % batch > 0 ? 1 : 0);
  const auto examples_of = [&](std::int64_t b) { return std::min(batch, count - b * batch); };
  const auto example = [&](std::int64_t b, std::int64_t i) { return (b * batch + i) * size / count; };
  Measures measures(network, dataset, accuracy, static_cast<bool>(on_token), all);
  for (std::int64_t first = 0; first < batches; first += all.size()) {
    if (should_stop && should_stop()) return std::nullopt;
    const std::int64_t own = first + all.rank();
    measures.token_losses().clear();
    if (own < batches)
      measures.add(context, examples_of(own), [&](std::int64_t i) { return example(own, i); });
    measures.tally().end_round(std::min<std::int64_t>(all.size(), batches - first), [&](std::int64_t b) {
      if (!std::isfinite(measures.nats()))
        fail("evaluate", "expected a finite loss, got {} from examples {} … {}", measures.nats(),
             example(first + b, 0), example(first + b, examples_of(first + b) - 1));
    });
    if (!on_token) continue;
    for (const TokenLoss& loss : gather(all, measures.token_losses())) on_token(loss);
  }
  return measures.result(count);
}

Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy, const TokenLossCallback& on_token, Communicator* ranks,
                    const std::function<void()>& on_batch) {
  check_assets(model.assets(), dataset);
  return *evaluate(context, network_of(model), dataset, examples, batch, accuracy, on_token, ranks, [&] {
    if (on_batch) on_batch();
    return false;
  });
}

}  // namespace linnet
