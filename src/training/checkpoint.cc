#include "training/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/files.h"
#include "training/config.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr const char* moments_file = "optimiser.safetensors";
constexpr const char* state_file = "state.json";

/// What decides the parameters after a given step: not how often the loop reports, saves or evaluates.
Json decisive_options(const TrainingOptions& options) {
  TrainingOptions copy = options;
  Options table;
  add_options(table, copy);
  Json json = table.to_json()["training"];
  for (const char* key : {"minutes", "log_every", "evaluate_every", "evaluate_examples", "sample_every",
                          "checkpoint_every", "keep_checkpoints"})
    json.erase(key);
  return json;
}

Json model_options(const ModelConfig& config) {
  ModelConfig copy = config;
  Options table;
  add_options(table, copy);
  return table.to_json();
}

void require_equal(const Json& saved, const Json& wanted, const std::string& group,
                   const fs::path& checkpoint) {
  for (const auto& [key, value] : wanted.items()) {
    const std::string name = group.empty() ? key : group + "." + key;
    if (value.is_object()) {
      require_equal(saved.contains(key) ? saved[key] : Json::object(), value, name, checkpoint);
    } else if (!saved.contains(key) || saved[key] != value) {
      fail("resume", "expected {} = {} as in the checkpoint {}, got {}", name,
           saved.contains(key) ? saved[key].dump() : "nothing", checkpoint.string(), value.dump());
    }
  }
}

}  // namespace

std::vector<std::int64_t> Checkpoints::steps() const {
  std::vector<std::int64_t> steps;
  if (!fs::is_directory(folder_)) return steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (error == std::errc() && end == name.data() + name.size() && entry.is_directory())
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> Checkpoints::newest() const {
  const std::vector<std::int64_t> all = steps();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

fs::path Checkpoints::path(std::int64_t step) const { return folder_ / std::to_string(step); }

void Checkpoints::save(std::int64_t step, const ModelConfig& config, const TrainingOptions& options,
                       const ParameterTable& table, std::span<const float> values,
                       Optimiser& optimiser) const {
  create_folders(folder_);
  AtomicFolder folder(path(step));
  write_model(folder.path(), config, table, values);
  const NamedTensor moments[] = {
      {"m", DType::f32, optimiser.first_moments().shape(), optimiser.first_moments().raw()},
      {"v", DType::f32, optimiser.second_moments().shape(), optimiser.second_moments().raw()}};
  write_safetensors(folder.path() / moments_file, moments, {});
  write_json(folder.path() / state_file, Json{{"step", step},
                                              {"examples", step * options.batch * options.accumulate},
                                              {"training", decisive_options(options)}});
  folder.commit();

  std::vector<std::int64_t> all = steps();
  const std::size_t keep = static_cast<std::size_t>(options.keep_checkpoints);
  for (std::size_t i = 0; i + keep < all.size(); ++i) fs::remove_all(path(all[i]));
}

void Checkpoints::load(std::int64_t step, const ModelConfig& config, const TrainingOptions& options,
                       const ParameterTable& table, std::span<float> values, Optimiser& optimiser) const {
  const fs::path folder = path(step);
  const Json state = read_json(folder / state_file);
  if (!state.is_object() || !state.contains("step") || state["step"] != step || !state.contains("training"))
    fail("resume", "expected {} to be the state of step {}, got something else",
         (folder / state_file).string(), step);
  require_equal(model_options(read_config(folder / config_file)), model_options(config), "", folder);
  require_equal(state["training"], decisive_options(options), "training", folder);

  const Tensor parameters = read_values(folder / weights_file, table);
  std::copy_n(parameters.span<float>().data(), parameters.size(), values.data());
  const Safetensors moments = Safetensors::read(folder / moments_file);
  const auto read = [&](const char* name, Tensor& into) {
    if (!moments.contains(name) || moments.dtype(name) != DType::f32 || moments.shape(name) != into.shape())
      fail("resume", "expected {} of f32 {} in {}, got something else", name, to_string(into.shape()),
           (folder / moments_file).string());
    into = moments.tensor(name);
  };
  read("m", optimiser.first_moments());
  read("v", optimiser.second_moments());
}

}  // namespace linnet
