// What the loop computes: losses, gradients, accumulation, threads, evaluation, callbacks.
#include <gtest/gtest.h>

#include <numbers>
#include <set>

#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/runs.h"

namespace linnet {
namespace {

/// Inputs and targets of all examples of a set, as a model is given them.
struct Laid {
  std::vector<std::int32_t> ids, targets;
  std::int64_t counted = 0;

  Laid(const Dataset& set, const ModelConfig& config) {
    const auto length = static_cast<std::size_t>(set.length());
    std::vector<std::int32_t> tokens(length), own(length);
    for (std::int64_t i = 0; i < set.size(); ++i) {
      ids.push_back(config.first_input(set.read(i, tokens, own)));
      ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
      targets.insert(targets.end(), own.begin(), own.end());
    }
    counted = std::ranges::count_if(targets, [](std::int32_t t) { return t >= 0; });
  }

  double bits(const ModelConfig& config, const reference::Parameters& parameters) const {
    return reference::loss(config, parameters, ids, targets, config.length) / std::numbers::ln2 /
           static_cast<double>(counted);
  }
};

TEST(Training, FirstUpdateReportsTheLossAndGradientOfTheInitialWeights) {
  for (const bool uneven : {false, true}) {
    const Counting set(4, 6, 5, 2, uneven);  // a batch is the whole set, in whatever order
    ModelConfig config = tiny_config();
    config.classes = 2;
    TrainingOptions options = tiny_options();
    options.steps = 1;
    options.batch = 2;
    options.accumulate = 2;
    std::vector<StepReport> reports;
    TrainingCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) { reports.push_back(report); };
    Folder folder;
    train(any_context(), config, options, set, set, folder / "run", false, callbacks);
    ASSERT_EQ(reports.size(), 1u);

    const auto initial = by_name(*Model::random(config, static_cast<std::uint64_t>(options.seed)));
    const Laid laid(set, config);
    EXPECT_NEAR(reports[0].bits, laid.bits(config, initial), 1e-6);
    const auto gradient = differences(
        [&](const reference::Parameters& p) { return laid.bits(config, p) * std::numbers::ln2; }, initial);
    double squares = 0;
    for (const auto& [name, values] : gradient) squares += norm(values) * norm(values);
    EXPECT_NEAR(reports[0].gradient_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares))
        << "uneven " << uneven;
  }
}

TEST(Training, AccumulatedPassesAreOneLargeBatch) {
  for (const bool uneven : {false, true}) {
    const Counting set(17, 6, 5, 0, uneven);
    TrainingOptions options = tiny_options();
    options.epsilon = 0.01;  // keeps Adam from turning the rounding of tiny gradients into whole steps
    std::vector<std::vector<double>> bits(3), norms(3);
    std::vector<reference::Parameters> parameters;
    for (std::size_t i = 0; i < 3; ++i) {
      options.batch = i == 0 ? 6 : i == 1 ? 3 : 1;
      options.accumulate = 6 / options.batch;
      TrainingCallbacks callbacks;
      callbacks.on_step = [&](const StepReport& report) {
        bits[i].push_back(report.bits);
        norms[i].push_back(report.gradient_norm);
      };
      Folder folder;
      train(any_context(), tiny_config(), options, set, set, folder.path(), false, callbacks);
      parameters.push_back(by_name(*Model::load(folder.path())));
    }
    for (std::size_t i = 1; i < 3; ++i) {
      EXPECT_LT(relative_error(bits[i], bits[0]), 1e-6);
      EXPECT_LT(relative_error(norms[i], norms[0]), 1e-5);
      for (const auto& [name, values] : parameters[0])
        EXPECT_LT(relative_error(parameters[i].at(name), values, 0.1), 1e-5) << name;
    }
  }
}

TEST(Training, DoesNotDependOnTheNumberOfThreads) {
  for (const Family family : {Family::linear, Family::softmax}) {
    ModelConfig config = tiny_config();
    config.attention.family = family;
    config.width = 36;
    config.heads = 4;
    config.feed_forward = 70;
    config.length = 150;
    config.vocabulary = 40;
    config.dropout = 0.1;
    const Counting set(30, 150, 40);
    TrainingOptions options = tiny_options();
    options.steps = 4;
    std::string expected;
    for (const int threads : {1, 2, 3, 8}) {
      Context context(threads);
      Folder folder;
      train(context, config, options, set, set, folder.path(), false);
      if (threads == 1) expected = weights_of(folder.path());
      EXPECT_EQ(weights_of(folder.path()), expected) << name_of(family) << ", " << threads << " threads";
    }
  }
}

TEST(Training, EveryPassDropsOtherElements) {
  // One example and a learning rate of 0: only the masks can make a difference.
  const Counting set(1, 6, 5);
  const auto bits_of = [&](double dropout, std::int64_t accumulate) {
    ModelConfig config = tiny_config();
    config.dropout = dropout;
    TrainingOptions options = tiny_options();
    options.batch = 1;
    options.accumulate = accumulate;
    options.learning_rate = 0;
    std::vector<double> bits;
    TrainingCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) { bits.push_back(report.bits); };
    Folder folder;
    train(any_context(), config, options, set, set, folder.path(), false, callbacks);
    return bits;
  };
  const std::vector<double> undropped = bits_of(0, 1);
  EXPECT_EQ(std::set<double>(undropped.begin(), undropped.end()).size(), 1u);
  std::set<double> all;
  for (const std::int64_t accumulate : {1, 2}) {
    const std::vector<double> bits = bits_of(0.5, accumulate);
    all.insert(bits.begin(), bits.end());
  }
  EXPECT_EQ(all.size(), 2u * 12) << "two updates, or the passes of one, had the same mask";
}

TEST(Training, ClippingBoundsTheGradientThatIsUsed) {
  // With plain momentum of RAdam's first updates, a step is rate · gradient: its length shows the norm that
  // was used.
  TrainingOptions options = tiny_options();
  options.optimiser = OptimiserKind::radam;
  options.schedule = Schedule::constant;
  options.warmup = 0;
  options.weight_decay = 0;
  options.steps = 1;
  options.clip = 0.05;
  Folder folder;
  double reported = 0;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { reported = report.gradient_norm; };
  run(folder.path(), tiny_config(), options, false, callbacks);
  EXPECT_GT(reported, 0.1) << "the norm before clipping is reported";
  const auto before = by_name(*Model::random(tiny_config(), 1)), after = by_name(*Model::load(folder.path()));
  double squares = 0;
  for (const auto& [name, values] : before)
    for (std::size_t i = 0; i < values.size(); ++i) squares += std::pow(after.at(name)[i] - values[i], 2);
  EXPECT_NEAR(std::sqrt(squares), options.learning_rate * 0.05, 1e-6 + 1e-3 * options.learning_rate * 0.05);
}

TEST(Training, CallbacksSeeWhatHappensAndChangeNothing) {
  Folder silent("silent"), watched("watched");
  TrainingOptions options = tiny_options();
  options.sample_every = 4;
  run(silent.path(), trained_config(), options);
  std::vector<std::int64_t> steps, evaluations, samples;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    steps.push_back(report.step);
    EXPECT_TRUE(std::isfinite(report.bits) && report.bits > 0);
    EXPECT_GT(report.gradient_norm, 0);
    EXPECT_GT(report.learning_rate, 0);
    EXPECT_GT(report.tokens_per_second, 0);
  };
  callbacks.on_evaluation = [&](std::int64_t step, const Evaluation& evaluation) {
    evaluations.push_back(step);
    EXPECT_EQ(evaluation.examples, 4);
    EXPECT_EQ(evaluation.tokens, 4 * 6);
    EXPECT_NEAR(evaluation.perplexity, std::exp2(evaluation.bits), 1e-6 * evaluation.perplexity);
  };
  std::shared_ptr<const Model> last;
  callbacks.draw_samples = [&](std::int64_t step, const std::shared_ptr<const Model>& model) {
    samples.push_back(step);
    last = model;
  };
  callbacks.should_stop = [] { return false; };
  const TrainingResult result = run(watched.path(), trained_config(), options, false, callbacks);
  EXPECT_EQ(weights_of(watched.path()), weights_of(silent.path()));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(evaluations, (std::vector<std::int64_t>{5, 10, 12}));
  EXPECT_EQ(samples, (std::vector<std::int64_t>{4, 8, 12}));
  ASSERT_TRUE(last);
  EXPECT_EQ(by_name(*last), by_name(*Model::load(watched.path())));
  ASSERT_TRUE(result.evaluation);
  EXPECT_EQ(result.step, 12);
}

TEST(Training, StopsWithACheckpointWhenItsMinutesAreOver) {
  Folder folder;
  TrainingOptions options = tiny_options();
  options.minutes = 1e-9;
  const TrainingResult result = run(folder.path(), trained_config(), options);
  EXPECT_FALSE(result.finished);
  EXPECT_LT(result.step, 12);
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints" / std::to_string(result.step)));
}

TEST(Training, LossThatIsNotFiniteStopsWithStepLayerAndCheckpoint) {
  Folder folder;
  TrainingOptions options = tiny_options();
  options.steps = 200;
  options.schedule = Schedule::constant;
  options.warmup = 0;
  options.learning_rate = 10;
  options.weight_decay = 10;  // every matrix grows a hundredfold an update
  options.checkpoint_every = 5;
  options.clip = 0;
  std::int64_t last = 0;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { last = report.step; };
  const std::string message =
      error_of([&] { run(folder.path(), trained_config(), options, false, callbacks); });
  EXPECT_NE(message.find(std::to_string(last + 1)), std::string::npos) << message;
  EXPECT_TRUE(message.find("layers.") != std::string::npos ||
              message.find("embedding") != std::string::npos || message.find("head") != std::string::npos)
      << message;
  const std::int64_t checkpoint = last / 5 * 5;
  ASSERT_GT(checkpoint, 0) << message;
  const auto path = std::filesystem::path("checkpoints") / std::to_string(checkpoint);
  EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  const auto saved = Model::load(folder.path() / path);
  const Tensor values = values_of(*saved);
  for (const float value : values.span<float>()) ASSERT_TRUE(std::isfinite(value));
}

TEST(Training, LearnsToCount) {
  for (const char* families : {"linear", "softmax", "linear,local"}) {
    ModelConfig config = tiny_config();
    if (std::string_view(families) == "linear,local") config = with_other_blocks(config, families);
    config.attention.layers = families;
    config.width = 16;
    config.feed_forward = 32;
    TrainingOptions options = tiny_options();
    options.steps = 300;
    options.batch = 8;
    options.accumulate = 1;
    options.evaluate_every = 0;
    options.evaluate_examples = 0;
    options.checkpoint_every = 1000;
    std::vector<double> bits;
    TrainingCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) { bits.push_back(report.bits); };
    Folder folder;
    const TrainingResult result = run(folder.path(), config, options, false, callbacks);
    EXPECT_GT(bits.front(), 2) << families;
    // log2(5) bits choose the first token and one the direction; the four after them are certain.
    EXPECT_LT(result.evaluation->bits, (std::log2(5) + 1) / 6 + 0.15) << families;
  }
}

TEST(Training, RefusesDataThatDoesNotFitTheModel) {
  Folder folder;
  const auto refused = [&](const Counting& set, const ModelConfig& config, const char* words) {
    const std::string said = error_of<UsageError>(
        [&] { train(any_context(), config, tiny_options(), set, set, folder / "run", false); });
    EXPECT_NE(said.find(words), std::string::npos) << said << ", which does not say: " << words;
    EXPECT_FALSE(std::filesystem::exists(folder / "run/config.json"));
  };
  refused(Counting(9, 7, 5), tiny_config(), "model.length = 7 as the data has, got 6");
  refused(Counting(9, 6, 6), tiny_config(), "model.vocabulary of at least 6 as the data has, got 5");
  ModelConfig classes = tiny_config();
  classes.classes = 3;
  refused(Counting(9, 6, 5), classes, "model.classes = 0 as the data has, got 3");
  refused(Counting(9, 6, 5, 4), classes, "model.classes = 4 as the data has, got 3");
}

TEST(Training, RefusesOptionsThatCannotBe) {
  Folder folder;
  const auto refused = [&](const char* key, const std::function<void(TrainingOptions&)>& change) {
    TrainingOptions options = tiny_options();
    change(options);
    const std::string message = error_of<UsageError>([&] { run(folder / "run", tiny_config(), options); });
    EXPECT_NE(message.find(key), std::string::npos) << message << ", which does not name " << key;
    EXPECT_FALSE(std::filesystem::exists(folder / "run/config.json")) << key;
  };
  refused("training.steps", [](auto& o) { o.steps = -1; });
  refused("training.batch", [](auto& o) { o.batch = 0; });
  refused("training.accumulate", [](auto& o) { o.accumulate = 0; });
  refused("training.learning_rate", [](auto& o) { o.learning_rate = std::nan(""); });
  refused("training.learning_rate", [](auto& o) { o.learning_rate = -1; });
  refused("training.optimiser", [](auto& o) { o.optimiser = static_cast<OptimiserKind>(99); });
  refused("training.schedule", [](auto& o) { o.schedule = static_cast<Schedule>(99); });
  refused("training.beta2", [](auto& o) { o.beta2 = 1; });
  refused("training.checkpoint_every", [](auto& o) { o.checkpoint_every = 0; });
  refused("training.keep_checkpoints", [](auto& o) { o.keep_checkpoints = 0; });
}

/// Examples without a target.
class Silent final : public Dataset {
 public:
  std::int64_t size() const override { return 5; }
  std::int64_t length() const override { return 6; }
  std::int64_t vocabulary() const override { return tiny_config().vocabulary; }
  std::int64_t read(std::int64_t, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    std::ranges::fill(tokens, 1);
    std::ranges::fill(targets, -1);
    return -1;
  }
};

TEST(Evaluation, OfNothingThatCountsIsRefused) {
  const auto model = random_model(tiny_config(), 5);
  EXPECT_EQ(error_of([&] { evaluate(any_context(), *model, Silent(), 0, 2); }),
            "[evaluate] expected examples with targets that count, got none in 5 examples");
  Folder folder;
  EXPECT_NE(error_of([&] {
              train(any_context(), tiny_config(), tiny_options(), training_set(), Silent(), folder.path(),
                    false);
            }).find("[evaluate] expected examples with targets"),
            std::string::npos);
}

TEST(Evaluation, IsTheReferencesMeanOverTheCountedTokens) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics})
    for (const bool uneven : {false, true}) {
      ModelConfig config = tiny_config();
      config.head = head;
      config.dropout = 0.5;  // not in evaluation
      const Counting set(7, 6, 5, 0, uneven);
      const auto model = random_model(config, 5);
      const Laid laid(set, config);
      std::int64_t right = 0;
      const auto rows = reference::head_parameters(config, by_name(*model), laid.ids, 6);
      for (std::size_t i = 0; i < laid.targets.size(); ++i) {
        const auto columns = static_cast<std::size_t>(rows.columns);
        const auto p =
            reference::log_probabilities(config, std::span(rows.values).subspan(i * columns, columns));
        right += laid.targets[i] >= 0 && laid.targets[i] == std::ranges::max_element(p) - p.begin();
      }
      for (const std::int64_t batch : {1, 3, 7, 50}) {
        const Evaluation all = evaluate(any_context(), *model, set, 0, batch, true);
        EXPECT_EQ(all.examples, 7);
        EXPECT_EQ(all.tokens, laid.counted);
        EXPECT_NEAR(all.bits, laid.bits(config, by_name(*model)), 1e-6);
        EXPECT_NEAR(all.accuracy, static_cast<double>(right) / static_cast<double>(laid.counted), 1e-9);
        EXPECT_TRUE(std::isnan(evaluate(any_context(), *model, set, 0, batch).accuracy));
      }
      EXPECT_EQ(evaluate(any_context(), *model, set, 3, 2).examples, 3);
      EXPECT_EQ(evaluate(any_context(), *model, set, 100, 2).examples, 7);
    }
}

}  // namespace
}  // namespace linnet
