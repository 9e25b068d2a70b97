#include "training/run_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/lists.h"
#include "base/memory.h"
#include "data/cifar.h"
#include "data/files.h"
#include "data/image_folder.h"
#include "data/pairs.h"
#include "data/sound.h"
#include "io/file.h"
#include "io/json.h"
#include "linnet/dataset.h"
#include "model/access.h"
#include "model/config.h"
#include "model/cost.h"
#include "model/files.h"
#include "model/network.h"
#include "model/segments.h"
#include "training/config.h"
#include "training/gradient_sum.h"
#include "training/run_columns.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// Bytes of a product's weight.
double weight_bytes(WeightType type) {
  return type == WeightType::f32 ? sizeof(float) : type == WeightType::bf16 ? sizeof(bf16) : 1;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string kind_of_folder(const fs::path& folder, const std::string& configured) {
  if (configured == "cifar10" || configured == "images") return configured;
  if (std::ranges::any_of(cifar_files(folder), is_there)) return "cifar10";
  return has_images(folder) ? "images" : "mnist";
}

std::string kind_of_file(const fs::path& file) {
  std::string extension = extension_of(file.string());
  const bool gzipped = extension == ".gz";
  if (gzipped) extension = extension_of(file.stem().string());
  if (extension == ".fasta" || extension == ".fa" || extension == ".faa") return "fasta";
  if (gzipped) return "text";
  if (extension == ".npy" || extension == ".safetensors" || extension == ".bin") return "tokens";
  if (extension == ".csv") return "series";
  constexpr std::array sound = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3",
                                ".aif", ".aiff", ".au",  ".caf", ".w64"};
  if (std::ranges::count(sound, extension) > 0) return "sound";
  return "text";
}

/// The first of the files that a source names. Throws UsageError where it names none, or others than files.
fs::path first_file(const std::string& source) {
  const std::vector<fs::path> files = files_found(source);
  const auto refuse = [](const std::string& got) {
    fail<UsageError>("data",
                     "expected digits, copy, reverse, a folder of IDX, CIFAR-10, PNG or JPEG files, or files "
                     "of text, FASTA, "
                     "tokens, series or sound, got {}{}",
                     got, is_there(got) ? "" : ", which does not exist");
  };
  if (files.empty()) refuse(source);
  for (const fs::path& file : files)
    if (std::error_code ignored; !fs::is_regular_file(file, ignored)) refuse(file.string());
  return files.front();
}

}  // namespace

bool are_pictures(const std::string& kind) {
  return kind == "digits" || kind == "mnist" || kind == "cifar10" || kind == "images";
}

bool takes_files(const std::string& kind) {
  return kind == "text" || kind == "bytes" || kind == "fasta" || kind == "tokens" || kind == "lines" ||
         kind == "pairs" || kind == "series" || kind == "sound";
}

bool has_test_files(const std::string& kind) { return kind == "mnist" || kind == "cifar10"; }

Options options_of(RunConfig& config) {
  Options options;
  auto& [model, data, training] = config;
  add_options(options, model);
  options.add("data.kind", data.kind, "kind of data", data_kinds());
  options.add("data.path", data.path,
              "folder of IDX files (mnist), of binary batches (cifar10) or of PNG and JPEG files (images), "
              "or files (the "
              "other kinds), separated by commas or with * and ?");
  options.add("data.length", data.length, "tokens or steps per example of kinds other than pictures", 0,
              std::int64_t{1} << 32);
  options.add("data.size", data.size, "height and width of pictures; 0 keeps those of the files", 0, 1 << 12);
  options.add("data.levels", data.levels, "levels per pixel, or of the μ-law codes of sound", 2, 256);
  options.add("data.labels", data.labels, "use the labels of pictures and lines");
  options.add("data.examples", data.examples, "training examples of synthetic data", 1,
              std::int64_t{1} << 40);
  options.add("data.seed", data.seed, "seed of synthetic data", 0, std::numeric_limits<std::int64_t>::max());
  options.add("data.validation", data.validation,
              "files for validation alone; without them a part of data.path is held out");
  options.add("data.test", data.test, "files for testing alone");
  options.add("data.held_out", data.held_out,
              "training images of mnist or cifar10 that are held out for validation, so that the test files "
              "are for testing alone; 0: the test files are for validation",
              0, std::int64_t{1} << 40);
  options.add("data.fields", data.fields,
              "values of each field of tokens, separated by commas; without them up to the largest token");
  options.add("data.token_bytes", data.token_bytes, "bytes of a token in .bin files, 2 or 4", 2, 4);
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
  options.add("data.validation_target", data.validation_target, "as data.target, for data.validation");
  options.add("data.test_target", data.test_target, "as data.target, for data.test");
  options.add("data.tokenizer", data.tokenizer,
              "file of a SentencePiece model that makes tokens of text; without it bytes");
  options.add("data.packing", data.packing,
              "put several whole sequences into a training example where they are shorter than data.length");
  options.add("data.patch", data.patch, "rows of a series, or frames of sound, in a step", 1, 1 << 16);
  options.add("data.columns_apart", data.columns_apart,
              "make every column of a series a sequence of its own, normalised by its own statistics");
  options.add("data.source_length", data.source_length,
              "pairs and reverse: tokens of a source, which is then a sequence of its own for an encoder; 0: "
              "source and target are one sequence",
              0, std::int64_t{1} << 32);
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
  if (model.vocabulary == 0 && model.fields.empty()) {
    model.vocabulary = dataset.vocabulary();
    if (const auto fields = dataset.fields(); fields.size() > 1)
      model.fields = fmt::format("{}", fmt::join(fields, ","));
  }
  if (model.has_encoder()) {
    if (dataset.source_length() == 0)
      fail<UsageError>("training",
                       "expected data with sources (data.source_length) for model.encoder_layers = {}, got "
                       "data without",
                       model.encoder_layers);
    if (model.source_length == 0) model.source_length = dataset.source_length();
    if (model.source_vocabulary == 0 && dataset.source_vocabulary() != model.vocabulary)
      model.source_vocabulary = dataset.source_vocabulary();
  }
  if (model.columns == 0) model.columns = dataset.columns();
  if (model.patch == 1) model.patch = dataset.patch();
  if (model.targets == 0 && !model.classifies() && dataset.target_columns() != model.columns)
    model.targets = dataset.target_columns();
  if (model.classes == 0 && !model.masked()) model.classes = dataset.classes();
  const ImageShape image = image_shape(dataset);
  if (model.image_height == 0) model.image_height = image.height;
  if (model.image_width == 0) model.image_width = image.width;
  if (model.image_channels == 0) model.image_channels = image.channels;
  model.check();
}

MemoryNeeds memory_needs(const RunConfig& config, bool for_training, std::int64_t ranks) {
  const auto& [model, data, training] = config;
  const double width = static_cast<double>(model.width), outputs = static_cast<double>(head_outputs(model));
  const double tables =
      width *
      (static_cast<double>(model.input_tokens()) +
       (model.positions == Positions::learned ? static_cast<double>(model.length + model.source_length) : 0) +
       (model.has_encoder() ? static_cast<double>(model.source_tokens()) : 0));
  const std::vector<std::int64_t> sizes = model.field_sizes();
  // Tables of later fields as inputs and as conditions of the next ones, and the products between.
  double fields = 0;
  for (std::size_t f = 1; f < sizes.size(); ++f)
    fields += width * (static_cast<double>(sizes[f] + sizes[f - 1]) + width);
  const double numbers =
      width * static_cast<double>(model.columns + (model.classifies() ? model.classes : 0));
  const double of_layers = layer_weights(model) + encoder_weights(model);
  const double exact = width * outputs + fields + numbers;
  const double parameters =
      tables + of_layers + exact - (model.tied_output ? width * static_cast<double>(model.vocabulary) : 0);
  const auto packed_bytes = [&](WeightType type) {
    return sizeof(float) * exact + weight_bytes(type) * of_layers;
  };
  // The values that a model is made from; in training also gradients and two moments. Products are packed for
  // a forward, in the type of their weights; in training also for a backward, both in that of the precision.
  MemoryNeeds needs;
  needs.parameters =
      for_training ? 4 * sizeof(float) * parameters +
                         2 * packed_bytes(ParameterTable(model.weights, training.precision).product_type())
                   : sizeof(float) * parameters + packed_bytes(model.weights);
  if (for_training) {
    const std::int64_t stretches = training.sequence_ranks,
                       groups = std::max<std::int64_t>(1, ranks / stretches);
    const double gradient = sizeof(float) * parameters, parts = static_cast<double>(stretches);
    needs.parameters += GradientSum::bytes(gradient, training.accumulate, static_cast<int>(groups)) +
                        gradient * (parts - 1) / parts;
    const std::int64_t length = model.length / stretches,
                       passes = (training.accumulate + groups - 1) / groups;
    const double tokens = static_cast<double>(training.batch) * static_cast<double>(length);
    const std::int64_t conditions = model.shifted() && sizes.size() > 1 ? std::ssize(sizes) : 0;
    const double per_step = static_cast<double>(model.input_fields() + std::ssize(sizes) + conditions +
                                                model.columns + model.target_count()) +
                            static_cast<double>(model.source_length) / static_cast<double>(model.length);
    const double inputs_and_targets = per_step * static_cast<double>(passes);
    needs.tokens = sizeof(float) * (tokens * inputs_and_targets +
                                    SegmentedTransformer::floats(model, training.batch, length,
                                                                 bounds_of(training), training.precision));
  }
  return needs;
}

void RunConfig::check_memory(bool for_training, std::int64_t ranks) const {
  require_memory("the configuration", memory_needs(*this, for_training, ranks).total());
}

void set_source(DataOptions& data, const std::string& source) {
  if (source == "digits" || source == "copy" || source == "reverse") {
    data.kind = source;
    data.path.clear();
    return;
  }
  if (std::error_code ignored; fs::is_directory(source, ignored)) {
    if (takes_files(data.kind) && data.kind != "text")
      fail<UsageError>("data", "expected files of the kind {}, got the folder {}{}", data.kind, source,
                       data.kind == "tokens" ? "; linnet data midi makes one of MIDI files" : "");
    data.kind = kind_of_folder(source, data.kind);
  } else {
    const std::string kind = kind_of_file(first_file(source));
    if (!takes_files(data.kind) || data.kind == "text") data.kind = kind;
  }
  data.path = source;
}

std::string kind_of_source(const std::string& source) {
  DataOptions data;
  set_source(data, source);
  return data.kind;
}

DataOptions data_for_model(const ModelConfig& model, const std::string& source, const std::string& kind) {
  constexpr std::int64_t bytes = 256;
  DataOptions data;
  if (!kind.empty()) {
    data.kind = kind;
    if (source != kind) data.path = source;  // that of what is made up
  } else {
    set_source(data, source);
    if (data.kind == "mnist" && model.image_channels == cifar_channels) data.kind = "cifar10";
    if (data.kind == "text" && model.classifies() && model.image_height == 0) data.kind = "lines";
    if (data.kind == "text" && model.vocabulary == pair_vocabulary) data.kind = "pairs";
    if (data.kind == "text" && model.vocabulary < bytes)
      fail<UsageError>(
          "data",
          "expected model.vocabulary of at least {} for the bytes of {}, got {}; --data-kind names "
          "another kind of data",
          bytes, source, model.vocabulary);
  }
  data.length = model.length;
  data.source_length = model.source_length;
  data.size = model.image_height == model.image_width ? model.image_height : 0;
  if (model.columns == 0) data.levels = model.vocabulary;
  if (data.kind == "sound") data.sound = model.columns > 0 ? "samples" : "mu-law";
  data.labels = model.classes > 0;
  if (data.kind == "series" && model.columns > 0) {
    data.patch = model.patch;
    data.horizon = model.target_count() / (model.columns / model.patch);
  }
  if (data.kind == "tokens")
    data.fields = model.fields.empty() ? fmt::format("{}", model.vocabulary) : model.fields;
  const bool pictures = are_pictures(data.kind);
  if (pictures && model.image_height == 0)
    fail<UsageError>("data", "expected a model of pictures for {}, got one whose tokens are not pixels",
                     source);
  if (pictures) data.length = 0;
  return data;
}

DataOptions data_for_model(const Model& model, const std::string& source, const std::string& kind) {
  const ModelConfig& config = model.config();
  const std::string& tokenizer = model.assets().tokenizer;
  DataOptions data =
      data_for_model(config, source, kind.empty() && !tokenizer.empty() ? kind_of_source(source) : kind);
  if (data.kind == "text" && !tokenizer.empty()) data.opened_tokenizer.emplace(tokenizer, config.vocabulary);
  if (data.kind == "images") data.channels = config.image_channels;
  const std::optional<Columns>& columns = network_of(model).columns();
  data.columns_apart =
      data.kind == "series" && columns && columns->shape().series() == 1 && columns->is_unscaled();
  if (const auto of_run = RunColumns::parse(model.assets().columns, columns_file)) {
    of_run->take_form(data);
    if (data.kind == "sound" && of_run->sound) data.patch = of_run->frames_of_step(config);
  }
  return data;
}

void choose_columns(DataOptions& data, const std::string& columns) {
  data.columns = columns;
  if (std::ranges::is_permutation(comma_separated(columns), data.column_names)) return;
  data.column_names.clear();
  data.statistics.reset();
}

void take_as_test(DataOptions& data) {
  if (has_test_files(data.kind)) return;
  if (!takes_files(data.kind) && data.kind != "images")
    fail<UsageError>("data", "expected the part training or validation of data of the kind {}, got test",
                     data.kind);
  if (!data.test.empty() && data.test != data.path) return;
  data.test_contents = data.contents;
  data.test = data.path;
  data.test_target = data.target;
  // Of these `path` also says what the statistics are.
  if (data.kind == "series" || data.kind == "sound") return;
  data.path.clear();
  data.target.clear();
}

}  // namespace linnet
