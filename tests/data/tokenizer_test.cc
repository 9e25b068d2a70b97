#include "linnet/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "data/fingerprint.h"
#include "data/text.h"
#include "io/file.h"
#include "io/temporary_folder.h"
#include "linnet/dataset.h"
#include "support/sentencepiece.h"

#ifdef LINNET_SENTENCEPIECE
#include "tokenizer.h"
#endif

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr unsigned seed = 7;

/// All tokens through a stream, which is replaced after every `each` of them by one that goes on from its
/// context.
std::string streamed(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens, std::size_t each) {
  TextStream stream(tokenizer);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % each == each - 1) {
      const std::vector<std::int32_t> context = stream.context();
      EXPECT_LE(context.size(), 40u);
      stream = TextStream(tokenizer, context);
    }
    text += stream.add(tokens[i]);
  }
  return text + stream.finish();
}

TEST(Tokenizer, OfPairsHasTwoTokensWithoutText) {
  const Tokenizer pairs("", 258), bytes("", 256);
  EXPECT_EQ(pairs.vocabulary(), 258);
  EXPECT_EQ(pairs.separator(), 256);
  EXPECT_EQ(pairs.end(), 257);
  EXPECT_EQ(bytes.separator(), -1);
  EXPECT_EQ(bytes.end(), -1);
  EXPECT_EQ(pairs.encode("é"), bytes.encode("é"));
  EXPECT_EQ(pairs.decode(std::vector<std::int32_t>{256, 0xc3, 0xa9, 257, 'x'}), "éx");
  TextStream stream(pairs, std::vector<std::int32_t>{'a', 256});
  EXPECT_EQ(stream.add(0xc3), "");
  EXPECT_EQ(stream.add(257), "");
  EXPECT_EQ(stream.add(0xa9), "é");
  EXPECT_EQ(stream.add('b'), "b");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_THAT(error_of<UsageError>([&] { pairs.decode(std::vector<std::int32_t>{258}); }), HasSubstr("257"));
  EXPECT_THAT(error_of<UsageError>([&] { Tokenizer("", 257); }), HasSubstr("257"));
}

TEST(TextStream, OfBytesGivesWholeCharacters) {
  const Tokenizer bytes("", 256);
  EXPECT_EQ(bytes.vocabulary(), 256);
  EXPECT_TRUE(bytes.bytes().empty());
  const std::string text = "aé\xe2\x82\xac\xf0\x9f\x98\x80";
  const std::vector<std::int32_t> tokens = bytes.encode(text);
  EXPECT_EQ(bytes.decode(tokens), text);
  TextStream stream(bytes);
  std::vector<std::string> parts;
  for (const std::int32_t token : tokens) parts.push_back(stream.add(token));
  EXPECT_THAT(parts,
              testing::ElementsAre("a", "", "é", "", "", "\xe2\x82\xac", "", "", "", "\xf0\x9f\x98\x80"));
  EXPECT_EQ(stream.finish(), "");
  // Neither bytes that begin no character nor such as another one interrupts are held back.
  EXPECT_EQ(stream.add(0x82), "\x82");
  EXPECT_EQ(stream.add(0xff), "\xff");
  EXPECT_EQ(stream.add(0xf0), "");
  EXPECT_EQ(stream.add(0x9f), "");
  EXPECT_EQ(stream.add(0xe2), "\xf0\x9f");
  EXPECT_EQ(TextStream(bytes, std::vector<std::int32_t>{'x', 0xe2, 0x82}).add(0xac), "\xe2\x82\xac");
  EXPECT_EQ(stream.finish(), "\xe2");
  EXPECT_EQ(stream.finish(), "");
  std::mt19937 draw(seed);
  std::vector<std::int32_t> noise(3000);
  for (std::int32_t& token : noise) token = static_cast<std::int32_t>(draw() % 256);
  for (const std::size_t each : {noise.size() + 1, std::size_t{1}, std::size_t{3}})
    EXPECT_EQ(streamed(bytes, noise, each), bytes.decode(noise)) << each;
}

TEST(Tokenizer, OfAModelIsThatOfItsTokens) {
  EXPECT_THAT(error_of<UsageError>([] { Tokenizer("", 300); }), HasSubstr("one of 300 tokens"));
  const Tokenizer bytes("", 256);
  for (const std::int32_t token : {-1, 256}) {
    EXPECT_THAT(error_of<UsageError>([&] { bytes.decode({&token, 1}); }), HasSubstr("tokens in 0 … 255"));
    EXPECT_THAT(error_of<UsageError>([&] { TextStream(bytes, {&token, 1}); }), HasSubstr("0 … 255"));
  }
  TextStream stream(bytes);
  stream.add(0xe2);
  EXPECT_THAT(error_of<UsageError>([&] { stream.add(256); }), HasSubstr("got 256"));
  EXPECT_EQ(stream.finish(), "\xe2");
}

#ifdef LINNET_SENTENCEPIECE

// Lines of words that are made of few syllables.
std::string prose(int words) {
  std::mt19937 draw(seed);
  const char* syllables[] = {"lin", "net", "att", "end", "ion", "ö", "ka", "to", "re", "mi"};
  std::string text;
  for (int i = 0; i < words; ++i) {
    for (int k = 1 + static_cast<int>(draw() % 3); k > 0; --k) text += syllables[draw() % 10];
    text += i % 9 == 8 ? "\n" : " ";
  }
  return text;
}

TEST(Tokenizer, GivesBackWhatItEncodes) {
  const TemporaryFolder folder;
  const std::string text = prose(2000);
  const Tokenizer tokenizer(folder.file("a.model", train_tokenizer(text, 300)));
  EXPECT_EQ(tokenizer.vocabulary(), 300);
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  EXPECT_LT(tokens.size(), text.size() / 2);
  EXPECT_EQ(tokenizer.decode(tokens), text);
  const std::string long_line(3 * Tokenizer::longest_line, 'x');
  std::string characters;  // the cuts lie inside of them
  for (std::size_t i = 0; i < Tokenizer::longest_line; ++i) characters += "\xe2\x82\xac";
  for (const std::string& other :
       {std::string(), std::string("\n"), std::string("  two  blanks \n\n\t\r\n"),
        std::string("Ж € \xf0\x9f\x98\x80 unseen"), long_line, "x" + characters, "xx" + characters}) {
    const std::vector<std::int32_t> encoded = tokenizer.encode(other);
    EXPECT_TRUE(std::ranges::all_of(encoded, [](std::int32_t token) { return token >= 0 && token < 300; }));
    EXPECT_EQ(tokenizer.decode(encoded), other);
  }
}

TEST(Tokenizer, LinesAreEncodedByThemselves) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer(folder.file("a.model", train_tokenizer(prose(2000), 300)));
  std::vector<std::int32_t> together = tokenizer.encode("linnet\n"), second = tokenizer.encode("attend");
  together.insert(together.end(), second.begin(), second.end());
  EXPECT_EQ(tokenizer.encode("linnet\nattend"), together);
}

TEST(Tokenizer, TextHasWindowsOfTokens) {
  const TemporaryFolder folder;
  const std::string text = prose(3000), model = folder.file("a.model", train_tokenizer(text, 320));
  const DataOptions options{
      .kind = "text", .path = folder.file("a.txt", text), .length = 16, .tokenizer = model};
  const Datasets data = open_datasets(options);
  const Tokenizer tokenizer(model);
  const std::size_t bytes = training_bytes(text);
  EXPECT_NEAR(static_cast<double>(bytes), 0.9 * static_cast<double>(text.size()), 4);
  EXPECT_EQ(data.training->vocabulary(), 320);
  const std::vector<std::int32_t> first = tokenizer.encode(text.substr(0, bytes)),
                                  last = tokenizer.encode(text.substr(bytes));
  ASSERT_EQ(data.training->size(), static_cast<std::int64_t>(first.size()) - 15);
  std::vector<std::int32_t> tokens(16), targets(16);
  data.training->read(100, tokens, targets);
  EXPECT_EQ(targets, tokens);
  EXPECT_TRUE(std::ranges::equal(tokens, std::span(first).subspan(100, 16)));
  std::vector<std::int32_t> counted;
  for (std::int64_t i = 0; i < data.validation->size(); ++i) {
    data.validation->read(i, tokens, targets);
    std::ranges::copy_if(targets, std::back_inserter(counted),
                         [](std::int32_t target) { return target >= 0; });
  }
  EXPECT_EQ(counted, last);
  EXPECT_EQ(fingerprint_of(options).files, 2);
}

TEST(Tokenizer, TextMayHaveSeveralFilesAndFilesForItsParts) {
  const TemporaryFolder folder;
  const std::string text = prose(3000), model = folder.file("a.model", train_tokenizer(text, 320));
  const std::size_t third = text.find('\n', text.size() / 3) + 1, half = text.find('\n', text.size() / 2) + 1;
  folder.file("1.txt", text.substr(0, third));
  folder.file("2.txt", text.substr(third, half - third));
  const std::string own = folder.file("own.txt", text.substr(half)),
                    short_text = folder.file("short.txt", "linnet");
  DataOptions options{.kind = "text",
                      .path = folder / "?.txt",
                      .length = 16,
                      .validation = own,
                      .test = own + "," + short_text,
                      .tokenizer = model};
  const Datasets data = open_datasets(options);
  const Tokenizer tokenizer(model);
  const auto counted = [](const Dataset& part) {
    std::vector<std::int32_t> tokens(16), targets(16), all;
    for (std::int64_t i = 0; i < part.size(); ++i) {
      part.read(i, tokens, targets);
      std::ranges::copy_if(targets, std::back_inserter(all), [](std::int32_t target) { return target >= 0; });
    }
    return all;
  };
  EXPECT_EQ(data.training->size(), std::ssize(tokenizer.encode(text.substr(0, half))) - 15);
  EXPECT_EQ(counted(*data.validation), tokenizer.encode(text.substr(half)));
  EXPECT_EQ(counted(*data.test), tokenizer.encode(text.substr(half) + "linnet"));
  EXPECT_EQ(fingerprint_of(options).files, 6);
  options.validation = short_text;
  EXPECT_THAT(error_of([&] { open_datasets(options); }),
              AllOf(HasSubstr("short.txt"), HasSubstr("16 tokens for validation")));
}

TEST(Tokenizer, PartsEndBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "\xe2\x82\xac";
  for (std::size_t more = 0; more < 12; ++more) {
    const std::size_t bytes = training_bytes(std::string(more, 'x') + text);
    EXPECT_EQ((bytes - more) % 3, 0u) << more;
    EXPECT_GE(10 * bytes, 9 * (text.size() + more));
  }
}

TEST(Tokenizer, RefusesWhatIsNoModel) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::filesystem::path& path) {
    return error_of([&] { Tokenizer tokenizer(path); });
  };
  EXPECT_THAT(refusal(folder / "none.model"), HasSubstr("none.model"));
  for (const std::string bytes : {"", "some text that is no model", "{}"})
    EXPECT_THAT(refusal(folder.file("a.model", bytes)),
                AllOf(HasSubstr("a.model"), HasSubstr("expected a model of SentencePiece")));
  std::string model = train_tokenizer(prose(500), 300);
  model.resize(model.size() / 2);
  EXPECT_THAT(refusal(folder.file("a.model", model)), HasSubstr("damaged"));
  const std::string text = folder.file("a.txt", prose(500));
  EXPECT_THAT(
      error_of([&] { open_datasets({.kind = "text", .path = text, .length = 16, .tokenizer = text}); }),
      HasSubstr("expected a model of SentencePiece"));
  EXPECT_THAT(error_of<UsageError>(
                  [&] { open_datasets({.kind = "bytes", .path = text, .length = 16, .tokenizer = text}); }),
              HasSubstr("data of kind text for data.tokenizer, got \"bytes\""));
}

TEST(Tokenizer, TrainingNamesTheNumbersThatAreEnough) {
  EXPECT_THAT(error_of([] { train_tokenizer("\n\n", 300); }), HasSubstr("empty"));
  // 256 bytes, the unknown piece, a and the blank.
  EXPECT_THAT(error_of<UsageError>([] { train_tokenizer("aaa aa", 257); }), HasSubstr("at least 259 pieces"));
  EXPECT_THAT(error_of<UsageError>([] { train_tokenizer("aaa aa", 5000); }),
              AllOf(HasSubstr("expected at most 2"), HasSubstr("got 5000")));
}

TEST(TextStream, GivesTheTextOfAllTokensTogether) {
  const std::string blank = "\xe2\x96\x81";  // as pieces have it
  const std::vector<std::string> pieces = {blank, blank + blank, blank + "lin", "lin",
                                           "ö",   "\n",          "net" + blank};
  for (const Blanks blanks : {Blanks{}, Blanks{true, false}, Blanks{false, true}, Blanks{true, true}}) {
    const Tokenizer tokenizer(sentencepiece_model(pieces, blanks), 265);
    std::mt19937 draw(seed);
    for (int repetition = 0; repetition < 100; ++repetition) {
      // Pieces and the control token, at first blanks more often, and bytes of whole and of broken
      // characters.
      std::vector<std::int32_t> tokens;
      for (int i = 0; i < 100; ++i) {
        const bool first = i < repetition % 50;
        const auto any = static_cast<std::int32_t>(draw() % 9);
        tokens.push_back(first ? 258 : any < 2 ? any : 256 + any);
        if (draw() % (first ? 40 : 4) == 0)
          for (const char byte : std::string("\xef\xbf\xbd\xf0\x9f\x98\x80").substr(draw() % 7))
            tokens.push_back(2 + static_cast<unsigned char>(byte));
        if (!first && draw() % 4 == 0) tokens.push_back(2 + static_cast<std::int32_t>(draw() % 256));
      }
      const std::string all = tokenizer.decode(tokens);
      for (const std::size_t each : {tokens.size() + 1, std::size_t{1}, std::size_t{5}})
        ASSERT_EQ(streamed(tokenizer, tokens, each), all) << repetition << " " << each;
    }
  }
}

TEST(TextStream, TellsAReplacementCharacterFromHalfACharacter) {
  const Tokenizer tokenizer(train_tokenizer(prose(500), 300), 300);
  const std::string replacement = "\xef\xbf\xbd", face = "\xf0\x9f\x98\x80";
  TextStream stream(tokenizer);
  std::vector<std::string> parts;
  for (const std::int32_t token : tokenizer.encode(replacement + face)) parts.push_back(stream.add(token));
  EXPECT_THAT(parts, testing::ElementsAre("", "", replacement, "", "", "", face));
  const std::vector<std::int32_t> bytes = tokenizer.encode(face);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(stream.add(bytes[i]), "");
  EXPECT_EQ(stream.finish(), replacement + replacement + replacement);
}

TEST(Tokenizer, OfAModelIsRefusedWhereItHasOtherPieces) {
  const std::string model = train_tokenizer(prose(500), 300);
  EXPECT_EQ(Tokenizer(model, 300).bytes(), model);
  EXPECT_THAT(error_of<UsageError>([&] { Tokenizer(model, 290); }),
              AllOf(HasSubstr("290 tokens"), HasSubstr("one of 300"), HasSubstr("does not match")));
  EXPECT_THAT(error_of([&] { Tokenizer(model.substr(0, 100), 300); }),
              AllOf(HasSubstr("tokenizer.model"), HasSubstr("damaged")));
  const std::int32_t token = 300;
  EXPECT_THAT(error_of<UsageError>([&] { Tokenizer(model, 300).decode({&token, 1}); }), HasSubstr("0 … 299"));
}

TEST(Tokenizer, OpenedOneStandsForItsFile) {
  const TemporaryFolder folder;
  const std::string text = prose(3000), model = folder.file("a.model", train_tokenizer(text, 320));
  DataOptions options{.kind = "text", .path = folder.file("a.txt", text), .length = 16, .tokenizer = model};
  const Datasets named = open_datasets(options);
  options.tokenizer.clear();
  options.opened_tokenizer.emplace(model);
  const Datasets opened = open_datasets(options);
  EXPECT_EQ(opened.training->size(), named.training->size());
  EXPECT_EQ(opened.validation->size(), named.validation->size());
  EXPECT_EQ(opened.training->tokenizer(), named.training->tokenizer());
}

#else

TEST(Tokenizer, IsRefusedWithoutItsLibrary) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of<UsageError>([&] { Tokenizer tokenizer(folder.file("a.model", "bytes")); }),
              AllOf(HasSubstr("SentencePiece"), HasSubstr("a.model")));
  EXPECT_THAT(error_of<UsageError>([] { Tokenizer("bytes", 300); }), HasSubstr("SentencePiece"));
}

#endif

}  // namespace
}  // namespace linnet
