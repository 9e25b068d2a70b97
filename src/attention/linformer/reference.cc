#include <algorithm>

#include "attention/arguments.h"
#include "attention/linformer/linformer_attention.h"
#include "attention/softmax/softmax_attention.h"

namespace linnet {
namespace {

constexpr const char* kOperation = "linformer attention reference";

std::int64_t owner(View<const double> projection, std::int64_t h) {
  return projection.extent(0) == 1 ? 0 : h;
}

/// Calls body(b, j, h, r, p) for every key that is no padding and every rank, p = P[r, j].
template <class Body>
void for_each_weight(View<const double> x, View<const double> projection, const Mask& mask,
                     const Body& body) {
  for (std::int64_t b = 0; b < x.extent(0); ++b)
    for (std::int64_t j = 0; j < visible_keys(mask, b, x.extent(1)); ++j)
      for (std::int64_t h = 0; h < x.extent(2); ++h)
        for (std::int64_t r = 0; r < projection.extent(1); ++r)
          body(b, j, h, r, projection(owner(projection, h), r, j));
}

Tensor compressed(View<const double> x, View<const double> projection, const Mask& mask) {
  Tensor result = Tensor::of<double>({x.extent(0), projection.extent(1), x.extent(2), x.extent(3)});
  const View<double> to = result.view<double>();
  for_each_weight(x, projection, mask,
                  [&](std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t r, double p) {
                    for (std::int64_t e = 0; e < x.extent(3); ++e) to(b, r, h, e) += p * x(b, j, h, e);
                  });
  return result;
}

AttentionSizes check(View<const double> out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, out, inputs);
  check_linformer(kOperation, inputs.mask, inputs.key_projection, inputs.value_projection, sizes.heads,
                  sizes.keys);
  return sizes;
}

/// The gradients of x and of P from that of P x.
void spread(View<double> grad_x, View<double> grad_projection, View<const double> grad_compressed,
            View<const double> x, View<const double> projection, const Mask& mask) {
  for (std::int64_t b = 0; b < grad_x.extent(0); ++b)
    for (std::int64_t j = 0; j < grad_x.extent(1); ++j)
      for (std::int64_t h = 0; h < grad_x.extent(2); ++h)
        std::fill_n(grad_x.at(b, j, h), grad_x.extent(3), 0.0);
  if (grad_projection.rank() != 0)
    for (std::int64_t h = 0; h < grad_projection.extent(0); ++h)
      for (std::int64_t r = 0; r < grad_projection.extent(1); ++r)
        std::fill_n(grad_projection.at(h, r), grad_projection.extent(2), 0.0);
  for_each_weight(x, projection, mask,
                  [&](std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t r, double p) {
                    double sum = 0;
                    for (std::int64_t e = 0; e < x.extent(3); ++e) {
                      grad_x(b, j, h, e) += p * grad_compressed(b, r, h, e);
                      sum += grad_compressed(b, r, h, e) * x(b, j, h, e);
                    }
                    if (grad_projection.rank() != 0) grad_projection(owner(projection, h), r, j) += sum;
                  });
}

}  // namespace

void linformer_reference_forward(const AttentionOptions& options, View<double> out,
                                 const ReferenceInputs& inputs) {
  check(out, inputs);
  const Tensor keys = compressed(inputs.key, inputs.key_projection, inputs.mask);
  const Tensor values = compressed(inputs.value, inputs.value_projection, inputs.mask);
  softmax_reference_forward(options, out, {inputs.query, keys.view<double>(), values.view<double>()});
}

void linformer_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                  View<const double> grad_out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check(grad_out, inputs);
  check_reference_gradients(kOperation, sizes, gradients, inputs);
  check_projection_gradients(kOperation, gradients, inputs);
  const Tensor keys = compressed(inputs.key, inputs.key_projection, inputs.mask);
  const Tensor values = compressed(inputs.value, inputs.value_projection, inputs.mask);
  Tensor grad_keys = keys.clone(), grad_values = values.clone();
  softmax_reference_backward(options, {gradients.query, grad_keys.view<double>(), grad_values.view<double>()},
                             grad_out, {inputs.query, keys.view<double>(), values.view<double>()});
  spread(gradients.key, gradients.key_projection, grad_keys.view<double>(), inputs.key, inputs.key_projection,
         inputs.mask);
  spread(gradients.value, gradients.value_projection, grad_values.view<double>(), inputs.value,
         inputs.value_projection, inputs.mask);
}

}  // namespace linnet
