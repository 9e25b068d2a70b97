#include "data/fasta.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "io/temporary_folder.h"
#include "support/gzip.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> parsed(std::string_view text) {
  std::vector<std::string> sequences;
  for (const auto& tokens : parse_fasta(text, "proteins.fasta")) {
    std::string& letters = sequences.emplace_back();
    for (const std::uint8_t token : tokens) letters += residues[token];
  }
  return sequences;
}

std::string refusal(std::string_view text) {
  return error_of([&] { parse_fasta(text, "proteins.fasta"); });
}

TEST(Fasta, ReadsSequencesOverAnyLinesAndEnds) {
  EXPECT_THAT(parsed(">one\nMKV\n"), ElementsAre("MKV"));
  EXPECT_THAT(parsed(">one|a > b\r\nMK\r\n\r\n  V \r\n>two\r\nacdef*"), ElementsAre("MKV", "ACDEF"));
  EXPECT_THAT(parsed("\n>1\nM\n>2\nK*\n>3\nV"), ElementsAre("M", "K", "V"));
  EXPECT_THAT(parsed("\xef\xbb\xbf>one\nMKV\n"), ElementsAre("MKV"));
  std::string all = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  EXPECT_THAT(parsed(">all\n" + all), ElementsAre(all));
}

TEST(Fasta, NamesWhatIsWrongAndItsLine) {
  EXPECT_THAT(refusal(""), AllOf(HasSubstr("proteins.fasta"), HasSubstr("empty file")));
  EXPECT_THAT(refusal("\n \r\n"), HasSubstr("empty file"));
  EXPECT_THAT(refusal("MKV\n"), AllOf(HasSubstr("'>'"), HasSubstr("got 'M' in line 1")));
  EXPECT_THAT(refusal(">one\nMKV\nMK-V\n"),
              AllOf(HasSubstr("residues of ACDEF"), HasSubstr("'-' in line 3")));
  EXPECT_THAT(refusal(">one\nMK V\n"), HasSubstr("byte 32 in line 2"));
  EXPECT_THAT(refusal(">one\nMK1\n"), HasSubstr("'1' in line 2"));
  EXPECT_THAT(refusal(std::string_view(">one\nMK\0V", 9)), HasSubstr("byte 0 in line 2"));
  EXPECT_THAT(refusal(">one\nM\xc3\xa4\n"), HasSubstr("byte 195 in line 2"));
  EXPECT_THAT(refusal(">one\nMK*\n\nV\n"), HasSubstr("inside in line 2"));
  EXPECT_THAT(refusal(">one\n>two\nMK\n"), HasSubstr("header of line 1, got none"));
  EXPECT_THAT(refusal(">one\nMK\n>two\n*\n"), HasSubstr("header of line 3, got none"));
  EXPECT_THAT(refusal(">one\nMK\n\n>two"), HasSubstr("header of line 4, got none"));
}

TEST(Fasta, CutsSequencesIntoFewPiecesAboutAsLong) {
  for (const std::int64_t length : {1, 2, 5, 31, 32, 33}) {
    for (const std::int64_t tokens : {1, 2, 31, 32, 33, 65}) {
      Sequence sequence;
      for (std::int64_t i = 0; i < tokens; ++i) sequence.push_back(static_cast<std::uint8_t>(i % 20));
      const auto pieces = sequence_pieces({sequence}, length);
      EXPECT_EQ(pieces->size(), (tokens + length - 1) / length);
      Sequence read;
      std::int64_t least = length, most = 0;
      for (std::int64_t i = 0; i < pieces->size(); ++i) {
        std::vector<std::int32_t> piece(static_cast<std::size_t>(length)), targets(piece);
        EXPECT_EQ(pieces->read(i, piece, targets), -1);
        EXPECT_EQ(piece, targets);
        const auto end = std::ranges::find(piece, -1);
        EXPECT_TRUE(std::all_of(end, piece.end(), [](std::int32_t token) { return token == -1; }));
        least = std::min<std::int64_t>(least, end - piece.begin());
        most = std::max<std::int64_t>(most, end - piece.begin());
        read.insert(read.end(), piece.begin(), end);
      }
      EXPECT_EQ(read, sequence);
      EXPECT_LE(most - least, 1);
    }
  }
  EXPECT_EQ(sequence_pieces({{1, 2, 3}}, std::numeric_limits<std::int64_t>::max())->size(), 1);
}

TEST(Fasta, ResiduesOfSeveralMeaningsAreNoTargets) {
  const auto pieces = sequence_pieces(parse_fasta(">one\nABCJOUXZ", ""), 10);
  std::vector<std::int32_t> tokens(10), targets(10);
  pieces->read(0, tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(0, 22, 1, 23, 20, 21, 24, 25, -1, -1));
  EXPECT_THAT(targets, ElementsAre(0, -1, 1, -1, 20, 21, -1, -1, -1, -1));
}

TEST(Fasta, HoldsOutEveryTenthSequence) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 21; ++i) text += fmt::format(">{}\n{}\n", i, std::string(5, residues[i % 20]));
  const std::string path = folder.file("proteins.fasta", text);
  const Datasets data = open_datasets({.kind = "fasta", .path = path, .length = 4});
  EXPECT_EQ(data.training->size(), 2 * 19);
  EXPECT_EQ(data.validation->size(), 2 * 2);
  EXPECT_EQ(data.training->vocabulary(), 26);
  EXPECT_EQ(data.training->length(), 4);
  std::vector<std::int32_t> tokens(4), targets(4);
  data.validation->read(0, tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(9, 9, -1, -1));
  data.validation->read(3, tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(19, 19, 19, -1));
}

TEST(Fasta, PiecesKnowTheirSequenceOfTheFiles) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i) text += ">\n" + std::string(i == 8 || i == 9 ? 25 : 5, 'A') + "\n";
  const Datasets data =
      open_datasets({.kind = "fasta", .path = folder.file("a.fasta", text).string(), .length = 10});
  const auto sequences = [](const Dataset& dataset) {
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < dataset.size(); ++i) found.push_back(sequence_of(dataset, i).value());
    return found;
  };
  EXPECT_THAT(sequences(*data.validation), ElementsAre(9, 9, 9, 19));
  EXPECT_THAT(sequences(*data.training),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18));
  const Datasets others = open_datasets({.kind = "copy", .length = 8, .examples = 20});
  EXPECT_EQ(sequence_of(*others.training, 0), std::nullopt);
}

TEST(Fasta, FilesMayBeGzipped) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 10; ++i) text += ">\n" + std::string(5, residues[static_cast<std::size_t>(i)]) + "\n";
  folder.file("a.fasta", text);
  folder.file("a.fasta.gz", gzipped(text));
  std::vector<std::int32_t> tokens(8), targets(8), plain(8);
  for (const char* name : {"a.fasta", "a.fasta.gz"}) {
    const Datasets data = open_datasets({.kind = "fasta", .path = folder / name, .length = 8});
    EXPECT_EQ(data.training->size(), 9);
    data.training->read(4, tokens, targets);
    if (plain.front() == 0) plain = tokens;
    EXPECT_EQ(tokens, plain);
  }
  EXPECT_EQ(plain.front(), 4);
}

TEST(Fasta, RefusesFilesAndOptionsThatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] {
                open_datasets({.kind = "fasta", .path = folder.file("few.fasta", ">1\nMK\n"), .length = 4});
              }),
              AllOf(HasSubstr("few.fasta"), HasSubstr("at least 10 sequences"), HasSubstr("got 1")));
  EXPECT_THAT(error_of([&] { open_datasets({.kind = "fasta", .path = folder / "none", .length = 4}); }),
              HasSubstr("none"));
  EXPECT_THAT(error_of<UsageError>([&] { open_datasets({.kind = "fasta", .length = 4}); }),
              HasSubstr("path"));
  EXPECT_THAT(error_of<UsageError>([&] { open_datasets({.kind = "fasta", .path = "file"}); }),
              HasSubstr("length"));
}

}  // namespace
}  // namespace linnet
