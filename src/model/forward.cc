// What a model computes from given tokens, without a session.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/fail.h"
#include "base/workspace.h"
#include "kernels/loss.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/config.h"
#include "model/heads.h"
#include "model/transformer.h"

namespace linnet {
namespace {

constexpr std::int32_t hidden_token = -1;

/// Throws UsageError where the sizes do not fit together.
void check_sizes(const char* operation, std::span<const std::int32_t> tokens, std::int64_t batch,
                 std::int64_t length, std::span<const std::int64_t> key_lengths, std::int64_t fields = 1) {
  if (batch < 1 || length < 1)
    fail<UsageError>(operation, "expected a batch and a length of at least 1, got {} and {}", batch, length);
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count % fields != 0 || count / fields / batch != length || count / fields % batch != 0)
    fail<UsageError>(operation, "expected {} · {}{} tokens, got {}", batch, length,
                     fields > 1 ? fmt::format(" · {}", fields) : "", count);
  if (key_lengths.empty()) return;
  if (static_cast<std::int64_t>(key_lengths.size()) != batch)
    fail<UsageError>(operation, "expected {} key lengths, one for each entry of the batch, got {}", batch,
                     key_lengths.size());
  for (const std::int64_t tokens_of_entry : key_lengths)
    if (tokens_of_entry < 1 || tokens_of_entry > length)
      fail<UsageError>(operation, "expected key lengths in 1 … {}, got {}", length, tokens_of_entry);
}

void check_token(const char* operation, std::int32_t token, std::int64_t count) {
  if (token < 0 || token >= count)
    fail<UsageError>(operation, "expected tokens in 0 … {}, got {}", count - 1, token);
}

/// The inputs of the layers: the checked tokens, with some token in place of padding.
std::vector<std::int32_t> inputs_of(const char* operation, const ModelConfig& config,
                                    std::span<const std::int32_t> tokens, std::int64_t batch,
                                    std::int64_t length, std::span<const std::int64_t> key_lengths) {
  check_sizes(operation, tokens, batch, length, key_lengths);
  std::vector<std::int32_t> inputs(tokens.begin(), tokens.end());
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto entry = inputs.begin() + b * length;
    const auto padding = entry + (key_lengths.empty() ? length : key_lengths[static_cast<std::size_t>(b)]);
    std::for_each(entry, padding,
                  [&](std::int32_t token) { check_token(operation, token, config.input_tokens()); });
    std::fill(padding, entry + length, 0);
  }
  return inputs;
}

/// −log p in nats of the tokens of several fields, nll and tokens [rows, fields]. Takes the logits of a few
/// rows at a time.
void losses_of_fields(Context& context, const Network& network, std::span<float> nll, View<const float> rows,
                      std::span<const std::int32_t> tokens) {
  constexpr std::int64_t together = 256;
  const std::size_t fields = tokens.size() / static_cast<std::size_t>(rows.extent(0));
  Heads heads(network);
  for (std::int64_t first = 0; first < rows.extent(0); first += together) {
    const std::int64_t count = std::min(together, rows.extent(0) - first);
    const std::size_t begin = static_cast<std::size_t>(first) * fields;
    const auto own = tokens.subspan(begin, static_cast<std::size_t>(count) * fields);
    heads.loss(context, rows.slice(0, first, first + count), {.batch = 1, .length = count, .targets = own},
               {}, nullptr);
    for (std::size_t i = 0; i < own.size(); ++i) nll[begin + i] = heads.field_nll(i % fields)[i / fields];
  }
}

}  // namespace

Tensor Model::forward(Context& context, std::span<const std::int32_t> tokens, std::int64_t batch,
                      std::int64_t length, std::span<const std::int64_t> key_lengths) const {
  check_one_token("forward", config());
  const auto inputs = inputs_of("forward", config(), tokens, batch, length, key_lengths);
  Transformer transformer(network_of(*this));
  const View<const float> rows =
      transformer.forward(context, inputs, batch, length, 0, nullptr, nullptr, key_lengths)
          .reshape({batch * length, config().width});
  Tensor logits = Tensor::of<float>({batch, length, config().vocabulary});
  network_of(*this).head().logits_of(
      context, logits.view<float>().reshape({batch * length, config().vocabulary}), rows);
  return logits;
}

Tensor Model::hidden(Context& context, std::span<const std::int32_t> tokens, std::int64_t batch,
                     std::int64_t length, std::span<const std::int64_t> key_lengths) const {
  return hidden(context, {.batch = batch, .length = length, .tokens = tokens, .key_lengths = key_lengths});
}

std::vector<float> Model::score(Context& context, std::span<const std::int32_t> tokens,
                                std::int64_t label) const {
  if (config().masked())
    fail<UsageError>("score",
                     "expected a model that predicts the next token, got an encoder (model.objective = "
                     "\"masked\"), which predicts hidden tokens: see fill");
  const std::vector<std::int64_t> sizes = config().field_sizes();
  const auto fields = std::ssize(sizes);
  if (fields < 2 || config().columns > 0 || !config().shifted()) check_one_token("score", config());
  if (std::ssize(tokens) % fields != 0)
    fail<UsageError>("score", "expected tokens of whole steps of {} fields, got {}", fields, tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) check_token("score", tokens[i], sizes[i % sizes.size()]);
  std::vector<std::int32_t> inputs = {config().first_input(label)};
  if (tokens.empty()) return {};
  for (std::size_t f = 1; f < sizes.size(); ++f) inputs.push_back(static_cast<std::int32_t>(sizes[f]));
  inputs.insert(inputs.end(), tokens.begin(), tokens.end() - fields);
  const std::int64_t length = std::ssize(tokens) / fields;
  network_of(*this).embedding().check_position(length - 1);

  std::optional<RecurrentState> state;
  if (length > slice && has_recurrent_form(config())) state.emplace(network_of(*this), 1, length);
  const std::int64_t together = state ? slice : length;
  RecurrentState* const carried = state ? &*state : nullptr;
  Transformer transformer(network_of(*this));
  std::vector<float> result(tokens.size());
  for (std::int64_t first = 0; first < length; first += together) {
    const std::int64_t here = std::min(together, length - first);
    const auto part = [&](auto whole) {
      return whole.subspan(static_cast<std::size_t>(first * fields), static_cast<std::size_t>(here * fields));
    };
    const View<const float> rows =
        transformer
            .forward(context, part(std::span<const std::int32_t>(inputs)), 1, here, first, carried, carried)
            .reshape({here, config().width});
    if (fields == 1)
      network_of(*this).head().losses_of(context, part(std::span(result)), rows, part(tokens));
    else
      losses_of_fields(context, network_of(*this), part(std::span(result)), rows, part(tokens));
  }
  for (float& value : result) value = -value;
  return result;
}

std::vector<float> Model::score(Context& context, std::span<const std::int32_t> source,
                                std::span<const std::int32_t> tokens) const {
  if (!config().has_encoder())
    fail<UsageError>("score",
                     "expected an encoder–decoder model for a source, got a model without an encoder");
  if (source.empty()) fail<UsageError>("score", "expected a source of at least 1 token, got none");
  for (const std::int32_t token : source) check_token("score", token, config().source_tokens());
  for (const std::int32_t token : tokens) check_token("score", token, config().vocabulary);
  if (tokens.empty()) return {};
  std::vector<std::int32_t> inputs = {config().first_input(-1)};
  inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
  Transformer transformer(network_of(*this));
  std::vector<float> result(tokens.size());
  transformer.loss(
      context, {.batch = 1, .length = std::ssize(tokens), .ids = inputs, .targets = tokens, .source = source},
      result);
  for (float& value : result) value = -value;
  return result;
}

Filling Model::fill(Context& context, std::span<const std::int32_t> tokens, std::int64_t batch,
                    std::int64_t length, std::span<const std::int64_t> key_lengths) const {
  if (!config().masked())
    fail<UsageError>("fill",
                     "expected an encoder (model.objective = \"masked\"), got a model of another objective");
  const std::vector<std::int64_t> sizes = config().field_sizes();
  const auto fields = std::ssize(sizes);
  check_sizes("fill", tokens, batch, length, key_lengths, fields);
  std::vector<std::int32_t> inputs(tokens.begin(), tokens.end());
  Filling result;
  for (std::int64_t i = 0; i < batch * length * fields; ++i) {
    const std::int64_t row = i / fields, size = sizes[static_cast<std::size_t>(i % fields)];
    std::int32_t& token = inputs[static_cast<std::size_t>(i)];
    if (!key_lengths.empty() && row % length >= key_lengths[static_cast<std::size_t>(row / length)]) {
      token = 0;  // padding
    } else if (token == hidden_token) {
      token = static_cast<std::int32_t>(size);
      result.positions.push_back(i);
    } else {
      check_token("fill", token, size + 1);
    }
  }
  const auto count = std::ssize(result.positions);
  result.probabilities = Tensor::of<float>({count, config().vocabulary});
  if (count == 0) return result;

  const Network& network = network_of(*this);
  Transformer transformer(network);
  const View<const float> rows =
      transformer.forward(context, inputs, batch, length, 0, nullptr, nullptr, key_lengths)
          .reshape({batch * length, config().width});
  result.tokens.resize(static_cast<std::size_t>(count));
  for (std::int64_t field = 0; field < fields; ++field) {
    std::vector<std::size_t> own;  // the hidden tokens of this field
    for (std::size_t i = 0; i < result.positions.size(); ++i)
      if (result.positions[i] % fields == field) own.push_back(i);
    if (own.empty()) continue;
    const std::int64_t size = sizes[static_cast<std::size_t>(field)];
    Workspace workspace(context);
    const View<float> chosen = workspace.take(std::ssize(own), config().width),
                      probabilities = workspace.take(std::ssize(own), size);
    for (std::size_t i = 0; i < own.size(); ++i)
      std::copy_n(rows.at(result.positions[own[i]] / fields), config().width, chosen.at(i));
    network.field_head(static_cast<std::size_t>(field)).logits_of(context, probabilities, chosen);
    kernels::softmax_rows(context, probabilities, probabilities);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const float* row = probabilities.at(i);
      float* const to = result.probabilities.view<float>().at(own[i]);
      std::fill(std::copy_n(row, size, to), to + config().vocabulary, 0.0f);
      result.tokens[own[i]] = static_cast<std::int32_t>(std::max_element(row, row + size) - row);
    }
  }
  return result;
}

}  // namespace linnet
