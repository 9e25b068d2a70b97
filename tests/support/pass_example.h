#pragma once

#include <vector>

#include "model/heads.h"
#include "support/contexts.h"
#include "support/models.h"
#include "support/numbers.h"

namespace linnet {

/// A network with random parameters and the inputs of a pass.
struct PassExample {
  ModelConfig config;
  std::int64_t batch, length;
  Network network;
  Tensor values;
  std::vector<std::int32_t> ids, targets, sources;
  std::vector<float> numbers, number_targets;
  std::vector<std::int64_t> key_lengths;

  PassExample(const ModelConfig& given, std::int64_t batch_size, std::int64_t steps, std::uint64_t seed)
      : config(given),
        batch(batch_size),
        length(steps),
        network(config),
        values(random_values(network.table(), seed)) {
    network.pack(any_context(), values.span<float>(), true);
    if (config.vocabulary > 0) {
      ids = config.shifted() ? random_inputs(config, batch, length, seed)
                             : random_tokens(batch * length, config.vocabulary, seed);
      targets = random_tokens(batch * length, config.vocabulary, seed + 1);
    }
    if (config.vocabulary == 0 && config.shifted()) {
      ids.assign(static_cast<std::size_t>(batch * length), -1);
      for (std::int64_t b = 0; b < batch; ++b)
        ids[static_cast<std::size_t>(b * length)] = config.first_input(-1);
    }
    if (config.columns > 0) numbers = normals(batch * length * config.columns, seed + 2);
    if (config.columns > 0) number_targets = normals(batch * length * config.target_count(), seed + 3);
    if (config.has_encoder())
      sources = random_tokens(batch * config.source_length, config.source_tokens(), seed + 4);
  }

  Pass pass() const {
    return {.batch = batch,
            .length = length,
            .ids = ids,
            .values = numbers,
            .key_lengths = key_lengths,
            .targets = targets,
            .value_targets = number_targets,
            .source = sources};
  }
};

/// The loss and the gradients of a pass.
struct PassResult {
  double nats = 0;
  std::vector<float> gradients;
};

/// Within `tolerance` all gradients together, and within ten times as much those of every parameter.
inline void expect_close(const PassResult& found, const PassResult& expected, const ParameterTable& table,
                         double tolerance) {
  EXPECT_NEAR(found.nats, expected.nats, 1e-6 * expected.nats);
  EXPECT_LT(relative_error(found.gradients, expected.gradients), tolerance);
  for (const ParameterTable::Row& row : table.rows()) {
    const auto part = [&](const std::vector<float>& all) {
      return std::span(all).subspan(static_cast<std::size_t>(row.place.offset()),
                                    static_cast<std::size_t>(row.count));
    };
    EXPECT_LT(
        relative_error(part(found.gradients), part(expected.gradients), 1e-3 * norm(expected.gradients)),
        10 * tolerance)
        << row.name;
  }
}

/// A tiny model of sequences that go beyond a chunk of attention.
inline ModelConfig long_config() {
  ModelConfig config = tiny_config();
  config.length = 200;
  return config;
}

}  // namespace linnet
