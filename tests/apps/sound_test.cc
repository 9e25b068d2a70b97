// Filters of sound: what evaluate measures, what other commands refuse, and streams in bench generate.
#include "io/sound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "apps/program.h"
#include "apps/refusal.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;

class SoundFilter : public testing::Test {
 protected:
  SoundFilter() {
    succeed({"data", "instruments", "--out", path("band"), "--seconds", "3", "--test", "1", "--rate", "8000",
             "--noise", "6"});
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string band(const std::string& name) const { return path("band/" + name + ".wav"); }

  void train(const std::string& run, const std::string& data, const Strings& settings) {
    succeed(joined(
        {"train", "audio", "--data", data, "--out", path(run), "--set", "data.length=32", "model.layers=1",
         "model.heads=2", "model.width=16", "model.feed_forward=32", "training.batch=4", "training.steps=5",
         "training.warmup=2", "training.evaluate_examples=4", "training.evaluate_every=0"},
        settings));
  }

  static std::vector<float> samples_of(const std::string& file) {
    SoundFile sound(file);
    std::vector<float> samples(static_cast<std::size_t>(sound.format().frames * sound.format().channels));
    sound.read(0, samples);
    return samples;
  }

  TemporaryFolder folder_;
};

TEST_F(SoundFilter, IsMeasuredAgainstTheSamplesOfItsFiles) {
  train("filter", band("noisy"), {"data.target=" + band("clean"), "data.patch=8"});
  const Strings command = {"evaluate", path("filter"), "--data", band("noisy-test"), "--split", "test"};
  const Json json = parse_json(succeed(joined(command, {"--target", band("clean-test"), "--json"})).out, "");
  const std::vector<float> noisy = samples_of(band("noisy-test")), clean = samples_of(band("clean-test"));
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < clean.size(); ++i) {
    signal += double{clean[i]} * clean[i];
    noise += std::pow(double{noisy[i]} - clean[i], 2);
  }
  EXPECT_EQ(json["tokens"], 8000);
  EXPECT_NEAR(json["input_signal_to_noise"].get<double>(), 10 * std::log10(signal / noise), 1e-4);
  EXPECT_NEAR(json["input_signal_to_noise"].get<double>(), 6, 2e-3);
  EXPECT_TRUE(std::isfinite(json["signal_to_noise"].get<double>()));
  EXPECT_THAT(succeed(joined(command, {"--target", band("clean-test")})).out, HasSubstr("6.00 dB"));

  refuses(failed, joined(command, {"--target", band("clean")}), {"number of frames", "8000", "24000"});
  refuses(usage, command, {"target"});
  refuses(usage, {"generate", path("filter"), "--prompt-file", band("clean"), "--out", path("next.wav")},
          {"next step", "same-step"});
}

TEST(SoundBench, StreamsOfNumbersAreStepped) {
  const Strings command = {"bench", "generate", "--config", "audio", "--family", "configured", "--json"};
  const Json row =
      parse_json(succeed(joined(command, {"--real-time", "--steps", "300"})).out, "standard output")[0];
  EXPECT_EQ(row["steps"], 300);
  EXPECT_GT(row["step_us"]["p50"].get<double>(), 0);
  EXPECT_LE(row["step_us"]["p50"], row["step_us"]["p99"]);
  EXPECT_LE(row["step_us"]["p999"], row["step_us"]["max"]);
  EXPECT_GT(row["state_bytes_per_stream"].get<std::int64_t>(), 0);
  refuses(usage, command, {"--real-time"});
}

}  // namespace
}  // namespace linnet
