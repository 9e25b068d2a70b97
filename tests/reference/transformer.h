#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linnet/model.h"
#include "reference/layers.h"

namespace linnet::reference {

/// The output head's numbers, a row for every input of ids [batch · length].
/// `key_lengths`, where not empty, are the tokens of each entry; the rest of it is padding.
Matrix head_parameters(const ModelConfig& config, const Parameters& parameters,
                       std::span<const std::int32_t> ids, std::int64_t length,
                       std::span<const BlockMasks> masks = {},
                       std::span<const std::int64_t> key_lengths = {});

/// log-probabilities [vocabulary] of the token that a row of head_parameters describes.
std::vector<double> log_probabilities(const ModelConfig& config, std::span<const double> row);

/// Σ −log p(target) over the targets that are not negative.
double loss(const ModelConfig& config, const Parameters& parameters, std::span<const std::int32_t> ids,
            std::span<const std::int32_t> targets, std::int64_t length,
            std::span<const BlockMasks> masks = {}, std::span<const std::int64_t> key_lengths = {});

/// Steps of several fields, of real numbers, or of both, and what is to be predicted; the layout is that of
/// Pass in model/heads.h.
struct Steps {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> ids = {};
  std::vector<float> values = {};
  std::vector<std::int64_t> key_lengths = {};
  std::vector<std::int32_t> targets = {};
  std::vector<float> value_targets = {};
  std::vector<std::int32_t> labels = {};
  std::vector<double> field_weights = {};  ///< of the losses of the fields; empty: 1 each
  double value_weight = 1;                 ///< of the loss of the real numbers
  std::vector<std::int32_t> source = {};   ///< as many tokens for each entry
  std::vector<std::int64_t> source_lengths = {};
  std::vector<std::int32_t> conditions = {};  ///< empty: the targets
};

/// What the output heads take, [batch · length, width].
Matrix hidden_rows(const ModelConfig& config, const Parameters& parameters, const Steps& steps);

/// Σ −log p over everything that counts.
double loss(const ModelConfig& config, const Parameters& parameters, const Steps& steps);

/// How the reference names a configuration's attention and blocks; `layer` counts from 0.
BlockSettings block_settings(const ModelConfig& config, std::int64_t layer = 0);

}  // namespace linnet::reference
