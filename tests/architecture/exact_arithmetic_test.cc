// No source uses an operation whose result each manufacturer of processors chooses: estimates of reciprocals
// and of reciprocal square roots (docs/numerics.md, "One instruction set, the same bits").
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

namespace linnet {
namespace {

namespace fs = std::filesystem;

bool estimates(const std::string& line) {
  static const std::regex pattern("ApproximateReciprocal|_(rcp|rsqrt)(14|28)?_|_mm[0-9]*_exp2a23_");
  return std::regex_search(line, pattern);
}

TEST(ExactArithmetic, NoSourceEstimates) {
  int files = 0;
  for (const char* folder : {"include", "src", "apps"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(LINNET_SOURCE_FOLDER) / folder)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || (extension != ".h" && extension != ".cc")) continue;
      ++files;
      std::ifstream text(entry.path());
      std::string line;
      for (int number = 1; std::getline(text, line); ++number) {
        EXPECT_FALSE(estimates(line)) << entry.path().string() << ":" << number << ": " << line;
      }
    }
  EXPECT_GT(files, 50) << "too few files found below " << LINNET_SOURCE_FOLDER;
}

TEST(ExactArithmetic, EstimatesAreFoundInEverySpelling) {
  for (const char* line :
       {"hn::ApproximateReciprocal(x)", "hn::ApproximateReciprocalSqrt(x)", "_mm_rcp_ps(x)",
        "_mm256_rsqrt_ps(x)", "_mm512_rcp14_ps(x)", "_mm512_rsqrt28_ps(x)"})
    EXPECT_TRUE(estimates(line)) << line;
  for (const char* line : {"hn::Div(one, x)", "hn::Sqrt(x)", "_mm512_sqrt_ps(x)"})
    EXPECT_FALSE(estimates(line)) << line;
}

}  // namespace
}  // namespace linnet
