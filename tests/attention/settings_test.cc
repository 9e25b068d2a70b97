#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/family.h"
#include "linnet/feature_map.h"

namespace linnet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

AttentionConfig of_family(Family family) {
  AttentionConfig config;
  config.family = family;
  return config;
}

TEST(AttentionSettings, OfAnotherFamilyHaveNoEffect) {
  const AttentionConfig linear = of_family(Family::linear);
  for (const char* key :
       {"attention.rounds", "attention.rank", "attention.window", "attention.stride", "attention.similarity"})
    EXPECT_EQ(without_effect(linear, 2, key), "on the family linear") << key;
  const AttentionConfig softmax = of_family(Family::softmax);
  for (const char* key : {"attention.feature_map", "attention.epsilon", "attention.normalise",
                          "attention.seed", "attention.decay"})
    EXPECT_EQ(without_effect(softmax, 2, key), "on the family softmax") << key;
  EXPECT_EQ(without_effect(softmax, 2, "attention.family"), "");
}

TEST(AttentionSettings, OfTheFamilyHaveOneUnlessOthersSwitchThemOff) {
  AttentionConfig linear = of_family(Family::linear);
  EXPECT_EQ(without_effect(linear, 2, "attention.alpha"), "");
  for (const char* key : {"attention.features", "attention.redraw", "attention.seed"})
    EXPECT_NE(without_effect(linear, 2, key), "") << key;
  EXPECT_EQ(without_effect(linear, 2, "attention.shortest_memory"),
            "beside the other settings of the family linear");
  linear.linear.feature_map = "favor";
  linear.linear.decay = Decay::fixed;
  EXPECT_NE(without_effect(linear, 2, "attention.alpha"), "");
  for (const char* key :
       {"attention.features", "attention.redraw", "attention.seed", "attention.shortest_memory"})
    EXPECT_EQ(without_effect(linear, 2, key), "") << key;

  // Log-scaled maps have no ε.
  EXPECT_NE(without_effect(linear, 2, "attention.epsilon"), "");
  linear.linear.feature_map = "random-relu";
  EXPECT_EQ(without_effect(linear, 2, "attention.epsilon"), "");

  AttentionConfig strided = of_family(Family::strided);
  EXPECT_NE(without_effect(strided, 2, "attention.summary"), "");
  strided.strided.pattern = SparsePattern::fixed;
  EXPECT_EQ(without_effect(strided, 2, "attention.summary"), "");

  EXPECT_EQ(without_effect(of_family(Family::lsh), 2, "attention.seed"), "");
  EXPECT_EQ(without_effect(of_family(Family::kernel), 2, "attention.epsilon"), "");
  EXPECT_EQ(without_effect(of_family(Family::linformer), 2, "attention.rank"), "");
  EXPECT_EQ(without_effect(of_family(Family::local), 2, "attention.window"), "");
}

TEST(AttentionSettings, OfAnyLayersFamilyHaveAnEffect) {
  AttentionConfig config = of_family(Family::softmax);
  EXPECT_EQ(without_effect(config, 2, "attention.layers"), "");
  config.layers = "linear,local";
  EXPECT_EQ(without_effect(config, 2, "attention.family"), "beside attention.layers");
  for (const char* key : {"attention.window", "attention.feature_map", "attention.layers", "attention.decay"})
    EXPECT_EQ(without_effect(config, 2, key), "") << key;
  EXPECT_EQ(without_effect(config, 2, "attention.rounds"), "on the families linear,local");
  EXPECT_EQ(without_effect(config, 2, "attention.features"),
            "beside the other settings of the family linear");
  config.linear.feature_map = "identity";
  EXPECT_THAT(doubtful_settings(config, 2), ElementsAre(HasSubstr("attention.normalise = none")));
}

TEST(AttentionSettings, ASumOfFeaturesOfEitherSignIsDoubtful) {
  AttentionConfig config = of_family(Family::linear);
  EXPECT_THAT(doubtful_settings(config, 2), IsEmpty());
  config.linear.feature_map = "identity";
  EXPECT_THAT(doubtful_settings(config, 2), ElementsAre(HasSubstr("attention.normalise = none")));
  for (const FeatureMapInfo& map : random_feature_map_table()) {
    config.linear.feature_map = map.name;
    EXPECT_EQ(doubtful_settings(config, 2).empty(), map.non_negative) << map.name;
  }
  config.linear.feature_map = "random-tanh";
  EXPECT_THAT(doubtful_settings(config, 2), ElementsAre(HasSubstr("feature_map = random-tanh has negative")));
  config.normalise = Normalise::none;
  EXPECT_THAT(doubtful_settings(config, 2), IsEmpty());
  config.normalise = Normalise::sum;
  config.family = Family::softmax;
  EXPECT_THAT(doubtful_settings(config, 2), IsEmpty());
}

}  // namespace
}  // namespace linnet
