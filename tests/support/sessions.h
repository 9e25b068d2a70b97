#pragma once

#include <vector>

#include "linnet/attention.h"
#include "linnet/generation.h"
#include "reference/transformer.h"
#include "support/models.h"

namespace linnet {

inline constexpr Session::Options no_cache{.capacity = 0, .cache = false};

inline SamplingOptions greedy() {
  SamplingOptions options;
  options.temperature = 0;
  return options;
}

inline SamplingOptions seeded(std::uint64_t seed) {
  SamplingOptions options;
  options.seed = seed;
  return options;
}

/// The next `count` tokens of one stream.
inline std::vector<std::int32_t> draw(Session& session, std::int64_t stream, std::int64_t count) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(count));
  for (std::int32_t& token : result) session.step(std::span(&token, 1), std::span(&stream, 1));
  return result;
}

/// A model whose next token has the same distribution everywhere: softmax of `logits`.
inline std::shared_ptr<const Model> model_of_distribution(const std::vector<float>& logits) {
  ModelConfig config;
  config.layers = 1;
  config.heads = 1;
  config.width = 2;
  config.feed_forward = 1;
  config.positions = Positions::none;
  config.vocabulary = static_cast<std::int64_t>(logits.size());
  const Network network(config);
  Tensor values = Tensor::of<float>({network.table().size()});
  for (const auto& row : network.table().rows())
    if (row.name == "head.bias")
      std::copy(logits.begin(), logits.end(), row.place.of(values.span<float>()).data());
  return make_model(config, std::move(values));
}

/// Small models of both families and both heads, with and without classes, and one with a window between
/// linear layers.
inline std::vector<ModelConfig> session_configs() {
  std::vector<ModelConfig> result;
  for (const Family family : {Family::linear, Family::softmax})
    for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics}) {
      ModelConfig config = small_config();
      config.attention.family = family;
      config.head = head;
      config.length = 400;
      config.classes = head == OutputDistribution::logistics ? 3 : 0;
      config.positions = family == Family::linear ? Positions::sinusoidal : Positions::learned;
      result.push_back(config);
    }
  result.push_back(with_other_blocks(small_config(), "linear,local"));
  result.back().length = 400;
  result.back().attention.local.window = 30;
  return result;
}

/// Three layers of every family and pattern with a recurrent form, with positions that have no end. States of
/// a fixed size are full after 8 tokens.
inline std::vector<ModelConfig> recurrent_configs() {
  std::vector<ModelConfig> result;
  for (const FamilyInfo& family : family_table()) {
    if (!family.recurrent) continue;
    ModelConfig config = tiny_config();
    config.layers = 3;
    config.positions = Positions::sinusoidal;
    config.attention.family = family.family;
    config.attention.local.window = 7;
    config.attention.strided.stride = 6;
    config.attention.strided.summary = 2;
    result.push_back(config);
    if (family.family != Family::strided) continue;
    config.attention.strided.pattern = SparsePattern::fixed;
    result.push_back(config);
  }
  // Other families in other layers; `family` says whether the whole state has a fixed size.
  for (const char* families : {"linear,local,linear", "softmax,linear,local"}) {
    ModelConfig config = with_other_blocks(tiny_config(), families);
    config.attention.family = find_family(std::string(families, std::string_view(families).find(',')));
    config.attention.local.window = 7;
    result.push_back(config);
  }
  return result;
}

inline std::int64_t some_label(const ModelConfig& config) { return config.classes > 0 ? 1 : -1; }

/// Greedy tokens must be equal until the best two tie within the tolerance, by the double version's word;
/// after that streams may part.
inline void expect_same_greedy_tokens(const Model& model, std::int64_t label,
                                      const std::vector<std::int32_t>& a,
                                      const std::vector<std::int32_t>& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin());
  if (parted.first == a.end()) return;
  std::vector<std::int32_t> inputs = {model.config().first_input(label)};
  inputs.insert(inputs.end(), a.begin(), parted.first);
  const auto length = static_cast<std::int64_t>(inputs.size());
  const reference::Matrix rows = reference::head_parameters(model.config(), by_name(model), inputs, length);
  const auto last = reference::log_probabilities(
      model.config(), std::span(rows.values).last(static_cast<std::size_t>(rows.columns)));
  EXPECT_NEAR(last[static_cast<std::size_t>(*parted.first)], last[static_cast<std::size_t>(*parted.second)],
              1e-4)
      << "tokens " << *parted.first << " and " << *parted.second << " at position "
      << parted.first - a.begin();
}

}  // namespace linnet
