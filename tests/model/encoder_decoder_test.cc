// Encoder–decoder models: loss and gradients against double precision, padding against single sequences, and
// the recurrent form against the parallel one.
#include <gtest/gtest.h>

#include <cmath>

#include "linnet/error.h"
#include "model/training_transformer.h"
#include "model/transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 73;

ModelConfig config_of(Family family, NormOrder norm, Positions positions = Positions::learned) {
  ModelConfig config = tiny_config();
  config.attention.family = family;
  config.norm = norm;
  config.positions = positions;
  if (positions == Positions::rotary) config.width = 8;
  config.encoder_layers = 1;
  config.source_length = 7;
  config.source_vocabulary = 4;
  config.check();
  return config;
}

template <class Test>
void for_each_form(const Test& test) {
  for (const Family family : {Family::linear, Family::softmax})
    for (const NormOrder norm : {NormOrder::pre, NormOrder::post}) {
      SCOPED_TRACE(testing::Message() << name_of(family) << ", " << name_of(norm) << "-norm, seed " << seed);
      test(family, norm);
    }
}

reference::Steps random_steps(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                              std::int64_t source_length) {
  reference::Steps steps{.batch = batch, .length = length};
  steps.ids = random_inputs(config, batch, length, seed);
  steps.targets = random_tokens(batch * length, config.vocabulary, seed + 1);
  steps.targets[1] = -1;
  steps.source = random_tokens(batch * source_length, config.source_tokens(), seed + 2);
  return steps;
}

Pass pass_of(const reference::Steps& steps) {
  return {.batch = steps.batch,
          .length = steps.length,
          .ids = steps.ids,
          .key_lengths = steps.key_lengths,
          .targets = steps.targets,
          .source = steps.source,
          .source_lengths = steps.source_lengths};
}

TEST(EncoderDecoder, LossAndGradientsMatchTheReference) {
  for_each_form([](Family family, NormOrder norm) {
    const ModelConfig config = config_of(family, norm);
    Network network(config);
    const Tensor values = random_values(network.table(), seed);
    network.pack(any_context(), values.span<float>(), true);
    reference::Steps steps = random_steps(config, 3, 5, 6);
    steps.source_lengths = {6, 2, 4};
    TrainingTransformer transformer(network, 4, 6);
    Tensor gradients = Tensor::of<float>({network.table().size()});
    double loss = 0;
    for (int time = 0; time < 2; ++time) {
      loss = transformer.forward(any_context(), pass_of(steps), 0.125f, {});
      transformer.backward(any_context(), gradients.span<float>());
    }
    EXPECT_EQ(transformer.first_not_finite(any_context()), "");
    const reference::Parameters at = by_name(network.table(), values.span<float>());
    const Loss expected = [&](const reference::Parameters& p) { return reference::loss(config, p, steps); };
    EXPECT_NEAR(loss, expected(at), 2e-6 * std::abs(expected(at)));
    expect_gradients(by_name(network.table(), gradients.span<float>(), 0.5 / 0.125),
                     differences(expected, at), 5e-5);
    expect_padding_is_zero(network.table(), gradients.span<float>());
    Transformer alone(network);
    EXPECT_NEAR(alone.loss(any_context(), pass_of(steps)), loss, 1e-6 * std::abs(loss));
  });
}

TEST(EncoderDecoder, GradientsUnderDropoutAreThoseOfTheLoss) {
  for_each_form([](Family family, NormOrder norm) {
    const ModelConfig config = config_of(family, norm);
    Network network(config);
    Tensor values = random_values(network.table(), seed);
    const reference::Steps steps = random_steps(config, 3, 5, 6);
    TrainingTransformer transformer(network, 3, 6);
    const Dropout dropout{0.3f, 5};
    const auto loss = [&](const Tensor& at) {
      network.pack(any_context(), at.span<float>(), true);
      return transformer.forward(any_context(), pass_of(steps), 1, dropout);
    };
    Tensor gradients = Tensor::of<float>({network.table().size()});
    loss(values);
    transformer.backward(any_context(), gradients.span<float>());
    double square = 0;
    for (const float g : gradients.span<float>()) square += double(g) * g;
    // Along the gradient the loss rises by its norm.
    const double step = 1e-3, norm_of_gradient = std::sqrt(square);
    const auto moved = [&](double by) {
      Tensor at = values.clone();
      for (std::size_t i = 0; i < at.span<float>().size(); ++i)
        at.span<float>()[i] += static_cast<float>(by * gradients.span<float>()[i] / norm_of_gradient);
      return loss(at);
    };
    EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step) / norm_of_gradient, 1, 5e-3);
  });
}

TEST(EncoderDecoder, PaddedBatchesHaveTheLossesAndGradientsOfTheSingleSequences) {
  for_each_form([](Family family, NormOrder norm) {
    const ModelConfig config = config_of(family, norm);
    Network network(config);
    const Tensor values = random_values(network.table(), seed);
    network.pack(any_context(), values.span<float>(), true);
    reference::Steps steps = random_steps(config, 3, 6, 7);
    steps.key_lengths = {6, 1, 4};
    steps.source_lengths = {1, 7, 3};
    TrainingTransformer transformer(network, 3, 6);
    Tensor together = Tensor::of<float>({network.table().size()}), single = together.clone();
    double sum = 0;
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t known = steps.key_lengths[static_cast<std::size_t>(b)];
      for (std::int64_t i = known; i < 6; ++i) steps.targets[static_cast<std::size_t>(b * 6 + i)] = -1;
      const auto part = [&](const std::vector<std::int32_t>& all, std::int64_t each, std::int64_t count) {
        const auto begin = all.begin() + b * each;
        return std::vector<std::int32_t>(begin, begin + count);
      };
      const reference::Steps one = {
          .batch = 1,
          .length = known,
          .ids = part(steps.ids, 6, known),
          .targets = part(steps.targets, 6, known),
          .source = part(steps.source, 7, steps.source_lengths[static_cast<std::size_t>(b)])};
      sum += transformer.forward(any_context(), pass_of(one), 1, {});
      transformer.backward(any_context(), single.span<float>());
    }
    const double loss = transformer.forward(any_context(), pass_of(steps), 1, {});
    transformer.backward(any_context(), together.span<float>());
    EXPECT_NEAR(loss, sum, 2e-6 * std::abs(sum));
    const std::vector<double> expected(single.span<float>().begin(), single.span<float>().end());
    EXPECT_LT(relative_error(together.span<float>(), expected), 1e-5);
  });
}

TEST(EncoderDecoder, RecurrentFormGivesTheHiddenRowsOfTheParallelOne) {
  for_each_form([](Family family, NormOrder norm) {
    for (const Positions positions : {Positions::sinusoidal, Positions::rotary}) {
      const ModelConfig config = config_of(family, norm, positions);
      const std::int64_t length = 70, source = 90, width = config.width;
      Network network(config);
      const Tensor values = random_values(network.table(), seed);
      network.pack(any_context(), values.span<float>(), false);
      const reference::Steps steps = random_steps(config, 1, length, source);
      const reference::Matrix expected =
          reference::hidden_rows(config, by_name(network.table(), values.span<float>()), steps);
      Transformer parallel(network);
      const Memory memory = parallel.encode(any_context(), {steps.source, 1, source, {}});
      const View<const float> rows =
          parallel.forward(any_context(), steps.ids, 1, length, 0, nullptr, nullptr, {}, {}, memory);
      EXPECT_LT(relative_error(std::vector<float>(rows.data(), rows.data() + rows.size()), expected.values),
                1e-5);
      const std::vector<double> all(rows.data(), rows.data() + rows.size());

      RecurrentState summary(network, 1), state(network, 2);
      summary.summarise(any_context(), network,
                        parallel.encode(any_context(), {steps.source, 1, source, {}}));
      EXPECT_EQ(summary.source_tokens(0), source);
      state.copy(1, summary, 0);
      const RecurrentTransformer recurrent(network);
      std::vector<float> hidden(static_cast<std::size_t>(length * width));
      const std::int64_t slot[] = {1};
      for (std::int64_t i = 0; i < length; ++i)
        recurrent.hidden(any_context(), View<float>(&hidden[static_cast<std::size_t>(i * width)], {1, width}),
                         std::span<const std::int32_t>(steps.ids).subspan(static_cast<std::size_t>(i), 1),
                         slot, state);
      EXPECT_LT(relative_error(hidden, all), 1e-5);

      // The rows of a prompt in two slices.
      RecurrentState prompt(network, 1);
      prompt.copy(0, summary, 0);
      std::vector<float> sliced;
      for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 33}, {33, length - 33}}) {
        const View<const float> part =
            parallel.forward(any_context(),
                             std::span<const std::int32_t>(steps.ids).subspan(
                                 static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                             1, count, first, &prompt, &prompt);
        sliced.insert(sliced.end(), part.data(), part.data() + part.size());
      }
      EXPECT_LT(relative_error(sliced, all), 1e-5);
    }
  });
}

TEST(EncoderDecoder, StateOfLinearAttentionDoesNotGrowWithTheSource) {
  const ModelConfig config = config_of(Family::linear, NormOrder::pre, Positions::sinusoidal);
  Network network(config);
  const Tensor values = random_values(network.table(), seed);
  network.pack(any_context(), values.span<float>(), false);
  Transformer parallel(network);
  std::vector<std::size_t> bytes;
  for (const std::int64_t source : {1, 1000}) {
    RecurrentState state(network, 1);
    const std::vector<std::int32_t> tokens = random_tokens(source, config.source_tokens(), seed);
    state.summarise(any_context(), network, parallel.encode(any_context(), {tokens, 1, source, {}}));
    bytes.push_back(state.bytes(0));
    RecurrentState other(network, 1);
    other.restore(0, state.save(0), 0);
    EXPECT_EQ(other.source_tokens(0), source);
    EXPECT_EQ(other.save(0), state.save(0));
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(EncoderDecoder, ScoresAreTheLogarithmsOfTheReference) {
  const ModelConfig config = config_of(Family::linear, NormOrder::pre);
  const auto model = random_model(config, seed);
  const std::vector<std::int32_t> source = {1, 0, 3, 2}, tokens = {4, 0, 2, 2, 1};
  const std::vector<float> scores = model->score(any_context(), source, tokens);
  ASSERT_EQ(scores.size(), tokens.size());
  double sum = 0;
  for (const float score : scores) sum -= score;
  reference::Steps steps{.batch = 1, .length = 5, .ids = {config.first_input(-1), 4, 0, 2, 2}};
  steps.targets = tokens;
  steps.source = source;
  EXPECT_NEAR(sum, reference::loss(config, by_name(*model), steps), 1e-5 * sum);
  EXPECT_THROW(model->score(any_context(), tokens), UsageError);
  EXPECT_THROW(model->score(any_context(), std::vector<std::int32_t>{4}, tokens), UsageError);
  EXPECT_THROW(model->score(any_context(), std::vector<std::int32_t>{}, tokens), UsageError);
  EXPECT_THROW(model->forward(any_context(), tokens, 1, 5), UsageError);
}

TEST(EncoderDecoder, ConfigurationsThatDoNotGoWithAnEncoderAreRefused) {
  const auto refused = [](const std::function<void(ModelConfig&)>& change, const std::string& part) {
    ModelConfig config = config_of(Family::linear, NormOrder::pre);
    change(config);
    try {
      config.check();
      ADD_FAILURE() << "expected a refusal that says " << part;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused([](ModelConfig& c) { c.encoder_layers = 0; }, "model.encoder_layers of at least 1");
  refused([](ModelConfig& c) { c.objective = Objective::masked; }, "next-token");
  refused([](ModelConfig& c) { c.fields = "5,3"; }, "one field");
  refused([](ModelConfig& c) { c.columns = 2; }, "tokens alone");
  refused([](ModelConfig& c) { c.classes = 2; }, "model.classes = 0");
  refused([](ModelConfig& c) { c.attention.layers = "linear,softmax"; }, "attention.family for all layers");
  refused([](ModelConfig& c) { c.attention.family = Family::strided; }, "\"linear\" or \"softmax\"");
  refused([](ModelConfig& c) { c.source_length = 0; }, "model.source_length of at least 1");
  refused([](ModelConfig& c) { c.source_vocabulary = 1; }, "model.source_vocabulary of at least 2");
}

}  // namespace
}  // namespace linnet
