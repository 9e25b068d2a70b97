// Encoders of proteins, from a FASTA file to the accuracy of hidden residues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apps/refusal.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* tiny_proteins =
    "[data]\nkind = \"fasta\"\nlength = 16\n"
    "[model]\nobjective = \"masked\"\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\n"
    "[attention]\nrank = 8\nchunk = 8\n"
    "[training]\nsteps = 6\nbatch = 4\nsample_every = 2\nevaluate_every = 3\ncheckpoint_every = 2\n"
    "log_every = 1\n";

/// 20 sequences of 5 to 24 residues, each a run of the alphabet.
std::string proteins() {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += ">protein " + std::to_string(i) + "\n";
    for (int k = 0; k < 5 + i; ++k) text += "ACDEFGHIKLMNPQRSTVWY"[(3 * i + k) % 20];
    text += i % 2 == 0 ? "\n" : "*\r\n";
  }
  return text;
}

class Proteins : public testing::Test {
 protected:
  Proteins() {
    folder_.file("proteins.toml", tiny_proteins);
    folder_.file("proteins.fasta", proteins());
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Strings train(const std::string& run, const Strings& more = {}) const {
    return joined({"train", path("proteins.toml"), "--data", path("proteins.fasta"), "--out", path(run)},
                  more);
  }

  TemporaryFolder folder_;
};

TEST_F(Proteins, ThatAreNucleotidesAreWarnedOf) {
  const Strings one = {"--set", "training.steps=1"};
  EXPECT_EQ(succeed(train("run", one)).err.find("DNA"), std::string::npos);
  std::string dna;
  for (int i = 0; i < 20; ++i) dna += ">gene\nACGTTGCANACGT\n";
  folder_.file("proteins.fasta", dna);
  EXPECT_THAT(succeed(train("dna", one)).err, HasSubstr("warning: the sequences look like DNA or RNA"));
}

TEST_F(Proteins, AreLearntAndEvaluatedUnderEveryFamilyThatSeesAll) {
  for (const char* family : {"linear", "softmax", "kernel", "local", "linformer", "lsh"}) {
    SCOPED_TRACE(family);
    const std::string run = family;
    const Ended trained = succeed(train(run, {"--json", "--set", "attention.family=" + run}));
    EXPECT_THAT(trained.err, HasSubstr("accuracy"));
    EXPECT_FALSE(fs::exists(folder_ / run / "samples"));
    const Json last =
        parse_json(lines_of(read_file(folder_ / run / "metrics.jsonl")).back(), "metrics.jsonl");
    const Json evaluation =
        json_of(succeed({"evaluate", path(run), "--data", path("proteins.fasta"), "--json"}));
    EXPECT_EQ(evaluation["tokens"], last["validation_tokens"]);
    EXPECT_EQ(evaluation["accuracy"], last["validation_accuracy"]);
    EXPECT_NEAR(evaluation["perplexity"].get<double>(), last["validation_perplexity"].get<double>(), 1e-4);
    EXPECT_EQ(json_of(trained)["validation_accuracy"], last["validation_accuracy"]);
    EXPECT_LT(evaluation["perplexity"].get<double>(), 30);
    EXPECT_THAT(succeed({"inspect", path(run)}).out, HasSubstr("encoder, " + run));
    EXPECT_EQ(json_of(succeed({"inspect", path(run), "--json"}))["objective"], "masked");
  }
  succeed({"evaluate", path("linear"), "--data", path("proteins.fasta"), "--attention", "softmax"});
  succeed({"evaluate", path("softmax"), "--data", path("proteins.fasta"), "--attention", "favor"});
  succeed(train("favor", {"--set", "attention.feature_map=favor"}));
  refuses(usage, {"evaluate", path("linear"), "--data", path("proteins.fasta"), "--attention", "strided"},
          {"strided", "sees earlier tokens only"});
}

TEST_F(Proteins, AnyFileNameServesWhereTheKindIsNamed) {
  succeed(train("run"));
  folder_.file("proteins.txt", proteins());
  const auto evaluate = [&](const std::string& file, const Strings& more = {}) {
    return joined({"evaluate", path("run"), "--data", path(file), "--json"}, more);
  };
  const Json expected = json_of(succeed(evaluate("proteins.fasta")));
  const Json named = json_of(succeed(evaluate("proteins.txt", {"--data-kind", "fasta"})));
  EXPECT_EQ(named["tokens"], expected["tokens"]);
  EXPECT_EQ(named["bits_per_token"], expected["bits_per_token"]);
  refuses(usage, evaluate("proteins.txt", {"--data-kind", "prose"}), {"--data-kind", "fasta", "prose"});
  // The run knows its kind, a model alone does not.
  EXPECT_EQ(json_of(succeed(evaluate("proteins.txt")))["bits_per_token"], expected["bits_per_token"]);
  fs::remove(folder_ / "run/run.toml");
  refuses(usage, evaluate("proteins.txt"), {"--data-kind", "proteins.txt", "got 26"});
}

TEST_F(Proteins, ResumeInTheSameBits) {
  succeed(train("whole"));
  succeed(train("parts", {"--set", "training.minutes=1e-9"}));
  succeed({"train", "--resume", path("parts"), "--threads", "1", "--set", "training.minutes=0"});
  EXPECT_EQ(read_file(folder_ / "parts/model.safetensors"), read_file(folder_ / "whole/model.safetensors"));
}

TEST_F(Proteins, AnEncoderDoesNotGenerate) {
  succeed(train("run"));
  refuses(usage, {"generate", path("run"), "--length", "5"},
          {"fills in masked tokens and does not generate"});
  const Ended bench =
      run_linnet({"bench", "generate", "--config", path("proteins.toml"), "--family", "linear"});
  EXPECT_EQ(bench.status, usage);
  EXPECT_THAT(bench.err, HasSubstr("does not generate"));
}

TEST_F(Proteins, ADecoderOfThemGenerates) {
  succeed(train("run", {"--set", "model.objective=next-token"}));
  EXPECT_FALSE(succeed({"generate", path("run"), "--length", "5"}).out.empty());
  EXPECT_TRUE(fs::exists(folder_ / "run/samples/6.txt"));
  refuses(usage,
          train("other", {"--set", "model.objective=next-token", "--set", "attention.family=linformer"}),
          {"linformer", "tokens that see earlier ones only"});
  succeed(train("lsh", {"--set", "model.objective=next-token", "--set", "attention.family=lsh"}));
  refuses(failed, {"generate", path("lsh"), "--length", "5"}, {"lsh attention"});
}

TEST_F(Proteins, WhatIsNoProteinIsNamedWithItsLine) {
  folder_.file("proteins.fasta", ">one\nMKV\n>two\nMK?V\n");
  refuses(failed, train("run"), {"proteins.fasta", "'?' in line 4"});
  folder_.file("proteins.fasta", "MKV\n");
  refuses(failed, train("run"), {"'>'", "line 1"});
  folder_.file("proteins.fasta", "");
  refuses(failed, train("run"), {"empty file"});
}

}  // namespace
}  // namespace linnet
