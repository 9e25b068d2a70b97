// Filters of sound: what evaluate measures, what other commands refuse, and streams in bench generate.
#include "io/sound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/sequence_runs.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/generation.h"

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
  succeed(
      {"embed", path("filter"), "--data", band("noisy"), "--per-token", "--out", path("rows.safetensors")});
  EXPECT_EQ(Safetensors::read(path("rows.safetensors")).shape("embeddings").size(), 3u);
  refuses(usage, {"approximate", "--model", path("filter"), "--data", band("noisy")},
          {"the data of the run"});
  refuses(usage, {"generate", path("filter"), "--prompt-file", band("clean"), "--out", path("next.wav")},
          {"next step", "same-step", "linnet filter"});
}

// A run of the library has no record, and a converted model none of its own.
TEST_F(SoundFilter, ModelsWithoutARunDivideSoundAsTheirRunDid) {
  train("filter", band("noisy"), {"data.target=" + band("clean"), "data.split=0.2,0.7", "data.patch=8"});
  const std::string bare = path("bare"), converted = path("converted");
  std::filesystem::create_directory(bare);
  for (const char* file : {"config.json", "model.safetensors", "columns.json"})
    std::filesystem::copy_file(path("filter") + "/" + file, bare + "/" + file);
  succeed({"convert", path("filter"), "--weights", "f32", "--out", converted});
  const auto evaluated = [&](const std::string& model) {
    return json_of(
        succeed({"evaluate", model, "--data", band("noisy"), "--target", band("clean"), "--json"}));
  };
  const Json of_run = evaluated(path("filter"));
  EXPECT_EQ(of_run["tokens"], 12000);
  for (const std::string& model : {bare, converted}) {
    const Json json = evaluated(model);
    EXPECT_EQ(json["tokens"], of_run["tokens"]) << model;
    EXPECT_EQ(json["bits_per_token"], of_run["bits_per_token"]) << model;
  }
}

TEST_F(SoundFilter, ModelsOfSquaredErrorsContinueSoundByTheirMeans) {
  train("next", band("clean"), {"model.objective=next-token", "model.relative=false", "data.patch=8"});
  succeed({"generate", path("next"), "--prompt-file", band("clean"), "--out", path("next.wav")});
  const auto power = [](const std::vector<float>& samples) {
    double sum = 0;
    for (const float sample : samples) sum += double{sample} * sample;
    return sum / static_cast<double>(samples.size());
  };
  // Drawn numbers would scatter around them by a deviation of the data.
  EXPECT_LT(power(samples_of(path("next.wav"))), 0.5 * power(samples_of(band("clean"))));
}

TEST_F(SoundFilter, RateAndChannelsAreThoseOfTheRun) {
  train("filter", band("noisy"), {"data.target=" + band("clean"), "data.patch=8"});
  train("next", band("clean"), {"model.objective=next-token", "data.patch=8"});
  train("codes", band("clean"),
        {"model.objective=next-token", "data.sound=mu-law", "data.levels=32", "data.patch=2",
         "model.relative=false"});
  write_sound(path("stereo.wav"), std::vector<float>(8000), 2, 8000);
  write_sound(path("fast.wav"), std::vector<float>(8000), 1, 16000);
  for (const std::string run : {"filter", "next", "codes"}) {
    succeed({"convert", path(run), "--weights", "bf16", "--out", path("copy-of-" + run)});
    for (const std::string& model : {path(run), path("copy-of-" + run)})
      for (const auto& [file, found] :
           {std::pair("stereo.wav", "8000 Hz and 2"), std::pair("fast.wav", "16000 Hz and 1")}) {
        const Strings words = {file, "8000 Hz and 1,", found};
        if (run == "filter")
          refuses(usage, {"filter", model, "--data", path(file), "--out", path("out.wav")}, words);
        else
          refuses(usage, {"generate", model, "--prompt-file", path(file), "--out", path("out.wav")}, words);
        const Strings evaluate = {"evaluate", model, "--data", path(file), "--split", "test"};
        refuses(usage, run == "filter" ? joined(evaluate, {"--target", path(file)}) : evaluate, words);
      }
    const Strings test = {"--data", band("noisy-test"), "--split", "test", "--json"};
    const Strings target = run == "filter" ? Strings{"--target", band("clean-test")} : Strings{};
    const Json run_result = json_of(succeed(joined(joined({"evaluate", path(run)}, test), target)));
    const Json copy = json_of(succeed(joined(joined({"evaluate", path("copy-of-" + run)}, test), target)));
    EXPECT_EQ(copy["tokens"], run_result["tokens"]);
  }
  folder_.file("series.csv", "time,a\n1,2\n2,3\n");
  refuses(usage, {"generate", path("next"), "--prompt-file", path("series.csv"), "--out", path("out.csv")},
          {"model of a series", "one of sound"});
}

TEST_F(SoundFilter, WritesWhatTheModelSaysOfEveryStep) {
  train("filter", band("noisy"), {"data.target=" + band("clean"), "data.patch=8"});
  // Loud enough to be clipped; the last step has 5 frames, and the file several pieces.
  std::vector<float> loud(70005);
  for (std::size_t i = 0; i < loud.size(); ++i) loud[i] = std::sin(0.01f * static_cast<float>(i));
  write_sound(path("loud.wav"), loud, 1, 8000);
  const Json json = json_of(
      succeed({"filter", path("filter"), "--data", path("loud.wav"), "--out", path("out.wav"), "--json"}));
  EXPECT_EQ(json["length"], 70005);
  const std::vector<float> in = samples_of(path("loud.wav")), out = samples_of(path("out.wav"));
  ASSERT_EQ(out.size(), in.size());
  NumberSession session(Model::load(path("filter")), 1, {.threads = 1});
  std::vector<float> step(8), expected(8);
  for (std::size_t at = 0; at < in.size(); at += 8) {
    const std::size_t known = std::min<std::size_t>(8, in.size() - at);
    std::ranges::fill(step, 0.0f);
    std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(at), known, step.begin());
    session.step(step, expected);
    for (std::size_t i = 0; i < known; ++i)
      ASSERT_NEAR(out[at + i], std::clamp(expected[i], -1.0f, 1.0f), 1e-4) << at + i;
  }
}

TEST_F(SoundFilter, RefusesWhatItCannotRun) {
  train("filter", band("noisy"), {"data.target=" + band("clean"), "data.patch=8"});
  train("next", band("clean"), {"model.objective=next-token", "data.patch=8"});
  const Strings data = {"--data", band("noisy"), "--out"};
  refuses(usage, joined(joined({"filter", path("next")}, data), {path("out.wav")}), {"same-step"});
  refuses(usage, joined(joined({"filter", path("filter")}, data), {path("out.flac")}), {".wav", "out.flac"});
  refuses(usage, joined(joined({"filter", path("filter")}, data), {band("noisy")}), {"--out", "--data"});
  refuses(failed, {"filter", path("filter"), "--data", path("none.wav"), "--out", path("out.wav")},
          {"none.wav"});
  EXPECT_FALSE(std::filesystem::exists(path("out.wav")));
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

TEST(SoundProgram, IsContinuedFromSamplesAndFromCodes) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  succeed({"data", "instruments", "--out", path("band"), "--seconds", "2", "--test", "1", "--rate", "8000"});
  const std::string clean = path("band/clean.wav");
  for (const Strings& settings :
       {Strings{"data.patch=4", "model.relative=true"}, Strings{"data.sound=mu-law", "data.levels=64"}}) {
    folder.file("sound.toml",
                "[data]\nkind = \"sound\"\nlength = 32\n[model]\npositions = \"none\"\n"
                "[training]\nsteps = 5\n");
    succeed(
        joined(joined({"train", path("sound.toml"), "--data", clean, "--out", path("run")}, tiny), settings));
    succeed({"generate", path("run"), "--prompt-file", clean, "--length", "1001", "--out", path("next.wav")});
    // 16 bits a sample behind a header of 44 bytes.
    EXPECT_EQ(read_file(path("next.wav")).size(), 44u + 2 * 1001);
    refuses(usage, {"generate", path("run"), "--out", path("next.wav")}, {"--prompt-file with the sound"});
    if (settings.size() == 2 && settings[0] == "data.sound=mu-law")  // whose codes are no text
      refuses(usage, {"generate", path("run"), "--length", "9"}, {"model of sound", "--prompt-file"});
    folder.file("no.wav", "no sound");
    refuses(failed, {"generate", path("run"), "--prompt-file", path("no.wav"), "--out", path("next.wav")},
            {"no.wav"});
    std::filesystem::remove_all(path("run"));
  }
}

TEST(SoundProgram, FiltersAreEvaluatedOnOtherFiles) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  succeed({"data", "instruments", "--out", path("band"), "--seconds", "4", "--test", "1", "--rate", "8000"});
  folder.file("filter.toml",
              "[data]\nkind = \"sound\"\nlength = 32\npatch = 8\n[model]\npositions = \"none\"\n"
              "objective = \"same-step\"\nrelative = true\nvalue_head = \"squared-error\"\n"
              "[training]\nsteps = 40\nlearning_rate = 1e-2\n");
  succeed(joined({"train", path("filter.toml"), "--data", path("band/noisy.wav"), "--out", path("run")},
                 joined(tiny, {"data.target=" + path("band/clean.wav")})));
  const Strings other = {"evaluate", path("run"), "--data", path("band/noisy-test.wav"), "--split", "test"};
  const Json json = json_of(succeed(joined(other, {"--target", path("band/clean-test.wav"), "--json"})));
  EXPECT_NEAR(json["input_signal_to_noise"].get<double>(), 6, 0.3);
  EXPECT_GT(json["signal_to_noise"].get<double>(), json["input_signal_to_noise"].get<double>());
  refuses(usage, other, {"--target"});
}

}  // namespace
}  // namespace linnet
