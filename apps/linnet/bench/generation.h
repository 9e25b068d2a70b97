#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "io/json.h"
#include "linnet/generation.h"

// What the rows of `linnet bench generate` have in common: steps of many streams (generate.cc), prompts
// (prompts.cc) and one stream in real time (real_time.cc).

namespace linnet {

/// One configuration, family and number of streams. Without a cache every step costs more than the one
/// before; then the steps of evenly spaced positions are measured and stand for those between them.
struct GenerationRow {
  std::string config, family, weights;
  std::int64_t streams = 1;
  bool cache = true;
};

Json generation_row(Context& context, const GenerationRow& row);

/// p50, p99 and p99.9 of sorted seconds; `scale` units are a second.
Json percentiles(const std::vector<double>& times, double scale);

/// Seconds that it takes to read the weights and the read bytes of the states once, and to read and write the
/// written ones once.
double memory_seconds(Context& context, std::size_t weight_bytes, std::size_t read_bytes,
                      std::size_t written_bytes);

/// Tokens of so many steps.
std::vector<std::int32_t> random_prompt(const ModelConfig& config, std::int64_t steps);

/// Memory for the tokens of a step of all streams.
std::vector<std::int32_t> step_tokens(const Session& session, const ModelConfig& config);

/// Lets all streams begin anew: with label 0 where the model has classes, with a source of the length of
/// training where it has an encoder.
void begin_all(Session& session, const ModelConfig& config);

/// Reading prompts of so many tokens: the streams of the row begin anew and read one each, together.
Json measure_prompts(Context& context, const std::shared_ptr<const Model>& model, const GenerationRow& row,
                     std::int64_t length, double seconds);

/// A stream without an end on one thread: what matters is its slowest steps.
Json measure_real_time(Context& context, const std::shared_ptr<const Model>& model, const GenerationRow& row,
                       std::int64_t steps);

}  // namespace linnet
