// Models whose steps have several fields or real numbers, and classifiers: losses and gradients against
// double precision, padding against single sequences, and the recurrent form against the parallel one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "linnet/error.h"
#include "model/training_transformer.h"
#include "model/transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 93;
constexpr float none = std::numeric_limits<float>::quiet_NaN();

struct Case {
  const char* name;
  std::function<void(ModelConfig&)> change;
};

std::vector<Case> cases() {
  const auto series = [](ModelConfig& config, std::int64_t columns) {
    config.vocabulary = 0;
    config.columns = columns;
  };
  return {
      {"two fields",
       [](ModelConfig& config) {
         config.fields = "5,3";
         config.classes = 2;
       }},
      {"four fields after norms, softmax",
       [](ModelConfig& config) {
         config.fields = "2,5,4,3";
         config.norm = NormOrder::post;
         config.attention.family = Family::softmax;
       }},
      {"squared error of one column",
       [=](ModelConfig& config) {
         series(config, 1);
         config.value_head = ValueDistribution::squared_error;
       }},
      {"Gaussian of three columns with classes",
       [=](ModelConfig& config) {
         series(config, 3);
         config.classes = 3;
       }},
      {"Student's t, relative, two steps at once",
       [=](ModelConfig& config) {
         series(config, 2);
         config.targets = 4;
         config.relative = true;
         config.value_head = ValueDistribution::student_t;
         config.positions = Positions::sinusoidal;
       }},
      {"patches of three rows of two columns, inputs and targets relative",
       [=](ModelConfig& config) {
         series(config, 6);
         config.patch = 3;
         config.targets = 8;
         config.relative = config.relative_inputs = true;
         config.positions = Positions::none;
       }},
      {"patches of two rows, inputs alone relative",
       [=](ModelConfig& config) {
         series(config, 2);
         config.patch = 2;
         config.relative_inputs = true;
         config.value_head = ValueDistribution::squared_error;
       }},
      {"fields and columns",
       [](ModelConfig& config) {
         config.fields = "5,2";
         config.columns = 2;
       }},
      {"same step, causal, columns alone",
       [=](ModelConfig& config) {
         series(config, 2);
         config.targets = 1;
         config.objective = Objective::same_step;
       }},
      {"same step, relative",
       [=](ModelConfig& config) {
         series(config, 2);
         config.relative = true;
         config.objective = Objective::same_step;
       }},
      {"same step, bidirectional, tokens",
       [](ModelConfig& config) {
         config.targets = 2;
         config.objective = Objective::same_step;
         config.bidirectional = true;
         config.positions = Positions::none;
       }},
      {"hidden tokens of three fields",
       [](ModelConfig& config) {
         config.fields = "5,2,4";
         config.objective = Objective::masked;
       }},
      {"hidden tokens of two fields after norms, softmax, rotary",
       [](ModelConfig& config) {
         config.fields = "3,5";
         config.objective = Objective::masked;
         config.norm = NormOrder::post;
         config.width = 8;
         config.positions = Positions::rotary;
         config.attention.family = Family::softmax;
       }},
      {"classifier of tokens",
       [](ModelConfig& config) {
         config.objective = Objective::classify;
         config.classes = 3;
         config.bidirectional = true;
       }},
      {"causal classifier of columns, norms after",
       [=](ModelConfig& config) {
         series(config, 2);
         config.objective = Objective::classify;
         config.classes = 2;
         config.norm = NormOrder::post;
       }},
  };
}

ModelConfig config_of(const Case& test) {
  ModelConfig config = tiny_config();
  test.change(config);
  config.check();
  return config;
}

std::int32_t draw(Random& random, std::int64_t below) {
  return static_cast<std::int32_t>(random.bits(0) % static_cast<std::uint32_t>(below));
}

/// Random steps that a model takes, a seed of their own for each entry of the batch. Some targets do not
/// count.
reference::Steps random_steps(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                              std::uint64_t own_seed = seed) {
  reference::Steps steps{.batch = batch, .length = length};
  const std::vector<std::int64_t> sizes = config.field_sizes();
  const auto count = static_cast<std::size_t>(batch * length);
  const auto numbers =
      normals(static_cast<std::int64_t>(count) * (config.columns + config.target_count()), own_seed);
  std::size_t next = 0;
  std::uint32_t drawn = 0;
  const auto token = [&](std::int64_t below) {
    Random random(own_seed, Draw::synthetic_data, ++drawn);
    return draw(random, below);
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t f = 0; f < config.input_fields(); ++f) {
        const auto size = static_cast<std::size_t>(f) < sizes.size() ? sizes[static_cast<std::size_t>(f)] : 0;
        if (i == 0 && config.shifted())
          steps.ids.push_back(f == 0 ? config.first_input(config.classes > 0 ? b % config.classes : -1)
                                     : static_cast<std::int32_t>(size));
        else
          steps.ids.push_back(size == 0 ? -1 : token(config.masked() ? size + 1 : size));
      }
      for (std::int64_t c = 0; c < config.columns; ++c)
        steps.values.push_back(i == 0 && config.shifted() ? none : 3 + 2 * numbers[next++]);
      if (config.shifted() || config.masked())
        for (const std::int64_t size : sizes) steps.targets.push_back(i == 2 ? -1 : token(size));
      for (std::int64_t t = 0; t < config.target_count(); ++t)
        steps.value_targets.push_back(i == 1 && t == 0 ? none : 1 - numbers[next++]);
    }
    if (config.classifies()) steps.labels.push_back(static_cast<std::int32_t>(b % config.classes));
  }
  return steps;
}

Pass pass_of(const reference::Steps& steps) {
  return {.batch = steps.batch,
          .length = steps.length,
          .ids = steps.ids,
          .values = steps.values,
          .key_lengths = steps.key_lengths,
          .targets = steps.targets,
          .conditions = steps.conditions,
          .value_targets = steps.value_targets,
          .labels = steps.labels};
}

/// Entry `b` of a batch, its first `known` steps.
reference::Steps entry_of(const reference::Steps& all, std::int64_t b, std::int64_t known) {
  reference::Steps one{.batch = 1, .length = known};
  const auto copy = [&](const auto& from, auto& to) {
    const std::size_t each = from.size() / static_cast<std::size_t>(all.batch * all.length);
    const auto begin =
        from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b * all.length) * each);
    to.assign(begin, begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(known) * each));
  };
  copy(all.ids, one.ids);
  copy(all.values, one.values);
  copy(all.targets, one.targets);
  copy(all.value_targets, one.value_targets);
  if (!all.labels.empty()) one.labels = {all.labels[static_cast<std::size_t>(b)]};
  return one;
}

void expect_reference(const ModelConfig& config, const reference::Steps& steps) {
  Network network(config);
  const Tensor values = values_with_deviations(network, seed);
  network.pack(any_context(), values.span<float>(), true);
  TrainingTransformer transformer(network, 4, 6);
  Tensor gradients = Tensor::of<float>({network.table().size()});
  double loss = 0;
  for (int time = 0; time < 2; ++time) {
    loss = transformer.forward(any_context(), pass_of(steps), 0.125f, {});
    transformer.backward(any_context(), gradients.span<float>());
  }
  EXPECT_EQ(transformer.first_not_finite(any_context()), "");

  reference::Parameters at = by_name(network.table(), values.span<float>()), fixed;
  for (const auto& row : network.table().rows())
    if (!row.trained) fixed.insert(at.extract(row.name));
  const Loss expected = [&](const reference::Parameters& p) {
    reference::Parameters all = p;
    all.insert(fixed.begin(), fixed.end());
    return reference::loss(config, all, steps);
  };
  EXPECT_NEAR(loss, expected(at), 2e-6 * std::abs(expected(at)));
  reference::Parameters actual = by_name(network.table(), gradients.span<float>(), 0.5 / 0.125);
  for (const auto& [name, numbers] : fixed) {
    for (const double number : actual.at(name)) EXPECT_EQ(number, 0) << name;
    actual.erase(name);
  }
  expect_gradients(actual, differences(expected, at), 5e-5);
  expect_padding_is_zero(network.table(), gradients.span<float>());

  Transformer alone(network);
  std::vector<float> nll(
      static_cast<std::size_t>(config.classifies() ? steps.batch : steps.batch * steps.length));
  EXPECT_NEAR(alone.loss(any_context(), pass_of(steps), nll), loss, 1e-6 * std::abs(loss));
  double sum = 0;
  for (const float value : nll) sum += value;
  EXPECT_NEAR(sum, loss, 2e-6 * std::abs(loss));
}

TEST(Steps, LossAndGradientsMatchTheReference) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(testing::Message() << test.name << ", seed " << seed);
    const ModelConfig config = config_of(test);
    expect_reference(config, random_steps(config, 3, 5));
  }
}

TEST(Steps, FieldsThatDoNotCountAreKnownToLaterOnesWhereTheyAreGiven) {
  ModelConfig config = tiny_config();
  config.fields = "2,5,4";
  reference::Steps steps = random_steps(config, 3, 5);
  steps.conditions = steps.targets;
  for (std::size_t i = 0; i < steps.targets.size(); i += 2) steps.targets[i] = -1;
  expect_reference(config, steps);
}

TEST(Steps, PaddedBatchesHaveTheLossesAndGradientsOfTheSingleSequences) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(testing::Message() << test.name << ", seed " << seed);
    const ModelConfig config = config_of(test);
    Network network(config);
    const Tensor values = values_with_deviations(network, seed);
    network.pack(any_context(), values.span<float>(), true);
    reference::Steps steps = random_steps(config, 3, 6);
    steps.key_lengths = {6, 1, 4};
    Tensor together = Tensor::of<float>({network.table().size()}), single = together.clone();
    double sum = 0;
    TrainingTransformer transformer(network, 3, 6);
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t known = steps.key_lengths[static_cast<std::size_t>(b)];
      const auto behind = [&](auto& all, auto value) {
        const std::size_t each = all.size() / 18;
        std::fill(all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b * 6 + known) * each),
                  all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b * 6 + 6) * each),
                  value);
      };
      behind(steps.targets, -1);
      behind(steps.value_targets, none);
      const reference::Steps one = entry_of(steps, b, known);
      sum += transformer.forward(any_context(), pass_of(one), 1, {});
      transformer.backward(any_context(), single.span<float>());
    }
    const double loss = transformer.forward(any_context(), pass_of(steps), 1, {});
    transformer.backward(any_context(), together.span<float>());
    EXPECT_NEAR(loss, sum, 2e-6 * std::abs(sum));
    std::vector<double> expected(single.span<float>().begin(), single.span<float>().end());
    EXPECT_LT(relative_error(together.span<float>(), expected), 1e-5);
  }
}

/// Several sequences one after another, with their positions, behind those that are there.
void append(reference::Steps& all, std::vector<std::int32_t>& positions, const reference::Steps& one) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  add(all.ids, one.ids);
  add(all.values, one.values);
  add(all.targets, one.targets);
  add(all.value_targets, one.value_targets);
  for (std::int64_t i = 0; i < one.length; ++i) positions.push_back(static_cast<std::int32_t>(i));
}

/// The same steps as padding, which nothing sees and which do not count.
void append_padding(reference::Steps& all, std::vector<std::int32_t>& positions, reference::Steps steps) {
  std::ranges::fill(steps.targets, -1);
  std::ranges::fill(steps.value_targets, none);
  const std::int32_t before = positions.back();
  append(all, positions, steps);
  for (std::int64_t i = 0; i < steps.length; ++i)
    positions[positions.size() - static_cast<std::size_t>(steps.length - i)] =
        before + 1 + static_cast<std::int32_t>(i);
}

/// Models that take several sequences in an example.
std::vector<Case> packed_cases() {
  std::vector<Case> result;
  for (const Case& test : cases())
    if (!config_of(test).classifies()) result.push_back(test);
  const auto add = [&](const char* name, Family family, Positions positions, Objective objective) {
    result.push_back({name, [=](ModelConfig& config) {
                        config.width = 8;
                        config.attention.family = family;
                        config.attention.local.window = 1;
                        config.positions = positions;
                        config.objective = objective;
                      }});
  };
  add("linear, rotary", Family::linear, Positions::rotary, Objective::next_token);
  add("linear, sinusoidal, both sides", Family::linear, Positions::sinusoidal, Objective::masked);
  add("softmax, rotary", Family::softmax, Positions::rotary, Objective::next_token);
  add("softmax, learned, both sides", Family::softmax, Positions::learned, Objective::masked);
  add("local, rotary", Family::local, Positions::rotary, Objective::next_token);
  add("local, learned, both sides", Family::local, Positions::learned, Objective::masked);
  add("kernel, learned", Family::kernel, Positions::learned, Objective::next_token);
  for (const Decay decay : {Decay::fixed, Decay::learned})
    result.push_back({"linear with decay", [=](ModelConfig& config) {
                        config.attention.linear.decay = decay;
                        config.classes = 2;
                      }});
  return result;
}

TEST(Steps, PackedBatchesHaveTheLossesAndGradientsOfTheSingleAndOfThePaddedSequences) {
  for (const Case& test : packed_cases()) {
    SCOPED_TRACE(testing::Message() << test.name << ", seed " << seed);
    const ModelConfig config = config_of(test);
    Network network(config);
    const Tensor values = values_with_deviations(network, seed);
    network.pack(any_context(), values.span<float>(), true);
    Tensor single = Tensor::of<float>({network.table().size()});
    TrainingTransformer transformer(network, 5, 6);

    // Two examples of 6 steps: sequences of 2, 3 and 1, and of 1 and 3 with 2 steps of padding behind.
    const std::vector<std::int64_t> lengths = {2, 3, 1, 1, 3};
    reference::Steps packed{.batch = 2, .length = 6}, padded{.batch = 5, .length = 6};
    std::vector<std::int32_t> positions, unused;
    double sum = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const reference::Steps one = random_steps(config, 1, lengths[i], seed + i);
      sum += transformer.forward(any_context(), pass_of(one), 1, {});
      transformer.backward(any_context(), single.span<float>());
      append(packed, positions, one);
      append(padded, unused, one);
      if (lengths[i] < 6)
        append_padding(padded, unused, random_steps(config, 1, 6 - lengths[i], seed + 40 + i));
    }
    append_padding(packed, positions, random_steps(config, 1, 2, seed + 50));
    packed.key_lengths = {6, 4};
    padded.key_lengths = lengths;
    std::vector<double> expected(single.span<float>().begin(), single.span<float>().end());
    const auto check = [&](const char* what, const Pass& pass) {
      Tensor gradients = Tensor::of<float>({network.table().size()});
      EXPECT_NEAR(transformer.forward(any_context(), pass, 1, {}), sum, 2e-6 * std::abs(sum)) << what;
      transformer.backward(any_context(), gradients.span<float>());
      EXPECT_LT(relative_error(gradients.span<float>(), expected), 1e-5) << what;
      Transformer alone(network);
      EXPECT_NEAR(alone.loss(any_context(), pass), sum, 2e-6 * std::abs(sum)) << what;
    };
    Pass pass = pass_of(packed);
    pass.positions = positions;
    check("packed", pass);
    check("padded", pass_of(padded));
  }
}

TEST(Steps, WeightsOfHeadsMultiplyGradientsAndNotLosses) {
  for (const char* name :
       {"four fields after norms, softmax", "fields and columns", "hidden tokens of three fields"}) {
    const std::vector<Case> all = cases();
    const Case& test =
        *std::ranges::find(all, std::string(name), [](const Case& c) { return std::string(c.name); });
    SCOPED_TRACE(testing::Message() << test.name << ", seed " << seed);
    const ModelConfig config = config_of(test);
    Network network(config);
    const Tensor values = values_with_deviations(network, seed);
    network.pack(any_context(), values.span<float>(), true);
    reference::Steps steps = random_steps(config, 2, 4);
    TrainingTransformer transformer(network, 2, 4);
    const double unweighted = transformer.forward(any_context(), pass_of(steps), 1, {});
    std::vector<float> weights;
    for (std::size_t f = 0; f < config.field_sizes().size(); ++f)
      weights.push_back(f == 1 ? 0.0f : 0.5f + static_cast<float>(f));
    steps.field_weights.assign(weights.begin(), weights.end());
    if (config.target_count() > 0) weights.push_back(3);
    steps.value_weight = 3;
    Pass pass = pass_of(steps);
    pass.head_weights = weights;
    Tensor gradients = Tensor::of<float>({network.table().size()});
    EXPECT_EQ(transformer.forward(any_context(), pass, 1, {}), unweighted);
    transformer.backward(any_context(), gradients.span<float>());
    reference::Parameters at = by_name(network.table(), values.span<float>()), fixed;
    for (const auto& row : network.table().rows())
      if (!row.trained) fixed.insert(at.extract(row.name));
    reference::Parameters actual = by_name(network.table(), gradients.span<float>());
    for (const auto& entry : fixed) actual.erase(entry.first);
    const Loss weighted = [&](const reference::Parameters& p) {
      reference::Parameters whole = p;
      whole.insert(fixed.begin(), fixed.end());
      return reference::loss(config, whole, steps);
    };
    expect_gradients(actual, differences(weighted, at), 5e-5);
  }
}

TEST(Steps, FillingGivesTheDistributionOfEveryHiddenField) {
  ModelConfig config = tiny_config();
  config.objective = Objective::masked;
  config.fields = "5,2,4";
  const auto model = random_model(config, seed);
  // Two sequences of 4 steps, the second with one step of padding.
  const std::vector<std::int32_t> tokens = {4,  -1, 0, -1, -1, 3, 1, 1, -1, 0,  0,  2,
                                            -1, 0,  1, 2,  -1, 3, 3, 0, 0,  -1, -1, -1};
  const std::vector<std::int64_t> key_lengths = {4, 3};
  const Filling filling = model->fill(any_context(), tokens, 2, 4, key_lengths);
  EXPECT_EQ(filling.positions, (std::vector<std::int64_t>{1, 3, 4, 8, 12, 16}));
  const std::int64_t sizes[] = {5, 2, 4};
  std::vector<std::int32_t> inputs = tokens;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] < 0) inputs[i] = static_cast<std::int32_t>(sizes[i % 3]);
  Transformer transformer(network_of(*model));
  for (std::size_t i = 0; i < filling.positions.size(); ++i) {
    const auto at = static_cast<std::size_t>(filling.positions[i]);
    float most = 0;
    for (std::int64_t token = 0; token < config.vocabulary; ++token) {
      const float probability = filling.probabilities.view<float>()(static_cast<std::int64_t>(i), token);
      if (token >= sizes[at % 3]) {
        EXPECT_EQ(probability, 0);
        continue;
      }
      std::vector<std::int32_t> targets(inputs.size(), -1);
      targets[at] = static_cast<std::int32_t>(token);
      const double nats = transformer.loss(
          any_context(),
          {.batch = 2, .length = 4, .ids = inputs, .key_lengths = key_lengths, .targets = targets});
      EXPECT_NEAR(probability, std::exp(-nats), 1e-6);
      most = std::max(most, probability);
    }
    EXPECT_EQ(filling.probabilities.view<float>()(static_cast<std::int64_t>(i), filling.tokens[i]), most);
  }
  EXPECT_THROW(model->fill(any_context(), std::vector<std::int32_t>{0, 3, 0}, 1, 1), UsageError);
}

TEST(Steps, WhatPaddingHoldsChangesNoLabelAndNoDensity) {
  ModelConfig config = tiny_config();
  config.objective = Objective::classify;
  config.classes = 3;
  config.bidirectional = true;
  config.fields = "5,2";
  config.columns = 1;
  std::vector<std::int32_t> tokens = {4, 1, 0, 0, 2, 1, 3, 0, 1, 1, 0, 0};
  std::vector<float> values = {0.5f, none, -1, 2, 0, 1};
  const std::vector<std::int64_t> known = {3, 1};
  const Steps steps{.batch = 2, .length = 3, .tokens = tokens, .values = values, .key_lengths = known};
  const auto numbers = [](const Tensor& tensor) {
    const View<const float> view = tensor.view<float>();
    return std::vector<float>(view.data(), view.data() + view.size());
  };
  const auto classifier = random_model(config, seed);
  const std::vector<float> labels = numbers(classifier->classify(any_context(), steps));
  config.objective = Objective::same_step;
  config.classes = 0;
  config.targets = 1;
  const auto filter = random_model(config, seed);
  const std::vector<float> means = numbers(filter->predict(any_context(), steps).mean);

  tokens[8] = 1000000;
  tokens[11] = -100;
  values[4] = std::numeric_limits<float>::infinity();
  values[5] = 1e38f;
  EXPECT_EQ(numbers(classifier->classify(any_context(), steps)), labels);
  const std::vector<float> again = numbers(filter->predict(any_context(), steps).mean);
  for (const std::size_t step : {0, 1, 2, 3}) EXPECT_EQ(again[step], means[step]) << step;

  const auto refused = [&](const std::string& part) {
    const auto says = [&](const auto& call, const std::string& operation) {
      try {
        call();
        ADD_FAILURE() << "expected a refusal that says " << part;
      } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()), "[" + operation + "] expected " + part);
      }
    };
    says([&] { classifier->classify(any_context(), steps); }, "classify");
    says([&] { filter->predict(any_context(), steps); }, "predict");
  };
  tokens[7] = 2;
  refused("tokens of field 1 in -1 … 1, got 2");
  tokens[7] = 1;
  values[3] = -std::numeric_limits<float>::infinity();
  refused("finite values, got -inf");
}

TEST(Steps, RecurrentFormGivesTheHiddenRowsOfTheParallelOne) {
  for (const Case& test : cases()) {
    ModelConfig config = config_of(test);
    if (!config.shifted()) continue;
    SCOPED_TRACE(testing::Message() << test.name << ", seed " << seed);
    if (config.positions == Positions::learned) config.length = 70;
    const std::int64_t length = 70, width = config.width;
    Network network(config);
    const Tensor values = values_with_deviations(network, seed);
    network.pack(any_context(), values.span<float>(), false);
    const reference::Steps steps = random_steps(config, 1, length);
    const reference::Matrix expected =
        reference::hidden_rows(config, by_name(network.table(), values.span<float>()), steps);
    NormalisedInputs normalised;
    const StepInputs inputs = normalised.of(network, pass_of(steps));
    Transformer parallel(network);
    const View<const float> rows = parallel.forward(any_context(), inputs, 1, length);
    EXPECT_LT(relative_error(std::vector<float>(rows.data(), rows.data() + rows.size()), expected.values),
              1e-5);

    const RecurrentTransformer recurrent(network);
    RecurrentState state(network, 2);
    std::vector<float> hidden(static_cast<std::size_t>(length * width));
    const std::int64_t slot[] = {1};
    const auto fields = static_cast<std::size_t>(config.input_fields());
    for (std::int64_t i = 0; i < length; ++i)
      recurrent.hidden(any_context(), View<float>(&hidden[static_cast<std::size_t>(i * width)], {1, width}),
                       {inputs.ids.subspan(static_cast<std::size_t>(i) * fields, fields),
                        config.columns > 0 ? inputs.values.slice(0, i, i + 1) : inputs.values},
                       slot, state);
    EXPECT_LT(relative_error(hidden, expected.values), 1e-5);
  }
}

TEST(Steps, HiddenRowsAreThoseOfTheReference) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(testing::Message() << test.name << ", seed " << seed);
    const ModelConfig config = config_of(test);
    const auto model = random_model(config, seed);
    reference::Steps steps = random_steps(config, 3, 6);
    const std::vector<std::int64_t> known = {6, 1, 4};
    // What stands in the padding does not matter.
    for (std::int64_t b = 0; b < 3; ++b)
      for (std::int64_t i = known[static_cast<std::size_t>(b)]; i < 6; ++i) {
        const auto row = static_cast<std::size_t>(b * 6 + i);
        for (std::size_t f = 0; f < steps.ids.size() / 18; ++f)
          steps.ids[row * (steps.ids.size() / 18) + f] = 99;
      }
    const Tensor rows = model->hidden(
        any_context(),
        {.batch = 3, .length = 6, .tokens = steps.ids, .values = steps.values, .key_lengths = known});
    ASSERT_EQ(rows.size(), 18 * config.width);
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t here = known[static_cast<std::size_t>(b)];
      const float* const begin = rows.view<float>().at(b);
      const reference::Matrix expected =
          reference::hidden_rows(config, by_name(*model), entry_of(steps, b, here));
      EXPECT_LT(relative_error(std::vector<float>(begin, begin + here * config.width), expected.values),
                1e-5);
    }
  }
}

TEST(Steps, ConfigurationsThatDoNotGoTogetherAreRefused) {
  const auto refused = [](const std::function<void(ModelConfig&)>& change, const std::string& part) {
    ModelConfig config = tiny_config();
    change(config);
    try {
      config.check();
      ADD_FAILURE() << "expected a refusal that says " << part;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused([](ModelConfig& c) { c.vocabulary = 0; }, "without inputs");
  refused([](ModelConfig& c) { c.fields = "5,"; }, "separated by commas");
  refused([](ModelConfig& c) { c.fields = "5,1"; }, "each of model.fields of at least 2");
  refused([](ModelConfig& c) { c.fields = "4,3"; }, "largest of model.fields, 4, got 5");
  refused(
      [](ModelConfig& c) {
        c.fields = "5,3";
        c.tied_output = true;
      },
      "model.tied_output");
  refused([](ModelConfig& c) { c.objective = Objective::classify; }, "model.classes");
  refused([](ModelConfig& c) { c.objective = Objective::same_step; }, "model.targets");
  refused([](ModelConfig& c) { c.targets = 1; }, "without columns");
  refused([](ModelConfig& c) { c.relative = true; }, "model.relative");
  refused([](ModelConfig& c) { c.relative_inputs = true; }, "model.relative_inputs");
  refused(
      [](ModelConfig& c) {
        c.columns = 5;
        c.patch = 2;
      },
      "a multiple of model.patch = 2, got 5");
  refused([](ModelConfig& c) { c.bidirectional = true; }, "model.bidirectional");
}

}  // namespace
}  // namespace linnet
