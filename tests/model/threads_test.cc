// What a model computes does not depend on the number of threads, bit for bit.
#include <gtest/gtest.h>

#include "model/training_transformer.h"
#include "model/transformer.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 91;

/// Wide and long enough that every layer has more than one block of work.
std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> result;
  for (const Family family : {Family::linear, Family::softmax}) {
    ModelConfig config = tiny_config();
    config.attention.family = family;
    config.heads = 4;
    config.width = 60;
    config.feed_forward = 130;
    config.length = 333;
    config.vocabulary = 67;
    config.dropout = 0.2;
    config.head = family == Family::linear ? OutputDistribution::categorical : OutputDistribution::logistics;
    config.norm = family == Family::linear ? NormOrder::pre : NormOrder::post;
    result.push_back(config);
  }
  return result;
}

/// Runs `compute` with 1, 2, 3 and 8 threads and compares all results with the first.
template <class Compute>
void expect_same_bits(Compute compute) {
  std::vector<float> expected;
  for (const int threads : {1, 2, 3, 8}) {
    Context context(threads);
    const std::vector<float> actual = compute(context);
    if (threads == 1) expected = actual;
    EXPECT_FALSE(actual.empty());
    EXPECT_TRUE(same_bits(actual, expected)) << threads << " threads";
  }
}

TEST(ThreadCount, DoesNotChangeLossAndGradients) {
  for (const ModelConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    Network network(config);
    const Tensor values = random_values(network.table(), seed);
    const std::int64_t batch = 3;
    const auto ids = random_inputs(config, batch, config.length, seed);
    const auto targets = random_tokens(batch * config.length, config.vocabulary, seed + 1);
    expect_same_bits([&](Context& context) {
      network.pack(context, values.span<float>(), true);
      TrainingTransformer transformer(network, batch, config.length);
      Tensor gradients = Tensor::of<float>({network.table().size()});
      const double loss = transformer.forward(context, ids, targets, batch, config.length, 1e-3f, {0.2f, 4});
      transformer.backward(context, gradients.span<float>());
      std::vector<float> result(gradients.span<float>().begin(), gradients.span<float>().end());
      result.resize(result.size() + 2);
      std::memcpy(&result[result.size() - 2], &loss, sizeof loss);
      return result;
    });
  }
}

TEST(ThreadCount, DoesNotChangeTheParallelForm) {
  for (const ModelConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    for (const std::int64_t batch : {1, 3}) {
      const auto ids = random_inputs(config, batch, config.length, seed);
      const auto targets = random_tokens(batch * config.length, config.vocabulary, seed + 1);
      expect_same_bits([&](Context& context) {
        Transformer transformer(network_of(*model));
        std::vector<float> nll(targets.size());
        transformer.loss(context, ids, targets, batch, config.length, nll);
        const View<const float> parameters = transformer.heads().parameters();
        nll.insert(nll.end(), parameters.data(), parameters.data() + parameters.size());
        return nll;
      });
    }
  }
}

TEST(ThreadCount, DoesNotChangeSteps) {
  for (const ModelConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const std::int64_t streams = 19, outputs = network_of(*model).head().outputs();
    const auto ids = random_tokens(streams * 20, config.vocabulary, seed);
    std::vector<std::int64_t> slots(streams);
    for (std::int64_t i = 0; i < streams; ++i) slots[static_cast<std::size_t>(i)] = i;
    expect_same_bits([&](Context& context) {
      const RecurrentTransformer transformer(network_of(*model));
      RecurrentState state(network_of(*model), streams);
      std::vector<float> rows(static_cast<std::size_t>(streams * outputs));
      for (std::size_t t = 0; t < 20; ++t)
        transformer.step(context, view(rows, {streams, outputs}),
                         std::span(ids).subspan(t * streams, streams), slots, state);
      return rows;
    });
  }
}

}  // namespace
}  // namespace linnet
