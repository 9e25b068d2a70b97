// Training on the data sets that the program offers.
#include <gtest/gtest.h>

#include "support/contexts.h"
#include "support/runs.h"

namespace linnet {
namespace {

/// First and last bits of a short run.
std::pair<double, double> train_on(const DataOptions& data, ModelConfig config, std::int64_t steps) {
  const Datasets sets = open_datasets(data);
  config.length = sets.training->length();
  config.vocabulary = sets.training->vocabulary();
  config.classes = sets.training->classes();
  config.image_height = image_shape(*sets.training).height;
  config.image_width = image_shape(*sets.training).width;
  TrainingOptions options = tiny_options();
  options.steps = steps;
  options.batch = 8;
  options.accumulate = 1;
  options.learning_rate = 0.005;
  options.evaluate_every = 0;
  options.evaluate_examples = 32;
  options.checkpoint_every = 1000;
  double first = 0;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step == 1) first = report.bits;
  };
  Folder folder;
  const TrainingResult result = train(any_context(), config, options, *sets.training, *sets.validation,
                                      folder.path(), false, callbacks);
  return {first, result.evaluation->bits};
}

TEST(Training, LossFallsOnTheCopyTask) {
  for (const Family family : {Family::linear, Family::softmax}) {
    ModelConfig config = tiny_config();
    config.attention.family = family;
    config.width = 32;
    config.heads = 4;
    config.feed_forward = 64;
    DataOptions data;
    data.kind = "copy";
    data.length = 10;
    data.examples = 2000;
    const auto [first, last] = train_on(data, config, 250);
    EXPECT_GT(first, 3) << name_of(family);
    EXPECT_LT(last, 0.75 * first) << name_of(family);
  }
}

TEST(Training, LossFallsOnDigits) {
  ModelConfig config = tiny_config();
  config.width = 24;
  config.heads = 3;
  config.feed_forward = 48;
  config.head = OutputDistribution::logistics;
  config.mixtures = 4;
  DataOptions data;
  data.kind = "digits";
  data.size = 8;
  data.examples = 500;
  const auto [first, last] = train_on(data, config, 120);
  EXPECT_GT(first, 4);
  EXPECT_LT(last, 0.8 * first);
}

}  // namespace
}  // namespace linnet
