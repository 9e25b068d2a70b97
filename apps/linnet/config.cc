#include "config.h"

#include <limits>

#include "base/fail.h"
#include "data/copy_task.h"
#include "model/config.h"
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

}  // namespace

fs::path find_config(const std::string& file_or_name) {
  if (fs::is_regular_file(file_or_name)) return file_or_name;
  std::vector<std::string> shipped;
  for (const fs::path& folder : config_folders()) {
    const fs::path candidate = folder / (file_or_name + ".toml");
    if (fs::is_regular_file(candidate)) return candidate;
    if (!fs::is_directory(folder)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".toml") shipped.push_back(entry.path().stem().string());
  }
  std::sort(shipped.begin(), shipped.end());
  fail<UsageError>("config", "expected a TOML file or one of the shipped configurations ({}), got {}",
                   fmt::join(shipped, ", "), file_or_name);
}

RunConfig::RunConfig() {
  model.length = model.vocabulary = 0;
  training.sample_every = 500;
}

Options RunConfig::options() {
  Options options;
  add_options(options, model);
  options.add("data.kind", data.kind, "what to train on", {"digits", "mnist", "text", "copy"});
  options.add("data.path", data.path, "folder of IDX files (mnist) or a file (text)");
  options.add("data.length", data.length, "tokens an example, of text and copy", 0, std::int64_t{1} << 32);
  options.add("data.size", data.size, "height and width of pictures; 0 leaves those of the files", 0, 1 << 12);
  options.add("data.levels", data.levels, "grey levels of pictures", 2, 256);
  options.add("data.labels", data.labels, "whether digits come with their label");
  options.add("data.examples", data.examples, "training examples of made data", 1, std::int64_t{1} << 40);
  options.add("data.seed", data.seed, "of made data", 0, std::numeric_limits<std::int64_t>::max());
  add_options(options, training);
  return options;
}

void RunConfig::load(const std::string& file_or_name, const std::vector<std::string>& settings) {
  Options table = options();
  table.load_toml(find_config(file_or_name));
  for (const std::string& setting : settings) table.apply_assignment(setting);
}

void RunConfig::fit_to_data(const Dataset& dataset) {
  if (model.length == 0) model.length = dataset.length();
  if (model.vocabulary == 0) model.vocabulary = dataset.vocabulary();
  if (model.classes == 0) model.classes = dataset.classes();
  if (model.image_height == 0) model.image_height = dataset.height();
  if (model.image_width == 0) model.image_width = dataset.width();
  model.check();
}

void RunConfig::fit_to_kind() {
  const bool pictures = data.kind == "digits" || data.kind == "mnist";
  const std::int64_t size = data.size != 0 ? data.size : data.kind == "mnist" ? 28 : 16;
  if (model.length == 0) model.length = pictures ? size * size : data.length;
  if (model.vocabulary == 0)
    model.vocabulary = pictures ? data.levels : data.kind == "copy" ? copy_vocabulary : 256;
  if (model.classes == 0) model.classes = pictures && data.labels ? 10 : 0;
  if (pictures && model.image_height == 0) model.image_height = model.image_width = size;
  model.check();
}

void set_source(DataOptions& data, const std::string& source) {
  if (source == "digits" || source == "copy") {
    data.kind = source;
  } else if (fs::is_directory(source)) {
    data.kind = "mnist";
    data.path = source;
  } else if (fs::is_regular_file(source)) {
    data.kind = "text";
    data.path = source;
  } else {
    fail<UsageError>("data", "expected digits, copy, a folder of IDX files or a text file, got {}", source);
  }
}

DataOptions data_for_model(const ModelConfig& model, const std::string& source) {
  DataOptions data;
  set_source(data, source);
  data.length = model.length;
  data.size = model.image_height;
  data.levels = model.vocabulary;
  data.labels = model.classes > 0;
  const bool pictures = data.kind == "digits" || data.kind == "mnist";
  if (pictures && model.image_height == 0)
    fail<UsageError>("data", "expected a model of pictures for {}, got one whose tokens are not pixels", source);
  if (pictures) data.length = 0;
  return data;
}

}  // namespace linnet
