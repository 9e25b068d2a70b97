#include "config.h"

#include <algorithm>

#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"
#include "data/cifar.h"
#include "data/copy_task.h"
#include "data/fasta.h"
#include "data/files.h"
#include "data/pairs.h"
#include "data/tokens.h"
#include "io/file.h"
#include "run_record.h"
#include "training/run_config.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

/// The folder of the shipped configurations: where they are installed, or in the build folder a link beside
/// the program.
fs::path shipped_folder() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path link = program / "linnet-configs";
  return fs::is_directory(link, ignored) ? link : program / LINNET_CONFIGS;
}

/// Height and width of a kind's pictures where data.size leaves them open.
std::int64_t size_of_files(const std::string& kind) {
  return kind == "mnist" ? 28 : kind == "cifar10" ? cifar_size : 16;
}

/// Those of a series. Where its columns are not apart they are those that data.columns names; otherwise
/// model.columns, the numbers of a step, has to say how many there are.
void set_columns(ModelConfig& model, const DataOptions& data) {
  if (model.patch == 1) model.patch = data.patch;
  const std::int64_t known = data.columns_apart ? 1 : std::ssize(comma_separated(data.columns));
  if (model.columns == 0) model.columns = model.patch * known;
  const std::int64_t targets = data.horizon * (model.columns / model.patch);
  if (model.targets == 0 && !model.classifies() && targets != model.columns) model.targets = targets;
}

}  // namespace

std::vector<std::string> shipped_configs() {
  std::vector<std::string> shipped;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(shipped_folder(), ignored))
    if (entry.path().extension() == ".toml") shipped.push_back(entry.path().stem().string());
  std::ranges::sort(shipped);
  return shipped;
}

ModelConfig with_family(ModelConfig config, Family family) {
  config.attention.family = family;
  config.attention.layers.clear();
  if (family != Family::linear) config.attention.linear.decay = Decay::none;
  return config;
}

std::optional<std::string> feature_map_of(const ModelConfig& config) {
  const std::vector<Family> families = layer_families(config.attention, config.layers);
  if (std::ranges::count(families, Family::linear) == 0) return {};
  return config.attention.linear.feature_map;
}

std::vector<std::string> split_names() { return {"validation", "training", "test"}; }

Split split_named(const std::string& name) {
  return name == "training" ? Split::training : name == "test" ? Split::test : Split::validation;
}

fs::path find_config(const std::string& file_or_name) {
  if (fs::is_regular_file(file_or_name)) return file_or_name;
  std::error_code ignored;
  fs::path candidate = shipped_folder() / (file_or_name + ".toml");
  if (fs::is_regular_file(candidate, ignored)) return candidate;
  const fs::path file = file_or_name;
  if (file.has_parent_path() || file.extension() == ".toml")
    fail<UsageError>("config", "expected a TOML file, got {}, {}", file_or_name,
                     fs::exists(file) ? "which is none" : "which does not exist");
  const std::vector<std::string> shipped = shipped_configs();
  if (shipped.empty())
    fail<UsageError>("config", "expected a TOML file, got {}; the shipped configurations are not in {}",
                     file_or_name, shipped_folder().string());
  const std::string nearest = nearest_name(file_or_name, shipped);
  fail<UsageError>("config", "expected a TOML file or one of the shipped configurations ({}), got {}{}",
                   fmt::join(shipped, ", "), file_or_name,
                   nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

bool is_configuration(const char* command, const std::string& name) {
  if (std::filesystem::exists(name)) return std::filesystem::is_regular_file(name);
  const std::vector<std::string> shipped = shipped_configs();
  if (std::ranges::count(shipped, name) > 0) return true;
  const std::string nearest = nearest_name(name, shipped);
  if (!std::filesystem::path(name).has_parent_path())
    fail<UsageError>(
        command, "expected the folder of a model, a TOML file or a shipped configuration ({}), got {}{}",
        fmt::join(shipped, ", "), name, nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  return false;
}

void load(RunConfig& config, const std::string& file_or_name, const std::vector<std::string>& settings) {
  const fs::path path = find_config(file_or_name);
  const std::string text = read_file(path, most_settings_bytes);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail<UsageError>("config", "expected keys of a configuration in {}, got an empty file", path.string());
  config.read_toml(text, path.string());
  for (const std::string& setting : settings) config.set(setting);
}

void set_data(RunConfig& config, const std::string& data, const std::vector<std::string>& settings) {
  if (!data.empty()) {
    set_source(config.data, data);
    const std::string key = "data.kind=";
    for (const std::string& setting : settings)
      if (setting.starts_with(key) && takes_files(config.data.kind) &&
          takes_files(setting.substr(key.size())))
        config.set(setting);
  }
  for (std::string* value : sources_of(config.data)) *value = absolute_names(*value);
}

void check_source(const DataOptions& data) {
  const bool made = data.kind == "digits" || data.kind == "copy" || data.kind == "reverse";
  if (made && !data.path.empty())
    fail<UsageError>("data",
                     "expected data of a kind of files for data.path = {}, got \"{}\", which is made up",
                     data.path, data.kind);
}

void load_without_data(RunConfig& config, const std::string& file_or_name,
                       const std::vector<std::string>& settings) {
  load(config, file_or_name, settings);
  auto& [model, data, training] = config;
  const bool pictures = are_pictures(data.kind);
  if (model.image_channels == 0) model.image_channels = data.kind == "cifar10" ? cifar_channels : 1;
  const std::int64_t size = data.size != 0 ? data.size : size_of_files(data.kind);
  if (model.length == 0) model.length = pictures ? size * size * model.image_channels : data.length;
  const std::vector<std::int64_t> fields = field_sizes(data.kind == "tokens" ? data.fields : "");
  if (model.vocabulary == 0 && model.fields.empty() && !fields.empty()) {
    model.vocabulary = *std::ranges::max_element(fields);
    if (fields.size() > 1) model.fields = fmt::format("{}", fmt::join(fields, ","));
  }
  if (model.vocabulary == 0)
    model.vocabulary = pictures                 ? data.levels
                       : data.kind == "copy"    ? copy_vocabulary
                       : data.kind == "fasta"   ? static_cast<std::int64_t>(residues.size())
                       : data.kind == "pairs"   ? pair_vocabulary
                       : data.kind == "reverse" ? pair_vocabulary
                       : data.kind == "series"  ? 0
                       : data.kind == "sound"   ? (data.sound == "mu-law" ? data.levels : 0)
                                                : 256;
  if (data.kind == "series") set_columns(model, data);
  // One channel.
  if (data.kind == "sound" && data.sound == "samples" && model.columns == 0) model.columns = data.patch;
  if (data.kind == "sound" && data.sound == "mu-law" && data.patch > 1 && model.fields.empty())
    model.fields =
        fmt::format("{}", fmt::join(std::vector(static_cast<std::size_t>(data.patch), data.levels), ","));
  if (model.classes == 0 && !model.masked()) model.classes = pictures && data.labels ? 10 : 0;
  if (model.has_encoder() && model.source_length == 0) model.source_length = data.source_length;
  // Sources are bytes alone.
  if (model.has_encoder() && model.source_vocabulary == 0 && model.vocabulary == pair_vocabulary)
    model.source_vocabulary = pair_separator;
  if (pictures && model.image_height == 0) model.image_height = model.image_width = size;
  model.check();
}

}  // namespace linnet
