// The kernels' results have the same bits on every processor with the same instruction set. Products are
// hashed apart.
#include "support/portable_bits.h"

#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "kernels/normalisation.h"
#include "kernels/optimiser.h"
#include "kernels/samples.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

constexpr std::int64_t rows = 9, columns = 77;

BitHash activation_bits(Activation activation) {
  const Tensor x = normal({rows, columns}, 1, 2), dy = normal({rows, columns}, 2);
  Tensor y = Tensor::of<float>(x.shape()), dx = Tensor::of<float>(x.shape());
  activation_forward(any_context(), y.view<float>(), x.view<float>(), activation);
  activation_backward(any_context(), dx.view<float>(), dy.view<float>(), x.view<float>(), activation);
  return BitHash().add(y).add(dx);
}

BitHash layer_norm_bits() {
  const Tensor x = normal({rows, columns}, 1), gain = normal({columns}, 2), bias = normal({columns}, 3),
               dy = normal({rows, columns}, 4);
  Tensor y = Tensor::of<float>(x.shape()), dx = Tensor::of<float>(x.shape()),
         stats = Tensor::of<float>({rows, 2}), dgain = Tensor::of<float>({columns}),
         dbias = Tensor::of<float>({columns});
  layer_norm_forward(any_context(), y.view<float>(), stats.view<float>(), x.view<float>(), gain.view<float>(),
                     bias.view<float>(), 1e-5f);
  layer_norm_backward(any_context(), dx.view<float>(), dgain.view<float>(), dbias.view<float>(),
                      dy.view<float>(), x.view<float>(), std::as_const(stats).view<float>(),
                      gain.view<float>(), false);
  return BitHash().add(y).add(stats).add(dx).add(dgain).add(dbias);
}

std::vector<std::int32_t> some_targets(std::int32_t bound) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < rows; ++i) result.push_back(i * 31 % bound);
  return result;
}

BitHash softmax_loss_bits() {
  const Tensor logits = normal({rows, columns}, 1, 3);
  Tensor nll = Tensor::of<float>({rows}), dlogits = Tensor::of<float>(logits.shape()),
         probabilities = Tensor::of<float>(logits.shape());
  categorical_loss(any_context(), nll.span<float>(), dlogits.view<float>(), logits.view<float>(),
                   some_targets(static_cast<std::int32_t>(columns)), 0.3f);
  softmax_rows(any_context(), probabilities.view<float>(), logits.view<float>());
  return BitHash().add(nll).add(dlogits).add(probabilities);
}

BitHash mixture_loss_bits() {
  const Tensor parameters = normal({rows, 30}, 1);
  Tensor nll = Tensor::of<float>({rows}), dparameters = Tensor::of<float>(parameters.shape());
  logistic_mixture_loss(any_context(), nll.span<float>(), dparameters.view<float>(), parameters.view<float>(),
                        some_targets(256), 256, 0.3f);
  return BitHash().add(nll).add(dparameters);
}

using Update = void (*)(Context&, std::span<float>, std::span<float>, std::span<float>,
                        std::span<const float>, const AdamStep&);

BitHash optimiser_bits(Update update) {
  Tensor parameters = normal({1001}, 1), m = Tensor::of<float>({1001}), v = Tensor::of<float>({1001});
  for (std::int64_t step = 1; step <= 8; ++step) {
    const Tensor gradients = normal({1001}, static_cast<std::uint32_t>(step + 1));
    update(any_context(), parameters.span<float>(), m.span<float>(), v.span<float>(), gradients.span<float>(),
           {.step = step});
  }
  return BitHash().add(parameters).add(m).add(v).add(sum_of_squares(any_context(), parameters.span<float>()));
}

BitHash position_bits() {
  Tensor positions = Tensor::of<float>({40, columns});
  sinusoidal_positions(any_context(), positions.view<float>(), 100'000);
  return BitHash().add(positions);
}

BitHash product_bits(std::int64_t product_rows, std::int64_t inputs, WeightType type = WeightType::f32) {
  const Tensor a = normal({product_rows, inputs}, 1), b = normal({130, inputs}, 2), bias = normal({130}, 3),
               residual = normal({product_rows, 130}, 4);
  Tensor c = Tensor::of<float>({product_rows, 130});
  PackedMatrix packed(inputs, 130, type);
  packed.pack_transposed(any_context(), b.view<float>());
  multiply(any_context(), c.view<float>(), a.view<float>(), packed,
           {bias.view<float>(), Activation::none, residual.view<float>()});
  return BitHash().add(c);
}

BitHash weight_gradient_bits() {
  const Tensor x = normal({300, 70}, 1), dy = normal({300, columns}, 2);
  Tensor dw = Tensor::of<float>({columns, 70}), db = Tensor::of<float>({columns});
  accumulate_weight_gradient(any_context(), dw.view<float>(), db.view<float>(), dy.view<float>(),
                             x.view<float>());
  return BitHash().add(dw).add(db);
}

TEST(PortableBits, ElementKernels) {
  expect_bits("GELU", activation_bits(Activation::gelu),
              {0x05ca27fbe94cc526, 0x05ca27fbe94cc526, 0xc6a3f54b2ffb9944, 0xc6a3f54b2ffb9944});
  expect_bits("GELU by tanh", activation_bits(Activation::gelu_tanh),
              {0xe883d8de619ee973, 0xe883d8de619ee973, 0x01f0f52a2451b87a, 0x01f0f52a2451b87a});
  expect_bits("layer normalisation", layer_norm_bits(),
              {0x1c60ad7edc75166c, 0x300061c24e9c9283, 0xc260ad599d45b60b, 0x5b2f240c9ecba117});
  expect_bits("softmax loss", softmax_loss_bits(),
              {0xe8610aae0448ab7c, 0x0aa8335c3dac4031, 0xf68813e5952aaecf, 0x09d720818fe9551a});
  expect_bits("loss of a mixture of logistics", mixture_loss_bits(),
              {0x6328258f02506b63, 0x6328258f02506b63, 0x26850258377d22ff, 0x26850258377d22ff});
  expect_bits("AdamW", optimiser_bits(adamw_update),
              {0x4b3230d2152b8471, 0x5d9962f8ad521bf8, 0x47fbae263fb9cfb7, 0x4a678648d506d57b});
  expect_bits("RAdam", optimiser_bits(radam_update),
              {0xd3887c4319405292, 0xbdcbcf75cd3e2e5c, 0x206b20fd8519a8bd, 0x1fce0ddd6b36bf53});
  expect_bits("sinusoidal positions", position_bits(),
              {0x60c301ff9cb9414d, 0x60c301ff9cb9414d, 0x60c301ff9cb9414d, 0x60c301ff9cb9414d});
}

TEST(PortableBits, ProductsOfFewRows) {
  expect_bits("7 rows of 100", product_bits(7, 100),
              {0x651b025ead497b48, 0x651b025ead497b48, 0xd1318b657c395931, 0xd1318b657c395931});
  expect_bits("7 rows of 1500", product_bits(7, 1500),
              {0x4b881d3b0561bdab, 0x4b881d3b0561bdab, 0x637ac3e8f22e22bb, 0x637ac3e8f22e22bb});
  expect_bits("weight gradient", weight_gradient_bits(),
              {0x50f23b81817008ef, 0x50f23b81817008ef, 0xfa6d05fa58d99002, 0xfa6d05fa58d99002});
}

TEST(PortableBits, ProductsOfManyRows) {
  expect_bits("160 rows of 100", product_bits(160, 100),
              {0xbfaf11630ed8b6ad, 0xbfaf11630ed8b6ad, 0xe4d0f4f27f251606, 0xe4d0f4f27f251606});
  expect_bits("160 rows of 1500", product_bits(160, 1500),
              {0x967dcc8b018e0543, 0x967dcc8b018e0543, 0x9f7a2ffc5e774407, 0x9f7a2ffc5e774407});
  expect_bits("300 rows of 600", product_bits(300, 600),
              {0xdab9ed4709254f7e, 0xdab9ed4709254f7e, 0xbd84d31f23074f99, 0xbd84d31f23074f99});
}

TEST(PortableBits, Int8Products) {
  expect_bits("1 row of codes", product_bits(1, 300, WeightType::int8),
              {0xb8581a57e5c58ea5, 0xb8581a57e5c58ea5, 0xb8581a57e5c58ea5, 0xb8581a57e5c58ea5});
  expect_bits("70 rows of codes", product_bits(70, 300, WeightType::int8),
              {0x8af991d96cfeebcc, 0x8af991d96cfeebcc, 0x8af991d96cfeebcc, 0x8af991d96cfeebcc});
}

}  // namespace
}  // namespace linnet::kernels
