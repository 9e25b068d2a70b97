#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linnet/model.h"
#include "model/config.h"

namespace linnet::fuzz {

/// A model's configuration that is small and quick, with `settings` ("key=value").
inline ModelConfig tiny_config(std::span<const std::string> settings) {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.feed_forward = 8;
  config.length = 16;
  config.vocabulary = 5;
  config.mixtures = 2;
  Options options;
  add_options(options, config);
  for (const std::string& setting : settings) options.apply_assignment(setting);
  config.check();
  return config;
}

/// Settings of models that generate, which between them have every kind of state.
inline std::vector<std::vector<std::string>> generating() {
  return {
      {},
      {"model.positions=sinusoidal", "attention.feature_map=favor", "attention.features=4",
       "model.norm=post"},
      {"attention.decay=learned", "model.positions=none", "model.tied_output=true"},
      {"attention.decay=fixed", "attention.feature_map=identity", "attention.normalise=none"},
      {"attention.feature_map=favor-sincos", "attention.features=6"},
      {"attention.family=softmax", "model.positions=sinusoidal"},
      {"attention.family=softmax", "model.head=logistics", "model.classes=2"},
      {"attention.family=local", "attention.window=3", "model.positions=none"},
      {"attention.family=strided", "attention.stride=4", "model.positions=sinusoidal"},
      {"attention.family=strided", "attention.stride=3", "attention.pattern=fixed", "attention.summary=2"},
      {"attention.layers=linear,local", "attention.window=3", "model.positions=rotary", "model.norm_kind=rms",
       "model.activation=swiglu"},
  };
}

/// Settings of other models.
inline std::vector<std::vector<std::string>> others() {
  return {
      {"attention.family=kernel", "attention.similarity=gaussian", "model.activation=relu"},
      {"attention.family=linformer", "attention.rank=4", "model.objective=masked"},
      {"attention.family=lsh", "attention.chunk=4", "attention.rounds=2"},
      {"attention.family=lsh", "attention.buckets=4", "model.objective=masked", "model.positions=none"},
      {"model.objective=masked", "attention.feature_map=random-gelu", "attention.directions=independent"},
      {"attention.family=local", "attention.window=2", "model.objective=masked"},
      {"model.weights=bf16", "attention.feature_map=squared-relu", "model.activation=gelu-tanh"},
      {"model.weights=int8", "attention.feature_map=exp", "attention.redraw=2"},
      {"image.height=4", "image.width=4", "model.dropout=0.5", "attention.feature_map=relu"},
  };
}

}  // namespace linnet::fuzz
