#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/json.h"
#include "linnet/training.h"
#include "support/contexts.h"
#include "support/datasets.h"
#include "support/errors.h"
#include "support/folder.h"
#include "support/models.h"

namespace linnet {

/// A run of 12 updates with everything that depends on the step: warm-up, cosine, dropout, accumulation,
/// decay.
inline TrainingOptions tiny_options() {
  TrainingOptions options;
  options.steps = 12;
  options.batch = 3;
  options.accumulate = 2;
  options.learning_rate = 0.01;
  options.warmup = 3;
  options.log_every = 1;
  options.evaluate_every = 5;
  options.evaluate_examples = 4;
  options.sample_every = 0;
  options.checkpoint_every = 5;
  return options;
}

inline ModelConfig trained_config() {
  ModelConfig config = tiny_config();
  config.dropout = 0.1;
  return config;
}

inline const Counting& training_set() {
  static const Counting set(17, 6, 5);
  return set;
}

inline const Counting& validation_set() {
  static const Counting set(5, 6, 5);
  return set;
}

inline TrainingResult run(const std::filesystem::path& folder, const ModelConfig& config,
                          const TrainingOptions& options, bool resume = false,
                          const TrainingCallbacks& callbacks = {}) {
  return train(any_context(), config, options, training_set(), validation_set(), folder, resume, callbacks);
}

/// The parameters of a trainer.
inline std::vector<float> values_of(const Trainer& trainer) {
  const Tensor values = values_of(*trainer.model());
  return {values.span<float>().begin(), values.span<float>().end()};
}

/// Callbacks that stop a run after update `step`.
inline TrainingCallbacks stopping_after(std::int64_t step) {
  auto last = std::make_shared<std::int64_t>(0);
  TrainingCallbacks callbacks;
  callbacks.on_step = [last](const StepReport& report) { *last = report.step; };
  callbacks.should_stop = [last, step] { return *last >= step; };
  return callbacks;
}

/// Bytes of the parameters that a run has written.
inline std::string weights_of(const std::filesystem::path& folder) {
  return read_file(folder / "model.safetensors");
}

inline std::vector<Json> metrics_of(const std::filesystem::path& folder) {
  std::vector<Json> result;
  const std::string text = read_file(folder / "metrics.jsonl");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_NE(end, std::string::npos) << "the last line of metrics.jsonl is not whole";
    result.push_back(parse_json(text.substr(begin, end - begin), "metrics.jsonl"));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return result;
}

/// Every kind of line once a step, in order of steps.
inline void expect_no_step_twice(const std::vector<Json>& metrics) {
  std::map<std::string, std::int64_t> last;
  for (const Json& line : metrics) {
    if (line.contains("settings")) continue;
    ASSERT_TRUE(line.contains("step")) << line.dump();
    std::string kind;  // lines of updates and of evaluations have other members
    for (const auto& [key, value] : line.items()) kind += key + " ";
    const auto step = line["step"].get<std::int64_t>();
    EXPECT_LT(last.try_emplace(kind, -1).first->second, step) << line.dump();
    last[kind] = step;
  }
}

}  // namespace linnet
