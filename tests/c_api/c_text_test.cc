// Texts in the C interface, for models of bytes and of the pieces of a tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/temporary_folder.h"
#include "linnet/c_api.h"
#include "linnet/model.h"
#include "support/models.h"
#include "support/sentencepiece.h"

namespace linnet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CText : public testing::Test {
 protected:
  ~CText() override { linnet_model_free(model_); }

  /// Loads a random model of so many tokens, whose folder holds the tokenizer, if it is not empty.
  void load(ModelConfig config, std::int64_t vocabulary, const std::string& tokenizer = "") {
    config.vocabulary = vocabulary;
    Model::random(config)->save(folder_ / "model");
    if (!tokenizer.empty()) write_file_atomically(folder_ / "model/tokenizer.model", tokenizer);
    linnet_model_free(model_);
    ASSERT_EQ(linnet_model_load((folder_ / "model").string().c_str(), &model_), LINNET_OK);
  }

  std::vector<std::int32_t> encoded(const std::string& text) {
    std::size_t count = 0;
    EXPECT_EQ(linnet_model_encode(model_, text.data(), text.size(), nullptr, 0, &count), LINNET_OK);
    std::vector<std::int32_t> tokens(count);
    EXPECT_EQ(linnet_model_encode(model_, text.data(), text.size(), tokens.data(), count, &count), LINNET_OK);
    EXPECT_EQ(tokens.size(), count);
    return tokens;
  }

  std::string decoded(const std::vector<std::int32_t>& tokens) {
    std::size_t bytes = 0;
    EXPECT_EQ(linnet_model_decode(model_, tokens.data(), tokens.size(), nullptr, 0, &bytes), LINNET_OK);
    std::string text(bytes, '?');
    EXPECT_EQ(linnet_model_decode(model_, tokens.data(), tokens.size(), text.data(), bytes, &bytes),
              LINNET_OK);
    EXPECT_EQ(text.size(), bytes);
    return text;
  }

  /// What a stream of text gives for tokens, with the text of each apart.
  std::vector<std::string> streamed(const std::vector<std::int32_t>& before,
                                    const std::vector<std::int32_t>& tokens) {
    linnet_text_stream* stream = nullptr;
    EXPECT_EQ(linnet_text_stream_create(model_, before.data(), before.size(), &stream), LINNET_OK);
    std::vector<std::string> parts;
    const char* text = nullptr;
    std::size_t bytes = 0;
    for (const std::int32_t token : tokens) {
      EXPECT_EQ(linnet_text_stream_add(stream, token, &text, &bytes), LINNET_OK);
      parts.emplace_back(text, bytes);
      EXPECT_EQ(text[bytes], '\0');
    }
    EXPECT_EQ(linnet_text_stream_finish(stream, &text, &bytes), LINNET_OK);
    parts.emplace_back(text, bytes);
    linnet_text_stream_free(stream);
    return parts;
  }

  TemporaryFolder folder_;
  linnet_model* model_ = nullptr;
};

TEST_F(CText, OfBytes) {
  load(tiny_config(), 256);
  EXPECT_THAT(encoded("aé"), ElementsAre('a', 0xc3, 0xa9));
  EXPECT_EQ(decoded({'a', 0xc3, 0xa9}), "aé");
  EXPECT_TRUE(encoded("").empty());
  EXPECT_EQ(decoded({}), "");
}

TEST_F(CText, RefusesWhatCannotBe) {
  load(tiny_config(), 256);
  std::size_t count = 0;
  std::int32_t tokens[2] = {'a', 256};
  char text[2];
  EXPECT_EQ(linnet_model_encode(model_, "abc", 3, tokens, 2, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("[encode] expected memory for 3 tokens, got 2"));
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(tokens[1], 256);
  EXPECT_EQ(linnet_model_decode(model_, tokens, 2, text, 2, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("tokens in 0 … 255, got 256"));
  EXPECT_EQ(linnet_model_encode(nullptr, "abc", 3, tokens, 2, &count), LINNET_USAGE);
  EXPECT_EQ(linnet_model_encode(model_, nullptr, 3, tokens, 2, &count), LINNET_USAGE);
  EXPECT_EQ(linnet_model_encode(model_, "a", 1, nullptr, 2, &count), LINNET_USAGE);
  EXPECT_EQ(linnet_model_encode(model_, "a", 1, tokens, 2, nullptr), LINNET_USAGE);
  EXPECT_EQ(linnet_model_decode(nullptr, tokens, 1, text, 2, &count), LINNET_USAGE);
  EXPECT_EQ(linnet_model_decode(model_, nullptr, 1, text, 2, &count), LINNET_USAGE);
  EXPECT_EQ(linnet_model_decode(model_, tokens, 1, nullptr, 2, &count), LINNET_USAGE);
  EXPECT_EQ(linnet_model_decode(model_, tokens, 1, text, 2, nullptr), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("got NULL"));

  load(tiny_config(), 255);
  EXPECT_EQ(linnet_model_encode(model_, "a", 1, tokens, 2, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("one of 255 tokens"));
  ModelConfig grey = tiny_config();
  grey.image_height = 2;
  grey.image_width = 3;
  load(grey, 256);
  EXPECT_EQ(linnet_model_encode(model_, "a", 1, tokens, 2, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("[encode] expected a model of text, got one of pictures"));
  ModelConfig fields = tiny_config();
  fields.fields = "256,3";
  load(fields, 256);
  EXPECT_EQ(linnet_model_encode(model_, "a", 1, tokens, 2, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("[encode] expected a model of text, got one of several fields"));
  ModelConfig numbers = tiny_config();
  numbers.columns = 2;
  load(numbers, 0);
  EXPECT_EQ(linnet_model_decode(model_, tokens, 1, text, 2, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("[decode] expected a model of text, got one of"));
}

TEST_F(CText, ComesInWholeCharacters) {
  load(tiny_config(), 256);
  EXPECT_THAT(streamed({}, {'a', 0xc3, 0xa9, 0xe2}), ElementsAre("a", "", "é", "", "\xe2"));
  EXPECT_THAT(streamed({'x', 0xc3}, {0xa9, 'b'}), ElementsAre("é", "b", ""));

  linnet_text_stream *stream = nullptr, *other = nullptr;
  const std::int32_t cut = 0xc3, outside = 256;
  const char* text = "unchanged";
  std::size_t bytes = 0, count = 0;
  ASSERT_EQ(linnet_text_stream_create(model_, &cut, 1, &stream), LINNET_OK);
  ASSERT_EQ(linnet_text_stream_context(stream, nullptr, 0, &count), LINNET_OK);
  std::vector<std::int32_t> context(count);
  ASSERT_EQ(linnet_text_stream_context(stream, context.data(), count, &count), LINNET_OK);
  ASSERT_EQ(linnet_text_stream_create(model_, context.data(), count, &other), LINNET_OK);
  linnet_model_free(model_);  // the streams keep what they need
  model_ = nullptr;
  EXPECT_EQ(linnet_text_stream_add(stream, outside, &text, &bytes), LINNET_USAGE);
  EXPECT_STREQ(text, "unchanged");
  EXPECT_EQ(linnet_text_stream_add(stream, 0xa9, nullptr, &bytes), LINNET_USAGE);
  EXPECT_EQ(linnet_text_stream_add(stream, 0xa9, &text, nullptr), LINNET_USAGE);
  for (linnet_text_stream* each : {stream, other}) {
    EXPECT_EQ(linnet_text_stream_add(each, 0xa9, &text, &bytes), LINNET_OK);
    EXPECT_STREQ(text, "é");
  }
  EXPECT_EQ(linnet_text_stream_add(nullptr, 'a', &text, &bytes), LINNET_USAGE);
  EXPECT_EQ(linnet_text_stream_finish(nullptr, &text, &bytes), LINNET_USAGE);
  EXPECT_EQ(linnet_text_stream_context(nullptr, nullptr, 0, &count), LINNET_USAGE);
  linnet_text_stream_free(stream);
  linnet_text_stream_free(other);
  linnet_text_stream_free(nullptr);

  load(tiny_config(), 256);
  EXPECT_EQ(linnet_text_stream_create(model_, &outside, 1, &stream), LINNET_USAGE);
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(linnet_text_stream_create(nullptr, nullptr, 0, &stream), LINNET_USAGE);
  EXPECT_EQ(linnet_text_stream_create(model_, nullptr, 0, nullptr), LINNET_USAGE);
  load(tiny_config(), 5);
  EXPECT_EQ(linnet_text_stream_create(model_, nullptr, 0, &stream), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("tokenizer"));
}

TEST_F(CText, OfEncoderDecoderModels) {
  ModelConfig config = tiny_config();
  config.encoder_layers = 1;
  config.source_length = 8;
  load(config, 256);
  EXPECT_THAT(encoded("ab"), ElementsAre('a', 'b'));
}

TEST_F(CText, OfPairs) {
  load(tiny_config(), 258);
  EXPECT_THAT(encoded("aé"), ElementsAre('a', 0xc3, 0xa9));
  EXPECT_EQ(decoded({'a', 256, 0xc3, 0xa9, 257}), "aé");
  EXPECT_EQ(linnet_model_separator(model_), 256);
  EXPECT_EQ(linnet_model_end(model_), 257);
  std::size_t bytes = 0;
  const std::int32_t outside = 258;
  EXPECT_EQ(linnet_model_decode(model_, &outside, 1, nullptr, 0, &bytes), LINNET_USAGE);

  load(tiny_config(), 256);
  EXPECT_EQ(linnet_model_separator(model_), -1);
  EXPECT_EQ(linnet_model_end(model_), -1);
  ModelConfig fields = tiny_config();
  fields.fields = "258,3";
  load(fields, 258);
  EXPECT_EQ(linnet_model_end(model_), -1);
  EXPECT_EQ(linnet_model_end(nullptr), -1);
  EXPECT_EQ(linnet_model_separator(nullptr), -1);
#ifdef LINNET_SENTENCEPIECE
  load(tiny_config(), 258, sentencepiece_model({}));
  EXPECT_EQ(linnet_model_end(model_), -1);
#endif
}

TEST_F(CText, OfATokenizer) {
  load(tiny_config(), 260, sentencepiece_model({"lin", "net"}));
#ifdef LINNET_SENTENCEPIECE
  EXPECT_THAT(encoded("linnetx"), ElementsAre(258, 259, 2 + 'x'));
  EXPECT_EQ(decoded({258, 2 + 'x', 2 + 0xc3}), "linx\xef\xbf\xbd");
  EXPECT_THAT(streamed({}, {258, 2 + 0xc3, 2 + 0xa9}), ElementsAre("lin", "", "é", ""));
#else
  std::size_t count = 0;
  EXPECT_EQ(linnet_model_encode(model_, "lin", 3, nullptr, 0, &count), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("SentencePiece"));
#endif
}

}  // namespace
}  // namespace linnet
