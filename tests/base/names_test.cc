#include "base/names.h"

#include <gtest/gtest.h>

#include <vector>

namespace linnet {
namespace {

TEST(NearestName, FindsTheSlipOfTheFinger) {
  const std::vector<std::string> known = {"model.layers", "model.heads", "training.batch",
                                          "attention.family"};
  EXPECT_EQ(nearest_name("model.layer", known), "model.layers");
  EXPECT_EQ(nearest_name("model.haeds", known), "model.heads");
  EXPECT_EQ(nearest_name("attention.familie", known), "attention.family");
}

TEST(NearestName, IsSilentWhereNothingIsNear) {
  const std::vector<std::string> known = {"elu", "relu"};
  EXPECT_EQ(nearest_name("photosynthesis", known), "");
  EXPECT_EQ(nearest_name("elu", std::span<const std::string>()), "");
}

}  // namespace
}  // namespace linnet
