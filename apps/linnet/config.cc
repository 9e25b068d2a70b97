#include "config.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"
#include "data/cifar.h"
#include "data/copy_task.h"
#include "data/fasta.h"
#include "io/file.h"
#include "model/config.h"
#include "model/training_transformer.h"
#include "report.h"
#include "training/config.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

std::vector<fs::path> config_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    folders.push_back(folder / "configs");
    folders.push_back(folder / "share/linnet/configs");
  }
  return folders;
}

bool are_pictures(const std::string& kind) {
  return kind == "digits" || kind == "mnist" || kind == "cifar10";
}

/// Bytes of a product's weight.
double weight_bytes(WeightType type) {
  return type == WeightType::f32 ? sizeof(float) : type == WeightType::bf16 ? sizeof(bf16) : 1;
}

/// Height and width of a kind's pictures where data.size leaves them open.
std::int64_t size_of_files(const std::string& kind) {
  return kind == "mnist" ? 28 : kind == "cifar10" ? cifar_size : 16;
}

}  // namespace

std::vector<std::string> shipped_configs() {
  std::set<std::string> shipped;
  for (const fs::path& folder : config_folders()) {
    if (!fs::is_directory(folder)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".toml") shipped.insert(entry.path().stem().string());
  }
  return {shipped.begin(), shipped.end()};
}

fs::path find_config(const std::string& file_or_name) {
  if (fs::is_regular_file(file_or_name)) return file_or_name;
  for (const fs::path& folder : config_folders()) {
    fs::path candidate = folder / (file_or_name + ".toml");
    if (fs::is_regular_file(candidate)) return candidate;
  }
  const fs::path file = file_or_name;
  if (file.has_parent_path() || file.extension() == ".toml")
    fail<UsageError>("config", "expected a TOML file, got {}, {}", file_or_name,
                     fs::exists(file) ? "which is none" : "which does not exist");
  const std::vector<std::string> shipped = shipped_configs();
  const std::string nearest = nearest_name(file_or_name, shipped);
  fail<UsageError>("config", "expected a TOML file or one of the shipped configurations ({}), got {}{}",
                   fmt::join(shipped, ", "), file_or_name,
                   nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

std::vector<std::string> data_kinds() {
  return {"digits", "mnist", "cifar10", "text", "bytes", "copy", "fasta"};
}

RunConfig::RunConfig() {
  model.length = model.vocabulary = model.image_channels = 0;
  training.sample_every = 500;
}

Options RunConfig::options() {
  Options options;
  add_options(options, model);
  options.add("data.kind", data.kind, "kind of data", data_kinds());
  options.add("data.path", data.path,
              "folder of IDX files (mnist) or of binary batches (cifar10), or a file (text, bytes, fasta)");
  options.add("data.length", data.length, "tokens per example of text, bytes, copy and fasta", 0,
              std::int64_t{1} << 32);
  options.add("data.size", data.size, "height and width of pictures; 0 keeps those of the files", 0, 1 << 12);
  options.add("data.levels", data.levels, "levels per pixel", 2, 256);
  options.add("data.labels", data.labels, "use the labels of pictures");
  options.add("data.examples", data.examples, "training examples of synthetic data", 1,
              std::int64_t{1} << 40);
  options.add("data.seed", data.seed, "seed of synthetic data", 0, std::numeric_limits<std::int64_t>::max());
  add_options(options, training);
  return options;
}

void RunConfig::load(const std::string& file_or_name, const std::vector<std::string>& settings) {
  Options table = options();
  const fs::path path = find_config(file_or_name);
  constexpr std::size_t most_bytes = 1 << 20;
  const std::string text = read_file(path, most_bytes);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail<UsageError>("config", "expected keys of a configuration in {}, got an empty file", path.string());
  table.parse_toml(text, path.string());
  for (const std::string& setting : settings) table.apply_assignment(setting);
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

void RunConfig::load_without_data(const std::string& file_or_name, const std::vector<std::string>& settings) {
  load(file_or_name, settings);
  const bool pictures = are_pictures(data.kind);
  if (model.image_channels == 0) model.image_channels = data.kind == "cifar10" ? cifar_channels : 1;
  const std::int64_t size = data.size != 0 ? data.size : size_of_files(data.kind);
  if (model.length == 0) model.length = pictures ? size * size * model.image_channels : data.length;
  if (model.vocabulary == 0)
    model.vocabulary = pictures               ? data.levels
                       : data.kind == "copy"  ? copy_vocabulary
                       : data.kind == "fasta" ? static_cast<std::int64_t>(residues.size())
                                              : 256;
  if (model.classes == 0 && !model.masked()) model.classes = pictures && data.labels ? 10 : 0;
  if (pictures && model.image_height == 0) model.image_height = model.image_width = size;
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
  } else if (fs::is_regular_file(source)) {
    const std::string extension = fs::path(source).extension().string();
    const bool fasta = extension == ".fasta" || extension == ".fa" || extension == ".faa";
    if (data.kind != "fasta" && data.kind != "bytes") data.kind = fasta ? "fasta" : "text";
    data.path = source;
  } else {
    fail<UsageError>(
        "data", "expected digits, copy, a folder of IDX or CIFAR-10 files, a text or a FASTA file, got {}{}",
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
