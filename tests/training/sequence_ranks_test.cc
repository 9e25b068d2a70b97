// Ranks that divide the sequences of a pass: the results of one rank to rounding, and the same bits however
// many groups of them share the passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/ranks.h"
#include "support/runs.h"
#include "training/trainer.h"

namespace linnet {
namespace {

using testing::HasSubstr;

constexpr std::int64_t length = 12, vocabulary = 5;

const Counting& long_set() {
  static const Counting set(17, length, vocabulary);
  return set;
}

ModelConfig config_of(const char* map = "elu") {
  ModelConfig config = tiny_config();
  config.length = length;
  config.width = 8;
  config.attention.linear.feature_map = map;
  return config;
}

TrainingOptions options_of(std::int64_t sequence_ranks) {
  TrainingOptions options = tiny_options();
  options.steps = 4;
  options.accumulate = 2;
  options.sequence_ranks = sequence_ranks;
  return options;
}

/// What the ranks fail with, or nothing.
std::string train_on(int count, const ModelConfig& config, const TrainingOptions& options,
                     const std::filesystem::path& folder) {
  const std::vector<std::string> errors = on_ranks(count, [&](Communicator& rank) {
    Context context(1);
    train(context, config, options, long_set(), long_set(), folder, false, {}, nullptr, nullptr, &rank);
  });
  std::string all;
  for (const std::string& error : errors) all += error;
  return all;
}

std::vector<double> weights_after(int count, const ModelConfig& config, const TrainingOptions& options) {
  Folder folder("sequence");
  EXPECT_EQ(train_on(count, config, options, folder.path()), "");
  const auto model = Model::load(folder.path());
  std::vector<double> weights;
  for (const auto& [name, values] : by_name(*model))
    weights.insert(weights.end(), values.begin(), values.end());
  return weights;
}

TEST(SequenceRanks, TrainAsOneRankDoes) {
  for (const char* const map : {"elu", "favor"}) {
    const std::vector<double> alone = weights_after(1, config_of(map), options_of(1));
    for (const int stretches : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << map << ", " << stretches << " stretches");
      EXPECT_LT(relative_error(weights_after(stretches, config_of(map), options_of(stretches)), alone), 1e-4);
    }
  }
}

TEST(SequenceRanks, GroupsOfThemEndInTheBitsOfOneGroup) {
  ModelConfig config = config_of();
  for (const double dropout : {0.0, 0.2}) {
    config.dropout = dropout;
    for (const int stretches : {2, 3})
      EXPECT_EQ(weights_after(2 * stretches, config, options_of(stretches)),
                weights_after(stretches, config, options_of(stretches)));
  }
}

TEST(SequenceRanks, RecomputeInTheSameBits) {
  TrainingOptions options = options_of(2);
  const std::vector<double> kept = weights_after(2, config_of(), options);
  options.recompute = true;
  EXPECT_EQ(weights_after(2, config_of(), options), kept);
}

TEST(SequenceRanks, AreRefusedInOneSentence) {
  Folder folder("refused");
  const auto refusal = [&](int count, const ModelConfig& config, const TrainingOptions& options) {
    return train_on(count, config, options, folder / "run");
  };
  EXPECT_THAT(refusal(1, config_of(), options_of(2)),
              HasSubstr("training.sequence_ranks = 2 divides, got 1"));
  EXPECT_THAT(refusal(3, config_of(), options_of(2)), HasSubstr("divides, got 3"));
  EXPECT_THAT(refusal(6, config_of(), options_of(2)), HasSubstr("accumulate = 2 groups of 2 ranks"));
  EXPECT_THAT(refusal(5, config_of(), options_of(5)), HasSubstr("divides model.length = 12, got 5"));
  ModelConfig softmax = config_of();
  softmax.attention.layers = "linear,softmax";
  EXPECT_THAT(refusal(2, softmax, options_of(2)), HasSubstr("got softmax"));
  TrainingOptions segments = options_of(2);
  segments.segment = 4;
  EXPECT_THAT(refusal(2, config_of(), segments), HasSubstr("training.segment = 0, got 4"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace linnet
