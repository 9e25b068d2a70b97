// What a model computes from steps of several fields or real numbers, and the labels of a classifier.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/fail.h"
#include "kernels/loss.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/heads.h"
#include "model/transformer.h"

namespace linnet {
namespace {

void check_steps(const char* operation, const ModelConfig& config, const Steps& steps) {
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
  for (const float value : steps.values)
    if (std::isinf(value)) fail<UsageError>(operation, "expected finite values, got {}", value);
  if (steps.key_lengths.empty()) return;
  if (std::ssize(steps.key_lengths) != steps.batch)
    fail<UsageError>(operation, "expected {} key lengths, one for each entry of the batch, got {}",
                     steps.batch, steps.key_lengths.size());
  for (const std::int64_t known : steps.key_lengths)
    if (known < 1 || known > steps.length)
      fail<UsageError>(operation, "expected key lengths in 1 … {}, got {}", steps.length, known);
}

Pass pass_of(const Steps& steps) {
  return {.batch = steps.batch,
          .length = steps.length,
          .ids = steps.tokens,
          .values = steps.values,
          .key_lengths = steps.key_lengths};
}

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

Tensor Model::classify(Context& context, const Steps& steps) const {
  if (!config().classifies())
    fail<UsageError>("classify", "expected a classifier (model.objective = \"classify\"), got \"{}\"",
                     name_of(config().objective));
  check_steps("classify", config(), steps);
  Transformer transformer(network_of(*this));
  const Pass pass = pass_of(steps);
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
  check_steps("predict", config(), steps);
  const Pass pass = pass_of(steps);
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
                 parameters.view<float>(), View<const float>(steps.values.data(), {rows, config().columns}));
  return result;
}

}  // namespace linnet
