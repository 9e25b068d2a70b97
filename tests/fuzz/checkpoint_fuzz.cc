// A checkpoint of which one file, chosen by the first byte, is the input; with right digests where that byte
// is even. A trainer is restored from it and makes an update.

#include <array>

#include "base/fail.h"
#include "fuzz.h"
#include "io/digest.h"
#include "io/file.h"
#include "io/json.h"
#include "models.h"
#include "training/checkpoint.h"
#include "training/trainer.h"

namespace linnet::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::array files = {"state.json", "config.json", "model.safetensors", "optimiser.safetensors"};

TrainingOptions options() {
  TrainingOptions options;
  options.steps = 20;
  options.warmup = 3;
  return options;
}

const ModelConfig& config() {
  static const ModelConfig config = tiny_config(
      std::vector<std::string>{"model.layers=1", "attention.feature_map=favor", "attention.features=3",
                               "attention.redraw=2", "model.length=4", "model.dropout=0.1"});
  return config;
}

struct Start {
  Context context{1};
  Trainer trainer{context, config(), options()};
  std::array<std::string, files.size()> contents;

  Start() {
    step();
    const fs::path folder = empty_folder() / "checkpoint";
    trainer.save(folder);
    for (std::size_t i = 0; i < files.size(); ++i) contents[i] = read_file(folder / files[i]);
  }

  void step() {
    const std::vector<std::int32_t> tokens = {5, 1, 2, 3, 5, 0, 1, 4};
    const std::vector<std::int32_t> targets = {1, 2, 3, -1, 0, 1, 4, 2};
    trainer.step({2, 4, tokens, targets, {}});
  }
};

Start& start() {
  static Start start;
  return start;
}

/// Puts the digests of the other files into the state, and its own. A state that has none stays as it is.
std::string with_digests(const std::array<std::string, files.size()>& contents) try {
  Json state = parse_json(contents[0], "state");
  if (!state.is_object() || !state.contains("xxh3") || !state["xxh3"].is_object()) return contents[0];
  for (std::size_t i = 1; i < files.size(); ++i)
    if (state["xxh3"].contains(files[i])) state["xxh3"][files[i]] = digest_of(contents[i]);
  const std::string zeros(16, '0');
  state["xxh3"].erase(files[0]);
  state["xxh3"][files[0]] = zeros;
  std::string text = state.dump();
  const std::string own = digest_of(text);
  return text.replace(text.rfind(zeros), zeros.size(), own);
} catch (const std::exception&) {
  return contents[0];
}

}  // namespace

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const bool repair = choice % 2 == 0;
  auto contents = start().contents;
  contents[choice / 2 % files.size()] = input;
  if (repair) contents[0] = with_digests(contents);
  const fs::path& folder = empty_folder();
  for (std::size_t i = 0; i < files.size(); ++i) put(folder / files[i], contents[i]);
  start().trainer.restore(folder);
  try {
    start().step();
  } catch (const Error&) {
    // A loss that is not finite, as of weights of 1e38, or the last update that there may be.
  }
  start().trainer.save(folder);
  read_again([&] { start().trainer.restore(folder); });
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const int choice : {0, 1})
      result.push_back(with_choice(static_cast<int>(2 * i) + choice, start().contents[i]));
  // Of versions before digests.
  Json state = parse_json(start().contents[0], "state");
  state.erase("xxh3");
  state.erase("loss");
  result.push_back(with_choice(0, state.dump()));
  return result;
}

std::vector<std::string> words() {
  std::vector<std::string> result = {"\"step\"",
                                     "\"examples\"",
                                     "\"loss\"",
                                     "\"run\"",
                                     "\"training\"",
                                     "\"xxh3\"",
                                     "9223372036854775807",
                                     "18446744073709551615",
                                     "1e308",
                                     "-1",
                                     "null",
                                     "0.5",
                                     "best_step",
                                     "not_improved",
                                     "lowest",
                                     "data_offsets",
                                     "F32",
                                     "[0,"};
  ModelConfig model;
  Options options;
  add_options(options, model);
  for (const std::string& word : words_of(options)) result.push_back(word);
  return result;
}

}  // namespace linnet::fuzz
