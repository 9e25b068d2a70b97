// A model's logits, gradients and update have the same bits on every processor with the same instruction set.
#include "support/portable_bits.h"

#include "model/training_transformer.h"
#include "model/transformer.h"
#include "support/contexts.h"
#include "support/models.h"
#include "training/optimiser.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 161;
constexpr std::int64_t batch = 3;

/// The linear family with everything that its models compute in f64 before they round to f32.
ModelConfig linear_config() {
  ModelConfig config = tiny_config();
  config.width = 36;
  config.feed_forward = 50;
  config.length = 50;
  config.vocabulary = 23;
  config.dropout = 0.1;
  config.positions = Positions::sinusoidal;
  config.attention.linear.decay = Decay::learned;
  return config;
}

ModelConfig softmax_config() {
  ModelConfig config = linear_config();
  config.attention.family = Family::softmax;
  config.head = OutputDistribution::logistics;
  config.norm = NormOrder::post;
  config.positions = Positions::learned;
  config.attention.linear.decay = Decay::none;
  return config;
}

struct Sample {
  explicit Sample(const ModelConfig& config)
      : ids(random_inputs(config, batch, config.length, seed)),
        targets(random_tokens(batch * config.length, config.vocabulary, seed + 1)) {}
  std::vector<std::int32_t> ids, targets;
};

/// The parameters of the next tokens' distributions, and the losses.
BitHash output_bits(const ModelConfig& config) {
  const auto model = random_model(config, seed);
  const Sample sample(config);
  std::vector<float> nll(sample.targets.size());
  Transformer transformer(network_of(*model));
  transformer.loss(any_context(), sample.ids, sample.targets, batch, config.length, nll);
  const View<const float> outputs = transformer.heads().parameters();
  return BitHash().add(std::span(outputs.data(), static_cast<std::size_t>(outputs.size()))).add(nll);
}

/// The gradient of one batch, and the parameters after the first update.
BitHash update_bits(const ModelConfig& config) {
  Network network(config);
  Tensor values = random_values(network.table(), seed);
  const Sample sample(config);
  network.pack(any_context(), values.span<float>(), true);
  TrainingTransformer transformer(network, batch, config.length);
  Tensor gradients = Tensor::of<float>({network.table().size()});
  const double loss = transformer.forward(any_context(), sample.ids, sample.targets, batch, config.length,
                                          1e-2f, {0.1f, seed});
  transformer.backward(any_context(), gradients.span<float>());
  BitHash bits;
  bits.add(loss).add(gradients);
  const TrainingOptions options;
  Optimiser optimiser(network.table(), options);
  optimiser.update(any_context(), values.span<float>(), gradients.span<float>(), 1, learning_rate(options, 1),
                   1);
  return bits.add(values);
}

TEST(PortableBits, InitialWeights) {
  const Tensor values = values_of(*Model::random(linear_config(), seed));
  expect_bits("initial weights", BitHash().add(values),
              {0x435b5a023cb6a1f2, 0x435b5a023cb6a1f2, 0x435b5a023cb6a1f2, 0x435b5a023cb6a1f2});
}

TEST(PortableBits, ModelOfTheLinearFamily) {
  expect_bits("logits", output_bits(linear_config()),
              {0x657fa1b7b3a9cd30, 0x85f448d846e6b2cc, 0x82fa43e1bec3e5ea, 0x5d8ac4bfdd18223e});
  expect_bits("one update", update_bits(linear_config()),
              {0x2028d5349a3a5176, 0xc18f993590b04e9f, 0xeedf14ed99c5a5d6, 0xea10d6bcfe88c9a5});
}

TEST(PortableBits, ModelOfTheSoftmaxFamily) {
  expect_bits("logits", output_bits(softmax_config()),
              {0x2c49a8ad8821186e, 0xbe4d1747eeb30a72, 0x946cf5bef0c869d5, 0x0e327c70991e6128});
  expect_bits("one update", update_bits(softmax_config()),
              {0x7d15d3353abbde5c, 0x5ef8a9008268fa44, 0xd193047af26be37f, 0xc075b4e922e535e8});
}

}  // namespace
}  // namespace linnet
