#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/random.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/feature_maps.h"
#include "support/folder.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 81;

/// A saved model's folder, and ways to damage it.
class ModelFiles : public testing::Test {
 protected:
  ModelFiles() {
    config_ = tiny_config();
    config_.classes = 3;
    config_.attention.linear.alpha = 0.3;
    config_.dropout = 0.1;
    config_.norm = NormOrder::post;
    model_ = random_model(config_, seed);
    model_->save(path());
  }

  std::filesystem::path path() const { return folder_.path(); }
  std::filesystem::path config_path() const { return path() / "config.json"; }
  std::filesystem::path weights_path() const { return path() / "model.safetensors"; }

  /// Loading fails with a sentence that contains `part`; afterwards both files are as they were before.
  void expect_refused(const std::string& part) {
    const std::string message = error_of([&] { Model::load(path()); });
    EXPECT_NE(message.find(part), std::string::npos) << message << ", which does not name " << part;
    model_->save(path());
  }

  /// Writes the weights again, after `change` has had its way with the list.
  void rewrite_weights(const std::function<void(std::vector<NamedTensor>&)>& change) {
    std::vector<NamedTensor> tensors;
    const Tensor values = values_of(*model_);
    for (const auto& row : network_of(*model_).table().rows())
      tensors.push_back({row.name, DType::f32, row.place.shape(), row.place.of(values.span<float>()).data()});
    change(tensors);
    write_safetensors(weights_path(), tensors, {{"format", "linnet"}});
  }

  void rewrite_config(const std::function<void(Json&)>& change) {
    Json json = read_json(config_path());
    change(json);
    write_json(config_path(), json);
  }

  Folder folder_;
  ModelConfig config_;
  std::shared_ptr<const Model> model_;
};

TEST_F(ModelFiles, NamesOfLabelsAndTheTokenizerStayWithTheModel) {
  const ModelAssets assets{{"a", "b, \"c\"", "ä"}, std::string("\0bytes\xff", 7)};
  const auto named = make_model(config_, values_of(*model_), nullptr, assets);
  named->save(path());
  const auto loaded = Model::load(path());
  EXPECT_EQ(loaded->assets().class_names, assets.class_names);
  EXPECT_EQ(loaded->assets().tokenizer, assets.tokenizer);
  model_->save(path());  // without assets: their files go
  EXPECT_TRUE(Model::load(path())->assets().class_names.empty());
  EXPECT_TRUE(Model::load(path())->assets().tokenizer.empty());
  for (const char* damaged : {"{}", "[]", "[\"a\", \"b\"]", "[1, 2, 3]", "\"abc\""}) {
    named->save(path());
    write_file_atomically(path() / "labels.json", damaged);
    expect_refused("names of 3 labels");
  }
  named->save(path());
  write_file_atomically(path() / "labels.json", "[\"a\",");
  expect_refused("labels.json");
  named->save(path());
  write_file_atomically(path() / "tokenizer.model", "");
  expect_refused("tokenizer.model");
  EXPECT_THROW(make_model(config_, values_of(*model_), nullptr, {{"a"}, ""}), UsageError);
}

TEST_F(ModelFiles, RoundTripKeepsEveryBit) {
  const auto loaded = Model::load(path());
  EXPECT_TRUE(same_bits(values_of(*loaded).span<float>(), values_of(*model_).span<float>()));
  Folder second("second");
  loaded->save(second.path());
  for (const char* name : {"config.json", "model.safetensors"})
    EXPECT_EQ(read_file(path() / name), read_file(second.path() / name)) << name;
  EXPECT_EQ(loaded->config().attention.linear.alpha, 0.3);
  EXPECT_EQ(loaded->config().norm, NormOrder::post);
  EXPECT_EQ(loaded->config().classes, 3);
}

TEST_F(ModelFiles, KeepEveryValueOfTheConfiguration) {
  ModelConfig config = tiny_config();
  config.positions = Positions::sinusoidal;
  config.head = OutputDistribution::logistics;
  config.mixtures = 4;
  config.activation = Activation::gelu_tanh;
  config.attention.family = Family::softmax;
  config.attention.linear.feature_map = "exp";
  config.attention.epsilon = 3e-5;
  config.attention.normalise = Normalise::none;
  config.image_height = 2;
  config.image_width = 1;
  config.image_channels = 3;
  Folder second("second");
  random_model(config, seed)->save(second.path());
  const ModelConfig loaded = Model::load(second.path())->config();
  EXPECT_EQ(loaded.layers, config.layers);
  EXPECT_EQ(loaded.heads, config.heads);
  EXPECT_EQ(loaded.width, config.width);
  EXPECT_EQ(loaded.feed_forward, config.feed_forward);
  EXPECT_EQ(loaded.length, config.length);
  EXPECT_EQ(loaded.vocabulary, config.vocabulary);
  EXPECT_EQ(loaded.tied_output, config.tied_output);
  EXPECT_EQ(loaded.positions, Positions::sinusoidal);
  EXPECT_EQ(loaded.head, OutputDistribution::logistics);
  EXPECT_EQ(loaded.mixtures, 4);
  EXPECT_EQ(loaded.activation, Activation::gelu_tanh);
  EXPECT_EQ(loaded.attention.family, Family::softmax);
  EXPECT_EQ(loaded.attention.linear.feature_map, "exp");
  EXPECT_EQ(loaded.attention.epsilon, 3e-5);
  EXPECT_EQ(loaded.attention.normalise, Normalise::none);
  EXPECT_EQ(loaded.image_height, 2);
  EXPECT_EQ(loaded.image_width, 1);
  EXPECT_EQ(loaded.image_channels, 3);
}

TEST_F(ModelFiles, KeepTheBlocksOfEveryLayerAndNarrowTheirWeights) {
  const ModelConfig config = with_other_blocks(tiny_config(), "linear,local");
  const auto model = random_model(config, seed);
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    SCOPED_TRACE(name_of(weights));
    Folder second("second"), third("third");
    model->save(second.path());
    const std::string settings[] = {std::string("model.weights=") + name_of(weights)};
    Model::load(second.path(), settings)->save(third.path());
    const auto loaded = Model::load(third.path());
    EXPECT_EQ(loaded->config().norm_kind, NormKind::rms);
    EXPECT_EQ(loaded->config().activation, Activation::swiglu);
    EXPECT_EQ(loaded->config().positions, Positions::rotary);
    EXPECT_EQ(loaded->config().attention.layers, "linear,local");
    const Safetensors file = Safetensors::read(third.path() / "model.safetensors");
    EXPECT_TRUE(file.contains("layers.0.norm1.weight"));
    EXPECT_FALSE(file.contains("layers.0.norm1.bias"));
    ASSERT_TRUE(file.contains("layers.1.feed_forward.gate.weight"));
    EXPECT_EQ(file.dtype("layers.1.feed_forward.gate.weight"), weights == WeightType::f32    ? DType::f32
                                                               : weights == WeightType::bf16 ? DType::bf16
                                                                                             : DType::i8);
    const auto ids = random_inputs(config, 1, 6, seed);
    const Tensor before = model->forward(any_context(), ids, 1, 6),
                 after = loaded->forward(any_context(), ids, 1, 6);
    const double tolerance = weights == WeightType::f32 ? 1e-7 : weights == WeightType::bf16 ? 0.03 : 0.05;
    EXPECT_LT(relative_error(after.span<float>(), in_double(before.span<float>())), tolerance);
  }
}

TEST_F(ModelFiles, OfEarlierProgramsLackTheNewerKeys) {
  rewrite_config([](Json& json) {
    json["model"].erase("norm_kind");
    json["attention"].erase("layers");
  });
  const ModelConfig loaded = Model::load(path())->config();
  EXPECT_EQ(loaded.norm_kind, NormKind::layer);
  EXPECT_EQ(loaded.attention.layers, "");
}

TEST_F(ModelFiles, AreTensorsByNameForAnyReader) {
  const Safetensors file = Safetensors::read(weights_path());
  EXPECT_EQ(file.names().size(), network_of(*model_).table().rows().size());
  const reference::Parameters expected = by_name(*model_);
  for (const auto& row : network_of(*model_).table().rows()) {
    ASSERT_TRUE(file.contains(row.name)) << row.name;
    EXPECT_EQ(file.shape(row.name), row.place.shape()) << row.name;
    ASSERT_EQ(file.dtype(row.name), DType::f32) << row.name;
    EXPECT_EQ(in_double(file.tensor(row.name).span<float>()), expected.at(row.name)) << row.name;
  }
}

TEST_F(ModelFiles, MissingOrTruncatedOnesAreErrorsThatNameThem) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    const std::string bytes = read_file(path() / name);
    std::filesystem::remove(path() / name);
    expect_refused(name);
    for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9},
                             bytes.size() / 3, bytes.size() / 2, bytes.size() - 3}) {
      SCOPED_TRACE(testing::Message() << size << " of " << bytes.size() << " bytes of " << name);
      write_file_atomically(path() / name, std::string_view(bytes).substr(0, size));
      expect_refused(name);
    }
  }
  error_of([&] { Model::load(path() / "nowhere"); });
}

TEST_F(ModelFiles, ShapesAreComparedBeforeRandomFeaturesAreDrawn) {
  // Drawing these features takes minutes.
  const std::string settings[] = {"model.width=1024", "model.heads=1", "attention.feature_map=favor",
                                  "attention.features=65536"};
  const auto start = std::chrono::steady_clock::now();
  const std::string message = error_of([&] { Model::load(path(), settings); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_NE(message.find("embedding.weight"), std::string::npos) << message;
}

TEST_F(ModelFiles, AnyByteChangedIsAnErrorOrAModel) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    const std::string bytes = read_file(path() / name);
    for (std::size_t at = 0; at < std::min<std::size_t>(bytes.size(), 900); at += 3)
      for (const char byte : {'\0', '9', '\xff'}) {
        std::string damaged = bytes;
        damaged[at] = byte;
        std::ofstream(path() / name, std::ios::binary) << damaged;
        try {
          Model::load(path());
        } catch (const Error&) {
        }
      }
    write_file_atomically(path() / name, bytes);
  }
  EXPECT_NO_THROW(Model::load(path()));
}

TEST_F(ModelFiles, AFlippedBitAmongTheWeightsIsAnErrorThatNamesTheTensor) {
  const std::string good = read_file(weights_path());
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof header);
  const Json entries = parse_json(good.substr(8, header), "header");
  const Random random(seed, Draw::test, 0);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto draw = random.block(i);
    const std::uint64_t at = draw[0] % (good.size() - 8 - header);  // of the elements
    std::string name;
    for (const auto& [key, entry] : entries.items())
      if (key != "__metadata__" && entry["data_offsets"][0] <= at && at < entry["data_offsets"][1])
        name = key;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", draw " << i << ", " << name);
    std::string damaged = good;
    damaged[8 + header + at] ^= static_cast<char>(1 << draw[1] % 8);
    std::ofstream(weights_path(), std::ios::binary) << damaged;
    const std::string message = error_of([&] { Model::load(path()); });
    EXPECT_NE(message.find("\"" + name + "\""), std::string::npos) << message;
    EXPECT_NE(message.find(weights_path().string()), std::string::npos) << message;
  }
}

TEST_F(ModelFiles, AFlippedBitInTheHeaderOfTheWeightsIsAnErrorThatNamesTheFile) {
  const std::string good = read_file(weights_path());
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof header);
  const Random random(seed, Draw::test, 1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto draw = random.block(i);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", draw " << i);
    std::string damaged = good;
    damaged[draw[0] % (8 + header)] ^= static_cast<char>(1 << draw[1] % 8);
    std::ofstream(weights_path(), std::ios::binary) << damaged;
    const std::string message = error_of([&] { Model::load(path()); });
    EXPECT_NE(message.find(weights_path().string()), std::string::npos) << message;
  }
}

TEST_F(ModelFiles, WeightsWithoutDigestsLoad) {
  // As programs without Linnet's digests write them: the header again, less its metadata.
  std::string bytes = read_file(weights_path());
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  Json entries = parse_json(bytes.substr(8, header), "header");
  entries.erase("__metadata__");
  const std::string text = entries.dump(), elements = bytes.substr(8 + header);
  const std::uint64_t size = text.size();
  bytes = std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + elements;
  write_file_atomically(weights_path(), bytes);
  EXPECT_TRUE(same_bits(values_of(*Model::load(path())).span<float>(), values_of(*model_).span<float>()));
}

TEST_F(ModelFiles, WeightsThatAreNotFiniteAreRefused) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, infinity, -infinity}) {
    for (const std::string name : {"embedding.weight", "layers.1.feed_forward.first.weight", "head.bias"}) {
      std::vector<float> values;
      rewrite_weights([&](auto& tensors) {
        NamedTensor& tensor = *std::ranges::find(tensors, name, &NamedTensor::name);
        const auto* from = static_cast<const float*>(tensor.data);
        values.assign(from, from + checked_size(tensor.shape));
        values[values.size() / 2] = bad;
        tensor.data = values.data();
      });
      expect_refused(name);
    }
  }
}

TEST_F(ModelFiles, DeviationsOfColumnsAreAboveZero) {
  config_ = tiny_config();
  config_.vocabulary = 0;
  config_.columns = 3;
  model_ = Model::random(config_, seed);
  model_->save(path());
  for (const float bad : {0.0f, -1.0f}) {
    for (const std::string name : {"columns.deviation", "columns.target_deviation"}) {
      const std::vector<float> values = {1, 1, bad};
      rewrite_weights(
          [&](auto& tensors) { std::ranges::find(tensors, name, &NamedTensor::name)->data = values.data(); });
      expect_refused("expected positive numbers in " + name);
    }
  }
}

TEST_F(ModelFiles, NarrowWeightsThatAreNotFiniteAreRefused) {
  const std::string name = "layers.0.feed_forward.first.weight";
  const std::vector<bf16> halves(42, to_bf16(std::numeric_limits<float>::infinity()));
  rewrite_weights([&](auto& tensors) {
    NamedTensor& tensor = *std::ranges::find(tensors, name, &NamedTensor::name);
    tensor.dtype = DType::bf16;
    tensor.data = halves.data();
  });
  expect_refused(name);
  const std::vector<std::int8_t> codes(42, 1);
  const std::vector<float> scales(7, std::numeric_limits<float>::quiet_NaN());
  rewrite_weights([&](auto& tensors) {
    NamedTensor& tensor = *std::ranges::find(tensors, name, &NamedTensor::name);
    tensor.dtype = DType::i8;
    tensor.data = codes.data();
    tensors.push_back({name + "_scale", DType::f32, {7}, scales.data()});
  });
  expect_refused(name + "_scale");
}

TEST_F(ModelFiles, ScalesBelongToCodesAlone) {
  const std::string name = "layers.0.feed_forward.first.weight_scale";
  const std::vector<float> scales(7, 1.0f);
  rewrite_weights([&](auto& tensors) { tensors.push_back({name, DType::f32, {7}, scales.data()}); });
  expect_refused(name);
}

TEST_F(ModelFiles, WeightsMustBeTheModels) {
  const std::string name = "layers.1.feed_forward.first.weight";
  const auto find = [&](std::vector<NamedTensor>& tensors) {
    return std::ranges::find(tensors, name, &NamedTensor::name);
  };
  rewrite_weights([&](auto& tensors) { tensors.erase(find(tensors)); });
  expect_refused(name);
  rewrite_weights([&](auto& tensors) { std::swap(find(tensors)->shape[0], find(tensors)->shape[1]); });
  expect_refused(name);
  rewrite_weights([&](auto& tensors) { find(tensors)->shape = {42}; });
  expect_refused(name);
  rewrite_weights([&](auto& tensors) { find(tensors)->dtype = DType::i32; });
  expect_refused(name);
  const float extra = 1;
  rewrite_weights([&](auto& tensors) {
    tensors.push_back({"layers.2.norm1.bias", DType::f32, {1}, &extra});
  });
  expect_refused("layers.2.norm1.bias");
}

TEST_F(ModelFiles, ConfigurationMustBeOneThatWeKnow) {
  const auto change = [&](const char* part, const std::function<void(Json&)>& how) {
    rewrite_config(how);
    expect_refused(part);
  };
  change("format", [](Json& json) { json["format"] = 2; });
  change("format", [](Json& json) { json.erase("format"); });
  change("config.json", [](Json& json) { json["model_type"] = "gpt2"; });
  change("config.json", [](Json& json) { json = Json::array(); });
  change("config.json", [](Json& json) { json = 3; });
  change("widht", [](Json& json) { json["model"]["widht"] = 6; });
  change("model.width", [](Json& json) { json["model"]["width"] = "6"; });
  change("model.width", [](Json& json) { json["model"]["width"] = -6; });
  change("model.width", [](Json& json) { json["model"]["width"] = 6.5; });
  change("model.width", [](Json& json) { json["model"]["width"] = 1e300; });
  change("model.heads", [](Json& json) { json["model"]["heads"] = 4; });
  change("model", [](Json& json) { json["model"] = 1; });
  change("model.norm", [](Json& json) { json["model"]["norm"] = nullptr; });
}

TEST_F(ModelFiles, SettingsReplaceValuesWhereTheWeightsFit) {
  const std::string settings[] = {"attention.family=softmax"};
  const auto model = Model::load(path(), settings);
  ModelConfig config = config_;
  config.attention.family = Family::softmax;
  const auto ids = random_inputs(config, 1, 6, seed);
  Transformer transformer(network_of(*model));
  const std::vector<std::int32_t> targets = random_tokens(6, 5, seed);
  EXPECT_NEAR(transformer.loss(any_context(), ids, targets, 1, 6),
              reference::loss(config, by_name(*model_), ids, targets, 6), 1e-4);
  EXPECT_GT(std::abs(reference::loss(config, by_name(*model_), ids, targets, 6) -
                     reference::loss(config_, by_name(*model_), ids, targets, 6)),
            1e-3);

  const auto refused = [&](const std::string& setting, const std::string& part) {
    const std::string all[] = {setting};
    const std::string message = error_of([&] { Model::load(path(), all); });
    EXPECT_NE(message.find(part), std::string::npos) << message << ", which does not name " << part;
  };
  refused("model.width=12", "embedding.weight");
  refused("model.width=5", "model.heads");
  refused("model.layers=3", "layers.2");
  refused("model.layers=1", "layers.1");
  refused("attention.famly=softmax", "attention.family");
  refused("attention.family", "attention.family");
  refused("attention.family=softmaxx", "softmax");
  refused("model.heads=0", "model.heads");
}

TEST_F(ModelFiles, FindAFeatureMapOfTheUsersByItsName) {
  rewrite_config([](Json& json) { json["attention"]["feature_map"] = "doubled-relu"; });
  const auto model = Model::load(path(), {}, std::make_shared<DoubledRelu>());
  ModelConfig relu = config_;
  relu.attention.linear.feature_map = "relu";
  relu.attention.epsilon = 1e-6 / 4;  // all weights are four times relu's
  const auto ids = random_inputs(relu, 1, 6, seed);
  const std::vector<std::int32_t> targets = random_tokens(6, 5, seed);
  Transformer transformer(network_of(*model));
  EXPECT_NEAR(transformer.loss(any_context(), ids, targets, 1, 6),
              reference::loss(relu, by_name(*model_), ids, targets, 6), 1e-4);

  Folder second("second");
  model->save(second.path());
  EXPECT_EQ(
      Model::load(second.path(), {}, std::make_shared<DoubledRelu>())->config().attention.linear.feature_map,
      "doubled-relu");
  error_of([&] { Model::load(path()); });
  rewrite_config([](Json& json) { json["attention"]["feature_map"] = "trebled-relu"; });
  EXPECT_NE(error_of([&] { Model::load(path(), {}, std::make_shared<DoubledRelu>()); }).find("trebled-relu"),
            std::string::npos);
}

/// A map that only this test registers.
class RegisteredRelu final : public DoubledRelu {
 public:
  std::string name() const override { return "registered-relu"; }
};

TEST_F(ModelFiles, FindARegisteredFeatureMapByItsName) {
  rewrite_config([](Json& json) { json["attention"]["feature_map"] = "registered-relu"; });
  EXPECT_THAT(error_of([&] { Model::load(path()); }),
              testing::HasSubstr("or a registered map, got 'registered-relu'"));
  register_feature_map(std::make_shared<RegisteredRelu>());
  const auto ids = random_inputs(config_, 1, 6, seed);
  const Tensor by_name = Model::load(path())->hidden(any_context(), ids, 1, 6),
               by_object = Model::load(path(), {}, std::make_shared<RegisteredRelu>())
                               ->hidden(any_context(), ids, 1, 6);
  EXPECT_TRUE(std::ranges::equal(by_name.span<const float>(), by_object.span<const float>()));

  const auto refused = [](std::shared_ptr<const FeatureMap> map) {
    return error_of<UsageError>([&] { register_feature_map(std::move(map)); });
  };
  EXPECT_THAT(refused(std::make_shared<RegisteredRelu>()),
              testing::HasSubstr("not registered yet, got 'registered-relu'"));
  EXPECT_THAT(refused(relu_map()), testing::HasSubstr("that no built-in map has, got 'relu'"));
  EXPECT_THAT(refused(nullptr), testing::HasSubstr("expected a feature map, got none"));
}

TEST_F(ModelFiles, RefuseAFeatureMapOfAnotherName) {
  // Also a built-in one, and where the family does not use it.
  const std::vector<std::string> softmax = {"attention.family=softmax"};
  for (const auto& settings : {std::vector<std::string>(), softmax}) {
    EXPECT_THAT(error_of([&] { Model::load(path(), settings, std::make_shared<DoubledRelu>()); }),
                testing::HasSubstr("expected a feature map with the name attention.feature_map, elu, got "
                                   "doubled-relu"));
    EXPECT_THROW(Model::load(path(), settings, relu_map()), UsageError);
    EXPECT_NO_THROW(Model::load(path(), settings, elu_map(0.3f)));
  }
  EXPECT_THROW(Model::random(config_, 0, std::make_shared<DoubledRelu>()), UsageError);
}

TEST_F(ModelFiles, AreNotWrittenWhereTheyCannotBe) {
  const auto file = path() / "file";
  write_file_atomically(file, "not a folder");
  error_of([&] { model_->save(file); });
  EXPECT_EQ(read_file(file), "not a folder");
}

}  // namespace
}  // namespace linnet
