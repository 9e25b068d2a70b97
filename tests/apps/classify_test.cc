// Commands on models of labels: train, evaluate, classify, and generate with a label.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/refusal.h"
#include "apps/sequence_runs.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;

TEST(ClassifyProgram, GivesLabelsAndTheTableOfConfusion) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", csv = folder / "labels.csv";
  succeed(joined({"train", "classify-mnist", "--data", "digits", "--out", run, "--set", "training.steps=3",
                  "data.examples=60", "data.size=8", "data.levels=16"},
                 tiny));
  const Json evaluated = json_of(succeed({"evaluate", run, "--json"}));
  ASSERT_EQ(evaluated["confusion"].size(), 10u);
  std::int64_t all = 0, right = 0;
  for (std::size_t i = 0; i < 10; ++i)
    for (std::size_t j = 0; j < 10; ++j) {
      const std::int64_t count = evaluated["confusion"][i][j];
      all += count;
      right += i == j ? count : 0;
    }
  EXPECT_EQ(all, evaluated["examples"]);
  EXPECT_NEAR(evaluated["accuracy"].get<double>(), static_cast<double>(right) / static_cast<double>(all),
              1e-9);
  const Json given = json_of(succeed({"classify", run, "--data", "digits", "--examples", "5", "--json"}));
  EXPECT_EQ(given["labels"].size(), 5u);
  succeed({"classify", run, "--data", "digits", "--examples", "5", "--out", csv});
  EXPECT_EQ(lines_of(read_file(csv)).size(), 6u);
  refuses(usage, {"generate", run}, {"classify"});
}

TEST(ClassifyProgram, ManyLabelsAreEvaluatedWithoutATable) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1200; ++i) text += fmt::format("label {}\tword {}\n", i % 1001, i);
  const std::string run = folder / "run";
  const std::string config = folder.file(
      "lines.toml",
      "[data]\nkind = \"lines\"\nlength = 6\n[model]\nobjective = \"classify\"\n[training]\nsteps = 1\n");
  succeed(joined({"train", config, "--data", folder.file("lines.tsv", text), "--out", run}, tiny));
  EXPECT_THAT(succeed({"evaluate", run}).out, HasSubstr("accuracy"));
  EXPECT_FALSE(json_of(succeed({"evaluate", run, "--json"})).contains("confusion"));
}

TEST(ClassifyProgram, KnowsTheNamesOfLabelsWithoutTheData) {
  const TemporaryFolder folder;
  std::string text, swapped;
  for (int i = 0; i < 40; ++i) {
    text += i % 2 == 0 ? "one, two\taaaa\n" : "three\tbbbb\n";
    swapped += i % 2 == 0 ? "four\taaaa\n" : "three\tbbbb\n";
  }
  const std::string data = folder.file("lines.tsv", text), run = folder / "run", alone = folder / "alone",
                    config = folder.file("lines.toml",
                                         "[data]\nkind = \"lines\"\nlength = 6\n"
                                         "[model]\nobjective = \"classify\"\n[training]\nsteps = 2\n");
  succeed(joined({"train", config, "--data", data, "--out", run}, tiny));
  EXPECT_EQ(read_json(folder / "run/labels.json"), (Json{"one, two", "three"}));
  const auto continued = [&](const std::string& lines, const std::string& name) {
    const Strings training = {"train", config, "--data", lines, "--out", folder / name, "--init", run};
    return succeed(joined(training, tiny)).err;
  };
  EXPECT_THAT(continued(data, "same"), testing::Not(HasSubstr("other labels")));
  EXPECT_THAT(continued(folder.file("swapped.tsv", swapped), "others"), HasSubstr("other labels"));
  succeed({"convert", run, "--weights", "bf16", "--out", alone});
  const Strings classify = {"classify", alone, "--data-kind", "lines"};
  const Json given = json_of(succeed(joined(classify, {"--data", data, "--examples", "2", "--json"})));
  for (const Json& row : given["labels"]) {
    const Json names = {"one, two", "three"};
    EXPECT_EQ(row["label_name"], names[row["label"].get<std::size_t>()]);
    EXPECT_EQ(row["given_name"], names[row["given"].get<std::size_t>()]);
  }
  const std::string printed = succeed(joined(classify, {"--data", data})).out;
  EXPECT_THAT(printed, HasSubstr("example,label,given,probability,label_name,given_name\n"));
  EXPECT_THAT(printed, HasSubstr(",three,"));
  refuses(failed, joined(classify, {"--data", folder.file("other.tsv", swapped)}), {"one, two", "\"four\""});
}

TEST(ClassifyProgram, LabelsTextsThatHaveNone) {
  const TemporaryFolder folder;
  std::string text, all;
  for (int i = 0; i < 20; ++i) text += i % 2 == 0 ? "good\taaaa\n" : "bad\tbbbb\n";
  for (int i = 0; i < 7; ++i) all += "aaaa\n";
  const std::string data = folder.file("lines.tsv", text), run = folder / "run", alone = folder / "alone",
                    config = folder.file("lines.toml",
                                         "[data]\nkind = \"lines\"\nlength = 6\n"
                                         "[model]\nobjective = \"classify\"\n[training]\nsteps = 2\n");
  succeed(joined({"train", config, "--data", data, "--out", run}, tiny));
  succeed({"convert", run, "--weights", "f32", "--out", alone});
  std::filesystem::remove(data);
  const std::string unlabelled = folder.file("new.txt", all);
  for (const std::string& model : {run, alone}) {
    const Json given = json_of(succeed({"classify", model, "--data", unlabelled, "--json"}));
    EXPECT_EQ(given["examples"], 7);
    EXPECT_TRUE(given["accuracy"].is_null());
    for (const Json& row : given["labels"]) {
      EXPECT_EQ(row["label"], -1);
      EXPECT_EQ(row["label_name"], "");
      EXPECT_EQ(row["given_name"], given["labels"][0]["given_name"]);
    }
    const Json one = json_of(succeed({"classify", model, "--text", "aaaa", "--json"}));
    EXPECT_EQ(one["labels"], Json::array({given["labels"][0]}));
    const auto longer = succeed({"classify", model, "--text", "aaaabbbbc", "--json"});
    EXPECT_THAT(longer.err, HasSubstr("of the 9 bytes of the text the model reads the first 6"));
    const std::string piped =
        Program({"classify", model, "--data", "-", "--json"}, {.in = unlabelled}).wait().out;
    EXPECT_EQ(parse_json(piped, "output"), given);
    succeed({"classify", model, "--data", unlabelled, "--out", folder / "labels.csv"});
    EXPECT_EQ(lines_of(read_file(folder / "labels.csv")).size(), 8u);
  }
  // Accuracy is that of the lines with a label.
  const Json mixed = json_of(succeed(
      {"classify", run, "--data", folder.file("mixed.txt", all + "good\taaaa\nbad\taaaa\n"), "--json"}));
  EXPECT_EQ(mixed["examples"], 9);
  EXPECT_EQ(mixed["accuracy"], 0.5);
  EXPECT_EQ(json_of(succeed({"classify", run, "--data", folder / "mixed.txt", "--split", "test", "--json"})),
            mixed);
  refuses(failed, {"classify", run, "--data", folder / "mixed.txt", "--split", "training"},
          {"at least 10 lines"});
  refuses(failed, {"evaluate", run, "--data", unlabelled}, {"got no tab"});
  for (const Strings& other : {Strings{"--data", unlabelled}, Strings{"--split", "test"}})
    refuses(usage, joined({"classify", run, "--text", "aaaa"}, other), {"--text", other.front()});
}

TEST(ClassifyProgram, LabelsPicturesThatHaveNone) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", pictures = folder / "new";
  const auto write = [&](const std::string& name, std::int64_t channels, std::uint8_t level) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_png(folder / name,
              {8, 8, channels, std::vector<std::uint8_t>(static_cast<std::size_t>(64 * channels), level)});
  };
  for (int i = 0; i < 20; ++i)
    write(fmt::format("all/{}/{}.png", i % 2 == 0 ? "dark" : "light", i), 1, i % 2 == 0 ? 10 : 240);
  succeed(joined({"train", "classify-mnist", "--data", folder / "all", "--out", run, "--set",
                  "training.steps=2", "data.kind=images", "data.size=8", "data.levels=16"},
                 tiny));
  std::filesystem::remove_all(folder / "all");
  write("new/a.png", 1, 10);
  write("new/b.png", 3, 240);
  const Json given = json_of(succeed({"classify", run, "--data", pictures, "--json"}));
  EXPECT_EQ(given["examples"], 2);
  EXPECT_TRUE(given["accuracy"].is_null());
  EXPECT_EQ(given["labels"][1]["label"], -1);
  EXPECT_EQ(given["labels"][1]["file"], pictures + "/b.png");
  const Json one = json_of(succeed({"classify", run, "--data", pictures + "/b.png", "--json"}));
  EXPECT_EQ(one["examples"], 1);
  EXPECT_EQ(one["labels"][0]["given"], given["labels"][1]["given"]);
  EXPECT_THAT(succeed({"classify", run, "--data", pictures + "/b.png"}).out,
              HasSubstr("given_name,file\n0,-1,"));
  refuses(usage, {"classify", run, "--text", "a"}, {"bytes of texts"});
}

TEST(GenerateProgram, TakesLabelsByTheirNames) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i) text += i % 2 == 0 ? "good\taaaa\n" : "bad\tbbbb\n";
  const std::string run = folder / "run",
                    config = folder.file("lines.toml", "[data]\nkind = \"lines\"\nlength = 6\n");
  succeed(joined(joined({"train", config, "--data", folder.file("lines.tsv", text), "--out", run}, tiny),
                 {"training.steps=2"}));
  const auto drawn = [&](const std::string& label) {
    return succeed({"generate", run, "--label", label, "--seed", "3"}).out;
  };
  EXPECT_EQ(drawn("good"), drawn("1"));
  EXPECT_EQ(drawn("bad"), drawn("0"));
  EXPECT_NE(drawn("good"), drawn("bad"));
  refuses(usage, {"generate", run, "--label", "fine"}, {"names of the labels bad, good", "\"fine\""});
  refuses(usage, {"generate", run, "--label", "2"}, {"2"});
  // A name that is a number is that of its label.
  write_file_atomically(run + "/labels.json", R"(["1", "2"])");
  const std::string good = drawn("2");
  EXPECT_NE(drawn("1"), good);
  EXPECT_EQ(drawn("0"), drawn("1"));
}

}  // namespace
}  // namespace linnet
