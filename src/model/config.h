#pragma once

#include "io/options.h"
#include "linnet/model.h"

namespace linnet {

/// Without which other setting a key of model.* changes nothing, where the model lacks it, to be said behind
/// "has no effect"; empty where it has one.
std::string without_effect(const ModelConfig& config, std::string_view key);

/// The sequences that the model's attention meets.
SequenceConfig sequence_of(const ModelConfig& config);

/// The layers of the model's encoder as those of a bidirectional model. Not for `check`.
ModelConfig encoder_config(const ModelConfig& config);

/// Whether the model can take one token at a time from states: not an encoder, and all layers of
/// families with a recurrent form.
bool has_recurrent_form(const ModelConfig& config);

/// Whether a long sequence can go through the model part by part, carried by states of a fixed size: a causal
/// model that predicts at every step, without an encoder, all layers of such families.
bool has_fixed_states(const ModelConfig& config);

/// Throws UsageError for a model whose steps are not a token each, which it predicts from tokens alone.
void check_one_token(const char* operation, const ModelConfig& config);

/// Adds the keys of a model's configuration, model.* , attention.* and image.*, bound to `config`.
void add_options(Options& options, ModelConfig& config);

}  // namespace linnet
