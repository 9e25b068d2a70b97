// linnet data show: what is read from data, before anything is trained.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "apps/refusal.h"
#include "io/json.h"
#include "io/png.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class ShowData : public testing::Test {
 protected:
  /// Of these words in the folder of the test.
  Ended show(const Strings& words) {
    return succeed(joined({"data", "show"}, words), {.folder = folder_.path().string()});
  }
  Json json(const Strings& words) { return json_of(show(joined(words, {"--json"}))); }

  /// 100 hours of two columns, the second of which is 7.
  void write_series() {
    std::string text = "date,wave,level\n";
    for (int i = 0; i < 100; ++i)
      text += fmt::format("2024-03-{:02} {:02}:00:00,{},7\n", 1 + i / 24, i % 24, i % 2 == 0 ? 1 : 3);
    folder_.file("hours.csv", text);
  }

  TemporaryFolder folder_;
};

TEST_F(ShowData, ASeriesByRowsTimesAndColumns) {
  write_series();
  const Strings words = {"series",
                         "--data",
                         "hours.csv",
                         "--set",
                         "data.length=10",
                         "data.patch=1",
                         "data.horizon=1",
                         "data.columns_apart=false",
                         "data.split=0.8,0.9"};
  const Json found = json(words);
  EXPECT_EQ(found["kind"], "series");
  ASSERT_EQ(found["parts"].size(), 3u);
  const Json& training = found["parts"][0];
  EXPECT_EQ(training["part"], "training");
  EXPECT_EQ(training["examples"], 71);
  EXPECT_EQ(training["steps"], 10);
  EXPECT_EQ(training["rows"][0]["end"], 80);
  EXPECT_EQ(training["rows"][0]["first_time"], "2024-03-01 00:00:00");
  EXPECT_EQ(training["rows"][0]["last_time"], "2024-03-04 07:00:00");
  EXPECT_EQ(found["parts"][2]["rows"][0]["first"], 90);
  EXPECT_EQ(found["columns"][0], (Json{{"column", "wave"}, {"mean", 2.0}, {"deviation", 1.0}}));
  EXPECT_EQ(found["columns"][1]["mean"], 7);
  ASSERT_EQ(found["examples"].size(), 3u);
  EXPECT_EQ(found["examples"][1]["index"], 23);
  EXPECT_EQ(found["examples"][1]["counted"], 20);
  EXPECT_EQ(found["examples"][1]["values"][0], 3);
  EXPECT_THAT(show(words).out, AllOf(HasSubstr("2024-03-04 07:00:00"), HasSubstr("wave   1  3  1  3")));
}

// Two files, of which the second has validation rows only behind those of the first.
TEST_F(ShowData, EveryFileOfASeriesHasItsRows) {
  for (const char* name : {"a.csv", "b.csv"}) {
    std::string text = "x\n";
    for (int i = 0; i < (*name == 'a' ? 100 : 50); ++i) text += fmt::format("{}\n", i);
    folder_.file(name, text);
  }
  const Json found = json({"series", "--data", "a.csv,b.csv", "--set", "data.length=4", "data.patch=1",
                           "data.horizon=1", "data.split=0.8,0.9", "--examples", "1"});
  const Json& rows = found["parts"][1]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0]["file"].get<std::string>(), HasSubstr("a.csv"));
  EXPECT_THAT(rows[1]["file"].get<std::string>(), HasSubstr("b.csv"));
  EXPECT_EQ(rows[1]["first"], 40);
  EXPECT_EQ(rows[1]["end"], 45);
  EXPECT_FALSE(rows[0].contains("first_time"));
  // Of all training rows, beside an example that is normalised by them.
  EXPECT_NEAR(found["columns"][0]["mean"].get<double>(), (3160 + 780) / 120.0, 1e-9);
  EXPECT_LT(found["examples"][0]["values"][0].get<double>(), -1);
}

TEST_F(ShowData, LabelsAreCountedInEveryPart) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += fmt::format("{}\tline {}\n", i % 4 == 0 ? "odd" : "even", i);
  folder_.file("lines.tsv", lines);
  const Json found =
      json({"classify-lines", "--data", "lines.tsv", "--examples", "2", "--split", "validation"});
  ASSERT_EQ(found["labels"].size(), 2u);
  EXPECT_EQ(found["labels"][0], (Json{{"label", "even"}, {"training", 13}, {"validation", 2}}));
  EXPECT_EQ(found["labels"][1], (Json{{"label", "odd"}, {"training", 5}, {"validation", 0}}));
  EXPECT_EQ(found["split"], "validation");
  EXPECT_EQ(found["examples"][1]["label"], "even");
  EXPECT_EQ(found["examples"][1]["text"], "line 19");
  EXPECT_THAT(show({"classify-lines", "--data", "lines.tsv"}).out,
              AllOf(HasSubstr("even         13           2"), HasSubstr("label odd, 6 steps"),
                    HasSubstr("\nline 0\n")));
}

TEST_F(ShowData, WarnsOfALabelThatNoValidationExampleHas) {
  const auto warnings = [&](int turn) {
    std::string lines;
    for (int i = 0; i < 60; ++i) lines += fmt::format("{}\tline {}\n", i % turn == 0 ? "odd" : "even", i);
    folder_.file("lines.tsv", lines);
    return show({"classify-lines", "--data", "lines.tsv"}).err;
  };
  EXPECT_THAT(warnings(2),
              HasSubstr("no validation example has the label \"odd\", which 30 of the training"));
  EXPECT_EQ(warnings(3), "");
}

TEST_F(ShowData, PairsInBothForms) {
  folder_.file("pairs.tsv", "to\tfro\nup\tdown\n");
  const Strings words = {
      "pairs", "--data", "pairs.tsv", "--examples", "1", "--set", "data.validation=pairs.tsv"};
  EXPECT_THAT(show(words).out, AllOf(HasSubstr("4 steps, 4 targets that count"), HasSubstr("\nto → fro\n")));
  EXPECT_THAT(json(words)["examples"][0]["source"].get<std::vector<int>>(), ElementsAre('t', 'o'));
  const Json found = json(joined(words, {"data.source_length=0"}));
  EXPECT_EQ(found["examples"][0]["text"], "to → fro");
  EXPECT_EQ(found["examples"][0]["steps"], 7);
  EXPECT_EQ(found["examples"][0]["counted"], 4);
}

TEST_F(ShowData, PackedSequencesOneByOne) {
  folder_.file("lines.tsv", "odd\tone\neven\ttwo\nodd\tthree\n");
  const Strings words = {"classify-lines",    "--data",     "lines.tsv", "--set", "data.validation=lines.tsv",
                         "data.packing=true", "--examples", "1"};
  const Json example = json(words)["examples"][0];
  EXPECT_THAT(lines_of(example["text"].get<std::string>() + "\n"),
              UnorderedElementsAre("one", "two", "three"));
  EXPECT_EQ(example["label"].get<std::string>().size(), std::string("odd, odd, even").size());
  EXPECT_EQ(json(words)["labels"][1], (Json{{"label", "odd"}, {"training", 2}, {"validation", 2}}));
}

TEST_F(ShowData, PicturesAsOnePicture) {
  const Strings words = {"digits", "--set", "data.examples=30", "--split", "validation"};
  EXPECT_THAT(show(joined(words, {"--out", "digits.png"})).out,
              HasSubstr("3 pictures of validation: digits.png"));
  const Image image = read_png(folder_.path() / "digits.png");
  EXPECT_GT(image.width, 32);
  EXPECT_EQ(json(words)["examples"][0]["tokens"].size(), 256u);
  EXPECT_THAT(show(words).out, Not(HasSubstr("step  0")));
}

TEST_F(ShowData, OfARunWithItsOwnDataAndWithOthers) {
  write_series();
  succeed({"train", "anomalies", "--data", "hours.csv", "--out", "run", "--set", "data.length=10",
           "model.length=10", "model.layers=1", "model.heads=1", "model.width=16", "training.steps=1",
           "data.split=0.8,0.9"},
          {.folder = folder_.path().string()});
  EXPECT_EQ(json({"run"})["parts"][0]["examples"], 71);
  folder_.file("words.txt", "date of 1 word and of 2 more, and of 3 more behind these\n");
  EXPECT_EQ(
      json({"run", "--data", "words.txt", "--set", "data.kind=text", "data.length=4", "data.split="})["kind"],
      "text");
  folder_.file("fewer.csv",
               "date,wave,level\n2024-01-01,1,2\n2024-01-02,2,2\n2024-01-03,1,2\n2024-01-04,2,2\n"
               "2024-01-05,1,2\n2024-01-06,2,2\n2024-01-07,3,2\n2024-01-08,1,2\n");
  EXPECT_EQ(json({"run", "--data", "fewer.csv", "--set", "data.length=2",
                  "data.split=0.5,0.8"})["parts"][0]["examples"],
            3);
}

TEST_F(ShowData, WarnsAsTrainingDoes) {
  folder_.file("dna.fasta", ">a\nACGTACGTTAGC\n>b\nACGTACGATTTAGC\n");
  EXPECT_THAT(show({"proteins", "--data", "dna.fasta", "--set", "data.validation=dna.fasta"}).err,
              HasSubstr("warning: the sequences look like DNA or RNA"));
  EXPECT_THAT(show({"proteins", "--data", "dna.fasta", "--set", "data.validation=dna.fasta", "--json"}).err,
              HasSubstr("warning: the sequences look like DNA or RNA"));
  EXPECT_THAT(show({"copy"}).err, testing::IsEmpty());
}

// Pipes in a folder are left out, as what is no picture is: nobody would write into them.
TEST_F(ShowData, PipesInAFolderAreNoPictures) {
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directory(folder_.path() / name);
    for (int i = 0; i < 10; ++i)
      write_png(folder_.path() / name / fmt::format("{}.png", i),
                {8, 8, 1, std::vector<std::uint8_t>(64, 9)});
    ASSERT_EQ(mkfifo((folder_.path() / name / "pipe.png").c_str(), 0600), 0);
  }
  const Json found = json({"classify-images", "--data", ".", "--set", "data.size=8"});
  EXPECT_EQ(found["labels"][1], (Json{{"label", "b"}, {"training", 9}, {"validation", 1}}));
}

TEST_F(ShowData, RefusesWhatItCannotShow) {
  const std::string text = folder_.file("book.txt", std::string(5000, 'a'));
  refuses(usage, {"data", "show", "nothing/here"}, {"nothing/here"});
  refuses(usage, {"data", "show", folder_.path().string()}, {"a configuration or the folder of a run"});
  refuses(usage, {"data", "show", "text", "--data", text, "--split", "test"},
          {"training or validation", "test"});
  refuses(usage, {"data", "show", "text", "--data", text, "--out", (folder_.path() / "a.png").string()},
          {"pictures", "text"});
  refuses(usage, {"data", "show", "digits", "--examples", "0"}, {"--examples"});
  refuses(usage, {"data", "show", "digits", "--set", "data.path=" + text}, {"data.path", "digits"});
  refuses(usage, {"data", "show", "text", "--data", text, "--set", "data.validation=" + text, "--out", text},
          {"book.txt"});
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "a.png"));
}

}  // namespace
}  // namespace linnet
