// Updates after the first take no memory for what they compute: it is that of the first. Small tables of
// masks and of the library's calls come and go.
#include "support/allocations.h"

#include <gtest/gtest.h>

#include "linnet/training.h"
#include "support/numbers.h"

namespace linnet {
namespace {

constexpr std::int64_t examples = 4;

struct Kind {
  const char* name;
  void (*change)(ModelConfig&, TrainingOptions&);
};

ModelConfig small_config() {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 64;
  config.feed_forward = 128;
  config.length = 96;
  config.vocabulary = 32;
  return config;
}

TrainingOptions small_options() {
  TrainingOptions options;
  options.batch = examples;
  return options;
}

/// Of two updates after two others, on one thread: of several each takes memory when it meets a task for the
/// first time.
std::int64_t allocations_of(const Kind& kind) {
  ModelConfig config = small_config();
  TrainingOptions options = small_options();
  kind.change(config, options);
  Context context(1);
  Trainer trainer(context, config, options);
  const auto count = examples * options.accumulate;
  const std::vector<std::int32_t> inputs = random_tokens(count * config.length, config.input_tokens(), 1),
                                  targets = random_tokens(count * config.length, config.vocabulary, 2);
  const Batch batch{.examples = count, .length = config.length, .inputs = inputs, .targets = targets};
  for (int i = 0; i < 2; ++i) trainer.step(batch);
  const std::int64_t before = allocations::large;
  for (int i = 0; i < 2; ++i) trainer.step(batch);
  return allocations::large - before;
}

class TrainingAllocations : public testing::Test {
 protected:
  void SetUp() override {
    if (!allocations::counts_tensors)
      GTEST_SKIP() << "this sanitizer does not say when aligned memory is taken";
  }
};

TEST_F(TrainingAllocations, TheCountIsAlive) {
  const std::int64_t before = allocations::large;
  const ModelConfig config = small_config();
  EXPECT_GT(Tensor::of<float>({examples, config.length, config.width}).size(), 0);
  EXPECT_EQ(allocations::large - before, 1);
}

TEST_F(TrainingAllocations, UpdatesAfterTheFirstTakeNoMemoryForNumbers) {
  const Kind kinds[] = {
      {"linear", [](ModelConfig&, TrainingOptions&) {}},
      {"decay", [](ModelConfig& c, TrainingOptions&) { c.attention.linear.decay = Decay::learned; }},
      {"favor", [](ModelConfig& c, TrainingOptions&) { c.attention.linear.feature_map = "favor"; }},
      {"softmax", [](ModelConfig& c, TrainingOptions&) { c.attention.family = Family::softmax; }},
      {"layers", [](ModelConfig& c, TrainingOptions&) { c.attention.layers = "local,lsh"; }},
      {"dropout", [](ModelConfig& c, TrainingOptions&) { c.dropout = 0.1; }},
      {"mixtures", [](ModelConfig& c, TrainingOptions&) { c.head = OutputDistribution::logistics; }},
      {"gated", [](ModelConfig& c, TrainingOptions&) { c.activation = Activation::swiglu; }},
      {"passes", [](ModelConfig&, TrainingOptions& o) { o.accumulate = 3; }},
      {"bf16", [](ModelConfig&, TrainingOptions& o) { o.precision = WeightType::bf16; }},
      {"recompute", [](ModelConfig&, TrainingOptions& o) { o.recompute = true; }},
      {"segments", [](ModelConfig&, TrainingOptions& o) { o.segment = 32; }},
  };
  for (const Kind& kind : kinds) EXPECT_EQ(allocations_of(kind), 0) << kind.name;
}

}  // namespace
}  // namespace linnet
