#include "bench/generation.h"

#include "base/quantile.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"

namespace linnet {
namespace {

/// Tokens of so many steps, whose fields have values of these numbers.
std::vector<std::int32_t> mixed_tokens(std::int64_t steps, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(steps) * sizes.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(sizes[i % sizes.size()]));
  return tokens;
}

}  // namespace

Json generation_row(Context& context, const GenerationRow& row) {
  Json json = bench_row(context, "generate", row.weights);
  json["config"] = row.config;
  json["family"] = row.family;
  json["cache"] = row.cache;
  json["streams"] = row.streams;
  return json;
}

Json percentiles(const std::vector<double>& times, double scale) {
  return {{"p50", scale * quantile(times, 0.5)},
          {"p99", scale * quantile(times, 0.99)},
          {"p999", scale * quantile(times, 0.999)}};
}

double memory_seconds(Context& context, std::size_t weight_bytes, std::size_t read_bytes,
                      std::size_t written_bytes) {
  const auto floats = [](std::size_t bytes) {
    return Tensor::of<float>({static_cast<std::int64_t>(bytes / sizeof(float))});
  };
  Tensor weights = floats(weight_bytes), read = floats(read_bytes), written = floats(written_bytes);
  std::vector<double> times = time_calls(
      [&] {
        kernels::read_all(context, weights.span<float>());
        kernels::read_all(context, read.span<float>());
        kernels::scale(context, written.span<float>(), 1.0f);
      },
      0.1);
  return median_of(times);
}

std::vector<std::int32_t> random_prompt(const ModelConfig& config, std::int64_t steps) {
  return mixed_tokens(steps, config.field_sizes());
}

std::vector<std::int32_t> step_tokens(const Session& session, const ModelConfig& config) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(session.streams()) * config.field_sizes().size());
}

void begin_all(Session& session, const ModelConfig& config) {
  std::vector<std::int32_t> source;
  if (config.has_encoder()) source = mixed_tokens(config.source_length, {config.source_tokens()});
  for (std::int64_t stream = 0; stream < session.streams(); ++stream)
    if (config.has_encoder())
      session.begin(stream, source, {});
    else
      session.begin(stream, config.classes > 0 ? 0 : -1, {});
}

}  // namespace linnet
