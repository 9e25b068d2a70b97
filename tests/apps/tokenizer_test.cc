#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
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
  // Another text is encoded with the tokenizer of the run: the same one has as many tokens.
  EXPECT_EQ(tokens_of({"--data", folder.file("other.txt", prose(300))}), tokens_of({}));
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
