#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <vector>

#include "linnet/dataset.h"
#include "support/shared_data.h"

namespace linnet {
namespace {

TEST(Mnist, OpensTheRealFilesWhereTheyAre) {
  const std::filesystem::path folder = shared_data_folder() / "mnist";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "needs the MNIST files in " << folder
                 << "; set LINNET_DATA to the folder that holds mnist/";
  const Datasets data = open_datasets({.kind = "mnist", .path = folder, .size = 28});
  EXPECT_EQ(data.training->size(), 60000);
  EXPECT_EQ(data.validation->size(), 10000);
  EXPECT_EQ(data.training->length(), 784);
  std::vector<std::int32_t> tokens(784), targets(784);
  // What is known of MNIST: the frequency of every digit, and the mean pixel, 33.3.
  std::array<int, 10> counts{};
  double sum = 0;
  for (std::int64_t i = 0; i < data.training->size(); ++i) {
    ++counts[static_cast<std::size_t>(data.training->read(i, tokens, targets))];
    for (const std::int32_t token : tokens) sum += token;
  }
  EXPECT_EQ(counts, (std::array<int, 10>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}));
  EXPECT_NEAR(sum / (60000.0 * 784), 33.32, 0.01);

  const Datasets small = open_datasets({.kind = "mnist", .path = folder, .size = 16});
  EXPECT_EQ(small.training->length(), 256);
}

}  // namespace
}  // namespace linnet
