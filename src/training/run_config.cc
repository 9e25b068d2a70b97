#include "training/run_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "data/cifar.h"
#include "data/sources.h"
#include "io/json.h"
#include "linnet/dataset.h"
#include "model/config.h"
#include "model/network.h"
#include "model/training_transformer.h"
#include "training/config.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// Bytes of a product's weight.
double weight_bytes(WeightType type) {
  return type == WeightType::f32 ? sizeof(float) : type == WeightType::bf16 ? sizeof(bf16) : 1;
}

}  // namespace

bool are_pictures(const std::string& kind) {
  return kind == "digits" || kind == "mnist" || kind == "cifar10";
}

std::vector<std::string> data_kinds() {
  return {"digits", "mnist", "cifar10", "text", "bytes", "copy", "fasta", "series", "sound"};
}

Options options_of(RunConfig& config) {
  Options options;
  auto& [model, data, training] = config;
  add_options(options, model);
  options.add("data.kind", data.kind, "kind of data", data_kinds());
  options.add("data.path", data.path,
              "folder of IDX files (mnist) or of binary batches (cifar10), or a file (text, bytes, fasta), "
              "or files separated by commas "
              "(series, sound)");
  options.add("data.length", data.length,
              "tokens per example of text, bytes, copy and fasta, steps per example of series and sound", 0,
              std::int64_t{1} << 32);
  options.add("data.size", data.size, "height and width of pictures; 0 keeps those of the files", 0, 1 << 12);
  options.add("data.levels", data.levels, "levels per pixel, or of the μ-law codes of sound", 2, 256);
  options.add("data.labels", data.labels, "use the labels of pictures");
  options.add("data.examples", data.examples, "training examples of synthetic data", 1,
              std::int64_t{1} << 40);
  options.add("data.seed", data.seed, "seed of synthetic data", 0, std::numeric_limits<std::int64_t>::max());
  options.add("data.validation", data.validation,
              "files for validation alone; without them a part of data.path is held out");
  options.add("data.test", data.test, "files for testing alone");
  options.add("data.columns", data.columns,
              "columns of a series, separated by commas; without them all but the time");
  options.add("data.time", data.time, "column with the time of a series");
  options.add(
      "data.split", data.split,
      "ends of the training, the validation and the test part of a series or sound, separated by commas: "
      "fractions, or times");
  options.add("data.missing", data.missing, "empty cells of a series", {"refuse", "forward-fill"});
  options.add("data.horizon", data.horizon, "steps of a series that are predicted at once", 1, 1 << 16);
  options.add("data.sound", data.sound, "samples of sound as numbers, or as μ-law codes",
              {"samples", "mu-law"});
  options.add("data.target", data.target, "sound files with the outputs to learn, one for each of data.path");
  options.add("data.tokenizer", data.tokenizer,
              "file of a SentencePiece model that makes tokens of text; without it bytes");
  add_options(options, training);
  return options;
}

RunConfig::RunConfig() { model.length = model.vocabulary = model.image_channels = 0; }

RunConfig::RunConfig(const ModelConfig& config) : model(config) {}

void RunConfig::read_toml(std::string_view text, const std::string& origin) {
  options_of(*this).parse_toml(text, origin);
}

void RunConfig::read_json(std::string_view text, const std::string& origin) {
  options_of(*this).load_json(parse_json(text, origin), origin);
}

void RunConfig::set(const std::string& assignment) { options_of(*this).apply_assignment(assignment); }

std::string RunConfig::json() const {
  RunConfig copy = *this;
  return options_of(copy).to_json().dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<Setting> RunConfig::settings() const {
  RunConfig copy = *this;
  std::vector<Setting> result;
  for (const Options::Row& row : options_of(copy).rows())
    result.push_back({row.key, row.type, row.value, row.range, row.help});
  return result;
}

void RunConfig::fit_to_data(const Dataset& dataset) {
  if (model.length == 0) model.length = dataset.length();
  if (model.vocabulary == 0) model.vocabulary = dataset.vocabulary();
  if (model.classes == 0 && !model.masked()) model.classes = dataset.classes();
  const ImageShape image = image_shape(dataset);
  if (model.image_height == 0) model.image_height = image.height;
  if (model.image_width == 0) model.image_width = image.width;
  if (model.image_channels == 0) model.image_channels = image.channels;
  model.check();
}

void RunConfig::check_memory(bool for_training) const {
  const double layers = static_cast<double>(model.layers), width = static_cast<double>(model.width),
               hidden = static_cast<double>(model.feed_forward),
               outputs = static_cast<double>(head_outputs(model));
  const double tables =
      width * (static_cast<double>(model.input_tokens()) +
               (model.positions == Positions::learned ? static_cast<double>(model.length) : 0));
  const double products = width * (outputs + layers * (4 * width + 2 * hidden));
  const double parameters = tables + products - (model.tied_output ? width * outputs : 0);
  // The values that a model is made from; in training also gradients and two moments. Products are packed for
  // a forward, in the type of their weights; in training also for a backward: 6 floats per weight.
  double floats = for_training ? 4 * parameters + 2 * products
                               : parameters + products * weight_bytes(model.weights) / sizeof(float);
  if (for_training) {
    const double tokens = static_cast<double>(training.batch) * static_cast<double>(model.length);
    const double inputs_and_targets = 2 * static_cast<double>(training.accumulate);
    floats += tokens * (TrainingTransformer::floats_per_token(model) + inputs_and_targets);
  }
  require_memory("the configuration", sizeof(float) * floats);
}

void set_source(DataOptions& data, const std::string& source) {
  if (source == "digits" || source == "copy") {
    data.kind = source;
  } else if (fs::is_directory(source)) {
    const std::vector<fs::path> files = cifar_files(source);
    const bool cifar = data.kind == "cifar10" || std::ranges::any_of(files, [](const fs::path& file) {
                         std::error_code ignored;
                         return fs::exists(file, ignored);
                       });
    data.kind = cifar ? "cifar10" : "mnist";
    data.path = source;
  } else if (const std::vector<fs::path> files = files_of(source);
             !files.empty() &&
             std::ranges::all_of(files, [](const fs::path& file) { return fs::is_regular_file(file); })) {
    const std::string extension = files.front().extension().string();
    const bool fasta = extension == ".fasta" || extension == ".fa" || extension == ".faa",
               sound = extension == ".wav" || extension == ".flac";
    if (data.kind != "fasta" && data.kind != "bytes" && data.kind != "series" && data.kind != "sound")
      data.kind = fasta ? "fasta" : extension == ".csv" ? "series" : sound ? "sound" : "text";
    data.path = source;
  } else {
    fail<UsageError>("data",
                     "expected digits, copy, a folder of IDX or CIFAR-10 files, a text, a FASTA, a CSV or a "
                     "sound file, got {}{}",
                     source, fs::exists(source) ? "" : ", which does not exist");
  }
}

DataOptions data_for_model(const ModelConfig& model, const std::string& source, const std::string& kind) {
  constexpr std::int64_t bytes = 256;
  DataOptions data;
  if (!kind.empty()) {
    data.kind = kind;
    data.path = source;
  } else {
    if (model.image_channels == cifar_channels) data.kind = "cifar10";
    set_source(data, source);
    if ((data.kind == "text" || data.kind == "bytes") && model.vocabulary < bytes)
      fail<UsageError>(
          "data",
          "expected model.vocabulary of at least {} for the bytes of {}, got {}; --data-kind names "
          "another kind of data",
          bytes, source, model.vocabulary);
  }
  data.length = model.length;
  data.size = model.image_height;
  data.levels = model.vocabulary;
  data.labels = model.classes > 0;
  const bool pictures = are_pictures(data.kind);
  if (pictures && model.image_height == 0)
    fail<UsageError>("data", "expected a model of pictures for {}, got one whose tokens are not pixels",
                     source);
  if (pictures) data.length = 0;
  return data;
}

}  // namespace linnet
