#include "base/names.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/fail.h"

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

TEST(NearestName, IsSilentAboutNamesOfMillionsOfLetters) {
  const std::vector<std::string> known = {"elu", "relu"};
  EXPECT_EQ(nearest_name(std::string(20'000'000, 'e'), known), "");
  EXPECT_EQ(nearest_name("elu", std::vector<std::string>{std::string(20'000'000, 'e'), "eku"}), "eku");
}

TEST(Shortened, KeepsWholeCharactersAndSaysTheSize) {
  EXPECT_EQ(shortened("short"), "short");
  EXPECT_EQ(shortened("abcdef", 3), "abc… (6 bytes)");
  EXPECT_EQ(shortened("aéé", 2), "a… (5 bytes)");
  EXPECT_EQ(shortened("aéé", 3), "aé… (5 bytes)");
}

TEST(Fail, LeavesOutTheMiddleOfHugeSentences) {
  std::string found(5'000'000, 'x');
  found += "|the end";
  try {
    fail("operation", "expected {}, got {}", "little", found);
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_LT(what.size(), 2000u);
    EXPECT_TRUE(what.starts_with("[operation] expected little, got xxx")) << what;
    EXPECT_TRUE(what.ends_with("xxx|the end")) << what;
  }
}

}  // namespace
}  // namespace linnet
