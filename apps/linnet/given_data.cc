#include "given_data.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "checks.h"
#include "data/files.h"
#include "data/series.h"
#include "io/file.h"
#include "io/image.h"
#include "io/sound.h"
#include "model/files.h"
#include "run_record.h"
#include "training/run_columns.h"
#include "training/run_config.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// The keys by which `data` become tokens and numbers, as the data of a run do.
void take_form(DataOptions& data, const DataOptions& of_run) {
  data.held_out = of_run.held_out;
  data.token_bytes = of_run.token_bytes;
  data.columns = of_run.columns;
  data.time = of_run.time;
  data.missing = of_run.missing;
  data.horizon = of_run.horizon;
  data.patch = of_run.patch;
  data.columns_apart = of_run.columns_apart;
  data.sound = of_run.sound;
  data.tokenizer = of_run.tokenizer;
}

/// The tokenizer in a model's folder, or nothing.
std::string tokenizer_of(const std::string& model) {
  const fs::path file = fs::path(model) / tokenizer_file;
  std::error_code ignored;
  return fs::exists(file, ignored) ? file.string() : std::string();
}

/// Has sound of the rate and the channels of the run's data read in steps as the model takes them.
void take_sound(const char* command, DataOptions& data, const ModelConfig& config,
                const GivenData& arguments) {
  const auto columns = columns_of_model(arguments.model);
  if (!columns) return;
  const fs::path file = files_named("--data", arguments.data, data.kind).front();
  columns->check(command, file.string(), SoundFile(file).format());
  data.patch = columns->frames_of_step(config);
}

}  // namespace

Option add_data_kind(Command& command, std::string& kind) {
  return command
      .add_option(
          "--data-kind", kind,
          "kind of the data; default: that of the run, or from the name of --data and the files in it")
      .check(one_of(data_kinds()));
}

Option add_missing(Command& command, std::string& missing) {
  return command
      .add_option("--missing", missing,
                  "empty cells of a series: refuse or forward-fill; default: as the data of the run")
      .check(one_of({"refuse", "forward-fill"}));
}

DataOptions data_of(const char* command, const ModelConfig& config, const GivenData& arguments) {
  std::optional<DataOptions> of_run;
  if (const std::optional<fs::path> run = run_of(arguments.model)) of_run = RunRecord::read(*run).config.data;
  const std::string tokenizer = tokenizer_of(arguments.model);
  if (of_run && !of_run->tokenizer.empty() && !tokenizer.empty()) of_run->tokenizer = tokenizer;
  std::string kind = arguments.kind;
  if (!arguments.target.empty() && arguments.data.empty())
    fail<UsageError>(command, "expected --data with --target, got none");
  if (arguments.data.empty()) {
    if (!of_run)
      fail<UsageError>(command, "expected --data for {}, which is no training run, got none",
                       arguments.model);
    return kind.empty() ? *of_run : data_for_model(config, of_run->path, kind);
  }
  // The name of a file says less about its kind than the run.
  const bool is_file = !fs::is_directory(arguments.data) && !files_found(arguments.data).empty() &&
                       fs::exists(files_found(arguments.data).front());
  if (kind.empty() && of_run && is_file && takes_files(of_run->kind)) kind = of_run->kind;
  if (kind.empty() && is_file && is_image_file(files_found(arguments.data).front())) kind = "images";
  // Files with labels that are no pictures are lines.
  if (kind.empty() && is_file && config.classifies() && config.image_height == 0) kind = "lines";
  if (kind.empty() && !tokenizer.empty()) kind = kind_of_source(arguments.data);
  DataOptions data = data_for_model(config, arguments.data, kind);
  if (of_run && of_run->kind == data.kind) {
    take_form(data, *of_run);
    if (data.kind == "series" || data.kind == "sound") data.split = series_form(*of_run).split;
  }
  if (const auto columns = columns_of_model(arguments.model)) {
    of_run ? columns->take_columns(data) : columns->take_form(data);
  }
  if (data.kind == "text" && !tokenizer.empty()) data.tokenizer = tokenizer;
  if (data.kind == "images") data.channels = config.image_channels;
  if (data.kind == "sound") take_sound(command, data, config, arguments);
  if (!arguments.target.empty() && data.kind != "sound")
    fail<UsageError>(command, "expected data of sound with --target, got data of kind \"{}\"", data.kind);
  data.target = arguments.target;
  if (data.kind == "sound" && !config.shifted() && data.target.empty()) {
    if (!arguments.has_target)
      fail<UsageError>(command, "expected the data of the run for a model of inputs and outputs, got {}",
                       arguments.data);
    fail<UsageError>(
        command, "expected --target with the outputs for {}, as the model has inputs and outputs, got none",
        arguments.data);
  }
  if (arguments.split == "test") {
    take_as_test(data);
    // The names of labels and of columns are those of the run's own data.
    if (of_run && of_run->kind == data.kind && data.kind != "sound" && !has_test_files(data.kind)) {
      data.path = of_run->path;
      // Its statistics are those of the rows that it was trained with, which the split and this say.
      if (data.kind == "series") data.validation = of_run->validation;
    }
  }
  return data;
}

}  // namespace linnet
