#include "tokenizer.h"

#include "base/fail.h"

#ifdef LINNET_SENTENCEPIECE
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "base/memory.h"

namespace linnet {
namespace {

/// The lines of a text, one after another, without their ends.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    done_ = rest_.empty();
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

/// The digits behind `words` in a message.
std::string number_behind(const std::string& message, std::string_view words) {
  const std::size_t begin = message.find(words) + words.size();
  return message.substr(begin, message.find_first_not_of("0123456789", begin) - begin);
}

}  // namespace

std::string train_tokenizer(std::string_view text, std::int64_t size) {
  if (text.find_first_not_of('\n') == std::string_view::npos)
    fail("tokenizer", "expected a text with characters to train on, got an empty one");
  // Its suffix array alone has six numbers of 32 bits for each character.
  require_memory("training the tokenizer", 24.0 * static_cast<double>(text.size()));
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(size)},
      {"byte_fallback", "true"},
      {"bos_id", "-1"},
      {"eos_id", "-1"},
      // Tokens give back the text as it was.
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"max_sentence_length", "1000000000"},
      // Fewer pieces than asked for, rather than a failure that names only its own condition.
      {"hard_vocab_limit", "false"},
      // Warnings only.
      {"minloglevel", "2"},
  };
  Lines lines(text);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (!status.ok()) {
    constexpr std::string_view before_least = " required_chars. ";
    const std::string message = status.message();
    if (message.find(before_least) != std::string::npos)
      fail<UsageError>("tokenizer",
                       "expected at least {} pieces for the bytes and characters of this text, got {}",
                       number_behind(message, " vs "), size);
    fail("tokenizer", "SentencePiece failed: {}", message);
  }
  sentencepiece::SentencePieceProcessor trained;
  if (!trained.LoadFromSerializedProto(model).ok() || trained.GetPieceSize() != size)
    fail<UsageError>("tokenizer", "expected at most {} pieces, as many as this text has, got {}",
                     trained.GetPieceSize(), size);
  return model;
}

}  // namespace linnet

#else

namespace linnet {

std::string train_tokenizer(std::string_view, std::int64_t) {
  fail<UsageError>(
      "tokenizer",
      "expected a program that was built with SentencePiece (libsentencepiece-dev), got one without");
}

}  // namespace linnet

#endif
