// Models with random feature maps: draws that are kept with the parameters and not trained.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "linnet/error.h"
#include "model/transformer.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/folder.h"
#include "support/models.h"

namespace linnet {
namespace {

ModelConfig favor_config(const std::string& map = "favor") {
  ModelConfig config = small_config();
  config.attention.linear.feature_map = map;
  config.attention.linear.features = 32;
  config.length = 150;
  return config;
}

std::vector<float> parallel(const Model& model, std::span<const std::int32_t> ids) {
  Transformer transformer(network_of(model));
  const View<const float> hidden =
      transformer.forward(any_context(), ids, 1, static_cast<std::int64_t>(ids.size()));
  std::vector<float> numbers(ids.size() * static_cast<std::size_t>(network_of(model).head().outputs()));
  const std::int64_t outputs = network_of(model).head().outputs(),
                     rows = static_cast<std::int64_t>(ids.size());
  network_of(model).head().forward(any_context(), {numbers.data(), {rows, outputs}},
                                   hidden.reshape({rows, model.config().width}));
  return numbers;
}

std::vector<float> recurrent(const Model& model, std::span<const std::int32_t> ids) {
  const RecurrentTransformer transformer(network_of(model));
  RecurrentState state(network_of(model), 1);
  const std::int64_t slot[] = {0}, outputs = network_of(model).head().outputs();
  std::vector<float> numbers(ids.size() * static_cast<std::size_t>(outputs));
  for (std::size_t i = 0; i < ids.size(); ++i)
    transformer.step(any_context(), {numbers.data() + static_cast<std::int64_t>(i) * outputs, {1, outputs}},
                     ids.subspan(i, 1), slot, state);
  return numbers;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(sum / norm);
}

TEST(RandomFeatureModels, ParallelAndRecurrentFormsAgree) {
  for (const char* map : {"favor", "favor-hyperbolic", "random-relu", "random-exp"}) {
    for (const Decay decay : {Decay::none, Decay::fixed}) {
      SCOPED_TRACE(testing::Message() << map << (decay == Decay::none ? "" : " with a decay"));
      ModelConfig config = favor_config(map);
      config.attention.linear.decay = decay;
      const auto model = Model::random(config, 3);
      const auto ids = random_inputs(model->config(), 1, 150, 4);
      EXPECT_LT(difference(recurrent(*model, ids), parallel(*model, ids)), 3e-5);
    }
  }
}

TEST(RandomFeatureModels, DrawsAreSavedWithTheModelAndFollowTheSeed) {
  const Folder folder;
  const auto model = Model::random(favor_config("favor-trig"), 3);
  model->save(folder / "a");
  const auto again = Model::load(folder / "a");
  const auto ids = random_inputs(model->config(), 1, 50, 4);
  EXPECT_EQ(parallel(*model, ids), parallel(*again, ids));
  const Safetensors file = Safetensors::read(folder / "a" / "model.safetensors");
  EXPECT_EQ(file.shape("layers.0.attention.directions"), (Shape{32, 9}));
  EXPECT_EQ(file.shape("layers.1.attention.phases"), Shape{32});
  const Tensor first = file.tensor("layers.0.attention.directions"),
               second = file.tensor("layers.1.attention.directions");
  EXPECT_FALSE(std::ranges::equal(first.span<float>(), second.span<float>()));

  ModelConfig other = favor_config("favor-trig");
  other.attention.seed = 1;
  EXPECT_NE(parallel(*Model::random(other, 3), ids), parallel(*model, ids));
}

TEST(RandomFeatureModels, HadamardDrawsAreSavedAsSignsAndLengths) {
  const Folder folder;
  ModelConfig config = favor_config();
  config.width = 8 * config.heads;
  config.attention.linear.features = 20;
  config.attention.linear.directions = Directions::hadamard;
  const auto model = Model::random(config, 3);
  model->save(folder / "a");
  const auto ids = random_inputs(config, 1, 50, 4);
  const std::vector<float> expected = parallel(*model, ids);
  EXPECT_EQ(parallel(*Model::load(folder / "a"), ids), expected);
  EXPECT_LT(difference(recurrent(*model, ids), expected), 3e-5);
  const Safetensors file = Safetensors::read(folder / "a" / "model.safetensors");
  EXPECT_EQ(file.shape("layers.1.attention.signs"), (Shape{9, 8}));
  EXPECT_EQ(file.shape("layers.1.attention.lengths"), Shape{20});
  EXPECT_FALSE(file.contains("layers.1.attention.directions"));
  // Where one of the two does not fit, neither is taken: those of one map are drawn together.
  const auto rewritten = [&](const auto& change) {
    std::vector<NamedTensor> tensors;
    const Tensor values = values_of(*model);
    for (const auto& row : network_of(*model).table().rows())
      tensors.push_back({row.name, DType::f32, row.place.shape(), row.place.of(values.span<float>()).data()});
    change(tensors);
    write_safetensors(folder / "a" / "model.safetensors", tensors, {{"format", "linnet"}});
  };
  const auto number_at = [](std::vector<NamedTensor>& tensors, const std::string& name, std::int64_t i,
                            float number) {
    auto& tensor = *std::ranges::find(tensors, name, &NamedTensor::name);
    const_cast<float*>(static_cast<const float*>(tensor.data))[i] = number;
  };
  const auto without = [](const std::string& name) {
    return [name](std::vector<NamedTensor>& tensors) {
      std::erase_if(tensors, [&](const NamedTensor& tensor) { return tensor.name == name; });
    };
  };
  rewritten([&](auto& tensors) { number_at(tensors, "layers.1.attention.lengths", 3, 2); });
  EXPECT_NE(parallel(*Model::load(folder / "a"), ids), expected);
  rewritten([&](auto& tensors) {
    number_at(tensors, "layers.1.attention.lengths", 3, 2);
    without("layers.1.attention.signs")(tensors);
  });
  EXPECT_EQ(parallel(*Model::load(folder / "a"), ids), expected);
  rewritten([&](auto& tensors) { number_at(tensors, "layers.0.attention.signs", 7, 0.5f); });
  const std::string path = (folder / "a" / "model.safetensors").string();
  EXPECT_EQ(
      error_of([&] { Model::load(folder / "a"); }),
      "[model] expected signs of 1 and -1 in layers.0.attention.signs of " + path + ", got 0.5 at index 7");
  rewritten([&](auto& tensors) { number_at(tensors, "layers.0.attention.lengths", 1, -1); });
  EXPECT_EQ(
      error_of([&] { Model::load(folder / "a"); }),
      "[model] expected numbers from 0 in layers.0.attention.lengths of " + path + ", got -1 at index 1");
  model->save(folder / "a");
  // Other directions are drawn from the seed.
  const std::vector<std::string> orthogonal = {"attention.directions=orthogonal"};
  EXPECT_NE(parallel(*Model::load(folder / "a", orthogonal), ids), expected);
  config.width = 27;
  EXPECT_EQ(error_of<UsageError>([&] { Model::random(config); }),
            "[favor] expected a head size that is a power of two from 8 on with Hadamard directions, got 9");
}

TEST(RandomFeatureModels, DirectionsOfTheFileFollowTheSizeOfAHead) {
  const Folder folder;
  for (const std::int64_t head : {9, 16}) {
    ModelConfig config = favor_config();
    config.width = head * config.heads;
    config.attention.linear.directions = Directions::automatic;
    Model::random(config, 3)->save(folder / "a");
    const Safetensors file = Safetensors::read(folder / "a" / "model.safetensors");
    EXPECT_EQ(file.contains("layers.0.attention.directions"), head == 9);
    EXPECT_EQ(file.contains("layers.0.attention.signs"), head == 16);
    const auto ids = random_inputs(config, 1, 10, 4);
    EXPECT_EQ(parallel(*Model::load(folder / "a"), ids), parallel(*Model::random(config, 3), ids));
  }
}

TEST(RandomFeatureModels, DrawsAreNoParameters) {
  ModelConfig plain = favor_config();
  plain.attention.linear.feature_map = "elu";
  EXPECT_EQ(Model::random(favor_config())->parameter_count(), Model::random(plain)->parameter_count());
}

TEST(RandomFeatureModels, WeightsServeUnderOtherMapsAndFamilies) {
  const Folder folder;
  ModelConfig config = favor_config();
  config.attention.family = Family::softmax;
  Model::random(config, 3)->save(folder / "softmax");
  const std::vector<std::string> favor = {"attention.family=linear", "attention.features=64"};
  const auto drawn = Model::load(folder / "softmax", favor);
  drawn->save(folder / "favor");
  const auto ids = random_inputs(config, 1, 60, 4);
  EXPECT_EQ(parallel(*Model::load(folder / "favor"), ids), parallel(*drawn, ids));
  const std::vector<std::string> softmax = {"attention.family=softmax"};
  EXPECT_EQ(parallel(*Model::load(folder / "favor", softmax), ids),
            parallel(*Model::load(folder / "softmax"), ids));
  // Another number of features than the file's: drawn anew.
  const std::vector<std::string> fewer = {"attention.features=16"};
  EXPECT_EQ(network_of(*Model::load(folder / "favor", fewer)).blocks()[0].attention().parts().random.features,
            16);
}

// Softmax at random features' best: many of them, small queries and keys.
TEST(RandomFeatureModels, ManyFeaturesApproachSoftmax) {
  ModelConfig config = favor_config();
  config.attention.family = Family::softmax;
  const Folder folder;
  const auto loud = Model::random(config, 3);
  Tensor values = values_of(*loud);
  for (const ParameterTable::Row& row : network_of(*loud).table().rows())
    if (row.name.ends_with("qkv.weight"))
      for (float& x : std::span(row.place.of(values.span<float>()).data(), 2 * 27 * 27)) x *= 0.4f;
  const auto exact = make_model(config, std::move(values));
  exact->save(folder / "softmax");
  const auto ids = random_inputs(config, 1, 100, 4);
  const std::vector<float> expected = parallel(*exact, ids);
  std::vector<double> error;
  for (const char* features : {"attention.features=16", "attention.features=4096"}) {
    const std::vector<std::string> settings = {"attention.family=linear", features};
    error.push_back(difference(parallel(*Model::load(folder / "softmax", settings), ids), expected));
  }
  EXPECT_LT(error[1], error[0] / 4);
  EXPECT_LT(error[1], 0.05);
}

TEST(RandomFeatureModels, RefusesWhatCannotBeDrawn) {
  ModelConfig config = favor_config("favor-sincos");
  const auto refused = [&](std::int64_t features, const char* words) {
    config.attention.linear.features = features;
    const std::string said = error_of<UsageError>([&] { Model::random(config); });
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  refused(33, "an even number of features, two a direction, got 33");
  refused(-1, "attention.features: expected an integer from 0 to 65536, got -1");
}

}  // namespace
}  // namespace linnet
