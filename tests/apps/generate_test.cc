// linnet generate: pictures, completions, and texts drawn one after another or together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "data/idx.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/temporary_folder.h"
#include "linnet/dataset.h"
#include "linnet/model.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::StartsWith;
using testing::UnorderedElementsAreArray;

TEST(Generate, DrawsAGridOfTheAskedSize) {
  const TemporaryFolder folder;
  const std::string out = (folder / "grid.png").string();
  const Ended ended = succeed({"generate", TinyModels::get().digits(), "--count", "6", "--columns", "3",
                               "--label", "3,1", "--streams", "4", "--out", out, "--json"});
  const Image image = read_png(out);
  EXPECT_EQ(image.width, 3 * 56 + 4 * 2);
  EXPECT_EQ(image.height, 2 * 56 + 3 * 2);
  EXPECT_EQ(image.channels, 1);
  const Json result = json_of(ended);
  EXPECT_THAT(keys_of(result),
              UnorderedElementsAreArray({"out", "images", "seconds", "images_per_second", "results"}));
  EXPECT_EQ(result["images"], 6);
  ASSERT_EQ(result["results"].size(), 6u);
  EXPECT_EQ(result["results"][0]["tokens"].size(), 64u);
}

TEST(Generate, SeedsDecideThePictures) {
  const TemporaryFolder folder;
  const auto draw = [&](const std::string& name, const Strings& options) {
    const std::string out = (folder / name).string();
    succeed(joined({"generate", TinyModels::get().digits(), "--count", "4", "--out", out}, options));
    return read_file(out);
  };
  const std::string first = draw("a", {"--seed", "7"});
  EXPECT_EQ(first, draw("b", {"--seed", "7", "--streams", "1", "--threads", "1"}));
  EXPECT_NE(first, draw("c", {"--seed", "8"}));
  EXPECT_EQ(draw("d", {"--temperature", "0"}), draw("e", {"--top-k", "1", "--seed", "5"}));
}

class Completion : public testing::Test {
 protected:
  Completion() {
    std::mt19937 random(1);
    for (std::uint8_t& pixel : pixels_) pixel = static_cast<std::uint8_t>(random());
  }
  /// The upper half of picture `i` of a grid of one row is that of `pixels_`, quantised as the model sees it.
  void expect_upper_half(const Image& grid, std::int64_t picture) const {
    for (std::int64_t y = 0; y < 4; ++y) {
      for (std::int64_t x = 0; x < 8; ++x) {
        const std::int64_t row = 2 + 7 * y + 3, column = 2 + picture * 58 + 7 * x + 3;
        const std::uint8_t given = pixels_[static_cast<std::size_t>(picture * 64 + y * 8 + x)];
        EXPECT_EQ(grid.pixels[static_cast<std::size_t>(row * grid.width + column)],
                  pixel_of_token(token_of_pixel(given, 8), 8))
            << picture << " at " << y << ", " << x;
      }
    }
  }

  TemporaryFolder folder_;
  std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(2 * 64);
  std::string out_ = (folder_ / "out.png").string();
};

TEST_F(Completion, KeepsTheUpperHalfOfAPng) {
  const fs::path in = folder_ / "in.png";
  write_png(in, {8, 8, 1, std::vector<std::uint8_t>(pixels_.begin(), pixels_.begin() + 64)});
  succeed({"generate", TinyModels::get().digits(), "--complete", in.string(), "--out", out_});
  const Image image = read_png(out_);
  EXPECT_EQ(image.width, 60);
  expect_upper_half(image, 0);
}

TEST_F(Completion, ScalesLargerPicturesDown) {
  const fs::path in = folder_ / "large.png";
  std::vector<std::uint8_t> doubled;
  for (std::size_t i = 0; i < 16 * 16; ++i) doubled.push_back(pixels_[i / 32 * 8 + i % 16 / 2]);
  write_png(in, {16, 16, 1, doubled});
  succeed({"generate", TinyModels::get().digits(), "--complete", in.string(), "--out", out_});
  expect_upper_half(read_png(out_), 0);
}

TEST_F(Completion, KeepsTheUpperHalvesOfAnIdxFile) {
  const fs::path in = folder_ / "in-idx";
  write_idx(in, Shape{2, 8, 8}, pixels_);
  succeed(
      {"generate", TinyModels::get().digits(), "--complete", in.string(), "--columns", "2", "--out", out_});
  const Image image = read_png(out_);
  ASSERT_EQ(image.width, 118);
  for (int i = 0; i < 2; ++i) expect_upper_half(image, i);
}

TEST(Generate, StreamsTextThatBeginsWithThePrompt) {
  const Ended ended =
      succeed({"generate", TinyModels::get().text(), "--prompt", "the quick", "--length", "40"});
  EXPECT_THAT(ended.out, StartsWith("the quick"));
  EXPECT_EQ(ended.out.size(), 9 + 40 + 1);
  EXPECT_EQ(ended.out.back(), '\n');
}

TEST(Generate, TextIsTheSameFromAFileAndIntoAFile) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string prompt = folder.file("prompt", "the lazy").string(), out = (folder / "out").string();
  const std::string shown =
      succeed({"generate", tiny.text(), "--prompt", "the lazy", "--length", "30", "--seed", "4"}).out;
  const Ended ended = succeed(
      {"generate", tiny.text(), "--prompt-file", prompt, "--length", "30", "--seed", "4", "--out", out});
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(read_file(out), shown);
  EXPECT_EQ(succeed({"generate", tiny.text(), "--prompt-file", "-", "--length", "30", "--seed", "4"},
                    {.in = prompt})
                .out,
            shown);
  EXPECT_NE(shown,
            succeed({"generate", tiny.text(), "--prompt", "the lazy", "--length", "30", "--seed", "5"}).out);
}

TEST(Generate, NoCacheGivesTheSameGreedyText) {
  const Strings command = {"generate", TinyModels::get().text(), "--prompt", "the", "--length",
                           "50",       "--temperature",          "0"};
  const std::string cached = succeed(command).out;
  EXPECT_EQ(succeed(joined(command, {"--no-cache"})).out, cached);
}

TEST(Generate, NumbersAreTheTokensOfModelsWithoutBytes) {
  const Ended ended = succeed({"generate", TinyModels::get().copy(), "--prompt", "0 3 1 4", "--length", "5",
                               "--count", "2", "--json"});
  const Json result = json_of(ended);
  ASSERT_EQ(result["results"].size(), 2u);
  EXPECT_EQ(result["tokens"], 10);
  for (const Json& row : result["results"]) {
    std::istringstream words(row["text"].get<std::string>());
    std::vector<int> tokens;
    for (int token; words >> token;) tokens.push_back(token);
    ASSERT_EQ(tokens.size(), 9u) << row;
    EXPECT_EQ(std::vector<int>(tokens.begin() + 4, tokens.end()), row["tokens"].get<std::vector<int>>());
    EXPECT_EQ(tokens[3], 4);
    for (const int token : tokens) EXPECT_TRUE(token >= 0 && token < 11) << token;
  }
}

TEST(Generate, RefusesOptionsOfOtherModels) {
  const TinyModels& tiny = TinyModels::get();
  for (const Strings& other : {Strings{"--first-pitch", "30"}, Strings{"--beats", "90"}}) {
    refuses(usage, joined({"generate", tiny.text(), "--length", "3"}, other), {other.front(), "text"});
    refuses(usage, joined({"generate", tiny.digits(), "--count", "1"}, other), {other.front(), "pictures"});
  }
}

TEST(Generate, TextsDoNotDependOnThoseDrawnBesideThem) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  const Strings five = {"generate", tiny.text(), "--prompt", "the quick", "--length", "30", "--count", "5"};
  const auto printed = [&](const Strings& more) { return succeed(joined(five, more)).out; };
  const std::string alone = printed({"--streams", "1"});
  EXPECT_EQ(lines_of(alone).size(), 5u);
  for (const Strings& more :
       {Strings{"--streams", "2"}, Strings{"--streams", "5", "--threads", "1"}, Strings{}})
    EXPECT_EQ(printed(more), alone);
  EXPECT_EQ(printed({"--no-cache", "--temperature", "0"}),
            printed({"--no-cache", "--temperature", "0", "--streams", "1"}));
  succeed(joined(five, {"--out", path("five.txt")}));
  EXPECT_EQ(read_file(path("five.txt")), alone);
  // Each is the text of its own seed.
  const Strings second = {"generate", tiny.text(), "--prompt", "the quick", "--length", "30", "--seed", "1"};
  EXPECT_EQ(lines_of(succeed(second).out)[0], lines_of(alone)[1]);
  // Stopped at different places, they go on together.
  const std::string states = path("five.states"), more = path("more.states");
  const std::string begun = printed({"--steps", "7", "--save-states", states});
  const Json ended =
      json_of(succeed({"generate", tiny.text(), "--states", states, "--streams", "3", "--json"}));
  const Json whole = json_of(succeed(joined(five, {"--json"})));
  for (std::size_t i = 0; i < 5; ++i) {
    const Json &all = whole["results"][i]["tokens"], &rest = ended["results"][i]["tokens"];
    EXPECT_EQ(rest, Json(std::vector<Json>(all.begin() + 7, all.end())));
  }
}

TEST(Generate, TextsEndBeforeTheFirstStop) {
  const TinyModels& tiny = TinyModels::get();
  const Strings three = {"generate", tiny.text(), "--prompt", "the ", "--length", "60", "--count", "3"};
  const auto drawn = [&](const Strings& more) { return json_of(succeed(joined(three, more)))["results"]; };
  const Json whole = drawn({"--json"});
  // Two letters that the first text has somewhere behind its prompt, which has them not.
  const std::string text = whole[0]["text"];
  std::string stop;
  for (std::size_t i = 4 + 20; i + 2 < text.size() && stop.empty(); ++i)
    if (std::isalnum(text[i]) != 0 && std::ispunct(text[i + 1]) != 0) stop = text.substr(i, 2);
  ASSERT_FALSE(stop.empty()) << text;
  const Json stopped = drawn({"--stop", stop, "--json"});
  std::string together;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string all = whole[i]["text"];
    const std::size_t end = all.find(stop);
    EXPECT_EQ(stopped[i]["text"], all.substr(0, end));
    EXPECT_EQ(stopped[i]["stopped"], end != std::string::npos);
    const Json &tokens = stopped[i]["tokens"], &of_all = whole[i]["tokens"];
    ASSERT_LE(tokens.size(), of_all.size());
    EXPECT_EQ(tokens, Json(std::vector<Json>(of_all.begin(), of_all.begin() + std::ssize(tokens))));
    EXPECT_EQ(tokens.size() < of_all.size(), i == 0 || end != std::string::npos);
    together += all.substr(0, end) + "\n";
  }
  EXPECT_FALSE(whole[0].contains("stopped"));
  for (const Strings& more : {Strings{}, Strings{"--streams", "1"}})
    EXPECT_EQ(as_json_text(succeed(joined(three, joined({"--stop", stop}, more))).out), together);
  // The first of several ends a text; the prompt ends none, and what only begins as one is written.
  EXPECT_EQ(drawn({"--stop", "the ", "--stop", stop, "--json"}), stopped);
  EXPECT_EQ(drawn({"--stop", stop, "--stop", stop + "no", "--json"}), stopped);
  const Json none = drawn({"--stop", text.substr(text.size() - 1) + "none", "--json"});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(none[i]["text"], whole[i]["text"]);
}

TEST(Generate, RefusesStopsThatCannotCome) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string states = (folder / "states").string();
  refuses(usage, {"generate", tiny.digits(), "--stop", "a"}, {"--stop", "pictures"});
  refuses(usage, {"generate", tiny.copy(), "--stop", "3"}, {"--stop", "numbers"});
  refuses(usage, {"generate", tiny.text(), "--stop", ""}, {"--stop"});
  refuses(usage, {"generate", tiny.text(), "--stop", "a", "--steps", "3", "--save-states", states},
          {"--stop", "--steps"});
}

TEST(Generate, LabelsInTurnShareThePromptOfTheirOwnLabel) {
  const TemporaryFolder folder;
  const std::string model = (folder / "model").string();
  ModelConfig config = Model::load(TinyModels::get().text())->config();
  config.classes = 3;
  Model::random(config)->save(model);
  const auto texts = [&](const std::string& labels, const std::string& streams) {
    return succeed({"generate", model, "--prompt", "abc", "--length", "12", "--count", "7", "--label", labels,
                    "--streams", streams})
        .out;
  };
  EXPECT_EQ(texts("2,0,1", "7"), texts("2,0,1", "1"));
  EXPECT_EQ(texts("1,1", "4"), texts("1", "1"));
  EXPECT_NE(texts("2", "7"), texts("1", "7"));
}

TEST(Generate, SeedsHave64Bits) {
  const TinyModels& tiny = TinyModels::get();
  const auto text = [&](const std::string& seed) {
    return succeed({"generate", tiny.text(), "--length", "20", "--seed", seed}).out;
  };
  EXPECT_NE(text("18446744073709551615"), text("9223372036854775807"));
  for (const char* seed : {"18446744073709551616", "-1", "1.5", "x"})
    refuses(usage, {"generate", tiny.text(), "--length", "3", "--seed", seed},
            {"--seed", "0 … 18446744073709551615", seed});
  refuses(usage, {"generate", tiny.text(), "--length", "3", "--top-k", "9223372036854775808"},
          {"1 … 9223372036854775807", "got 9223372036854775808"});
}

}  // namespace
}  // namespace linnet
