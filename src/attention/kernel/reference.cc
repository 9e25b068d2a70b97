#include <algorithm>
#include <vector>

#include "attention/kernel/kernel_attention.h"
#include "attention/reference_rows.h"

namespace linnet {
namespace {

constexpr const char* kOperation = "kernel attention reference";

/// sim(q_i, k_j) of a query, 0 for the keys that it does not see, and what its sum is divided by.
struct Weights {
  std::vector<double> similarity;
  double denominator = 1;
};

template <class T>
std::span<T> row(View<T> x, const AttentionSizes& sizes, std::int64_t b, std::int64_t i, std::int64_t h) {
  return {x.at(b, i, h), static_cast<std::size_t>(sizes.head_dim)};
}

Weights weights_of(const AttentionOptions& options, const ReferenceInputs& inputs,
                   const AttentionSizes& sizes, std::int64_t b, std::int64_t i, std::int64_t h) {
  const std::vector<std::uint8_t> seen = seen_keys(inputs.mask, b, i, sizes.keys);
  Weights weights;
  weights.similarity.resize(seen.size());
  double sum = 0;
  for (std::int64_t j = 0; j < sizes.keys; ++j) {
    const std::size_t at = static_cast<std::size_t>(j);
    if (seen[at] == 0) continue;
    weights.similarity[at] = options.kernel.similarity->exact_forward(row(inputs.query, sizes, b, i, h),
                                                                      row(inputs.key, sizes, b, j, h));
    sum += weights.similarity[at];
  }
  // Where all similarities are 0 so is the sum that is divided.
  if (options.kernel.normalise == Normalise::sum && sum + static_cast<double>(options.kernel.epsilon) > 0)
    weights.denominator = sum + static_cast<double>(options.kernel.epsilon);
  return weights;
}

void add_outputs(double* out, const Weights& weights, const ReferenceInputs& inputs,
                 const AttentionSizes& sizes, std::int64_t b, std::int64_t h) {
  for (std::int64_t j = 0; j < sizes.keys; ++j)
    for (std::int64_t m = 0; m < sizes.value_dim; ++m)
      out[m] +=
          weights.similarity[static_cast<std::size_t>(j)] * inputs.value(b, j, h, m) / weights.denominator;
}

}  // namespace

void kernel_reference_forward(const AttentionOptions& options, View<double> out,
                              const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, out, inputs);
  clear(out);
  for_each_query(sizes, [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    add_outputs(out.at(b, i, h), weights_of(options, inputs, sizes, b, i, h), inputs, sizes, b, h);
  });
}

void kernel_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                               View<const double> grad_out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, grad_out, inputs);
  check_reference_gradients(kOperation, sizes, gradients, inputs);
  clear(gradients.query);
  clear(gradients.key);
  clear(gradients.value);
  for_each_query(sizes, [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    const Weights weights = weights_of(options, inputs, sizes, b, i, h);
    std::vector<double> out(static_cast<std::size_t>(sizes.value_dim));
    add_outputs(out.data(), weights, inputs, sizes, b, h);
    const double* gradient = grad_out.at(b, i, h);
    for (std::int64_t j = 0; j < sizes.keys; ++j) {
      if (seen_keys(inputs.mask, b, i, sizes.keys)[static_cast<std::size_t>(j)] == 0) continue;
      const double weight = weights.similarity[static_cast<std::size_t>(j)] / weights.denominator;
      double grad_similarity = 0;
      for (std::int64_t m = 0; m < sizes.value_dim; ++m) {
        gradients.value(b, j, h, m) += weight * gradient[m];
        const double through_sum =
            options.kernel.normalise == Normalise::sum ? out[static_cast<std::size_t>(m)] : 0.0;
        grad_similarity += gradient[m] * (inputs.value(b, j, h, m) - through_sum) / weights.denominator;
      }
      options.kernel.similarity->exact_backward(
          row(gradients.query, sizes, b, i, h), row(gradients.key, sizes, b, j, h), grad_similarity,
          row(inputs.query, sizes, b, i, h), row(inputs.key, sizes, b, j, h));
    }
  });
}

}  // namespace linnet
