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
                          "checkpoint_every", "keep_checkpoints", "patience"})
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

Json loss_json(const LossAverage& loss) {
  return {{"sum", loss.sum}, {"weight", loss.weight}, {"lowest", loss.lowest}};
}

Json run_json(const TrainingProgress& progress) {
  Json json = {{"seconds", progress.seconds}, {"not_improved", progress.not_improved}};
  if (progress.best_step >= 0) {
    json["best_step"] = progress.best_step;
    json["best_bits"] = progress.best_bits;
  }
  return json;
}

/// Members of "loss" and "run" may be missing: checkpoints of earlier versions have none.
TrainingProgress progress_of(const Json& state, std::int64_t step, std::int64_t examples) {
  TrainingProgress progress{step, examples};
  const auto object = [&](const char* key) {
    return state.contains(key) && state[key].is_object() ? state[key] : Json::object();
  };
  const auto read = [](const Json& object, const char* key, auto& value) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_number()) found->get_to(value);
  };
  const Json loss = object("loss"), run = object("run");
  read(object("training"), "steps", progress.planned);
  read(loss, "sum", progress.loss.sum);
  read(loss, "weight", progress.loss.weight);
  read(loss, "lowest", progress.loss.lowest);
  read(run, "seconds", progress.seconds);
  read(run, "not_improved", progress.not_improved);
  read(run, "best_step", progress.best_step);
  read(run, "best_bits", progress.best_bits);
  return progress;
}

/// Throws Error where writing a checkpoint would delete other files.
void check_replaceable(const fs::path& folder) {
  if (!fs::is_directory(folder)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (name != config_file && name != weights_file && name != moments_file && name != state_file)
      fail("checkpoint", "expected {} to be a new or empty folder or a checkpoint, got one with {}",
           folder.string(), name.string());
  }
}

}  // namespace

void write_checkpoint(const fs::path& destination, const TrainingProgress& progress,
                      const ModelConfig& config, const TrainingOptions& options, const ParameterTable& table,
                      std::span<const float> values, const Optimiser& optimiser) {
  check_replaceable(destination);
  if (destination.has_parent_path()) create_folders(destination.parent_path());
  AtomicFolder folder(destination);
  write_model(folder.path(), config, table, values);
  const NamedTensor moments[] = {
      {"m", DType::f32, optimiser.first_moments().shape(), optimiser.first_moments().raw()},
      {"v", DType::f32, optimiser.second_moments().shape(), optimiser.second_moments().raw()}};
  write_safetensors(folder.path() / moments_file, moments, {});
  write_json(folder.path() / state_file, Json{{"step", progress.step},
                                              {"examples", progress.examples},
                                              {"loss", loss_json(progress.loss)},
                                              {"run", run_json(progress)},
                                              {"training", decisive_options(options)}});
  folder.commit();
}

TrainingProgress read_checkpoint(const fs::path& folder, const ModelConfig& config,
                                 const TrainingOptions& options, const ParameterTable& table,
                                 std::span<float> values, Optimiser& optimiser) {
  const Json state = read_json(folder / state_file);
  const auto count = [&](const char* key) {
    const auto found = state.is_object() ? state.find(key) : state.end();
    const std::int64_t value =
        found != state.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
    if (value < 0 || !state.contains("training"))
      fail("resume", "expected {} to be the state of a checkpoint, got something else",
           (folder / state_file).string());
    return value;
  };
  TrainingProgress progress = progress_of(state, count("step"), count("examples"));
  require_equal(model_options(read_config(folder / config_file)), model_options(config), "", folder);
  Json decisive = decisive_options(options);
  decisive.erase("steps");  // a run may be made longer or shorter
  require_equal(state["training"], decisive, "training", folder);

  const Tensor parameters = read_values(folder / weights_file, table);
  const Safetensors moments = Safetensors::read(folder / moments_file);
  const auto read = [&](const char* name) {
    if (!moments.contains(name) || moments.dtype(name) != DType::f32 ||
        moments.shape(name) != Shape{table.size()})
      fail("resume", "expected {} of f32 [{}] in {}, got something else", name, table.size(),
           (folder / moments_file).string());
    return moments.tensor(name);
  };
  Tensor first = read("m"), second = read("v");
  std::copy_n(parameters.span<float>().data(), parameters.size(), values.data());
  optimiser.first_moments() = std::move(first);
  optimiser.second_moments() = std::move(second);
  return progress;
}

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

void Checkpoints::keep(std::int64_t count) const {
  const std::vector<std::int64_t> all = steps();
  const std::size_t kept = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i + kept < all.size(); ++i) fs::remove_all(path(all[i]));
}

}  // namespace linnet
