// Encoder–decoder models: train, evaluate, inspect and generate with sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;

class EncoderDecoderProgram : public testing::Test {
 protected:
  EncoderDecoderProgram() {
    folder_.file("reverse.toml",
                 "[data]\nkind = \"reverse\"\nsource_length = 3\nlength = 4\nexamples = 2000\n"
                 "[model]\nencoder_layers = 1\nlayers = 1\nheads = 2\nwidth = 32\nfeed_forward = 32\n"
                 "positions = \"sinusoidal\"\n"
                 "[training]\nsteps = 250\nbatch = 32\nlearning_rate = 1e-2\nsample_every = 0\n"
                 "evaluate_every = 0\nevaluate_examples = 16\n");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void train(const std::string& run, const Strings& more = {}) {
    succeed(joined({"train", path("reverse.toml"), "--out", path(run)}, more));
  }
  /// Writes sixty pairs, and their sources into a file of their own. Returns the targets.
  Strings write_pairs(std::size_t letters) {
    succeed({"data", "reverse", "--out", path("pairs.tsv"), "--letters", std::to_string(letters), "--count",
             "60"});
    std::string sources;
    Strings targets;
    for (const std::string& line : lines_of(read_file(path("pairs.tsv")))) {
      sources += line.substr(0, letters) + "\n";
      targets.push_back(line.substr(letters + 1));
    }
    folder_.file("sources.txt", sources);
    return targets;
  }

  TemporaryFolder folder_;
};

TEST_F(EncoderDecoderProgram, ExactSharesAreThoseOfTheGreedyAnswers) {
  const Strings targets = write_pairs(3);
  for (const std::string family : {"linear", "softmax"}) {
    train(family, {"--set", "attention.family=" + family});
    const Json evaluation = json_of(succeed({"evaluate", path(family), "--data", path("pairs.tsv"),
                                             "--data-kind", "pairs", "--split", "test", "--json"}));
    const Strings answers = lines_of(
        succeed({"generate", path(family), "--source-file", path("sources.txt"), "--temperature", "0"}).out);
    ASSERT_EQ(answers.size(), targets.size());
    double right = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) right += answers[i] == targets[i];
    EXPECT_GT(right, 0) << "nothing was learnt";
    EXPECT_NEAR(evaluation["exact"].get<double>(), right / static_cast<double>(answers.size()), 1e-9);
    EXPECT_THAT(succeed({"evaluate", path(family), "--examples", "20"}).out, HasSubstr("greedy decoding"));
    EXPECT_THAT(succeed({"inspect", path(family)}).out, HasSubstr("encoder: 1 layers over sources of 3"));
  }
}

// A decoder of pairs has the source before the answer in its sequences.
TEST_F(EncoderDecoderProgram, DecodersOfPairsAnswerSourcesToo) {
  const Strings decoder = {"--set",         "data.source_length=0", "model.encoder_layers=0",
                           "data.length=6", "training.steps=400",   "data.examples=500"};
  const Strings targets = write_pairs(2);
  train("run", decoder);
  succeed({"convert", path("run"), "--weights", "f32", "--out", path("copy")});
  for (const std::string model : {"run", "copy"}) {
    // The copy has no run to say the kind of its data.
    const Strings kind = model == "run" ? Strings{"--data-kind", "pairs"} : Strings{};
    const Json evaluation = json_of(succeed(
        joined({"evaluate", path(model), "--data", path("pairs.tsv"), "--split", "test", "--json"}, kind)));
    const Json answers = json_of(succeed({"generate", path(model), "--source-file", path("sources.txt"),
                                          "--temperature", "0", "--json"}))["results"];
    ASSERT_EQ(answers.size(), targets.size());
    // Two streams that take one source after another draw the same, with answers of different lengths.
    const Strings sampled = {"generate", path(model), "--source-file", path("sources.txt"), "--json"};
    EXPECT_EQ(json_of(succeed(joined(sampled, {"--streams", "2"})))["results"],
              json_of(succeed(sampled))["results"]);
    double right = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) right += answers[i]["text"] == targets[i];
    EXPECT_GT(right, 0) << "nothing was learnt";
    EXPECT_NEAR(evaluation["exact"].get<double>(), right / static_cast<double>(answers.size()), 1e-9);
    EXPECT_EQ(succeed({"generate", path(model), "--source", targets[0], "--temperature", "0"}).err, "");
  }
  EXPECT_THAT(succeed({"generate", path("run"), "--source", "abcdef"}).err,
              HasSubstr("sources of at most 4 tokens, the longest has 6"));

  train("learned", joined(decoder, {"model.positions=learned", "training.steps=2"}));
  for (const char* length : {"3", "1"})
    succeed({"generate", path("learned"), "--source", "ab", "--length", length});
  succeed({"generate", path("learned"), "--source", "abcd"});
  refuses(usage, {"generate", path("learned"), "--source", "ab", "--length", "4"},
          {"at most 6", "3 of a source"});
  refuses(usage, {"generate", path("learned"), "--source", "abcde"}, {"less than 6", "got 6 tokens"});
  refuses(usage, {"generate", path("learned"), "--source", "abcde", "--length", "1"},
          {"at most 6", "6 of a source"});
}

TEST_F(EncoderDecoderProgram, LongSourcesAreReadWithAWarning) {
  train("run", {"--set", "training.steps=2"});
  EXPECT_THAT(succeed({"generate", path("run"), "--source", "abcd"}).err,
              HasSubstr("sources of at most 3 tokens, the longest has 4"));
  EXPECT_EQ(succeed({"generate", path("run"), "--source", "abc"}).err, "");
}

TEST_F(EncoderDecoderProgram, WhatDoesNotFitIsRefused) {
  train("run", {"--set", "training.steps=2"});
  const std::string run = path("run");
  refuses(usage, {"generate", run}, {"--source"});
  refuses(usage, {"generate", run, "--source", "abc", "--prompt", "b"}, {"--prompt"});
  refuses(usage, {"generate", TinyModels::get().copy(), "--source", "abc"}, {"encoder"});
  refuses(failed, {"generate", run, "--source-file", path("none.txt")}, {"none.txt"});
  // The mark that some programs begin a file with is no part of its first source.
  folder_.file("plain.txt", "abc\nbc\n");
  folder_.file("marked.txt",
               "\xef\xbb\xbf"
               "abc\r\nbc\n");
  const auto answers_to = [&](const char* file) {
    return json_of(succeed({"generate", run, "--source-file", path(file), "--json"}))["results"];
  };
  EXPECT_EQ(answers_to("marked.txt"), answers_to("plain.txt"));
  folder_.file("gap.txt", "abc\n\nabc\n");
  refuses(failed, {"generate", run, "--source-file", path("gap.txt")}, {"line 2"});
  refuses(usage, {"embed", run, "--data", "reverse", "--out", path("rows.safetensors")}, {"encoder"});
  refuses(usage, {"train", path("reverse.toml"), "--out", path("a"), "--set", "model.encoder_layers=0"},
          {"model.encoder_layers", "data.source_length"});
  refuses(usage,
          {"train", path("reverse.toml"), "--out", path("b"), "--set", "data.source_length=0", "--set",
           "data.length=8"},
          {"data.source_length"});
  refuses(usage, {"train", path("reverse.toml"), "--out", path("c"), "--set", "attention.family=local"},
          {"linear", "softmax", "local"});
}

}  // namespace
}  // namespace linnet
