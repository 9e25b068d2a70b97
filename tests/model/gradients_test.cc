// Loss and gradients of whole models against the transformer in double precision.
#include <gtest/gtest.h>

#include "model/training_transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/dropout.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 61;

/// f32 through a whole model: a layer norm of a nearly constant row, or a small denominator, magnifies
/// rounding.
constexpr double tolerance = 3e-5;

void expect_model_matches(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                          const Dropout& dropout = {}) {
  SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
  Network network(config);
  const ParameterTable& table = network.table();
  const Tensor values = random_values(table, seed);
  network.pack(any_context(), values.span<float>(), true);
  const auto ids = random_inputs(config, batch, length, seed);
  auto targets = random_tokens(batch * length, config.vocabulary, seed + 1);
  if (targets.size() > 2) targets[1] = -1;

  TrainingTransformer transformer(network, batch + 1,
                                  length + 1);  // passes may be smaller than what was reserved
  Tensor gradients = Tensor::of<float>({table.size()});
  double loss = 0;
  for (int time = 0; time < 2; ++time) {
    loss = transformer.forward(any_context(), ids, targets, batch, length, 0.125f, dropout);
    transformer.backward(any_context(), gradients.span<float>());
  }
  EXPECT_EQ(transformer.first_not_finite(any_context()), "");

  std::vector<reference::BlockMasks> masks;
  for (int layer = 0; layer < config.layers && dropout.rate > 0; ++layer) {
    const Block& block = network.blocks()[static_cast<std::size_t>(layer)];
    masks.push_back(dropout_masks(block.parts(), batch, length, dropout));
  }
  const Loss expected = [&](const reference::Parameters& p) {
    return reference::loss(config, p, ids, targets, length, masks);
  };
  const reference::Parameters at = by_name(table, values.span<float>());
  EXPECT_NEAR(loss, expected(at), 1e-6 * expected(at));
  expect_gradients(by_name(table, gradients.span<float>(), 0.5 / 0.125), differences(expected, at),
                   tolerance);
  expect_padding_is_zero(table, gradients.span<float>());
}

class ModelGradients : public testing::TestWithParam<const char*> {};

struct Output {
  OutputDistribution head;
  bool tied;
};

/// Every combination of normalisation, positions and output, for each kind of attention.
TEST_P(ModelGradients, MatchReference) {
  ModelConfig config = tiny_config();
  const std::string attention = GetParam();
  config.attention.family = attention == "softmax" ? Family::softmax : Family::linear;
  if (attention != "softmax") config.attention.linear.feature_map = attention;
  if (attention == "elu") config.attention.linear.alpha = 0.7;
  if (attention == "relu" || attention == "squared-relu") config.attention.epsilon = 0.1;
  if (attention == "identity") config.attention.normalise = Normalise::none;
  for (const NormOrder norm : {NormOrder::pre, NormOrder::post})
    for (const Positions positions : {Positions::learned, Positions::sinusoidal, Positions::none})
      for (const Output output : {Output{OutputDistribution::categorical, false},
                                  {OutputDistribution::categorical, true},
                                  {OutputDistribution::logistics, false}}) {
        config.norm = norm;
        config.positions = positions;
        config.head = output.head;
        config.tied_output = output.tied;
        config.classes = output.tied ? 3 : 0;
        expect_model_matches(config, 2, 4);
      }
}

INSTANTIATE_TEST_SUITE_P(Attention, ModelGradients,
                         testing::Values("elu", "relu", "squared-relu", "exp", "identity", "softmax"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(ModelGradients, MatchReferenceForAwkwardShapes) {
  ModelConfig config = tiny_config();
  config.activation = Activation::gelu_tanh;
  for (const auto& [layers, heads, width, hidden] :
       {std::array<std::int64_t, 4>{1, 1, 1, 1}, {1, 1, 7, 3}, {3, 5, 5, 2}, {1, 3, 9, 17}})
    for (const NormOrder norm : {NormOrder::pre, NormOrder::post}) {
      config.layers = layers;
      config.heads = heads;
      config.width = width;
      config.feed_forward = hidden;
      config.norm = norm;
      SCOPED_TRACE(testing::Message() << layers << " layers, " << heads << " heads, width " << width);
      if (width > 1) expect_model_matches(config, 1, 5);  // layer norm of a single number is its bias
      config.activation = Activation::relu;
      expect_model_matches(config, 3, 1);
    }
}

TEST(ModelGradients, MatchReferenceWithOtherBlocksInEveryLayer) {
  for (const NormOrder norm : {NormOrder::pre, NormOrder::post}) {
    ModelConfig config = with_other_blocks(tiny_config(), "linear,local,softmax");
    config.norm = norm;
    expect_model_matches(config, 2, 5);
    config.attention.linear.decay = Decay::learned;  // of the linear layers alone
    expect_model_matches(config, 1, 4);
    config.attention.linear.decay = Decay::none;
    config.dropout = 0.3;
    expect_model_matches(config, 2, 4, {0.3f, 9});
  }
}

TEST(ModelGradients, MatchReferenceWithOneNewPartAtATime) {
  ModelConfig config = tiny_config();
  config.norm_kind = NormKind::rms;
  expect_model_matches(config, 2, 4);
  config = tiny_config();
  config.activation = Activation::swiglu;
  expect_model_matches(config, 2, 4);
  config = tiny_config();
  config.attention.layers = "softmax,linear";
  expect_model_matches(config, 2, 4);
  config = tiny_config();
  config.width = 8;
  config.positions = Positions::rotary;
  expect_model_matches(config, 2, 4);
}

TEST(ModelGradients, MatchReferenceUnderDropout) {
  ModelConfig config = tiny_config();
  config.dropout = 0.3;
  for (const NormOrder norm : {NormOrder::pre, NormOrder::post}) {
    config.norm = norm;
    expect_model_matches(config, 2, 4, {0.3f, 9});
  }
}

TEST(TrainingTransformer, NamesTheFirstPlaceThatIsNotFinite) {
  const ModelConfig config = tiny_config();
  Network network(config);
  const auto ids = random_inputs(config, 1, 4, seed), targets = random_tokens(4, config.vocabulary, seed);
  const auto place = [&](const std::string& parameter, float value) {
    Tensor values = random_values(network.table(), seed);
    fill(network.table(), values.span<float>(), parameter, value);
    network.pack(any_context(), values.span<float>(), true);
    TrainingTransformer transformer(network, 1, 4);
    EXPECT_FALSE(std::isfinite(transformer.forward(any_context(), ids, targets, 1, 4, 1, {}))) << parameter;
    return transformer.first_not_finite(any_context());
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(place("embedding.weight", bad), "embedding");
    EXPECT_EQ(place("layers.0.attention.output.bias", bad), "layers.0");
    EXPECT_EQ(place("layers.1.feed_forward.second.bias", bad), "layers.1");
    EXPECT_EQ(place("head.bias", bad), "head");
  }
}

}  // namespace
}  // namespace linnet
