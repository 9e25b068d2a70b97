#include "training/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/fail.h"
#include "io/digest.h"
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
  for (const std::string_view key : keys_of_the_loop())
    json.erase(std::string(key.substr(key.find('.') + 1)));
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
    if (progress.best_tokens > 0) json["best_tokens"] = progress.best_tokens;
  }
  if (progress.evaluation_due) json["evaluation_due"] = true;
  if (!progress.training_data.empty()) json["training_data"] = progress.training_data;
  if (!progress.validation_data.empty()) json["validation_data"] = progress.validation_data;
  return json;
}

[[noreturn]] void fail_damaged_state(const fs::path& path) {
  fail("checkpoint", "expected {} to be the state of a checkpoint, got one that is damaged", path.string());
}

/// Members of "loss" and "run" may be missing: checkpoints of earlier versions have none. Throws Error for
/// numbers that no run of examples of `length` tokens can have.
TrainingProgress progress_of(const Json& state, std::int64_t length, const fs::path& folder) {
  TrainingProgress progress;
  const auto object = [&](const char* key) {
    return state.contains(key) && state[key].is_object() ? state[key] : Json::object();
  };
  const auto count = [&](const Json& object, const char* key, std::int64_t& value, std::int64_t most) {
    const auto found = object.find(key);
    if (found == object.end()) return;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      fail_damaged_state(folder / state_file);
    value = found->get<std::int64_t>();
  };
  const auto number = [](const Json& object, const char* key, double& value) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_number()) value = found->get<double>();
  };
  const auto text = [](const Json& object, const char* key, std::string& value) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_string()) value = found->get<std::string>();
  };
  constexpr std::int64_t most_tokens = std::int64_t{1} << 62;
  const Json loss = object("loss"), run = object("run");
  count(state, "step", progress.step, most_steps);
  count(state, "examples", progress.examples, most_tokens / length);
  count(object("training"), "steps", progress.planned, most_steps);
  number(loss, "sum", progress.loss.sum);
  number(loss, "weight", progress.loss.weight);
  number(loss, "lowest", progress.loss.lowest);
  number(run, "seconds", progress.seconds);
  count(run, "not_improved", progress.not_improved, most_steps);
  count(run, "best_step", progress.best_step, most_steps);
  number(run, "best_bits", progress.best_bits);
  count(run, "best_tokens", progress.best_tokens, most_tokens);
  progress.evaluation_due = run.contains("evaluation_due") && run["evaluation_due"] == true;
  text(run, "training_data", progress.training_data);
  text(run, "validation_data", progress.validation_data);
  return progress;
}

/// The state of a checkpoint as JSON. Its member "xxh3" has the digest of every file by its name, for this
/// one that of its own text with zeros in place of this digest.
constexpr const char* digests_member = "xxh3";
constexpr std::array other_files = {config_file, weights_file, moments_file};
/// The same of those that not every model has.
constexpr std::array asset_files = {labels_file, tokenizer_file, columns_file};
constexpr std::size_t digest_digits = 16;

/// Whether a checkpoint may have a file of that name.
bool is_of_checkpoint(const std::string& name) {
  return name == state_file || std::ranges::count(other_files, name) > 0 ||
         std::ranges::count(asset_files, name) > 0;
}

void write_state(const fs::path& folder, Json state) {
  const std::string zeros(digest_digits, '0');
  Json& digests = state[digests_member] = Json::object();
  for (const char* file : other_files) digests[file] = digest_of_file(folder / file);
  for (const char* file : asset_files)
    if (fs::exists(folder / file)) digests[file] = digest_of_file(folder / file);
  digests[state_file] = zeros;
  std::string text = state.dump(2) + "\n";
  const std::string own = digest_of(text);
  text.replace(text.rfind(zeros), zeros.size(), own);
  write_file_atomically(folder / state_file, text);
}

/// Reads it back. Throws Error where it is none, or not the one that its digest describes.
Json read_state(const fs::path& folder) {
  const fs::path path = folder / state_file;
  constexpr std::size_t most_bytes = 1 << 20;
  std::string text = read_regular_file(path, most_bytes);
  Json state = parse_json(text, path.string());
  const auto damaged = [&] { fail_damaged_state(path); };
  if (!state.is_object()) damaged();
  // A name that was damaged must not hide the digests.
  for (const auto& [key, value] : state.items())
    if (key != "step" && key != "examples" && key != "loss" && key != "run" && key != "training" &&
        key != digests_member)
      damaged();
  for (const char* key : {"step", "examples"})
    if (!state.contains(key) || !state[key].is_number_unsigned()) damaged();
  if (!state.contains("training") || !state["training"].is_object()) damaged();
  if (!state.contains(digests_member)) return state;

  const Json& digests = state[digests_member];
  if (!digests.is_object()) damaged();
  for (const auto& [file, value] : digests.items())
    if (!is_of_checkpoint(file) || !value.is_string()) damaged();
  const auto digest = [&](const char* file) {
    const auto found = digests.find(file);
    if (found == digests.end()) damaged();
    return found->get<std::string>();
  };
  for (const char* file : other_files) digest(file);
  const std::string own = digest(state_file);
  const std::size_t at = text.rfind(own);
  if (own.size() != digest_digits || at == std::string::npos) damaged();
  text.replace(at, own.size(), own.size(), '0');
  if (digest_of(text) != own) damaged();
  return state;
}

/// The state of a checkpoint that is whole (check_checkpoint).
Json read_whole_state(const fs::path& folder) {
  Json state = read_state(folder);
  // The digests of tensors come first: they name the tensor.
  for (const char* file : {weights_file, moments_file}) Safetensors::read(folder / file).check_digests();
  if (!state.contains(digests_member)) {
    read_json(folder / config_file);
    return state;
  }
  for (const auto& [file, digest] : state[digests_member].items()) {
    if (file == state_file) continue;
    const std::string wanted = digest, found = digest_of_file(folder / file);
    if (found != wanted)
      fail("checkpoint", "expected {} with the digest {}, got one with {}: it is damaged",
           (folder / file).string(), wanted, found);
  }
  return state;
}

/// Throws Error where replacing or deleting a folder would delete files whose names are not `known`.
void check_files(const fs::path& folder, const char* kind, bool (*known)(const std::string& name)) {
  look_at_folders("checkpoint", [&] {
    if (!fs::is_directory(folder)) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const fs::path name = entry.path().filename();
      if (!known(name))
        fail("checkpoint", "expected {} to be a new or empty folder or {}, got one with {}", folder.string(),
             kind, name.string());
    }
  });
}

void check_replaceable(const fs::path& folder) { check_files(folder, "a checkpoint", is_of_checkpoint); }

/// Deletes a checkpoint, or the link to one alone.
void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error)) {
    if (!fs::remove(folder, error))
      fail("checkpoint", "cannot remove {}: {}", folder.string(), error.message());
    return;
  }
  check_replaceable(folder);
  remove_folder(folder);
}

}  // namespace

void check_not_a_model(const fs::path& folder) {
  look_at_folders("checkpoint", [&] {
    if (fs::is_directory(folder) && !fs::is_empty(folder) && !fs::exists(folder / state_file))
      fail("checkpoint", "expected {} to be a new or empty folder or a checkpoint, got one without {}",
           folder.string(), state_file);
  });
}

void check_best(const fs::path& folder) {
  check_files(folder, "the model of the best evaluation", [](const std::string& name) {
    return name == evaluation_file || (is_of_checkpoint(name) && name != state_file && name != moments_file);
  });
}

void write_checkpoint(const fs::path& destination, const TrainingProgress& progress,
                      const ModelConfig& config, const TrainingOptions& options, const ParameterTable& table,
                      std::span<const float> values, const Optimiser& optimiser, const ModelAssets& assets) {
  check_replaceable(destination);
  if (destination.has_parent_path()) create_folders(destination.parent_path());
  AtomicFolder folder(destination);
  write_model(folder.path(), config, table, values, assets);
  const NamedTensor moments[] = {
      {"m", DType::f32, optimiser.first_moments().shape(), optimiser.first_moments().raw()},
      {"v", DType::f32, optimiser.second_moments().shape(), optimiser.second_moments().raw()}};
  write_safetensors(folder.path() / moments_file, moments, {});
  write_state(folder.path(), Json{{"step", progress.step},
                                  {"examples", progress.examples},
                                  {"loss", loss_json(progress.loss)},
                                  {"run", run_json(progress)},
                                  {"training", decisive_options(options)}});
  folder.commit();
}

void check_checkpoint(const fs::path& folder) { read_whole_state(folder); }

TrainingProgress read_checkpoint(const fs::path& folder, const ModelConfig& config,
                                 const TrainingOptions& options, const ParameterTable& table,
                                 std::span<float> values, Optimiser& optimiser) {
  const Json state = read_whole_state(folder);
  TrainingProgress progress = progress_of(state, config.length, folder);
  require_equal(model_options(read_config(folder / config_file)), model_options(config), "", folder);
  Json decisive = decisive_options(options);
  decisive.erase("steps");  // a run may be made longer or shorter
  Json saved = state["training"];
  for (const auto& [key, value] : {std::pair("head_weights", Json("")),
                                   {"transpose", Json(0)},
                                   {"precision", Json("f32")},
                                   {"recompute", Json(false)},
                                   {"segment", Json(0)},
                                   {"truncate", Json(false)},
                                   {"sequence_ranks", Json(1)}})
    if (!saved.contains(key)) saved[key] = value;  // of an earlier version
  require_equal(saved, decisive, "training", folder);

  const Tensor parameters = read_values(folder / weights_file, table);
  const Safetensors moments = Safetensors::read(folder / moments_file);
  const auto read = [&](const char* name) {
    if (!moments.contains(name) || moments.dtype(name) != DType::f32 ||
        moments.shape(name) != Shape{table.size()})
      fail("resume", "expected {} of f32 [{}] in {}, got something else", name, table.size(),
           (folder / moments_file).string());
    Tensor moment = moments.tensor(name);
    check_finite(moment.span<float>(), name, (folder / moments_file).string());
    return moment;
  };
  Tensor first = read("m"), second = read("v");
  std::copy_n(parameters.span<float>().data(), parameters.size(), values.data());
  optimiser.first_moments() = std::move(first);
  optimiser.second_moments() = std::move(second);
  return progress;
}

std::vector<std::int64_t> Checkpoints::steps() const {
  std::vector<std::int64_t> steps;
  look_at_folders("checkpoint", [&] {
    if (!fs::is_directory(folder_)) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      std::int64_t step = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
      const bool is_step = error == std::errc() && end == name.data() + name.size();
      if (is_step && name == std::to_string(step) && entry.is_directory()) steps.push_back(step);
    }
  });
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool Checkpoints::any() const { return newest().has_value(); }

std::optional<std::int64_t> Checkpoints::newest() const {
  const std::vector<std::int64_t> all = steps();
  if (all.empty()) return std::nullopt;
  return all.back();
}

std::optional<std::int64_t> Checkpoints::newest_whole(
    const std::function<void(const std::string& fault)>& report) {
  std::vector<std::int64_t> all = steps();
  std::vector<std::string> faults;
  for (; !all.empty(); all.pop_back()) {
    const std::int64_t step = all.back();
    try {
      check_checkpoint(path(step));
      for (const std::string& fault : faults) report(fault);
      return step;
    } catch (const Error& error) {
      faults.emplace_back(error.what());
      with_fault_.insert(step);
    }
  }
  if (!faults.empty()) throw Error(faults.front());
  return std::nullopt;
}

fs::path Checkpoints::path(std::int64_t step) const { return folder_ / std::to_string(step); }

void Checkpoints::written(std::int64_t step) { with_fault_.erase(step); }

void Checkpoints::keep(std::int64_t count, const std::function<void(const std::string& fault)>& report) {
  const std::vector<std::int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    if (count <= 0) {
      try {
        remove_checkpoint(path(*step));
      } catch (const Error& error) {
        if (not_removed_.insert(*step).second) report(error.what());
      }
    }
    if (!with_fault_.contains(*step)) --count;
  }
  remove_temporaries(folder_);
}

}  // namespace linnet
