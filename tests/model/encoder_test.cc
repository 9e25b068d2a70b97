// Bidirectional encoders, their padding, and models of the families without a recurrent form.
#include <gtest/gtest.h>

#include "linnet/error.h"
#include "model/training_transformer.h"
#include "model/transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 83;
constexpr double tolerance = 3e-5;  // as for the gradients of decoders

ModelConfig encoder(Family family) {
  ModelConfig config = tiny_config();
  config.objective = Objective::masked;
  config.attention.family = family;
  config.attention.local.window = 2;
  config.attention.linformer.rank = 3;
  return config;
}

/// Tokens and mask tokens [count].
std::vector<std::int32_t> hidden_inputs(const ModelConfig& config, std::int64_t count) {
  std::vector<std::int32_t> ids = random_tokens(count, config.vocabulary, seed);
  for (std::size_t i = 0; i < ids.size(); i += 3) ids[i] = config.mask_token();
  return ids;
}

/// Loss and gradients against double precision; targets at padding are left out.
void expect_matches(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                    const std::vector<std::int64_t>& key_lengths = {}) {
  SCOPED_TRACE(testing::Message() << name_of(config.objective) << ", " << describe(config) << ", sharing "
                                  << static_cast<int>(config.attention.linformer.sharing) << ", key lengths "
                                  << testing::PrintToString(key_lengths));
  Network network(config);
  const Tensor values = random_values(network.table(), seed);
  network.pack(any_context(), values.span<float>(), true);
  const auto ids =
      config.masked() ? hidden_inputs(config, batch * length) : random_inputs(config, batch, length, seed);
  auto targets = random_tokens(batch * length, config.vocabulary, seed + 1);
  for (std::size_t b = 0; b < key_lengths.size(); ++b)
    std::fill(targets.begin() + static_cast<std::int64_t>(b) * length + key_lengths[b],
              targets.begin() + static_cast<std::int64_t>(b + 1) * length, -1);
  TrainingTransformer transformer(network, batch, length);
  Tensor gradients = Tensor::of<float>({network.table().size()});
  const double loss =
      transformer.forward(any_context(), ids, targets, batch, length, 0.125f, {}, key_lengths);
  transformer.backward(any_context(), gradients.span<float>());
  const Loss expected = [&](const reference::Parameters& p) {
    return reference::loss(config, p, ids, targets, length, {}, key_lengths);
  };
  const reference::Parameters at = by_name(network.table(), values.span<float>());
  EXPECT_NEAR(loss, expected(at), 1e-6 * expected(at));
  expect_gradients(by_name(network.table(), gradients.span<float>(), 1 / 0.125), differences(expected, at),
                   tolerance);
  EXPECT_NEAR(Transformer(network).loss(any_context(), ids, targets, batch, length, {}, key_lengths), loss,
              1e-5 * loss);
}

TEST(Encoder, GradientsMatchReference) {
  for (const Family family : {Family::linear, Family::softmax, Family::local, Family::linformer, Family::lsh})
    for (const NormOrder norm : {NormOrder::pre, NormOrder::post}) {
      ModelConfig config = encoder(family);
      config.norm = norm;
      config.tied_output = norm == NormOrder::post;
      expect_matches(config, 2, 5);
      expect_matches(config, 3, 6, {4, 6, 1});
    }
}

TEST(Encoder, LinformerGradientsMatchReferenceHoweverItsProjectionsAreShared) {
  for (const ProjectionSharing sharing : {ProjectionSharing::none, ProjectionSharing::headwise,
                                          ProjectionSharing::key_value, ProjectionSharing::layerwise}) {
    ModelConfig config = encoder(Family::linformer);
    config.attention.linformer.sharing = sharing;
    expect_matches(config, 2, 5, {5, 3});
  }
}

TEST(Encoder, GradientsMatchReferenceWithOtherBlocksInEveryLayer) {
  ModelConfig config =
      with_other_blocks(encoder(Family::linear), "linear,lsh,linformer,softmax,linformer,local");
  for (const ProjectionSharing sharing : {ProjectionSharing::none, ProjectionSharing::layerwise}) {
    config.attention.linformer.sharing = sharing;  // with that of the first linformer layer, the third
    expect_matches(config, 2, 5, {5, 3});
  }
}

TEST(Lsh, GradientsOfADecoderMatchReference) {
  ModelConfig config = tiny_config();
  config.attention.family = Family::lsh;
  expect_matches(config, 2, 5);
  expect_matches(config, 2, 6, {6, 2});
}

/// Hidden rows of the ids, [length, width].
std::vector<float> hidden_rows(const Model& model, const std::vector<std::int32_t>& ids) {
  Transformer transformer(network_of(model));
  const View<const float> hidden =
      transformer.forward(any_context(), ids, 1, static_cast<std::int64_t>(ids.size()));
  return {hidden.data(), hidden.data() + hidden.size()};
}

std::vector<ModelConfig> encoders(std::int64_t length) {
  std::vector<ModelConfig> result;
  for (const Family family :
       {Family::linear, Family::softmax, Family::kernel, Family::local, Family::linformer, Family::lsh}) {
    ModelConfig config = small_config();
    config.objective = Objective::masked;
    config.attention.family = family;
    config.length = length;
    config.attention.linformer.rank = 16;
    config.attention.lsh.chunk = 16;
    config.attention.lsh.rounds = 4;
    config.attention.local.window = 40;
    result.push_back(config);
  }
  return result;
}

TEST(Encoder, PaddingChangesNothing) {
  const std::int64_t length = 131;
  for (const ModelConfig& config : encoders(length)) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    for (const std::int64_t tokens : {1, 31, 64, 65, 130}) {
      auto ids = hidden_inputs(config, 2 * length);
      const std::vector<std::int32_t> alone(ids.begin() + length, ids.begin() + length + tokens);
      const std::int64_t key_lengths[] = {length, tokens};
      Transformer transformer(network_of(*model));
      std::vector<float> before;
      for (const std::int32_t padding : {0, 3}) {
        std::fill(ids.begin() + length + tokens, ids.end(), padding);
        const View<const float> hidden =
            transformer.forward(any_context(), ids, 2, length, 0, nullptr, nullptr, key_lengths);
        const std::vector<float> rows(hidden.at(1), hidden.at(1) + tokens * config.width);
        EXPECT_LT(relative_error(rows, hidden_rows(*model, alone)), 1e-5) << tokens << " tokens";
        if (padding != 0) {
          EXPECT_TRUE(same_bits(rows, before)) << tokens << " tokens";
        }
        before = rows;
      }
    }
  }
}

TEST(Encoder, EarlyRowsDependOnLateTokens) {
  const std::int64_t length = 20;
  for (ModelConfig config : encoders(length)) {
    SCOPED_TRACE(describe(config));
    auto ids = random_tokens(length, config.vocabulary, seed);
    const auto model = random_model(config, seed);
    const std::vector<float> before = hidden_rows(*model, ids);
    ids.back() = config.mask_token();
    const std::vector<float> after = hidden_rows(*model, ids);
    EXPECT_FALSE(same_bits(std::span(before).first(config.width), std::span(after).first(config.width)));
    if (config.attention.family == Family::linformer) continue;  // refuses to be a decoder
    config.objective = Objective::next_token;
    const auto decoder = make_model(config, values_of(*model));
    ids.back() = 0;
    const std::vector<float> first = hidden_rows(*decoder, ids);
    ids.back() = 1;
    const std::vector<float> second = hidden_rows(*decoder, ids);
    if (config.attention.family == Family::lsh)
      continue;  // buckets of later tokens move the chunks of earlier ones
    EXPECT_TRUE(same_bits(std::span(first).first((length - 1) * config.width),
                          std::span(second).first((length - 1) * config.width)));
  }
}

TEST(Encoder, WindowsReachAsFarToEitherSide) {
  ModelConfig config = encoder(Family::local);
  config.layers = 1;
  config.length = 12;
  const auto model = random_model(config, seed);
  auto ids = random_tokens(12, config.vocabulary, seed);
  const std::vector<float> before = hidden_rows(*model, ids);
  ids[6] = config.mask_token();
  const std::vector<float> after = hidden_rows(*model, ids);
  for (std::int64_t i = 0; i < 12; ++i)
    EXPECT_EQ(same_bits(std::span(before).subspan(static_cast<std::size_t>(i * config.width), config.width),
                        std::span(after).subspan(static_cast<std::size_t>(i * config.width), config.width)),
              i < 4 || i > 8)
        << i;
}

TEST(Lsh, ModelsHaveNoRecurrentFormAndKeepTheirHashes) {
  ModelConfig config = tiny_config();
  config.attention.family = Family::lsh;
  const auto model = random_model(config, seed);
  EXPECT_THROW(RecurrentState(network_of(*model), 1), Error);
  config.attention.seed = 1;
  config.attention.lsh.chunk = 2;
  config.length = 40;
  const auto ids = random_inputs(config, 1, 40, seed);
  const auto first = random_model(config, seed), again = random_model(config, seed);
  EXPECT_TRUE(same_bits(hidden_rows(*first, ids), hidden_rows(*again, ids)));
  config.attention.seed = 2;
  EXPECT_FALSE(same_bits(hidden_rows(*first, ids), hidden_rows(*random_model(config, seed), ids)));
}

}  // namespace
}  // namespace linnet
