#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/quantile.h"
#include "bench/generation.h"
#include "model/access.h"
#include "model/cost.h"
#include "model/network.h"
#include "report.h"

namespace linnet {

Json measure_prompts(Context& context, const std::shared_ptr<const Model>& model, const GenerationRow& row,
                     std::int64_t length, double seconds) {
  const ModelConfig& config = model->config();
  begin_row(context, row.weights);
  Session session(model, row.streams, {.capacity = length + 1, .threads = context.threads()});
  const std::vector<std::int32_t> prompt = random_prompt(config, length);
  const auto count = static_cast<std::size_t>(row.streams);
  std::vector<std::int64_t> streams(count);
  for (std::size_t i = 0; i < count; ++i) streams[i] = static_cast<std::int64_t>(i);
  const std::vector<std::span<const std::int32_t>> prompts(count, prompt);
  std::vector<std::int32_t> tokens = step_tokens(session, config);
  std::vector<double> readings, first_tokens;
  std::size_t state_bytes = 0;
  time_calls(
      [&] {
        const auto start = std::chrono::steady_clock::now();
        begin_all(session, config);
        const double begun = seconds_since(start);
        session.prefill(streams, prompts);
        readings.push_back(seconds_since(start) - begun);
        state_bytes = session.state_bytes(0);  // a step lets a cache grow
        session.step(tokens);
        first_tokens.push_back(seconds_since(start));
      },
      seconds);
  if (readings.size() > 2) {  // the first ones take the memory that all need
    readings.erase(readings.begin());
    first_tokens.erase(first_tokens.begin());
  }
  const double median = median_of(readings);
  const double all_tokens = static_cast<double>(row.streams * length);
  const double products = static_cast<double>(row.streams) * prompt_flops(config, length) /
                          (1e9 * ceiling(context, row.weights).gemm_gflops);
  // A state is written, which takes no less than reading it.
  const double floor = std::max(
      products, memory_seconds(context, prompt_weight_bytes(network_of(*model)), count * state_bytes, 0));

  Json json = generation_row(context, row);
  json["prompt"] = length;
  json["tokens_per_second"] = all_tokens / median;
  json["time_ms"] = time_summary(readings);
  json["first_token_ms"] = 1e3 * median_of(first_tokens);
  json["floor_ms"] = 1e3 * floor;
  json["times_floor"] = median / floor;
  json["fraction_of_ceiling"] = products / median;
  json["state_bytes_per_stream"] = state_bytes;
  json["weight_bytes"] = model->weight_bytes();
  return json;
}

}  // namespace linnet
