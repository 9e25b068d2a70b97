#include <cmath>
#include <vector>

#include "attention/reference_rows.h"
#include "attention/score_scale.h"
#include "attention/softmax/softmax_attention.h"

namespace linnet {
namespace {

constexpr const char* kOperation = "softmax attention reference";

/// softmax_j(scale · q_i·k_j) over the keys that the query sees.
std::vector<double> probabilities(double scale, const ReferenceInputs& inputs, const AttentionSizes& sizes,
                                  std::int64_t b, std::int64_t i, std::int64_t h) {
  const std::vector<std::uint8_t> seen = seen_keys(inputs.mask, b, i, sizes.keys);
  std::vector<double> p(static_cast<std::size_t>(sizes.keys), 0.0);
  double maximum = -INFINITY, sum = 0;
  for (std::int64_t j = 0; j < sizes.keys; ++j) {
    if (seen[j] == 0) continue;
    p[j] = scale * dot(inputs.query.at(b, i, h), inputs.key.at(b, j, h), sizes.head_dim);
    maximum = std::max(maximum, p[j]);
  }
  for (std::int64_t j = 0; j < sizes.keys; ++j) {
    if (seen[j] != 0) sum += p[j] = std::exp(p[j] - maximum);
  }
  for (double& weight : p) weight = sum > 0 ? weight / sum : 0;
  return p;
}

}  // namespace

void softmax_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, out, inputs);
  clear(out);
  for_each_query(sizes, [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    const std::vector<double> p =
        probabilities(score_scale(options.scale, sizes.head_dim), inputs, sizes, b, i, h);
    for (std::int64_t j = 0; j < sizes.keys; ++j)
      for (std::int64_t m = 0; m < sizes.value_dim; ++m) out(b, i, h, m) += p[j] * inputs.value(b, j, h, m);
  });
}

void softmax_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                View<const double> grad_out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, grad_out, inputs);
  check_reference_gradients(kOperation, sizes, gradients, inputs);
  const double scale = score_scale(options.scale, sizes.head_dim);
  clear(gradients.query);
  clear(gradients.key);
  clear(gradients.value);
  for_each_query(sizes, [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    const std::vector<double> p = probabilities(scale, inputs, sizes, b, i, h);
    std::vector<double> grad_p(p.size());
    double correction = 0;
    for (std::int64_t j = 0; j < sizes.keys; ++j) {
      grad_p[j] = dot(grad_out.at(b, i, h), inputs.value.at(b, j, h), sizes.value_dim);
      correction += p[j] * grad_p[j];
    }
    for (std::int64_t j = 0; j < sizes.keys; ++j) {
      const double grad_score = p[j] * (grad_p[j] - correction);
      for (std::int64_t m = 0; m < sizes.value_dim; ++m)
        gradients.value(b, j, h, m) += p[j] * grad_out(b, i, h, m);
      for (std::int64_t e = 0; e < sizes.head_dim; ++e) {
        gradients.query(b, i, h, e) += grad_score * scale * inputs.key(b, j, h, e);
        gradients.key(b, j, h, e) += grad_score * scale * inputs.query(b, i, h, e);
      }
    }
  });
}

}  // namespace linnet
