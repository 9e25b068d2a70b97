#include "linnet/run_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "io/file.h"
#include "linnet/dataset.h"
#include "linnet/error.h"
#include "support/errors.h"
#include "support/folder.h"
#include "training/run_columns.h"

namespace linnet {
namespace {

using testing::HasSubstr;

TEST(RunConfig, ReadsWhatItWrites) {
  RunConfig config{ModelConfig()};
  config.read_toml(
      "[model]\nlayers = 3\n[attention]\nfamily = \"softmax\"\n[data]\nkind = \"copy\"\nlength = 9\n",
      "a document");
  config.set("training.learning_rate=0.25");
  RunConfig read{ModelConfig()};
  read.read_json(config.json(), "JSON");
  EXPECT_EQ(read.json(), config.json());
  EXPECT_EQ(read.model.layers, 3);
  EXPECT_EQ(read.model.attention.family, Family::softmax);
  EXPECT_EQ(read.data.kind, "copy");
  EXPECT_EQ(read.data.length, 9);
  EXPECT_EQ(read.training.learning_rate, 0.25);
}

TEST(RunConfig, NamesTheKeyAtFault) {
  RunConfig config;
  EXPECT_THAT(error_of<UsageError>([&] { config.set("model.leyers=3"); }), HasSubstr("model.layers"));
  EXPECT_THAT(error_of<UsageError>([&] { config.read_json(R"({"model": {"layers": "two"}})", "JSON"); }),
              HasSubstr("\"two\""));
  EXPECT_THAT(error_of<UsageError>([&] { config.read_toml("[training]\nsteps = -1\n", "a document"); }),
              HasSubstr("training.steps"));
}

TEST(RunConfig, ListsEveryKeyWithItsValue) {
  RunConfig config;
  config.set("training.steps=17");
  const std::vector<Setting> settings = config.settings();
  const auto steps = std::ranges::find(settings, "training.steps", &Setting::key);
  ASSERT_NE(steps, settings.end());
  EXPECT_EQ(steps->value, "17");
  EXPECT_EQ(steps->type, "integer");
  EXPECT_TRUE(std::ranges::count(settings, "data.kind", &Setting::key) == 1);
}

TEST(RunConfig, TakesFromTheDataWhatIsOpen) {
  const Datasets data = open_datasets({.kind = "copy", .length = 9, .examples = 10});
  RunConfig config;
  config.fit_to_data(*data.training);
  EXPECT_EQ(config.model.length, data.training->length());
  EXPECT_EQ(config.model.vocabulary, data.training->vocabulary());
  RunConfig given;
  given.model.vocabulary = 40;
  given.fit_to_data(*data.training);
  EXPECT_EQ(given.model.vocabulary, 40);
}

TEST(RunConfig, RefusesWhatTheMachineCannotHold) {
  RunConfig config{ModelConfig()};
  config.model.width = 65536;
  config.model.layers = 1000;
  config.model.heads = 64;
  EXPECT_THAT(error_of<Error>([&] { config.check_memory(false); }), HasSubstr("memory"));
}

TEST(RunConfig, EveryKindOfDataIsOpened) {
  const Folder folder;
  for (const std::string& kind : data_kinds())
    EXPECT_THAT(error_of([&] { open_datasets({.kind = kind, .path = folder / "none", .examples = 0}); }),
                testing::Not(HasSubstr("kind of data among")));
}

TEST(RunConfig, DataOfAModelHaveItsForm) {
  ModelConfig model;
  model.length = 77;
  model.vocabulary = 20;
  const DataOptions data = data_for_model(model, "copy");
  EXPECT_EQ(data.kind, "copy");
  EXPECT_EQ(data.length, 77);
  EXPECT_THAT(error_of<UsageError>([&] { (void)data_for_model(model, "/nonexistent"); }),
              HasSubstr("does not exist"));
}

TEST(RunConfig, SourcesAreRecognisedByTheirNames) {
  const Folder folder;
  std::filesystem::create_directories(folder / "images/cats");
  for (const char* name :
       {"a.txt", "a.npy", "a.safetensors", "a.bin", "b.bin", "a.fa", "a.csv", "b.csv", "a.wav", "a.flac",
        "b.fasta.gz", "b.csv.gz", "images/cats/1.png", "A.CSV", "A.Fasta.GZ", "A.WAV", "a.ogg", "a.AIFF"})
    write_file_atomically(folder / name, "x");
  const auto kind_of = [&](const std::string& source, const char* kind = "digits") {
    DataOptions data{.kind = kind};
    set_source(data, (folder / source).string());
    EXPECT_EQ(data.path, (folder / source).string());
    return data.kind;
  };
  EXPECT_EQ(kind_of("a.txt"), "text");
  EXPECT_EQ(kind_of("a.fa", "text"), "fasta");
  EXPECT_EQ(kind_of("b.fasta.gz"), "fasta");
  EXPECT_EQ(kind_of("b.csv.gz"), "text");
  for (const char* source : {"a.npy", "a.safetensors", "a.bin", "?.bin"})
    EXPECT_EQ(kind_of(source), "tokens");
  EXPECT_EQ(kind_of("a.bin," + (folder / "b.bin").string()), "tokens");
  EXPECT_EQ(kind_of("A.CSV"), "series");
  EXPECT_EQ(kind_of("A.Fasta.GZ"), "fasta");
  for (const char* source : {"a.wav", "a.flac", "A.WAV", "a.ogg", "a.AIFF"})
    EXPECT_EQ(kind_of(source), "sound");
  EXPECT_EQ(kind_of("a.csv"), "series");
  EXPECT_EQ(kind_of("a.csv, " + (folder / "b.csv").string()), "series");
  EXPECT_EQ(kind_of("a.bin", "bytes"), "bytes");
  for (const char* kind : {"lines", "pairs", "tokens", "fasta", "series", "sound"})
    EXPECT_EQ(kind_of("a.txt", kind), kind);
  EXPECT_EQ(kind_of("images"), "images");
  EXPECT_EQ(kind_of("images/cats"), "images");
  EXPECT_EQ(kind_of(""), "mnist");
  EXPECT_EQ(kind_of("", "images"), "images");
  EXPECT_THAT(error_of<UsageError>([&] { kind_of("c*.bin"); }), HasSubstr("does not exist"));
  EXPECT_THAT(error_of<UsageError>([&] { kind_of("a.csv," + (folder / "none.csv").string()); }),
              testing::EndsWith("none.csv, which does not exist"));
}

TEST(RunConfig, TokensOfAModelHaveItsVocabulary) {
  const Folder folder;
  write_file_atomically(folder / "a.bin", "1234");
  ModelConfig model;
  model.length = 7;
  model.vocabulary = 65536;
  const DataOptions data = data_for_model(model, (folder / "a.bin").string());
  EXPECT_EQ(data.kind, "tokens");
  EXPECT_EQ(data.fields, "65536");
  model.fields = "50,30";
  EXPECT_EQ(data_for_model(model, (folder / "a.bin").string()).fields, "50,30");
  EXPECT_EQ(data.length, 7);
  model.fields = "20,65536";
  EXPECT_EQ(data_for_model(model, (folder / "a.bin").string()).fields, "20,65536");
}

TEST(RunConfig, AClassifierReadsTextAsLines) {
  const Folder folder;
  write_file_atomically(folder / "lines.tsv", "a\tb\n");
  ModelConfig model;
  model.length = 7;
  model.vocabulary = 256;
  model.objective = Objective::classify;
  model.classes = 2;
  const std::string path = (folder / "lines.tsv").string();
  EXPECT_EQ(data_for_model(model, path).kind, "lines");
  EXPECT_EQ(data_for_model(model, path, "text").kind, "text");
}

// A model of a series is trained on columns in their units, or on normalised ones that are apart.
TEST(RunConfig, ColumnsOfASeriesAreApartWhereTheModelTakesNormalisedNumbers) {
  const Folder folder;
  std::string text = "a,b\n";
  for (int i = 0; i < 100; ++i) text += fmt::format("{},{}\n", i % 7, 50 + i % 5);
  const std::string path = (folder / "series.csv").string();
  write_file_atomically(path, text);
  for (const bool apart : {false, true}) {
    DataOptions data{.kind = "series", .path = path, .length = 8};
    data.columns_apart = apart;
    if (!apart) data.columns = "a";
    const Datasets opened = open_datasets(data);
    RunConfig config;
    config.model.layers = 1;
    config.model.width = 8;
    config.model.heads = 2;
    config.model.feed_forward = 8;
    config.training.steps = 1;
    config.training.batch = 2;
    config.fit_to_data(*opened.training);
    const std::string run = (folder / (apart ? "apart" : "together")).string();
    Context context(1);
    train(context, config.model, config.training, *opened.training, *opened.validation, run, false);
    const auto model = Model::load(run);
    DataOptions found = data_for_model(*model, path);
    EXPECT_EQ(found.columns_apart, apart);
    found.columns = data.columns;
    EXPECT_EQ(open_dataset(found, Split::validation)->size(), opened.validation->size());
    take_as_test(found);
    EXPECT_EQ(open_dataset(found, Split::test)->columns(), 1);
    // The folder says what the program needs to know of the columns.
    const auto columns = RunColumns::read(run);
    ASSERT_TRUE(columns);
    EXPECT_EQ(columns->names.size(), apart ? 2u : 1u);
    EXPECT_EQ(columns->applied.mean.size(), apart ? 2u : 0u);
  }
}

TEST(RunConfig, TestFilesAreThoseOfTheFolderOrAllOfThePath) {
  DataOptions data{.kind = "digits", .path = "mnist"};
  EXPECT_EQ(error_of<UsageError>([&] { take_as_test(data); }),
            "[data] expected the part training or validation of data of the kind digits, got test");
  data.kind = "mnist";
  take_as_test(data);
  EXPECT_EQ(data.path, "mnist");
  EXPECT_EQ(data.test, "");
  data.kind = "text";
  take_as_test(data);
  EXPECT_EQ(data.test, "mnist");
  EXPECT_EQ(data.path, "");
}

TEST(ChosenColumns, KeepTheNamesOfTheModelWhereTheyAreItsOwn) {
  DataOptions data;
  data.column_names = {"load", "wind"};
  data.statistics = ColumnStatistics{{1, 2}, {3, 4}};
  for (const char* own : {"load,wind", " wind, load"}) {
    choose_columns(data, own);
    EXPECT_EQ(data.columns, own);
    EXPECT_EQ(data.column_names.size(), 2u) << own;
    EXPECT_TRUE(data.statistics.has_value()) << own;
  }
  choose_columns(data, "load,sun");
  EXPECT_TRUE(data.column_names.empty());
  EXPECT_FALSE(data.statistics.has_value());
}

TEST(RunConfig, AModelOfPairsReadsTextAsPairs) {
  const Folder folder;
  write_file_atomically(folder / "pairs.tsv", "a\tb\n");
  ModelConfig model;
  model.length = 7;
  model.vocabulary = 258;
  const std::string path = (folder / "pairs.tsv").string();
  EXPECT_EQ(data_for_model(model, path).kind, "pairs");
  EXPECT_EQ(data_for_model(model, path, "text").kind, "text");
  model.vocabulary = 256;
  EXPECT_EQ(data_for_model(model, path).kind, "text");
}

}  // namespace
}  // namespace linnet
