#include "layers/head.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "base/workspace.h"
#include "kernels/loss.h"

namespace linnet {
namespace {

constexpr double initial_deviation = 0.02;

class CategoricalHead final : public OutputHead {
 public:
  using OutputHead::OutputHead;

  void loss(Context& context, std::span<float> nll, View<float> dparameters, View<const float> parameters,
            std::span<const std::int32_t> targets, float weight) const override {
    kernels::categorical_loss(context, nll, dparameters, parameters, targets, weight);
  }

  void logits(Context&, View<float> logits, View<const float> parameters) const override {
    std::copy_n(parameters.data(), vocabulary(), logits.data());
  }

  std::int32_t sample(Context& context, View<const float> parameters, float u1, float,
                      std::span<float> workspace) const override {
    return static_cast<std::int32_t>(
        draw_from_logits(context, parameters.data(), vocabulary(), u1, workspace));
  }
};

class LogisticMixtureHead final : public OutputHead {
 public:
  LogisticMixtureHead(Dense projection, std::int64_t vocabulary)
      : OutputHead(std::move(projection), vocabulary), values_(static_cast<std::size_t>(vocabulary)) {
    std::iota(values_.begin(), values_.end(), 0);
  }

  void loss(Context& context, std::span<float> nll, View<float> dparameters, View<const float> parameters,
            std::span<const std::int32_t> targets, float weight) const override {
    kernels::logistic_mixture_loss(context, nll, dparameters, parameters, targets, vocabulary(), weight);
  }

  void logits(Context& context, View<float> logits, View<const float> parameters) const override {
    // The loss of every value under the same parameters: one row repeated by a stride of 0.
    const View<const float> repeated(parameters.data(), {vocabulary(), outputs()}, {0, 1});
    const std::span<float> nll(logits.data(), values_.size());
    kernels::logistic_mixture_loss(context, nll, {}, repeated, values_, vocabulary(), 1);
    for (float& value : nll) value = -value;
  }

  std::int32_t sample(Context& context, View<const float> parameters, float u1, float u2,
                      std::span<float> workspace) const override {
    const std::int64_t components = outputs() / 3;
    const float* row = parameters.data();
    const std::int64_t k = draw_from_logits(context, row, components, u1, workspace);
    const float mean = row[components + k];
    const float deviation = std::exp(std::max(row[2 * components + k], kernels::least_mixture_log_scale));
    // A logistic variable is mean + s · logit(u); its value's bin is the nearest of the levels on [−1, 1].
    const float x = mean + deviation * (std::log(u2) - std::log1p(-u2));
    const float top = static_cast<float>(vocabulary() - 1);
    const float level = std::nearbyint((x + 1) * 0.5f * top);
    return level > 0 ? static_cast<std::int32_t>(std::min(level, top)) : 0;  // 0 also where x is no number
  }

 private:
  std::vector<std::int32_t> values_;  // all of them, in order
};

}  // namespace

std::int64_t draw_from_logits(Context& context, const float* logits, std::int64_t count, float u,
                              std::span<float> workspace) {
  const std::span<float> shares = workspace.first(static_cast<std::size_t>(count));
  kernels::softmax_rows(context, View<float>(shares.data(), {1, count}),
                        View<const float>(logits, {1, count}));
  return index_at(u, count, [&](std::int64_t i) { return shares[static_cast<std::size_t>(i)]; });
}

template <class Body>
void OutputHead::in_pieces(Context& context, View<const float> hidden, const Body& body) const {
  constexpr std::int64_t together = 512;
  for (std::int64_t first = 0; first < hidden.extent(0); first += together) {
    const std::int64_t rows = std::min(together, hidden.extent(0) - first);
    Workspace workspace(context);
    const View<float> parameters = workspace.take(rows, outputs());
    forward(context, parameters, hidden.slice(0, first, first + rows));
    body(first, parameters);
  }
}

void OutputHead::logits_of(Context& context, View<float> logits, View<const float> hidden) const {
  in_pieces(context, hidden, [&](std::int64_t first, View<const float> parameters) {
    parallel_for(context, parameters.extent(0), [&](Context& own, std::int64_t i) {
      this->logits(own, View<float>(logits.at(first + i), {vocabulary()}), parameters.slice(0, i, i + 1));
    });
  });
}

void OutputHead::losses_of(Context& context, std::span<float> nll, View<const float> hidden,
                           std::span<const std::int32_t> targets) const {
  in_pieces(context, hidden, [&](std::int64_t first, View<const float> parameters) {
    const auto rows = static_cast<std::size_t>(parameters.extent(0));
    loss(context, nll.subspan(static_cast<std::size_t>(first), rows), {}, parameters,
         targets.subspan(static_cast<std::size_t>(first), rows), 1);
  });
}

std::unique_ptr<OutputHead> OutputHead::categorical(ParameterTable& table, const std::string& name,
                                                    std::int64_t width, std::int64_t vocabulary,
                                                    const ParameterPlace* tied) {
  if (tied != nullptr) {
    const ParameterPlace weight(tied->offset(), {vocabulary, width});
    return std::make_unique<CategoricalHead>(Dense(table, name, weight, {}), vocabulary);
  }
  Dense projection(
      table, name, width, vocabulary,
      {.bias = true, .weight_initial = normal(initial_deviation), .bias_initial = {}, .exact = true});
  return std::make_unique<CategoricalHead>(std::move(projection), vocabulary);
}

std::unique_ptr<OutputHead> OutputHead::logistic_mixture(ParameterTable& table, const std::string& name,
                                                         std::int64_t width, std::int64_t vocabulary,
                                                         std::int64_t components) {
  // The components begin side by side over [−1, 1], each as wide as their distance.
  const auto initial_bias = [components](std::int64_t i, double) {
    if (i < components) return 0.0f;
    const double share = 2.0 / static_cast<double>(components);
    if (i < 2 * components)
      return static_cast<float>(-1 + share * (static_cast<double>(i - components) + 0.5));
    return static_cast<float>(std::log(share));
  };
  Dense projection(table, name, width, 3 * components,
                   {.bias = true,
                    .weight_initial = normal(initial_deviation),
                    .bias_initial = initial_bias,
                    .exact = true});
  return std::make_unique<LogisticMixtureHead>(std::move(projection), vocabulary);
}

}  // namespace linnet
