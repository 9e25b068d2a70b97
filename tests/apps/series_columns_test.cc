// The columns of a series: of other files, of models without their run, and with any names.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "apps/refusal.h"
#include "apps/sequence_runs.h"
#include "io/file.h"
#include "io/json.h"

namespace linnet {
namespace {

using testing::HasSubstr;

// Of a file with other columns, and these in another order, those of the run are taken by their names.
TEST_F(SeriesProgram, ColumnsOfOtherFilesAreFoundByTheirNames) {
  for (const char* apart : {"data.columns_apart=false", "data.columns_apart=true"}) {
    train({apart});
    succeed({"convert", path("run"), "--weights", "bf16", "--out", path("model")});
    std::string text = "time,note,ramp,more,wave\n";
    const Strings lines = lines_of(read_file(path("series.csv")));
    for (std::size_t i = 1; i < lines.size(); ++i) {
      std::istringstream cells(lines[i]);
      std::string time, wave, ramp;
      for (std::string* cell : {&time, &wave, &ramp}) std::getline(cells, *cell, ',');
      text += fmt::format("{},dry,{},7,{}\n", time, ramp, wave);
    }
    const std::string other = folder_.file("other.csv", text);
    folder_.file("same.csv", read_file(path("series.csv")));
    for (const char* command : {"score", "forecast", "evaluate"})
      for (const char* model : {"run", "model"}) {
        const auto result = [&](const std::string& file) {
          Json json = json_of(succeed({command, path(model), "--data", path(file), "--json"}));
          for (const char* different : {"data", "seconds", "steps_per_second", "calibrated"})
            json.erase(different);
          return json;
        };
        EXPECT_EQ(result("other.csv"), result("same.csv")) << command << ' ' << model;
      }
    refuses(usage, {"score", path("run"), "--data", folder_.file("less.csv", "time,wave\n1,2\n2,3\n")},
            {"less.csv", "ramp"});
    for (const char* made : {"run", "model"}) std::filesystem::remove_all(path(made));
  }
}

TEST_F(SeriesProgram, NamesOfColumnsAreCellsOfWhatIsWritten) {
  std::string text = "time,\"flow, m3\",ramp\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("{},{},{}\n", i, std::sin(0.3 * i), 0.01 * i);
  folder_.file("series.csv", text);
  train();
  const std::string forecast = succeed({"forecast", path("run"), "--steps", "2"}).out;
  EXPECT_THAT(forecast, HasSubstr("1,200,\"flow, m3\","));
  succeed({"generate", path("run"), "--prompt-file", path("series.csv"), "--length", "2", "--out",
           path("next.csv")});
  EXPECT_THAT(read_file(path("next.csv")), testing::StartsWith("time,\"flow, m3\",ramp\n"));
}

/// A picture as wide as all charts side by side would be too wide for a PNG.
TEST_F(SeriesProgram, ManyColumnsWithAnyNamesAreDrawnInRows) {
  std::string text = "c\xe9\x01";  // Latin-1
  for (int c = 1; c < 60; ++c) text += fmt::format(",c{}", c);
  for (int i = 0; i < 80; ++i) {
    text += "\n0";
    for (int c = 1; c < 60; ++c) text += fmt::format(",{}", (i + c) % 5);
  }
  folder_.file("series.csv", text + "\n");
  folder_.file("series.toml", "[data]\nkind = \"series\"\nlength = 8\n[training]\nsteps = 1\n");
  train();
  const Strings forecast = {"forecast", path("run"), "--steps", "2", "--samples", "3", "--plot"};
  succeed(joined(forecast, {path("plot.svg")}));
  const std::string svg = read_file(path("plot.svg"));
  for (const char* title : {">c\uFFFD<", ">c59<"}) EXPECT_NE(svg.find(title), std::string::npos) << title;
  const Ended png = run_linnet(joined(forecast, {path("plot.PNG")}));
  if (png.err.find("built without cairo") != std::string::npos) GTEST_SKIP() << png.err;
  ASSERT_EQ(png.status, 0) << png.err;
  EXPECT_TRUE(read_file(path("plot.PNG")).starts_with("\x89PNG"));
}

TEST_F(SeriesProgram, StatisticsOfColumnsApartBelongToModelsOfOneColumn) {
  train();
  const std::string model = path("model");
  succeed({"convert", path("run"), "--weights", "bf16", "--out", model});
  write_file_atomically(model + "/columns.json",
                        "{\"names\":[\"a\",\"b\",\"c\"],\"mean\":[0,0,0],\"deviation\":[1,1,1]}");
  const std::string data = folder_.file("three.csv", "a,b,c\n1,2,3\n2,3,4\n3,4,5\n");
  for (const char* command : {"forecast", "score"})
    refuses(usage, {command, model, "--data", data}, {"a model of one column", "got one of 2"});
}

TEST_F(SeriesProgram, ModelsThatAreCopiedOutOfTheirRunReadColumnsAsItDid) {
  train({"data.columns=wave,ramp", "data.columns_apart=true", "model.targets=0"});
  const std::string data = path("run.csv");
  std::string text = "time,ramp,wave\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("{},{},{}\n", 2 * i, 500 + i, std::sin(0.3 * i));
  folder_.file("run.csv", text);
  const auto forecast = [&](const std::string& model) {
    return json_of(succeed({"forecast", model, "--data", data, "--json"}))["forecast"];
  };
  const Json of_run = forecast(path("run") + "/best");
  for (const std::string part : {"best", "checkpoints/30"}) {
    std::filesystem::remove_all(path("copy"));
    std::filesystem::copy(path("run") + "/" + part, path("copy"));
    EXPECT_EQ(forecast(path("copy")), forecast(path("run") + "/" + part)) << part;
  }
  std::filesystem::copy(path("run") + "/best", path("bare"));
  std::filesystem::remove(path("bare") + "/columns.json");
  for (const char* command : {"forecast", "score"})
    refuses(usage, {command, path("bare"), "--data", data}, {"columns.json", "statistics"});
}

TEST_F(SeriesProgram, ConvertedModelsReadTheColumnsAsTheirRunDid) {
  train({"data.columns=ramp,wave", "data.missing=forward-fill", "data.split=0.2,0.7"});
  const std::string once = path("once"), twice = path("twice"), bare = path("bare");
  succeed({"convert", path("run"), "--weights", "f32", "--out", once});
  succeed({"convert", once, "--weights", "f32", "--out", twice});
  // A run of the library has no record.
  std::filesystem::create_directory(bare);
  for (const char* file : {"config.json", "model.safetensors", "columns.json"})
    std::filesystem::copy_file(path("run") + "/" + file, bare + "/" + file);
  std::string text = "time,noise,wave,ramp\n";
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{},x,{},{}\n", 2 * i, i == 5 ? "" : fmt::format("{}", std::sin(0.3 * i)), 0.01 * i);
  const std::string data = folder_.file("more.csv", text);
  const auto json_with = [&](const char* command, const std::string& model) {
    return json_of(succeed({command, model, "--data", data, "--json"}));
  };
  for (const auto& [command, key] :
       {std::pair("forecast", "forecast"), {"score", "nats_per_step"}, {"evaluate", "bits_per_token"}}) {
    EXPECT_EQ(json_with(command, once)[key], json_with(command, path("run"))[key]) << command;
    EXPECT_EQ(json_with(command, bare)[key], json_with(command, path("run"))[key]) << command;
    EXPECT_EQ(json_with(command, twice)[key], json_with(command, once)[key]) << command;
  }
  succeed({"generate", twice, "--prompt-file", data, "--length", "1", "--out", path("next.csv")});
  EXPECT_THAT(read_file(path("next.csv")), testing::StartsWith("time,ramp,wave\n400,"));
}

TEST_F(SeriesProgram, OtherColumnsThanThoseOfTheRunAreRefused) {
  train();
  folder_.file("renamed.csv", "time,wave,ramps\n1,2,3\n2,3,4\n");
  for (const char* command : {"forecast", "score", "evaluate"})
    refuses(usage, {command, path("run"), "--data", path("renamed.csv")},
            {"renamed.csv", "among time, wave, ramps, got \"ramp\"; did you mean \"ramps\"?"});
}

// Names that are no list of names, or not UTF-8, are compared column by column.
TEST_F(SeriesProgram, ColumnsWhoseNamesCannotBeListedKeepTheirOrder) {
  std::string text = read_file(path("series.csv"));
  folder_.file("series.csv", "time,\"wave, m\",ramp" + text.substr(text.find('\n')));
  train();
  folder_.file("swapped.csv", "time,ramp,\"wave, m\"\n1,2,3\n2,3,4\n");
  folder_.file("more.csv", "time,\"wave, m\",ramp,noise\n1,2,3,0\n2,3,4,0\n");
  for (const char* command : {"forecast", "score"}) {
    succeed({command, path("run"), "--data", path("series.csv")});
    refuses(usage, {command, path("run"), "--data", path("swapped.csv")},
            {"swapped.csv", "column 1 is \"wave, m\" in the model and \"ramp\" in the file"});
    refuses(usage, {command, path("run"), "--data", path("more.csv")},
            {"column 3 is none in the model and \"noise\" in the file"});
  }
}

}  // namespace
}  // namespace linnet
