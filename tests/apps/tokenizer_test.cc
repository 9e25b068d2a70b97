#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;

std::string prose(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += "Line " + std::to_string(i * 7 % 200) + " of a text that is read.\n";
  return text;
}

TEST(DataTokenizer, MakesTheTokensOfATraining) {
  const TemporaryFolder folder;
  const std::string text = folder.file("book.txt", prose(300)), model = (folder / "book.model").string(),
                    run = (folder / "run").string();
  EXPECT_THAT(succeed({"data", "tokenizer", text, "--size", "300", "--out", model}).out,
              HasSubstr("300 pieces"));
  succeed({"train", "text", "--data", text, "--out", run, "--set", "data.tokenizer=" + model,
           "data.length=16", "model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=16",
           "training.steps=1", "training.batch=2", "training.sample_every=0"});
  EXPECT_EQ(read_json(folder / "run/config.json")["model"]["vocabulary"], 300);
  const auto tokens_of = [&](const Strings& arguments) {
    return json_of(succeed(joined({"evaluate", run, "--json"}, arguments)))["tokens"].get<int>();
  };
  // The last tenth of the bytes is held out, give or take a character.
  const Json measured = json_of(succeed({"evaluate", run, "--json"}));
  const double bytes = measured["bits_per_token"].get<double>() * measured["tokens"].get<double>() /
                       measured["bits_per_byte"].get<double>();
  EXPECT_NEAR(bytes, static_cast<double>(prose(300).size()) / 10, 2);
  EXPECT_THAT(succeed({"evaluate", run}).out, HasSubstr(" per byte), perplexity"));
  // Another text is encoded with the tokenizer of the run: the same one has as many tokens.
  const std::string other = folder.file("other.txt", prose(300));
  EXPECT_EQ(tokens_of({"--data", other}), tokens_of({}));
  // For embeddings too: as bytes it would give more examples.
  const std::string rows = (folder / "rows.safetensors").string();
  EXPECT_EQ(json_of(succeed({"embed", run, "--data", other, "--out", rows, "--json"}))["examples"],
            json_of(succeed({"evaluate", run, "--data", other, "--json"}))["examples"]);
}

TEST(DataTokenizer, OtherThanThatOfTheInitialModelIsWarnedOf) {
  const TemporaryFolder folder;
  const auto tokenizer = [&](const std::string& name, const std::string& text) {
    const std::string model = (folder / (name + ".model")).string();
    succeed({"data", "tokenizer", folder.file(name + ".txt", text), "--size", "300", "--out", model});
    return model;
  };
  const std::string one = tokenizer("one", prose(300)), other = tokenizer("other", "Words. " + prose(150));
  const auto training = [&](const std::string& run, const std::string& model, const Strings& more) {
    return joined({"train", "text", "--data", (folder / "one.txt").string(), "--out", (folder / run).string(),
                   "--set", "data.tokenizer=" + model, "data.length=16", "model.layers=1", "model.width=16",
                   "model.heads=2", "model.feed_forward=16", "training.steps=0"},
                  more);
  };
  succeed(training("first", one, {}));
  const Strings initial = {"--init", (folder / "first").string()};
  EXPECT_THAT(succeed(training("same", one, initial)).err, testing::Not(HasSubstr("another tokenizer")));
  EXPECT_THAT(succeed(training("others", other, initial)).err, HasSubstr("another tokenizer"));
  EXPECT_THAT(succeed(training("partial", other, joined(initial, {"--init-partial"}))).err,
              HasSubstr("another tokenizer"));
}

TEST(DataTokenizer, StaysWithTheModelThatItWasTrainedFor) {
  const TemporaryFolder folder;
  const std::string text = folder.file("book.txt", prose(300)), model = (folder / "book.model").string(),
                    run = (folder / "run").string(), best = (folder / "run/best").string();
  succeed({"data", "tokenizer", text, "--size", "300", "--out", model});
  succeed({"train", "tokens", "--data", text, "--out", run, "--set", "data.kind=text",
           "data.tokenizer=" + model, "data.length=16", "model.layers=1", "model.width=16", "model.heads=2",
           "model.feed_forward=16", "training.steps=1", "training.batch=2"});
  const std::string bytes = read_file(model);
  std::filesystem::remove(model);
  EXPECT_EQ(read_file(folder / "run/best/tokenizer.model"), bytes);
  std::filesystem::rename(folder / "run/best", folder / "alone");
  const std::string alone = (folder / "alone").string();
  const Strings generate = {"generate", alone, "--prompt", "Line 7 of", "--length", "8"};
  EXPECT_THAT(succeed(generate).out, testing::StartsWith("Line 7 of"));
  const Json drawn = json_of(succeed(joined(generate, {"--json"})));
  EXPECT_EQ(drawn["results"][0]["tokens"].size(), 8u);
  // Without a tokenizer tokens would be numbers.
  EXPECT_EQ(drawn["results"][0]["text"].get<std::string>(),
            succeed(generate).out.substr(0, drawn["results"][0]["text"].get<std::string>().size()));
  const auto tokens_of = [&](const Strings& arguments) {
    return json_of(succeed(joined({"evaluate", "--json"}, arguments)))["tokens"].get<int>();
  };
  EXPECT_EQ(tokens_of({run}), tokens_of({alone, "--data", text}));
  write_file_atomically(folder / "alone/tokenizer.model", bytes.substr(0, 100));
  refuses(failed, generate, {"tokenizer.model", "SentencePiece"});
  succeed({"data", "tokenizer", text, "--size", "290", "--out", (folder / "alone/tokenizer.model").string()});
  refuses(usage, generate, {"300 tokens", "290", "does not match"});
  refuses(usage, {"evaluate", alone, "--data", text}, {"300", "290", "does not match"});
}

/// A tokenizer that leaves out the blank before a text, as those of other programs do.
std::string with_dummy_prefix(std::string bytes) {
  const std::size_t field = bytes.find(std::string("\x18\x00", 2), bytes.rfind("identity"));
  EXPECT_NE(field, std::string::npos);
  return bytes.replace(field + 1, 1, 1, '\x01');
}

/// Letters without a piece of their own are several tokens, one a byte; so is the character that stands for
/// what is none.
TEST(GenerateWithTokenizer, WritesWholeCharactersInEveryOutputAndOverStops) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  succeed({"data", "tokenizer", folder.file("book.txt", prose(300)).string(), "--size", "300", "--out",
           path("book.model")});
  write_file_atomically(path("book.model"), with_dummy_prefix(read_file(path("book.model"))));
  std::string text;
  for (int i = 0; i < 600; ++i) text += "é\ufffd😀 so ";
  succeed({"train", "text", "--data", folder.file("faces.txt", text).string(), "--out", path("run"), "--set",
           "data.tokenizer=" + path("book.model"), "data.length=16", "model.layers=1", "model.width=16",
           "model.heads=2", "model.feed_forward=16", "training.steps=150", "training.learning_rate=2e-2",
           "training.batch=8", "training.sample_every=0", "training.evaluate_every=0"});
  const Strings generate = {"generate", path("run"), "--prompt", "é", "--length", "30", "--temperature", "0"};
  const std::string streamed = succeed(generate).out;
  EXPECT_THAT(streamed, HasSubstr("\ufffd😀 so"));
  succeed(joined(generate, {"--out", path("out.txt")}));
  EXPECT_EQ(streamed, read_file(path("out.txt")));
  EXPECT_EQ(streamed,
            json_of(succeed(joined(generate, {"--json"})))["results"][0]["text"].get<std::string>() + "\n");
  const Strings one = {"--steps", "1", "--save-states", path("states")};
  std::string parts = succeed(joined(generate, one)).out;
  for (int i = 1; i < 30; ++i) {
    std::filesystem::rename(path("states"), path("before"));
    parts += succeed(joined({"generate", path("run"), "--states", path("before")}, one)).out;
  }
  EXPECT_EQ(parts, streamed);
}

TEST(DataTokenizer, RefusesSizesAndFiles) {
  const TemporaryFolder folder;
  const std::string text = folder.file("book.txt", prose(300)), model = (folder / "book.model").string();
  refuses(usage, {"data", "tokenizer", text, "--size", "100", "--out", model}, {"--size", "100"});
  refuses(usage, {"data", "tokenizer", text, "--size", "9999", "--out", model}, {"at most", "9999"});
  refuses(usage, {"data", "tokenizer", text, "--out", text}, {"--out", text});
  refuses(failed, {"data", "tokenizer", (folder / "none").string(), "--out", model}, {"none"});
  refuses(failed,
          {"train", "text", "--data", text, "--out", (folder / "run").string(), "--set",
           "data.tokenizer=" + text},
          {"SentencePiece", text});
}

}  // namespace
}  // namespace linnet
