#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
#include "data/cifar.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/temporary_folder.h"
#include "linnet/dataset.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t size = 8, levels = 16;

/// A folder of CIFAR-10's files with two pictures each, scaled down to 8 × 8, and a model of them.
class Colours : public testing::Test {
 protected:
  Colours() {
    fs::create_directory(cifar_);
    for (int i = 1; i <= 5; ++i) write_batch("data_batch_" + std::to_string(i) + ".bin");
    write_batch("test_batch.bin");
    folder_.file("tiny.toml",
                 "[data]\nkind = \"cifar10\"\nsize = 8\nlevels = 16\n"
                 "[model]\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\n"
                 "[training]\nsteps = 2\nbatch = 4\nsample_every = 2\nevaluate_examples = 2\n");
    succeed({"train", config_, "--data", cifar_.string(), "--out", run_});
  }
  void write_batch(const std::string& name) {
    std::string bytes;
    for (char label = 0; label < 2; ++label) {
      bytes += label;
      for (int i = 0; i < 3072; ++i)
        bytes += static_cast<char>((i * 37 + label * 101 + (i >> 10) * 77) % 251);
    }
    folder_.file("cifar/" + name, bytes);
  }
  /// A picture of 8 × 8 whose pixels differ in every channel.
  static Image colourful() {
    Image image{size, size, 3, std::vector<std::uint8_t>(size * size * 3)};
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(i * 83);
    return image;
  }

  TemporaryFolder folder_;
  fs::path cifar_ = folder_ / "cifar";
  std::string config_ = (folder_ / "tiny.toml").string(), run_ = (folder_ / "run").string(),
              out_ = (folder_ / "out.png").string();
};

TEST_F(Colours, AreLearntSampledAndEvaluated) {
  const Json config = read_json(fs::path(run_) / "config.json");
  EXPECT_EQ(config["image"], (Json{{"height", 8}, {"width", 8}, {"channels", 3}}));
  EXPECT_EQ(config["model"]["length"], 192);
  EXPECT_EQ(read_png(fs::path(run_) / "samples/2.png").channels, 3);
  const Json result = json_of(succeed({"evaluate", run_, "--data", cifar_.string(), "--json"}));
  EXPECT_EQ(result["tokens"], 2 * 192);
}

TEST_F(Colours, OfTheValidationSplitNeedNoTrainingFiles) {
  const Json before = json_of(succeed({"evaluate", run_, "--json"}));
  for (int i = 1; i <= 5; ++i) fs::remove(cifar_ / ("data_batch_" + std::to_string(i) + ".bin"));
  const Json of_run = json_of(succeed({"evaluate", run_, "--split", "validation", "--json"}));
  EXPECT_EQ(of_run["bits_per_token"], before["bits_per_token"]);
  const Json of_folder = json_of(succeed({"evaluate", run_, "--data", cifar_.string(), "--json"}));
  EXPECT_EQ(of_folder["bits_per_token"], before["bits_per_token"]);
  refuses(failed, {"evaluate", run_, "--split", "training"}, {"data_batch_1.bin"});
}

TEST_F(Colours, HeldOutOfTheTrainingFilesLeaveTheTestFilesForTesting) {
  const std::string run = (folder_ / "held").string();
  succeed({"train", config_, "--data", cifar_.string(), "--out", run, "--set", "data.held_out=3",
           "training.evaluate_examples=0"});
  const Json heading = parse_json(lines_of(read_file(run + "/metrics.jsonl")).front(), "metrics.jsonl");
  EXPECT_EQ(heading["validation_examples"], 3);
  const auto tokens = [&](const Strings& more) {
    return json_of(succeed(joined({"evaluate", run, "--json"}, more)))["tokens"].get<std::int64_t>() / 192;
  };
  EXPECT_EQ(tokens({}), 3);
  EXPECT_EQ(tokens({"--data", cifar_.string()}), 3);
  EXPECT_EQ(tokens({"--split", "training"}), 7);
  for (int i = 1; i <= 5; ++i) fs::remove(cifar_ / ("data_batch_" + std::to_string(i) + ".bin"));
  EXPECT_EQ(tokens({"--split", "test"}), 2);
  EXPECT_EQ(tokens({"--split", "test", "--data", cifar_.string()}), 2);
  // Of another model the test files are for both.
  const Json bits = json_of(succeed({"evaluate", run_, "--json"}))["bits_per_token"];
  EXPECT_EQ(json_of(succeed({"evaluate", run_, "--split", "test", "--json"}))["bits_per_token"], bits);
}

TEST_F(Colours, AreCompleted) {
  const Image given = colourful();
  const std::string in = (folder_ / "in.png").string();
  write_png(in, given);
  succeed({"generate", run_, "--complete", in, "--out", out_});
  const Image grid = read_png(out_);
  ASSERT_EQ(grid.channels, 3);
  ASSERT_EQ(grid.width, 60);
  for (std::int64_t y = 0; y < 4; ++y)
    for (std::int64_t x = 0; x < size; ++x)
      for (std::int64_t c = 0; c < 3; ++c)
        EXPECT_EQ(grid.pixels[static_cast<std::size_t>(((2 + 7 * y) * 60 + 2 + 7 * x) * 3 + c)],
                  pixel_of_token(
                      token_of_pixel(given.pixels[static_cast<std::size_t>((y * size + x) * 3 + c)], levels),
                      levels))
            << y << ", " << x << ", " << c;
}

TEST_F(Colours, OfCifarAreScaledDownAsTheValidationSplitIs) {
  succeed(
      {"generate", run_, "--complete", (cifar_ / "test_batch.bin").string(), "--count", "1", "--out", out_});
  const Image grid = read_png(out_);
  const Datasets data =
      open_datasets({.kind = "cifar10", .path = cifar_.string(), .size = size, .levels = levels});
  std::vector<std::int32_t> tokens(3 * size * size), targets(tokens);
  data.validation->read(0, tokens, targets);
  for (std::int64_t y = 0; y < size / 2; ++y)
    for (std::int64_t x = 0; x < size; ++x)
      for (std::int64_t c = 0; c < 3; ++c)
        EXPECT_EQ(grid.pixels[static_cast<std::size_t>(((2 + 7 * y) * grid.width + 2 + 7 * x) * 3 + c)],
                  pixel_of_token(tokens[static_cast<std::size_t>((y * size + x) * 3 + c)], levels))
            << y << ", " << x << ", " << c;
}

TEST_F(Colours, OfFilesThatDoNotFitAreRefused) {
  const std::string grey = (folder_ / "grey.png").string();
  write_png(grey, {size, size, 1, std::vector<std::uint8_t>(size * size)});
  refuses(failed, {"generate", run_, "--complete", grey, "--out", out_},
          {grey, "red, green, blue", "1 channel"});
  const std::string small = (folder_ / "small.png").string();
  write_png(small, {size, size - 1, 3, std::vector<std::uint8_t>(3 * size * (size - 1))});
  refuses(failed, {"generate", run_, "--complete", small, "--out", out_},
          {"small.png", "at least 8 × 8", "7 × 8"});
  folder_.file("cifar/data_batch_2.bin", "damaged");
  refuses(failed, {"evaluate", run_, "--data", cifar_.string(), "--split", "training"},
          {"data_batch_2.bin", "3073", "7"});
  refuses(usage,
          {"train", config_, "--out", (folder_ / "two").string(), "--data", cifar_.string(), "--set",
           "image.channels=4"},
          {"image.channels", "4"});
  EXPECT_FALSE(fs::exists(out_));
}

TEST(PaperCifar10, IsMeasuredByBench) {
  const Strings tiny = {"--set",          "model.layers=1", "--set",
                        "model.width=16", "--set",          "model.feed_forward=16"};
  const Json rows = json_of(succeed(joined({"bench", "generate", "--config", "paper-cifar10", "--streams",
                                            "2", "--family", "linear", "--seconds", "0.01", "--json"},
                                           tiny)));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["paper_images_per_second"], 17.85);
  EXPECT_NEAR(rows[0]["images_per_second"].get<double>() * 3072, rows[0]["tokens_per_second"].get<double>(),
              1e-6 * rows[0]["tokens_per_second"].get<double>());
}

}  // namespace
}  // namespace linnet
