#include "model/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "attention/family.h"
#include "linnet/error.h"
#include "linnet/model.h"
#include "model/cost.h"
#include "model/transformer.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/models.h"

namespace linnet {
namespace {

struct Bad {
  const char* key;
  std::function<void(ModelConfig&)> damage;
};

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

TEST(ModelConfig, RefusesWhatIsNoModelNamingTheKey) {
  const std::vector<Bad> all = {
      {"model.heads", [](auto& c) { c.heads = 4; }},  // does not divide the width of 6
      {"model.heads", [](auto& c) { c.heads = 0; }},
      {"model.heads", [](auto& c) { c.heads = -2; }},
      {"model.layers", [](auto& c) { c.layers = 0; }},
      {"model.layers", [](auto& c) { c.layers = -1; }},
      {"model.layers", [](auto& c) { c.layers = huge; }},
      {"model.width", [](auto& c) { c.width = 0; }},
      {"model.width", [](auto& c) { c.width = -6; }},
      {"model.width", [](auto& c) { c.width = std::int64_t{1} << 62; }},
      {"model.feed_forward", [](auto& c) { c.feed_forward = 0; }},
      {"model.feed_forward", [](auto& c) { c.feed_forward = huge; }},
      {"model.length", [](auto& c) { c.length = 0; }},
      {"model.length", [](auto& c) { c.length = least; }},
      {"model.length", [](auto& c) { c.length = huge; }},
      {"model.vocabulary", [](auto& c) { c.vocabulary = 1; }},
      {"model.vocabulary", [](auto& c) { c.vocabulary = huge; }},
      {"model.classes", [](auto& c) { c.classes = -1; }},
      {"model.classes", [](auto& c) { c.classes = huge; }},
      {"model.mixtures", [](auto& c) { c.mixtures = 0; }},
      {"model.mixtures", [](auto& c) { c.mixtures = huge; }},
      {"model.norm", [](auto& c) { c.norm = static_cast<NormOrder>(99); }},
      {"model.norm_kind", [](auto& c) { c.norm_kind = static_cast<NormKind>(99); }},
      {"model.activation", [](auto& c) { c.activation = Activation::none; }},
      {"model.positions", [](auto& c) { c.positions = Positions::rotary; }},                // heads of 3
      {"attention.layers", [](auto& c) { c.attention.layers = "linear,softmax,linear"; }},  // of 2 layers
      {"attention.layers", [](auto& c) { c.attention.layers = "linear*4"; }},
      {"attention.layers", [](auto& c) { c.attention.layers = "linear,"; }},
      {"attention.layers", [](auto& c) { c.attention.layers = "linear*0"; }},
      {"attention.layers", [](auto& c) { c.attention.layers = "linear*2*3"; }},
      {"attention.layers", [](auto& c) { c.attention.layers = "linear*99999999999999999999"; }},
      {"attention.decay",
       [](auto& c) { c.attention.layers = "softmax,local", c.attention.linear.decay = Decay::fixed; }},
      {"model.positions", [](auto& c) { c.positions = static_cast<Positions>(-1); }},
      {"model.head", [](auto& c) { c.head = static_cast<OutputDistribution>(99); }},
      {"model.dropout", [](auto& c) { c.dropout = 1; }},
      {"model.dropout", [](auto& c) { c.dropout = -0.1; }},
      {"model.dropout", [](auto& c) { c.dropout = std::nan(""); }},
      {"model.tied_output", [](auto& c) { c.tied_output = true, c.head = OutputDistribution::logistics; }},
      {"attention.alpha", [](auto& c) { c.attention.linear.alpha = 0; }},
      {"attention.alpha", [](auto& c) { c.attention.linear.alpha = 1.5; }},
      {"attention.epsilon", [](auto& c) { c.attention.epsilon = -1e-6; }},
      {"attention.epsilon", [](auto& c) { c.attention.epsilon = std::nan(""); }},
      {"attention.buckets", [](auto& c) { c.attention.family = Family::lsh, c.attention.lsh.buckets = 3; }},
      {"attention.buckets", [](auto& c) { c.attention.lsh.buckets = -2; }},
      {"attention.chunk", [](auto& c) { c.attention.lsh.chunk = 0; }},
      {"attention.rounds", [](auto& c) { c.attention.lsh.rounds = 0; }},
      {"attention.rounds", [](auto& c) { c.attention.lsh.rounds = 65; }},
      {"attention.normalise", [](auto& c) { c.attention.normalise = static_cast<Normalise>(7); }},
      {"image.height", [](auto& c) { c.image_height = 2; }},                    // without a width
      {"image.width", [](auto& c) { c.image_height = 2, c.image_width = 4; }},  // 8 pixels for 6 tokens
      {"image.height", [](auto& c) { c.image_height = c.image_width = huge; }},
      {"image.channels", [](auto& c) { c.image_channels = 0; }},
      {"image.channels", [](auto& c) { c.image_height = 3, c.image_width = 1, c.image_channels = 2; }},
      {"image.channels", [](auto& c) { c.image_height = 2, c.image_width = 3, c.image_channels = 3; }},
  };
  for (const Bad& bad : all) {
    ModelConfig config = tiny_config();
    ASSERT_NO_THROW(config.check());
    bad.damage(config);
    const std::string message = error_of<UsageError>([&] { config.check(); });
    EXPECT_NE(message.find(bad.key), std::string::npos) << message << ", which does not name " << bad.key;
    EXPECT_THROW(Model::random(config), UsageError) << bad.key;
  }
}

TEST(ModelConfig, OfMoreNumbersThanAnyMemoryHoldsIsAnError) {
  // Each value is in its range, but the projections of all layers together have more than 2^64 numbers.
  ModelConfig config = tiny_config();
  config.objective = Objective::masked;
  config.layers = 1000;
  config.heads = config.width = 1024;
  config.length = std::int64_t{1} << 32;
  config.positions = Positions::none;
  config.attention.family = Family::linformer;
  config.attention.linformer.rank = 1 << 16;
  ASSERT_NO_THROW(config.check());
  EXPECT_NE(error_of([&] { Model::random(config); }).find("fewer than 2^63 bytes"), std::string::npos);
}

TEST(ModelConfig, NamesTheNearestFamilyAndFeatureMap) {
  ModelConfig config = tiny_config();
  Options options;
  add_options(options, config);
  EXPECT_NE(error_of<UsageError>([&] { options.set("attention.family", "liner"); }).find("\"linear\""),
            std::string::npos);
  config = tiny_config();
  config.attention.linear.feature_map = "squared-rel";
  EXPECT_NE(error_of<UsageError>([&] { Model::random(config); }).find("squared-relu"), std::string::npos);
}

TEST(ModelConfig, NamesTheNearestFamilyOfALayerAndTheValuesOfTheBlocks) {
  ModelConfig config = tiny_config();
  config.attention.layers = "linear,sofmax";
  EXPECT_NE(error_of<UsageError>([&] { config.check(); }).find("did you mean softmax?"), std::string::npos);
  Options options;
  add_options(options, config);
  const auto message = [&](const char* key, const char* value) {
    return error_of<UsageError>([&] { options.set(key, value); });
  };
  EXPECT_NE(message("model.activation", "swigul").find("\"swiglu\""), std::string::npos);
  EXPECT_NE(message("model.positions", "rotery").find("\"rotary\""), std::string::npos);
  EXPECT_NE(message("model.norm_kind", "rsm").find("\"rms\""), std::string::npos);
}

TEST(ModelConfig, AListOfFamiliesRepeatsOverTheLayers) {
  AttentionConfig config;
  using enum Family;
  const auto families = [&](const char* list, std::int64_t layers) {
    config.layers = list;
    return layer_families(config, layers);
  };
  EXPECT_EQ(families("", 2), (std::vector{linear, linear}));
  EXPECT_EQ(families("local", 3), (std::vector{local, local, local}));
  EXPECT_EQ(families("linear, linear ,local,linear", 4), (std::vector{linear, linear, local, linear}));
  EXPECT_EQ(families("linear*2,softmax", 6), (std::vector{linear, linear, softmax, linear, linear, softmax}));
  EXPECT_EQ(families("softmax, linear * 3", 4), (std::vector{softmax, linear, linear, linear}));
}

TEST(ModelConfig, RefusesAListWithAFamilyThatCannotServe) {
  ModelConfig config = tiny_config();
  config.attention.linformer.rank = config.length;
  config.attention.layers = "linear,linformer";
  EXPECT_NE(error_of<UsageError>([&] { Model::random(config); }).find("got linformer"), std::string::npos);
  config.objective = Objective::masked;
  EXPECT_NO_THROW(Model::random(config));
  config.attention.layers = "strided,linear";
  EXPECT_NE(error_of<UsageError>([&] { Model::random(config); }).find("got strided"), std::string::npos);
}

TEST(ModelConfig, HasARecurrentFormIfAllLayersHave) {
  ModelConfig config = tiny_config();
  config.attention.layers = "linear,local";
  EXPECT_TRUE(has_recurrent_form(config));
  config.attention.layers = "linear,lsh";
  EXPECT_FALSE(has_recurrent_form(config));
}

TEST(ModelConfig, RefusesFamiliesThatItsLayersCannotServe) {
  ModelConfig config = tiny_config();
  config.attention.family = Family::linformer;
  config.attention.linformer.rank = config.length + 1;
  EXPECT_NE(error_of<UsageError>([&] { config.check(); }).find("attention.rank of at most model.length"),
            std::string::npos);
  config.attention.linformer.rank = config.length;
  const std::string linformer =
      "[model] expected an attention.family for tokens that see earlier ones only, got linformer, whose "
      "projections mix all positions: use linear or softmax, or let tokens see both sides "
      "(model.bidirectional = true with the objectives classify and same-step, or model.objective = "
      "\"masked\")";
  const std::string strided =
      "[model] expected an attention.family for tokens that see both sides, got strided, which sees earlier "
      "tokens only: use local, linear or softmax";
  EXPECT_EQ(error_of<UsageError>([&] { Model::random(config); }), linformer);
  config.objective = Objective::masked;
  EXPECT_NO_THROW(Model::random(config));
  config.attention.family = Family::strided;
  EXPECT_EQ(error_of<UsageError>([&] { Model::random(config); }), strided);

  // A classifier reads its tokens from one side unless it is told otherwise.
  config.objective = Objective::classify;
  config.classes = 2;
  EXPECT_NO_THROW(Model::random(config));
  config.attention.family = Family::linformer;
  EXPECT_EQ(error_of<UsageError>([&] { Model::random(config); }), linformer);
  config.bidirectional = true;
  EXPECT_NO_THROW(Model::random(config));
  config.attention.family = Family::strided;
  EXPECT_EQ(error_of<UsageError>([&] { Model::random(config); }), strided);
  config.attention.family = Family::linear;
  config.attention.linear.decay = Decay::fixed;
  EXPECT_EQ(error_of<UsageError>([&] { Model::random(config); }),
            "[model] expected attention.decay = \"none\" for tokens that see both sides, since a decay needs "
            "a causal mask, got \"fixed\"");
}

TEST(ModelConfig, RandomMapsTakeADecay) {
  ModelConfig config = tiny_config();
  config.attention.linear.decay = Decay::learned;
  for (const FeatureMapInfo& map : random_feature_map_table()) {
    config.attention.linear.feature_map = map.name;
    EXPECT_NO_THROW(config.check()) << map.name;
  }
}

TEST(ModelConfig, RefusesEncodersThatCannotBe) {
  ModelConfig config = tiny_config();
  config.objective = Objective::masked;
  EXPECT_NO_THROW(config.check());
  config.attention.linear.decay = Decay::fixed;
  EXPECT_NE(error_of<UsageError>([&] { config.check(); }).find("attention.decay = \"none\""),
            std::string::npos);
  config.attention.linear.decay = Decay::none;
  config.classes = 3;
  EXPECT_NE(error_of<UsageError>([&] { config.check(); }).find("model.classes = 0"), std::string::npos);
  config.objective = static_cast<Objective>(99);
  EXPECT_NE(error_of<UsageError>([&] { config.check(); }).find("model.objective"), std::string::npos);
}

TEST(ModelConfig, AnEncoderDoesNotGenerate) {
  ModelConfig config = tiny_config();
  EXPECT_NO_THROW(config.check_generates());
  config.objective = Objective::masked;
  const std::string sentence =
      "[generate] expected a model that predicts the next token, got an encoder (model.objective = "
      "\"masked\"), which fills in masked tokens and does not generate";
  EXPECT_EQ(error_of<UsageError>([&] { config.check_generates(); }), sentence);
  const Network network(config);
  EXPECT_EQ(error_of<UsageError>([&] { RecurrentTransformer{network}; }), sentence);
  EXPECT_EQ(error_of<UsageError>([&] { RecurrentState(network, 1); }), sentence);
}

TEST(ModelConfig, RefusesHeadsThatAreTooLarge) {
  ModelConfig config = tiny_config();
  config.width = 1025;
  config.heads = 1;
  EXPECT_THROW(config.check(), UsageError);
  config.width = 1024;
  EXPECT_NO_THROW(config.check());
}

TEST(ModelConfig, CountsInputsAndKnowsTheFirst) {
  ModelConfig config = tiny_config();
  EXPECT_EQ(config.input_tokens(), 6);
  EXPECT_EQ(config.first_input(-1), 5);
  EXPECT_THROW(config.first_input(0), Error);
  config.classes = 3;
  EXPECT_EQ(config.input_tokens(), 8);
  EXPECT_EQ(config.first_input(0), 5);
  EXPECT_EQ(config.first_input(2), 7);
  EXPECT_THROW(config.first_input(3), Error);
  EXPECT_THROW(config.first_input(-1), Error);
  EXPECT_THROW(config.first_input(huge), Error);
}

TEST(Model, RandomWeightsDependOnTheSeedAlone) {
  const auto a = Model::random(tiny_config(), 3), b = Model::random(tiny_config(), 3),
             c = Model::random(tiny_config(), 4);
  EXPECT_TRUE(same_bits(values_of(*a).span<float>(), values_of(*b).span<float>()));
  EXPECT_FALSE(same_bits(values_of(*a).span<float>(), values_of(*c).span<float>()));
  const Tensor values = values_of(*a);
  for (const float value : values.span<float>()) EXPECT_TRUE(std::isfinite(value));
}

TEST(Model, CountsItsParameters) {
  const ModelConfig config = tiny_config();
  const auto model = Model::random(config);
  const std::int64_t block = 2 * 2 * 6 + (6 * 18 + 18) + (6 * 6 + 6) + (6 * 7 + 7) + (7 * 6 + 6);
  EXPECT_EQ(model->parameter_count(), 6 * 6 + 6 * 6 + 2 * block + 2 * 6 + (6 * 5 + 5));
  EXPECT_GE(model->weight_bytes(), static_cast<std::size_t>(4 * model->parameter_count()));
}

TEST(Cost, CountsTheWeightsOfTheLayers) {
  for (const Activation activation : {Activation::gelu, Activation::swiglu})
    for (const char* families : {"", "lsh,linear"}) {
      ModelConfig config = tiny_config();
      config.activation = activation;
      config.attention.layers = families;
      std::int64_t weights = 0;
      const Network network(config);
      for (const auto& row : network.table().rows())
        if (row.name.starts_with("layers.") && row.product) weights += row.count;
      EXPECT_EQ(layer_weights(config), static_cast<double>(weights)) << families;
    }
}

TEST(Cost, OfLayersOfSeveralFamiliesIsTheSumOfTheirs) {
  ModelConfig linear = tiny_config(), softmax = linear, both = linear;
  softmax.attention.family = Family::softmax;
  both.attention.layers = "softmax,linear";
  EXPECT_DOUBLE_EQ(2 * generation_cost(both, 100).forward(),
                   generation_cost(linear, 100).forward() + generation_cost(softmax, 100).forward());
  EXPECT_DOUBLE_EQ(2 * training_flops(both), training_flops(linear) + training_flops(softmax));
  EXPECT_NE(generation_cost(linear, 100).forward(), generation_cost(softmax, 100).forward());
}

TEST(Cost, APromptCostsItsStepsWithoutTheHead) {
  ModelConfig config = tiny_config();
  const double length = 30;
  for (const std::int64_t source : {0, 9}) {
    if (source > 0) {
      config.encoder_layers = 1;
      config.source_length = config.source_vocabulary = source;
    }
    for (const Family family : {Family::linear, Family::softmax}) {
      config.attention.family = family;
      const double head = 2 * static_cast<double>(config.width) * static_cast<double>(config.vocabulary);
      EXPECT_DOUBLE_EQ(prompt_flops(config, 30),
                       length * (generation_cost(config, (length + 1) / 2).forward() - head));
    }
  }
}

TEST(Cost, APromptReadsTheWeightsOfTheDecodersLayers) {
  ModelConfig config = tiny_config();
  const std::int64_t block = 2 * 2 * 6 + (6 * 18 + 18) + (6 * 6 + 6) + (6 * 7 + 7) + (7 * 6 + 6);
  EXPECT_EQ(prompt_weight_bytes(Network(config)), static_cast<std::size_t>(2 * block) * sizeof(float));
  config.encoder_layers = 1;
  config.source_length = config.source_vocabulary = 9;
  const std::int64_t cross = 2 * 6 + (6 * 6 + 6) + (6 * 6 + 6);  // norm, queries and outputs
  EXPECT_EQ(prompt_weight_bytes(Network(config)),
            static_cast<std::size_t>(2 * (block + cross)) * sizeof(float));
}

TEST(Cost, AStepReadsTheWeightsButForTablesOfTheEmbedding) {
  ModelConfig config;
  config.width = 64;
  config.vocabulary = 100;
  config.length = 50;
  config.positions = Positions::learned;
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    config.weights = weights;
    config.tied_output = false;
    const Network untied(config);
    const auto tokens = static_cast<std::size_t>(config.input_tokens() * config.width) * sizeof(float);
    const auto positions = static_cast<std::size_t>(config.length * config.width) * sizeof(float);
    EXPECT_EQ(step_weight_bytes(untied), untied.table().bytes() - tokens - positions);
    config.tied_output = true;
    const Network tied(config);
    EXPECT_EQ(step_weight_bytes(tied), tied.table().bytes() - positions);
  }
  config.encoder_layers = 1;
  config.source_length = config.source_vocabulary = 9;
  const Network with_encoder(config);
  std::size_t encoder = 0;
  for (const auto& row : with_encoder.table().rows())
    if (row.name.starts_with("encoder.")) encoder += with_encoder.table().bytes(row);
  EXPECT_GT(encoder, 0u);
  EXPECT_EQ(step_weight_bytes(with_encoder),
            with_encoder.table().bytes() - encoder - 50 * 64 * sizeof(float));
}

TEST(RecurrentState, OfDifferentLayersIsRestoredInItsParts) {
  const ModelConfig config = with_other_blocks(tiny_config(), "linear,local,softmax");
  const auto model = random_model(config, 5);
  const RecurrentTransformer transformer(network_of(*model));
  RecurrentState state(network_of(*model), 2), other(network_of(*model), 2);
  const std::int64_t slot[] = {1}, another[] = {0};
  const auto step = [&](RecurrentState& of, std::span<const std::int64_t> slots, std::int32_t token) {
    std::vector<float> row(static_cast<std::size_t>(config.vocabulary));
    transformer.step(any_context(), view(row, {1, config.vocabulary}), std::span(&token, 1), slots, of);
    return row;
  };
  for (int i = 0; i < 6; ++i) step(state, slot, i % 5);
  const std::vector<std::byte> bytes = state.save(1);
  EXPECT_EQ(bytes.size(), state.bytes(1));
  other.restore(0, bytes, 6);
  EXPECT_TRUE(other.stands_at(0, 6));
  EXPECT_TRUE(same_bits(step(state, slot, 3), step(other, another, 3)));
  for (const std::size_t size : {std::size_t{0}, bytes.size() - 4, bytes.size() - 1})
    EXPECT_NE(error_of([&] { other.restore(1, std::span(bytes).first(size), 6); }).find("3 layers"),
              std::string::npos);
  EXPECT_NE(error_of([&] { other.restore(1, bytes, 5); }).find("3 layers"), std::string::npos);
}

TEST(Transformer, GivesNoKeysOfALayerWhoseKeysAreItsQueries) {
  ModelConfig config = tiny_config();
  config.attention.layers = "linear,lsh";
  const auto model = random_model(config, 5);
  Transformer transformer(network_of(*model));
  const auto ids = random_inputs(config, 2, 6, 5);
  EXPECT_NO_THROW(transformer.queries_keys_values(any_context(), ids, 2, 6, 0));
  EXPECT_NE(error_of<UsageError>([&] {
              transformer.queries_keys_values(any_context(), ids, 2, 6, 1);
            }).find("family lsh"),
            std::string::npos);
}

TEST(Model, RefusesABufferOfAnotherSize) {
  EXPECT_THROW(make_model(tiny_config(), Tensor::of<float>({3})), Error);
  EXPECT_THROW(make_model(tiny_config(), Tensor()), Error);
}

}  // namespace
}  // namespace linnet
