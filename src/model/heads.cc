#include "model/heads.h"

#include <algorithm>

#include "base/workspace.h"
#include "kernels/elementwise.h"
#include "kernels/loss.h"
#include "kernels/pooling.h"

namespace linnet {
namespace {

/// The first rows of memory that grows to the largest use.
View<float> first_rows(Tensor& memory, std::int64_t rows, std::int64_t columns) {
  if (memory.size() < rows * columns) memory = Tensor::of<float>({rows, columns});
  return View<float>(memory.span<float>().data(), {rows, columns});
}

double sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

}  // namespace

StepInputs NormalisedInputs::of(const Network& network, const Pass& pass) {
  const std::int64_t columns = network.config().columns;
  if (columns == 0) return pass.ids;
  const View<float> z = first_rows(values_, pass.rows(), columns);
  const View<const float> values(pass.values.data(), {pass.rows(), columns});
  const Columns& scale = *network.columns();
  const View<const float> before(pass.values_before.data(), {pass.batch, columns});
  for (std::int64_t b = 0; b < pass.batch; ++b) {
    const std::int64_t first = b * pass.length, last = first + pass.length;
    scale.normalise(z.slice(0, first, last), values.slice(0, first, last),
                    pass.values_before.empty() ? View<const float>() : scale.last_numbers(before, b));
  }
  return {pass.ids, z};
}

void Heads::reserve(std::int64_t batch, std::int64_t length) {
  const std::int64_t rows = batch * length, width = network_.config().width;
  keeps_ = true;
  later_.resize(network_.later_fields().size() + network_.single_fields().size());
  if (network_.has_head()) first_rows(token_memory_, rows, network_.head().outputs());
  if (network_.value_head()) {
    first_rows(value_memory_, rows, network_.value_head()->outputs());
    first_rows(target_memory_, rows, network_.value_head()->targets());
  }
  if (network_.classifier() != nullptr) {
    first_rows(token_memory_, batch, network_.classifier()->outputs());
    first_rows(pooled_, batch, width);
  }
  for (std::size_t f = 0; f < later_.size(); ++f) {
    if (network_.single_fields().empty()) later_[f].saved.reserve(rows, width);
    first_rows(later_[f].memory, rows, network_.field_head(f + 1).outputs());
  }
  if (!network_.later_fields().empty()) first_rows(chain_, rows, width);
  if (!later_.empty() || network_.value_head()) part_nll_.resize(static_cast<std::size_t>(rows));
  if (!later_.empty()) field_targets_.resize(static_cast<std::size_t>(rows));
  own_nll_.resize(static_cast<std::size_t>(rows));
}

double Heads::floats_per_step(const ModelConfig& config) {
  const double width = static_cast<double>(config.width);
  const std::size_t fields = config.field_sizes().size();
  const double later = config.shifted() && fields > 1 ? static_cast<double>(fields - 1) : 0;
  const double normalised = static_cast<double>(config.columns + config.target_count());
  return static_cast<double>(head_outputs(config)) + normalised + 1 +
         later * LaterField::Saved::floats_per_token(config.width) + (later > 0 ? width + 1 : 0);
}

double Heads::loss(Context& context, View<const float> hidden, const Pass& pass, std::span<float> nll,
                   const float* weight) {
  pass_ = pass;
  later_.resize(network_.later_fields().size() + network_.single_fields().size());
  const auto count = static_cast<std::size_t>(network_.classifier() != nullptr ? pass.batch : pass.rows());
  if (nll.empty()) {
    own_nll_.resize(std::max(own_nll_.size(), count));
    nll = std::span(own_nll_).first(count);
  }
  if (network_.classifier() != nullptr) return label_loss(context, hidden, nll, weight);
  if (network_.has_head())
    token_nats_ = token_loss(context, hidden, nll, weight);
  else
    std::ranges::fill(nll, 0.0f);
  if (network_.value_head()) value_nats_ = value_loss(context, hidden, nll, weight);
  return token_nats_ + value_nats_;
}

float Heads::factor_of(std::int64_t head, const float* weight) const {
  if (weight == nullptr) return 1;
  return pass_.head_weights.empty() ? *weight : *weight * pass_.head_weights[static_cast<std::size_t>(head)];
}

double Heads::token_loss(Context& context, View<const float> hidden, std::span<float> nll,
                         const float* weight) {
  const std::int64_t rows = pass_.rows(), fields = 1 + std::ssize(later_);
  const auto gradient = [&](View<float> parameters) {
    return weight != nullptr ? parameters : View<float>();
  };
  parameters_ = first_rows(token_memory_, rows, network_.head().outputs());
  network_.head().forward(context, parameters_, hidden);
  if (fields == 1) {
    network_.head().loss(context, nll, gradient(parameters_), parameters_, pass_.targets,
                         factor_of(0, weight));
    return sum_of(nll);
  }
  field_targets_.resize(std::max(field_targets_.size(), static_cast<std::size_t>(rows)));
  const std::span<std::int32_t> targets = std::span(field_targets_).first(static_cast<std::size_t>(rows));
  const auto targets_of = [&](std::int64_t field) {
    for (std::int64_t i = 0; i < rows; ++i)
      targets[static_cast<std::size_t>(i)] = pass_.targets[static_cast<std::size_t>(i * fields + field)];
  };
  field_nll_.resize(static_cast<std::size_t>(fields));
  const auto loss_of = [&](std::int64_t field, const OutputHead& head, View<float> parameters) {
    targets_of(field);
    std::vector<float>& memory = weight == nullptr ? field_nll_[static_cast<std::size_t>(field)] : part_nll_;
    memory.resize(std::max(memory.size(), nll.size()));
    const std::span<float> part = std::span(memory).first(nll.size());
    head.loss(context, part, gradient(parameters), parameters, targets, factor_of(field, weight));
    for (std::size_t i = 0; i < nll.size(); ++i) nll[i] = field == 0 ? part[i] : nll[i] + part[i];
    return sum_of(part);
  };
  double sum = loss_of(0, network_.head(), parameters_);
  const bool chained = network_.single_fields().empty();
  const View<float> chain = chained ? first_rows(chain_, rows, network_.config().width) : View<float>();
  if (chained) std::copy_n(hidden.data(), hidden.size(), chain.data());
  for (std::int64_t f = 1; f < fields; ++f) {
    const auto at = static_cast<std::size_t>(f - 1);
    Later& later = later_[at];
    const OutputHead& head = network_.field_head(at + 1);
    later.parameters = first_rows(later.memory, rows, head.outputs());
    if (chained)
      network_.later_fields()[at].forward(context, later.parameters, chain,
                                          {pass_.conditions_or_targets(), fields, f - 1},
                                          keeps_ ? &later.saved : nullptr);
    else
      head.forward(context, later.parameters, hidden);
    sum += loss_of(f, head, later.parameters);
  }
  return sum;
}

double Heads::value_loss(Context& context, View<const float> hidden, std::span<float> nll,
                         const float* weight) {
  const ValueHead& head = *network_.value_head();
  const std::int64_t rows = pass_.rows();
  value_targets_ = first_rows(target_memory_, rows, head.targets());
  network_.columns()->normalise_targets(
      value_targets_, View<const float>(pass_.value_targets.data(), {rows, head.targets()}),
      View<const float>(pass_.values.data(), {rows, network_.config().columns}));
  value_parameters_ = first_rows(value_memory_, rows, head.outputs());
  head.forward(context, value_parameters_, hidden);
  part_nll_.resize(std::max(part_nll_.size(), static_cast<std::size_t>(rows)));
  const std::span<float> part = std::span(part_nll_).first(static_cast<std::size_t>(rows));
  head.loss(context, part, weight != nullptr ? value_parameters_ : View<float>(), value_parameters_,
            value_targets_, factor_of(network_.has_head() ? 1 + std::ssize(later_) : 0, weight));
  for (std::size_t i = 0; i < nll.size(); ++i) nll[i] += part[i];
  return sum_of(part);
}

void Heads::label_parameters(Context& context, View<float> logits, View<const float> hidden,
                             const Pass& pass) {
  const View<float> pooled = first_rows(pooled_, pass.batch, network_.config().width);
  kernels::mean_rows(context, pooled, hidden, pass.key_lengths);
  network_.classifier()->forward(context, logits, pooled);
}

double Heads::label_loss(Context& context, View<const float> hidden, std::span<float> nll,
                         const float* weight) {
  parameters_ = first_rows(token_memory_, pass_.batch, network_.classifier()->outputs());
  label_parameters(context, parameters_, hidden.reshape({pass_.batch, pass_.length, network_.config().width}),
                   pass_);
  network_.classifier()->loss(context, nll, weight != nullptr ? parameters_ : View<float>(), parameters_,
                              pass_.labels, weight != nullptr ? *weight : 1);
  return sum_of(nll);
}

void Heads::backward(Context& context, View<float> dhidden, View<const float> hidden,
                     std::span<float> gradients) {
  const std::int64_t width = network_.config().width;
  if (network_.classifier() != nullptr) {
    Workspace workspace(context);
    const View<float> dpooled = workspace.take(pass_.batch, width);
    network_.classifier()->backward(context, dpooled, parameters_,
                                    pooled_.view<float>().slice(0, 0, pass_.batch), gradients);
    kernels::mean_rows_backward(context, dhidden.reshape({pass_.batch, pass_.length, width}), dpooled,
                                pass_.key_lengths);
    return;
  }
  const auto add_to = [&](auto&& assign, bool first) {
    if (first) return assign(dhidden);
    Workspace workspace(context);
    const View<float> part = workspace.take(dhidden.extent(0), width);
    assign(part);
    kernels::add(context, dhidden, dhidden, part);
  };
  if (network_.has_head()) network_.head().backward(context, dhidden, parameters_, hidden, gradients);
  for (std::size_t f = 0; f < network_.single_fields().size(); ++f)
    add_to(
        [&](View<float> to) {
          network_.single_fields()[f]->backward(context, to, later_[f].parameters, hidden, gradients);
        },
        false);
  if (!network_.later_fields().empty()) {
    const std::int64_t fields = 1 + std::ssize(later_);
    Workspace workspace(context);
    const View<float> chain = workspace.take(dhidden.extent(0), width);
    std::fill_n(chain.data(), chain.size(), 0.0f);
    for (std::int64_t f = fields - 1; f > 0; --f) {
      const Later& later = later_[static_cast<std::size_t>(f - 1)];
      network_.later_fields()[static_cast<std::size_t>(f - 1)].backward(
          context, chain, later.parameters, {pass_.conditions_or_targets(), fields, f - 1}, later.saved,
          gradients);
    }
    kernels::add(context, dhidden, dhidden, chain);
  }
  if (network_.value_head())
    add_to(
        [&](View<float> to) {
          network_.value_head()->backward(context, to, value_parameters_, hidden, gradients);
        },
        !network_.has_head());
}

}  // namespace linnet
