// A trainer on the caller's own data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/memory.h"
#include "kernels/dense.h"
#include "model/segments.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/feature_maps.h"
#include "support/runs.h"

namespace linnet {
namespace {

using testing::HasSubstr;

/// A batch with the memory that it points to.
struct Owned {
  std::int64_t examples, length;
  std::vector<std::int32_t> inputs, targets;
  std::vector<std::int64_t> key_lengths;

  /// Random tokens, of which about a fifth are no targets.
  Owned(const ModelConfig& config, std::int64_t examples, std::int64_t length, std::uint64_t seed)
      : examples(examples),
        length(length),
        inputs(random_tokens(examples * length, config.input_tokens(), seed)),
        targets(random_tokens(examples * length, config.vocabulary, seed + 1)) {
    for (std::size_t i = 0; i < targets.size(); i += 5) targets[i] = -1;
  }

  Batch batch() const { return {examples, length, inputs, targets, key_lengths}; }
};

constexpr std::uint64_t seed = 71;

/// Mean loss in bits of the model's reference.
double reference_bits(const Model& model, const Owned& own) {
  const auto counted = std::ranges::count_if(own.targets, [](std::int32_t t) { return t >= 0; });
  return reference::loss(model.config(), by_name(model), own.inputs, own.targets, own.length) /
         std::numbers::ln2 / static_cast<double>(counted);
}

TEST(Trainer, ReportsTheReferencesLossOfEveryBatch) {
  // Batches of any size and length, also after larger ones, whose memory they then use.
  Trainer trainer(any_context(), tiny_config(), tiny_options());
  std::int64_t step = 0;
  for (const auto& [examples, length] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 6}, {2, 4}, {7, 3}, {5, 6}}) {
    SCOPED_TRACE(testing::Message() << examples << " examples of " << length << ", seed " << seed);
    const Owned own(tiny_config(), examples, length, seed + static_cast<std::uint64_t>(step) + 100);
    Owned counted = own;
    counted.targets[0] = 0;  // of a single position too
    const double expected = reference_bits(*trainer.model(), counted);
    const StepReport report = trainer.step(counted.batch());
    EXPECT_EQ(report.step, ++step);
    EXPECT_EQ(trainer.steps(), step);
    EXPECT_NEAR(report.bits, expected, 1e-5 * expected);
    EXPECT_GT(report.gradient_norm, 0);
    EXPECT_GT(report.tokens_per_second, 0);
  }
}

TEST(Trainer, PassesOfABatchAreOneBatch) {
  TrainingOptions options = tiny_options();
  options.epsilon = 0.01;  // keeps Adam from turning the rounding of tiny gradients into whole steps
  std::vector<std::vector<float>> values;
  for (const std::int64_t accumulate :
       {1, 2, 3, 7, 20}) {  // 7 examples: unequal passes, and more than examples
    options.accumulate = accumulate;
    Trainer trainer(any_context(), tiny_config(), options);
    for (std::uint64_t step = 0; step < 3; ++step)
      trainer.step(Owned(tiny_config(), 7, 6, seed + 2 * step).batch());
    values.push_back(values_of(trainer));
    EXPECT_LT(relative_error(values.back(), values.front()), 1e-5) << accumulate << " passes, seed " << seed;
  }
}

// Few targets and padding. RAdam without momentum moves by rate · gradient at first, and biases begin at 0:
// they show their gradients.
TEST(Trainer, PassesOfAMaskedBatchKeepItsGradients) {
  ModelConfig config = tiny_config();
  config.objective = Objective::masked;
  config.length = 64;
  TrainingOptions options = tiny_options();
  options.optimiser = OptimiserKind::radam;
  options.schedule = Schedule::constant;
  options.learning_rate = 1;
  options.beta1 = options.weight_decay = options.clip = 0;
  Owned own(config, 20, 64, seed);
  for (std::int64_t b = 0; b < 20; ++b) {
    own.key_lengths.push_back(10 + 2 * b);
    for (std::int64_t t = 0; t < 64; ++t)
      if (t % 7 != 3 || t >= own.key_lengths.back()) own.targets[static_cast<std::size_t>(b * 64 + t)] = -1;
  }
  double norm = 0;
  reference::Parameters first;
  for (const std::int64_t accumulate : {1, 2, 3, 7, 20}) {
    SCOPED_TRACE(testing::Message() << accumulate << " passes, seed " << seed);
    options.accumulate = accumulate;
    Trainer trainer(any_context(), config, options);
    const double found = trainer.step(own.batch()).gradient_norm;
    const reference::Parameters parameters = by_name(*trainer.model());
    if (accumulate == 1) norm = found, first = parameters;
    EXPECT_NEAR(found, norm, 1e-6 * norm);
    for (const auto& [name, values] : parameters)
      if (name.ends_with("bias")) {
        EXPECT_LT(relative_error(values, first[name]), 1e-6) << name;
      }
  }
}

TEST(Trainer, TakesTheStepsOfARun) {
  // The examples of the run, laid out by hand, give its bits.
  const ModelConfig config = trained_config();
  const TrainingOptions options = tiny_options();
  Folder folder;
  run(folder.path(), config, options);
  Trainer trainer(any_context(), config, options);
  const std::int64_t examples = options.batch * options.accumulate, length = config.length;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    Owned own(config, examples, length, seed);
    for (std::int64_t i = 0; i < examples; ++i) {
      const auto at = [&](std::vector<std::int32_t>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length));
      };
      training_set().read(shuffled_index(static_cast<std::uint64_t>(options.seed), step * examples + i,
                                         training_set().size()),
                          at(own.inputs), at(own.targets));
      std::shift_right(at(own.inputs).begin(), at(own.inputs).end(), 1);
      at(own.inputs)[0] = config.first_input(-1);
    }
    trainer.step(own.batch());
  }
  Folder saved("saved");
  trainer.save(saved / "checkpoint");
  EXPECT_EQ(weights_of(saved / "checkpoint"), weights_of(folder.path()));
  EXPECT_EQ(read_file(saved / "checkpoint/optimiser.safetensors"),
            read_file(folder / "checkpoints/12/optimiser.safetensors"));
  const auto state = [](const std::filesystem::path& path) {
    Json json = read_json(path);
    json.erase("run");  // what `train` alone counts
    json["xxh3"].erase("state.json");
    return json;
  };
  EXPECT_EQ(state(saved / "checkpoint/state.json"), state(folder / "checkpoints/12/state.json"));
}

ModelConfig redrawing_config() {
  ModelConfig config = trained_config();
  config.attention.linear.feature_map = "favor";
  config.attention.linear.features = 8;
  config.attention.linear.redraw = 2;
  return config;
}

TEST(Trainer, RestoresInTheSameBits) {
  const ModelConfig config = redrawing_config();
  const auto batch_of = [&](std::int64_t step) {
    return Owned(config, 5, 6, seed + static_cast<std::uint64_t>(step));
  };
  Trainer whole(any_context(), config, tiny_options());
  for (std::int64_t step = 0; step < 6; ++step) whole.step(batch_of(step).batch());
  for (const std::int64_t stop : {0, 1, 2, 3, 5, 6}) {
    SCOPED_TRACE(testing::Message() << "saved after update " << stop << ", seed " << seed);
    Folder folder;
    Trainer first(any_context(), config, tiny_options());
    for (std::int64_t step = 0; step < stop; ++step) first.step(batch_of(step).batch());
    first.save(folder / "new/checkpoint");
    Trainer second(any_context(), config, tiny_options());
    second.step(batch_of(40).batch());  // what it has learned before is forgotten
    second.restore(folder / "new/checkpoint");
    EXPECT_EQ(second.steps(), stop);
    EXPECT_EQ(values_of(second), values_of(first));
    for (std::int64_t step = stop; step < 6; ++step) second.step(batch_of(step).batch());
    EXPECT_EQ(values_of(second), values_of(whole));
  }
}

/// Bits of `steps` updates from two passes of 72 rows each, enough for products of bf16, and the values after
/// them.
std::pair<std::vector<double>, std::vector<float>> trained(Context& context, WeightType precision,
                                                           std::uint64_t steps) {
  TrainingOptions options = tiny_options();
  options.precision = precision;
  Trainer trainer(context, tiny_config(), options);
  std::vector<double> bits;
  for (std::uint64_t step = 0; step < steps; ++step)
    bits.push_back(trainer.step(Owned(tiny_config(), 24, 6, seed + step % 4).batch()).bits);
  return {bits, values_of(trainer)};
}

TEST(Trainer, TakesALearningRateInPlaceOfTheSchedules) {
  TrainingOptions cosine = tiny_options(), constant = tiny_options();
  cosine.schedule = Schedule::cosine;
  constant.schedule = Schedule::constant;
  constant.warmup = 0;
  constant.learning_rate = 3e-3;
  Trainer given(any_context(), tiny_config(), cosine), expected(any_context(), tiny_config(), constant);
  EXPECT_EQ(given.learning_rate(), cosine.learning_rate / 3);
  given.set_learning_rate(3e-3);
  for (std::uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(given.learning_rate(), 3e-3);
    const Owned own(tiny_config(), 3, 6, seed + step);
    EXPECT_EQ(given.step(own.batch()).learning_rate, 3e-3);
    expected.step(own.batch());
  }
  EXPECT_EQ(values_of(given), values_of(expected));
  // A checkpoint holds the options, and not the rate, which a trainer that restores it keeps.
  const Folder folder;
  given.save(folder / "new/checkpoint");
  Trainer restored(any_context(), tiny_config(), cosine);
  restored.restore(folder / "new/checkpoint");
  const double scheduled = restored.learning_rate();
  EXPECT_NE(scheduled, 3e-3);
  for (const double wrong : {-1e-3, 11.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THROW(given.set_learning_rate(wrong), UsageError) << wrong;
  given.restore(folder / "new/checkpoint");
  EXPECT_EQ(given.learning_rate(), 3e-3);
  given.set_learning_rate(std::nullopt);
  EXPECT_EQ(given.learning_rate(), scheduled);
}

TEST(Trainer, InBf16FollowsTheLossOfF32) {
  const auto [exact, exact_values] = trained(any_context(), WeightType::f32, 40);
  const auto [bits, values] = trained(any_context(), WeightType::bf16, 40);
  EXPECT_LT(exact.back(), exact.front());
  EXPECT_EQ(values == exact_values, !kernels::multiplies_fast(WeightType::bf16));
  for (std::size_t step = 0; step < bits.size(); ++step)
    EXPECT_NEAR(bits[step], exact[step], 0.02 * exact[step]) << "step " << step << ", seed " << seed;
}

TEST(Trainer, InBf16DoesNotDependOnThreads) {
  Context alone(1), three(3);
  EXPECT_EQ(trained(alone, WeightType::bf16, 3).second, trained(three, WeightType::bf16, 3).second);
}

TEST(Trainer, RestoresInTheSameBitsInBf16) {
  Folder folder;
  TrainingOptions options = tiny_options();
  options.precision = WeightType::bf16;
  const auto step = [&](Trainer& trainer, std::uint64_t i) {
    return trainer.step(Owned(tiny_config(), 24, 6, seed + i).batch()).bits;
  };
  Trainer whole(any_context(), tiny_config(), options), second(any_context(), tiny_config(), options);
  step(whole, 1);
  whole.save(folder / "checkpoint");
  step(whole, 2);
  second.restore(folder / "checkpoint");
  step(second, 2);
  EXPECT_EQ(values_of(second), values_of(whole));
  options.precision = WeightType::f32;
  Trainer other(any_context(), tiny_config(), options);
  EXPECT_THAT(error_of([&] { other.restore(folder / "checkpoint"); }), HasSubstr("training.precision"));
}

/// The values after updates of three passes each, from batches of two examples.
std::vector<float> trained_in(const TrainingOptions& bounded) {
  ModelConfig config = tiny_config();
  config.length = 70;
  TrainingOptions options = bounded;
  options.accumulate = 3;
  Trainer trainer(any_context(), config, options);
  for (std::uint64_t i = 0; i < 3; ++i) trainer.step(Owned(config, 6, 66, seed + i).batch());
  return values_of(trainer);
}

TEST(Trainer, RecomputesInTheSameBits) {
  TrainingOptions options = tiny_options();
  const std::vector<float> kept = trained_in(options);
  options.recompute = true;
  EXPECT_EQ(trained_in(options), kept);
}

TEST(Trainer, SegmentsTrainAsTheWholeSequence) {
  TrainingOptions options = tiny_options();
  const std::vector<float> whole = trained_in(options);
  options.segment = 64;
  EXPECT_LT(relative_error(trained_in(options), whole), 1e-4) << "seed " << seed;
  options.truncate = true;
  EXPECT_GT(relative_error(trained_in(options), whole), 1e-4);
  options.segment = 66;
  EXPECT_EQ(trained_in(options), whole);
}

TEST(Trainer, RestoresInTheSameBitsInSegments) {
  Folder folder;
  TrainingOptions options = tiny_options();
  options.segment = 4;
  const auto step = [&](Trainer& trainer, std::uint64_t i) {
    return trainer.step(Owned(tiny_config(), 3, 6, seed + i).batch()).bits;
  };
  Trainer whole(any_context(), tiny_config(), options);
  step(whole, 1);
  whole.save(folder / "checkpoint");
  step(whole, 2);
  options.recompute = true;  // which may change
  Trainer second(any_context(), tiny_config(), options);
  second.restore(folder / "checkpoint");
  step(second, 2);
  EXPECT_EQ(values_of(second), values_of(whole));
  options.segment = 5;
  Trainer other(any_context(), tiny_config(), options);
  EXPECT_THAT(error_of([&] { other.restore(folder / "checkpoint"); }), HasSubstr("training.segment"));
}

TEST(Trainer, RefusesSegmentsOfModelsWithoutFixedStates) {
  TrainingOptions options = tiny_options();
  options.segment = 4;
  ModelConfig config = tiny_config();
  config.attention.family = Family::softmax;
  EXPECT_THAT(error_of<UsageError>([&] { Trainer(any_context(), config, options); }),
              HasSubstr("[training.segment]"));
  options.segment = config.length;
  EXPECT_NO_THROW(Trainer(any_context(), config, options));
}

TEST(Trainer, StartsFromAModel) {
  const auto initial = random_model(tiny_config(), 9);
  ModelConfig config = tiny_config();
  config.dropout = 0.2;
  Trainer trainer(any_context(), config, tiny_options(), initial);
  const auto model = trainer.model();
  EXPECT_EQ(by_name(*model), by_name(*initial));
  EXPECT_EQ(model->config().dropout, 0.2);
  EXPECT_NE(by_name(*Trainer(any_context(), config, tiny_options()).model()), by_name(*initial));

  trainer.step(Owned(config, 2, 6, seed).batch());
  EXPECT_EQ(by_name(*model), by_name(*initial)) << "a snapshot has changed with the trainer";
  EXPECT_NE(by_name(*trainer.model()), by_name(*initial));

  config.vocabulary = 7;
  EXPECT_THAT(error_of<UsageError>([&] { Trainer(any_context(), config, tiny_options(), initial); }),
              AllOf(HasSubstr("[trainer] expected an initial model"), HasSubstr("embedding"),
                    HasSubstr("instead of")));
  config = tiny_config();
  config.layers = 1;
  EXPECT_THAT(error_of<UsageError>([&] { Trainer(any_context(), config, tiny_options(), initial); }),
              AllOf(HasSubstr("layers.1."), HasSubstr("has no place")));
}

TEST(Trainer, CanBeMoved) {
  Trainer expected(any_context(), trained_config(), tiny_options());
  Trainer first(any_context(), trained_config(), tiny_options());
  const Owned own(trained_config(), 4, 6, seed);
  for (Trainer* trainer : {&expected, &first}) trainer->step(own.batch());
  Trainer moved(std::move(first));
  first = std::move(moved);
  for (Trainer* trainer : {&expected, &first}) trainer->step(own.batch());
  EXPECT_EQ(values_of(first), values_of(expected));
}

TEST(Trainer, LeavesPaddingOut) {
  // What stands in the padding changes nothing.
  ModelConfig config = trained_config();
  config.objective = Objective::masked;
  std::vector<std::vector<float>> values;
  for (const std::int32_t filler : {0, 3}) {
    Owned own(config, 3, 6, seed);
    own.key_lengths = {2, 6, 5};
    for (std::size_t i = 0; i < 18; ++i)
      if (static_cast<std::int64_t>(i % 6) >= own.key_lengths[i / 6])
        own.inputs[i] = filler, own.targets[i] = -1;
    TrainingOptions options = tiny_options();
    options.weight_decay = 0;
    Trainer trainer(any_context(), config, options);
    EXPECT_TRUE(std::isfinite(trainer.step(own.batch()).bits));
    // The rows of the table that the padding names have no gradient from it.
    values.push_back(values_of(trainer));
  }
  EXPECT_EQ(values[0], values[1]);
}

TEST(Trainer, RefusesBatchesThatDoNotFitBeforeItComputes) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics}) {
    ModelConfig config = tiny_config();  // tokens 0 … 4, the start token 5, 6 positions
    config.head = head;
    Trainer trainer(any_context(), config, tiny_options());
    const std::vector<float> before = values_of(trainer);
    const auto refusal = [&](const std::function<void(Owned&)>& change) {
      Owned own(config, 4, 6, seed);
      change(own);
      return error_of<UsageError>([&] { trainer.step(own.batch()); });
    };
    EXPECT_EQ(refusal([](Owned& own) { own.targets[7] = 5; }),
              "[trainer] expected targets in -1 … 4, got 5 in step 1 of example 1 of the batch");
    EXPECT_EQ(refusal([](Owned& own) { own.targets[23] = -2; }),
              "[trainer] expected targets in -1 … 4, got -2 in step 5 of example 3 of the batch");
    EXPECT_EQ(refusal([](Owned& own) { own.targets[3] = std::numeric_limits<std::int32_t>::max(); }),
              "[trainer] expected targets in -1 … 4, got 2147483647 in step 3 of example 0 of the batch");
    EXPECT_EQ(refusal([](Owned& own) { own.inputs[1] = 6; }),
              "[trainer] expected inputs in 0 … 5, got 6 in step 1 of example 0 of the batch");
    EXPECT_EQ(refusal([](Owned& own) { own.inputs[1] = -1; }),
              "[trainer] expected inputs in 0 … 5, got -1 in step 1 of example 0 of the batch");
    EXPECT_THAT(refusal([](Owned& own) { own.inputs.pop_back(); }),
                HasSubstr("inputs for 4 examples of 6, got 23"));
    EXPECT_THAT(refusal([](Owned& own) { own.targets.push_back(0); }),
                HasSubstr("targets for 4 examples of 6"));
    EXPECT_THAT(refusal([](Owned& own) { own.examples = 0; }), HasSubstr("at least 1 example, got 0"));
    EXPECT_THAT(refusal([](Owned& own) { own.examples = std::numeric_limits<std::int64_t>::max(); }),
                HasSubstr("expected inputs for 9223372036854775807 examples"));
    EXPECT_THAT(refusal([](Owned& own) { own.length = 0; }), HasSubstr("1 … 6 positions, got 0"));
    EXPECT_THAT(refusal([](Owned& own) { own.length = 7; }), HasSubstr("1 … 6 positions, got 7"));
    EXPECT_THAT(refusal([](Owned& own) {
                  own.key_lengths = {6, 6};
                }),
                HasSubstr("key lengths for 4 examples"));
    EXPECT_THAT(refusal([](Owned& own) {
                  own.key_lengths = {6, 6, 7, 6};
                }),
                HasSubstr("key lengths in 0 … 6, got 7 in example 2 of the batch"));
    EXPECT_THAT(refusal([](Owned& own) {
                  own.key_lengths = {6, 6, 6, 4};
                }),
                HasSubstr("targets of -1 in the padding, got"));
    EXPECT_THAT(refusal([](Owned& own) {
                  own.key_lengths = {6, 6, 6, 4};
                }),
                HasSubstr("in step 4 of example 3 of the batch"));
    EXPECT_THAT(refusal([](Owned& own) { std::ranges::fill(own.targets, -1); }),
                HasSubstr("got none at step 1"));
    EXPECT_EQ(trainer.steps(), 0);
    EXPECT_EQ(values_of(trainer), before);
  }
}

TEST(Trainer, RefusesConfigurationsAndOptionsThatCannotBe) {
  TrainingOptions options = tiny_options();
  options.accumulate = 0;
  EXPECT_THAT(error_of<UsageError>([&] { Trainer(any_context(), tiny_config(), options); }),
              HasSubstr("training.accumulate"));
  ModelConfig config = tiny_config();
  config.weights = WeightType::bf16;
  EXPECT_THAT(error_of<UsageError>([&] { Trainer(any_context(), config, tiny_options()); }),
              HasSubstr("model.weights"));
}

TEST(Trainer, SavesOverCheckpointsAndNothingElse) {
  Folder folder;
  Trainer trainer(any_context(), tiny_config(), tiny_options());
  trainer.save(folder / "checkpoint");
  trainer.step(Owned(tiny_config(), 2, 6, seed).batch());
  trainer.save(folder / "checkpoint");
  Trainer other(any_context(), tiny_config(), tiny_options());
  other.restore(folder / "checkpoint");
  EXPECT_EQ(other.steps(), 1);

  write_file_atomically(folder / "checkpoint/thesis.txt", "precious");
  for (const auto& place : {folder.path(), folder / "checkpoint", folder / "checkpoint/thesis.txt"})
    error_of([&] { trainer.save(place); });
  EXPECT_EQ(read_file(folder / "checkpoint/thesis.txt"), "precious");

  other.model()->save(folder / "model");
  EXPECT_THAT(error_of([&] { trainer.save(folder / "model"); }), HasSubstr("without state.json"));
  EXPECT_EQ(by_name(*Model::load(folder / "model")), by_name(*other.model()));
}

TEST(Trainer, RefusesPassesThatTheMemoryCannotHold) {
  ModelConfig config = tiny_config();
  config.width = 256;
  const double each = sizeof(float) * SegmentedTransformer::floats(config, 1, config.length, {}, {});
  const auto examples = static_cast<std::int64_t>(8 * available_memory() / each);
  Trainer trainer(any_context(), config, tiny_options());
  EXPECT_THAT(error_of<OutOfMemoryError>([&] { trainer.step(Owned(config, examples, 6, seed).batch()); }),
              HasSubstr("a pass of"));
  trainer.step(Owned(config, 2, 6, seed).batch());
  EXPECT_EQ(trainer.steps(), 1);
}

TEST(Trainer, RestoresTheAssetsOfACheckpoint) {
  Folder folder;
  ModelConfig config = tiny_config();
  config.classes = 2;
  Trainer trainer(any_context(), config, tiny_options());
  trainer.set_assets({.class_names = {"cat", "dog"}});
  trainer.save(folder / "checkpoint");
  Trainer other(any_context(), config, tiny_options());
  other.restore(folder / "checkpoint");
  EXPECT_THAT(other.model()->assets().class_names, testing::ElementsAre("cat", "dog"));
  other.save(folder / "checkpoint");
  EXPECT_THAT(Model::load(folder / "checkpoint")->assets().class_names, testing::ElementsAre("cat", "dog"));
  // Others than were written are found.
  write_file_atomically(folder / "checkpoint/labels.json", R"(["cow", "dog"])");
  EXPECT_THAT(error_of([&] { other.restore(folder / "checkpoint"); }), HasSubstr("labels.json"));
  // A checkpoint without them takes none away.
  Trainer(any_context(), config, tiny_options()).save(folder / "bare");
  other.restore(folder / "bare");
  EXPECT_EQ(other.model()->assets().class_names.size(), 2u);
}

TEST(Trainer, IsUnchangedByACheckpointThatItRefuses) {
  Folder folder;
  Trainer trainer(any_context(), tiny_config(), tiny_options());
  trainer.step(Owned(tiny_config(), 2, 6, seed).batch());
  trainer.save(folder / "good");
  trainer.step(Owned(tiny_config(), 2, 6, seed).batch());
  const std::vector<float> before = values_of(trainer);
  for (const char* name : {"config.json", "model.safetensors", "optimiser.safetensors", "state.json"}) {
    const std::filesystem::path damaged = folder / name;
    std::filesystem::copy(folder / "good", damaged);
    const std::string bytes = read_file(damaged / name);
    write_file_atomically(damaged / name, std::string_view(bytes).substr(0, bytes.size() * 9 / 10));
    EXPECT_THAT(error_of([&] { trainer.restore(damaged); }), HasSubstr(name));
    EXPECT_EQ(values_of(trainer), before) << name;
    EXPECT_EQ(trainer.steps(), 2) << name;
  }
  write_file_atomically(folder / "good/state.json", R"({"step": 1, "examples": "two", "training": {}})");
  EXPECT_THAT(error_of([&] { trainer.restore(folder / "good"); }), HasSubstr("state.json"));
}

/// A data set with one wrong example.
class Outside : public Counting {
 public:
  using Change = std::function<void(std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;
  explicit Outside(Change change) : Counting(9, 6, 5), change_(std::move(change)) {}
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const std::int64_t label = Counting::read(index, tokens, targets);
    if (index == 7) change_(tokens, targets);
    return label;
  }

 private:
  Change change_;
};

TEST(Training, RefusesDataThatTheModelDoesNotHaveNamingExampleAndStep) {
  const Outside outside([](auto, auto targets) { targets[5] = 5; });
  const Counting inside(9, 6, 5);
  Folder folder;
  EXPECT_EQ(error_of<UsageError>([&] {
              train(any_context(), tiny_config(), tiny_options(), outside, inside, folder.path(), false);
            }),
            "[data] expected targets in -1 … 4, got 5 in step 5 of example 7");
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics}) {
    ModelConfig config = tiny_config();
    config.head = head;
    EXPECT_EQ(error_of<UsageError>([&] { evaluate(any_context(), *random_model(config, 5), outside, 0, 3); }),
              "[data] expected targets in -1 … 4, got 5 in step 5 of example 7");
  }
  const auto refusal = [&](const Outside::Change& change) {
    return error_of<UsageError>(
        [&] { evaluate(any_context(), *random_model(tiny_config(), 5), Outside(change), 0, 3); });
  };
  // The number of the first input, which is no token of the data.
  EXPECT_EQ(refusal([](auto tokens, auto targets) {
              tokens[2] = 5;
              targets[2] = -1;
            }),
            "[data] expected tokens in 0 … 4, got 5 in step 2 of example 7");
  EXPECT_EQ(refusal([](auto tokens, auto) { tokens[2] = -1; })
                .find("[data] expected tokens and targets of -1 "
                      "behind step 2 of example 7, where the "
                      "padding begins with a token of -1, got "),
            0u);
}

TEST(Trainer, TrainsSavesAndRestoresAFeatureMapOfTheUsers) {
  ModelConfig config = tiny_config();
  config.attention.linear.feature_map = "doubled-relu";
  const TrainingOptions options = tiny_options();
  const auto map = std::make_shared<DoubledRelu>();
  const Owned own(config, 4, 6, seed);
  EXPECT_THROW(Trainer(any_context(), config, options), UsageError);  // no built-in map has that name
  EXPECT_THROW(Trainer(any_context(), config, options, nullptr, relu_map()), UsageError);

  // φ = 2 relu: the weights are four times relu's, with ε they are relu's with a quarter of ε.
  ModelConfig relu = config;
  relu.attention.linear.feature_map = "relu";
  relu.attention.epsilon = config.attention.epsilon / 4;
  Trainer trainer(any_context(), config, options, nullptr, map), same(any_context(), relu, options);
  for (int step = 0; step < 3; ++step)
    EXPECT_NEAR(trainer.step(own.batch()).bits, same.step(own.batch()).bits, 1e-4) << step;

  Folder folder("own-map");
  trainer.save(folder.path() / "3");
  Trainer restored(any_context(), config, options, nullptr, map);
  restored.restore(folder.path() / "3");
  trainer.step(own.batch());
  restored.step(own.batch());
  EXPECT_EQ(values_of(restored), values_of(trainer));

  // A trainer that starts from a model takes its map, and the checkpoint is a model that names it.
  const auto loaded = Model::load(folder.path() / "3", {}, map);
  Trainer continued(any_context(), config, options, loaded);
  EXPECT_TRUE(std::isfinite(continued.step(own.batch()).bits));
  EXPECT_EQ(continued.model()->feature_map(), map);
  EXPECT_THROW(Model::load(folder.path() / "3"), UsageError);
}

}  // namespace
}  // namespace linnet
