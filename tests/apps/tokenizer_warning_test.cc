// What `train` says of a tokenizer that was not made for whole texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <filesystem>
#include <string>
#include <unordered_map>

#include "apps/program.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Tokenizer, ThatLosesLineEndsIsWarnedOf) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "Line " + std::to_string(i * 7 % 200) + " of a text.\n";
  const std::string book = folder.file("book.txt", text), kept = (folder / "kept.model").string();
  succeed({"data", "tokenizer", book, "--size", "300", "--out", kept});
  const std::unordered_map<std::string, std::string> settings = {{"input", book},
                                                                 {"model_prefix", (folder / "lost").string()},
                                                                 {"vocab_size", "40"},
                                                                 {"minloglevel", "2"}};
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto said_of = [&](const std::string& model) {
    std::filesystem::remove_all(folder / "run");
    return succeed({"train", "text", "--data", book, "--out", (folder / "run").string(), "--set",
                    "data.tokenizer=" + model, "data.length=16", "model.layers=1", "model.width=16",
                    "model.heads=2", "model.feed_forward=16", "training.steps=1", "training.batch=2",
                    "training.sample_every=0"})
        .err;
  };
  EXPECT_THAT(said_of((folder / "lost.model").string()),
              HasSubstr("warning: the tokenizer of data.tokenizer loses line ends"));
  EXPECT_THAT(said_of(kept), Not(HasSubstr("tokenizer")));
}

}  // namespace
}  // namespace linnet
