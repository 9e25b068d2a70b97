#include "io/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Cells = std::vector<std::string>;

struct Contents {
  Cells header;
  std::vector<Cells> records;
  std::vector<std::int64_t> lines;
};

Contents contents_of(std::string_view text) {
  CsvReader reader(text, "file.csv");
  Contents result{reader.header(), {}, {}};
  while (reader.next()) {
    result.records.push_back(reader.cells());
    result.lines.push_back(reader.line());
  }
  return result;
}

std::string refusal(std::string_view text) {
  return error_of([&] { contents_of(text); });
}

TEST(Csv, ReadsRecordsWithAnyLineEnds) {
  for (const std::string_view text :
       {"a,b\n1,2\n,4\n", "a,b\n1,2\n,4", "a,b\r\n1,2\r\n,4\r\n", "\xef\xbb\xbf a ,b\t\n1,2\n,4\n\n\r\n",
        "\"a\",b\n\"1\",2\n\"\",\"4\"\n"}) {
    const Contents contents = contents_of(text);
    EXPECT_THAT(contents.header, ElementsAre("a", "b")) << text;
    EXPECT_THAT(contents.records, ElementsAre(Cells{"1", "2"}, Cells{"", "4"})) << text;
    EXPECT_THAT(contents.lines, ElementsAre(2, 3)) << text;
  }
  EXPECT_THAT(contents_of("a,b").records, IsEmpty());
  EXPECT_THAT(contents_of("a\n\n1\n").records, ElementsAre(Cells{""}, Cells{"1"}));
  EXPECT_THAT(contents_of(",b\n1,2").header, ElementsAre("column 1", "b"));
}

TEST(Csv, SeparatorsAreThoseOfTheFirstTwoLines) {
  EXPECT_EQ(csv_separator("a;b\n1;2\n"), ';');
  EXPECT_EQ(csv_separator("a\tb\r\n1\t2"), '\t');
  EXPECT_EQ(csv_separator("a;b,c\n1;2,5\n"), ';');
  EXPECT_EQ(csv_separator("\"a;b\",c\n1,2\n"), ',');
  EXPECT_EQ(csv_separator("a;b\n\"1;2\"\n"), ',');
  for (const char* text : {"", "a", "a;b", "a;b\n", "a;b\n1\n", "a,b\n1,2\n", "a\n1\n"})
    EXPECT_EQ(csv_separator(text), ',') << text;
  CsvReader reader("a;\"b;c\"\n1,5;\"2\"\n", "file.csv", ';');
  EXPECT_THAT(reader.header(), ElementsAre("a", "b;c"));
  EXPECT_TRUE(reader.next());
  EXPECT_THAT(reader.cells(), ElementsAre("1,5", "2"));
  EXPECT_THAT(error_of([] { CsvReader("\"a\"b;c\n", "file.csv", ';'); }), HasSubstr("expected a semicolon"));
}

TEST(Csv, QuotedCellsContainCommasQuotesAndLineEnds) {
  const Contents contents = contents_of("\"a,\"\"b\"\"\",c\n\"one\ntwo\r\n\",\"\"\"\"\n3,\"4\"\r\n\"5\",");
  EXPECT_THAT(contents.header, ElementsAre("a,\"b\"", "c"));
  EXPECT_THAT(contents.records, ElementsAre(Cells{"one\ntwo\r\n", "\""}, Cells{"3", "4"}, Cells{"5", ""}));
  EXPECT_THAT(contents.lines, ElementsAre(2, 5, 6));
}

TEST(Csv, NamesWhatIsWrongAndItsLine) {
  EXPECT_THAT(refusal(""), AllOf(HasSubstr("file.csv"), HasSubstr("header line"), HasSubstr("got none")));
  EXPECT_THAT(refusal("\n\r\n"), HasSubstr("header line"));
  EXPECT_THAT(refusal("a,b, a\n"), HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal("a,b\n1,2\n1\n"), AllOf(HasSubstr("2 cells in line 3"), HasSubstr("got 1")));
  EXPECT_THAT(refusal("a,b\n\n1,2\n"), AllOf(HasSubstr("2 cells in line 2"), HasSubstr("got 1")));
  EXPECT_THAT(refusal("a,b\n1,2,\n"), AllOf(HasSubstr("2 cells in line 2"), HasSubstr("got 3")));
  EXPECT_THAT(refusal("a,b\n\"1\n\",2\n1,x\"y\n"), HasSubstr("one inside in line 4"));
  EXPECT_THAT(refusal("a,b\n1,\"2\n3,4\n"), AllOf(HasSubstr("in line 2"), HasSubstr("got none")));
  EXPECT_THAT(refusal("a,b\n1,2\n\"3\" ,4\n"), HasSubstr("more of it in line 3"));
  EXPECT_THAT(refusal(std::string_view("a,b\n1,\0", 7)), HasSubstr("byte 6 is 0"));
}

TEST(Csv, ReadsBackWhatWasWritten) {
  constexpr unsigned seed = 20;
  std::mt19937 draw(seed);
  const std::string letters = "a\",\n\r 1";
  for (int round = 0; round < 200; ++round) {
    const std::size_t columns = 1 + draw() % 4;
    std::vector<Cells> records(1 + draw() % 5, Cells(columns));
    std::string text;
    for (std::size_t c = 0; c < columns; ++c) text += (c == 0 ? "n" : ",n") + std::to_string(c);
    for (Cells& record : records) {
      text += draw() % 2 == 0 ? "\n" : "\r\n";
      for (std::size_t c = 0; c < columns; ++c) {
        for (std::size_t k = draw() % 4; k > 0; --k) record[c] += letters[draw() % letters.size()];
        std::string quoted;
        for (const char letter : record[c]) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
        text += (c == 0 ? "\"" : ",\"") + quoted + "\"";
      }
    }
    EXPECT_EQ(contents_of(text).records, records) << "seed " << seed << ", round " << round << ":\n" << text;
  }
}

TEST(Csv, CellsAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(csv_cell("plain text 1.5"), "plain text 1.5");
  EXPECT_EQ(csv_cell(""), "");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("\"a\" b"), "\"\"\"a\"\" b\"");
  const Cells cells = {"a,b", "c\nd", "e\r\nf", "\"", " g ", ""};
  std::string line;
  for (const std::string& cell : cells) line += (line.empty() ? "" : ",") + csv_cell(cell);
  EXPECT_EQ(contents_of("1,2,3,4,5,6\n" + line + "\n").records, std::vector<Cells>{cells});
}

}  // namespace
}  // namespace linnet
