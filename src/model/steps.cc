// What a model computes from steps of several fields or real numbers, and the labels of a classifier.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "base/fail.h"
#include "kernels/loss.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/config.h"
#include "model/heads.h"
#include "model/transformer.h"

namespace linnet {
namespace {

/// Those of `all`, [batch · length · any], that belong to entry b before its padding.
template <class T>
std::span<const T> known_of(const Steps& steps, std::int64_t b, std::span<const T> all) {
  const std::size_t each = all.size() / static_cast<std::size_t>(steps.batch * steps.length),
                    known = static_cast<std::size_t>(steps.key_lengths.empty()
                                                         ? steps.length
                                                         : steps.key_lengths[static_cast<std::size_t>(b)]);
  return all.subspan(static_cast<std::size_t>(b * steps.length) * each, known * each);
}

/// Throws UsageError where the steps are none that the model takes; what padding holds does not matter.
void check_steps(const char* operation, const Network& network, const Steps& steps) {
  const ModelConfig& config = network.config();
  if (steps.batch < 1 || steps.length < 1)
    fail<UsageError>(operation, "expected a batch and a length of at least 1, got {} and {}", steps.batch,
                     steps.length);
  const auto check_count = [&](const char* what, std::size_t found, std::int64_t each) {
    const auto rows = static_cast<std::int64_t>(found) / std::max<std::int64_t>(each, 1);
    if (each == 0 ? found == 0
                  : rows / steps.batch == steps.length && rows % steps.batch == 0 &&
                        static_cast<std::int64_t>(found) % each == 0)
      return;
    fail<UsageError>(operation, "expected {} · {} · {} {}, got {}", steps.batch, steps.length, each, what,
                     found);
  };
  check_count("tokens", steps.tokens.size(), config.input_fields());
  check_count("values", steps.values.size(), config.columns);
  if (!steps.key_lengths.empty() && std::ssize(steps.key_lengths) != steps.batch)
    fail<UsageError>(operation, "expected {} key lengths, one for each entry of the batch, got {}",
                     steps.batch, steps.key_lengths.size());
  for (const std::int64_t known : steps.key_lengths)
    if (known < 1 || known > steps.length)
      fail<UsageError>(operation, "expected key lengths in 1 … {}, got {}", steps.length, known);
  for (std::int64_t b = 0; b < steps.batch; ++b) {
    network.embedding().check_ids(operation, known_of(steps, b, steps.tokens));
    for (const float value : known_of(steps, b, steps.values))
      if (std::isinf(value)) fail<UsageError>(operation, "expected finite values, got {}", value);
  }
}

/// The checked steps as the layers take them: with zeros in place of padding.
class CheckedSteps {
 public:
  CheckedSteps(const char* operation, const Network& network, const Steps& steps) : steps_(steps) {
    check_steps(operation, network, steps);
    if (steps.key_lengths.empty()) return;
    steps_.tokens = tokens_ = without_padding(steps.tokens);
    steps_.values = values_ = without_padding(steps.values);
  }

  Pass pass() const {
    return {.batch = steps_.batch,
            .length = steps_.length,
            .ids = steps_.tokens,
            .values = steps_.values,
            .key_lengths = steps_.key_lengths};
  }

 private:
  template <class T>
  std::vector<T> without_padding(std::span<const T> all) const {
    std::vector<T> result(all.size());
    for (std::int64_t b = 0; b < steps_.batch; ++b) {
      const std::span<const T> known = known_of(steps_, b, all);
      std::ranges::copy(known, result.begin() + (known.data() - all.data()));
    }
    return result;
  }

  Steps steps_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> values_;
};

View<const float> hidden_rows(Context& context, Transformer& transformer, const Network& network,
                              const Pass& pass) {
  NormalisedInputs inputs;
  return transformer.forward(context, inputs.of(network, pass), pass.batch, pass.length, 0, nullptr, nullptr,
                             pass.key_lengths);
}

}  // namespace

double log_density(double number, double mean, double scale, double freedom) {
  const double z = (number - mean) / scale;
  if (std::isinf(freedom)) return -0.5 * (std::log(2 * std::numbers::pi) + z * z) - std::log(scale);
  return kernels::log_gamma((freedom + 1) / 2) - kernels::log_gamma(freedom / 2) -
         0.5 * std::log(freedom * std::numbers::pi) - std::log(scale) -
         0.5 * (freedom + 1) * std::log1p(z * z / freedom);
}

Tensor Model::hidden(Context& context, const Steps& steps) const {
  if (config().has_encoder()) check_one_token("hidden", config());
  const CheckedSteps checked("hidden", network_of(*this), steps);
  Transformer transformer(network_of(*this));
  const View<const float> rows = hidden_rows(context, transformer, network_of(*this), checked.pass());
  Tensor result = Tensor::of<float>({steps.batch, steps.length, config().width});
  std::copy_n(rows.data(), rows.size(), result.span<float>().begin());
  return result;
}

Tensor Model::classify(Context& context, const Steps& steps) const {
  if (!config().classifies())
    fail<UsageError>("classify", "expected a classifier (model.objective = \"classify\"), got \"{}\"",
                     name_of(config().objective));
  const CheckedSteps checked("classify", network_of(*this), steps);
  const Pass pass = checked.pass();
  Transformer transformer(network_of(*this));
  Tensor result = Tensor::of<float>({steps.batch, config().classes});
  Heads heads(network_of(*this));
  heads.label_parameters(context, result.view<float>(),
                         hidden_rows(context, transformer, network_of(*this), pass), pass);
  kernels::softmax_rows(context, result.view<float>(), result.view<float>());
  return result;
}

Densities Model::predict(Context& context, const Steps& steps) const {
  const Network& network = network_of(*this);
  if (!network.value_head())
    fail<UsageError>("predict", "expected a model that predicts real numbers, got one without model.targets");
  const CheckedSteps checked("predict", network, steps);
  const Pass pass = checked.pass();
  const ValueHead& head = *network.value_head();
  const std::int64_t rows = pass.rows(), targets = head.targets();
  Transformer transformer(network);
  const View<const float> hidden =
      hidden_rows(context, transformer, network, pass).reshape({rows, config().width});
  Tensor parameters = Tensor::of<float>({rows, head.outputs()});
  head.forward(context, parameters.view<float>(), hidden);
  Densities result;
  for (Tensor* tensor : {&result.mean, &result.scale, &result.freedom})
    *tensor = Tensor::of<float>({steps.batch, steps.length, targets});
  const auto flat = [&](Tensor& tensor) { return tensor.view<float>().reshape({rows, targets}); };
  head.densities(*network.columns(), flat(result.mean), flat(result.scale), flat(result.freedom),
                 parameters.view<float>(), View<const float>(pass.values.data(), {rows, config().columns}));
  return result;
}

}  // namespace linnet
