// The parallel and the recurrent form of whole models against each other and against double precision.
#include <gtest/gtest.h>

#include "kernels/targets.h"
#include "linnet/error.h"
#include "model/transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 71;
constexpr double tolerance = 1e-5;

/// Every kind of attention, norm, position and head at least once.
std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> result;
  const auto add = [&](const char* attention, NormOrder norm, Positions positions, OutputDistribution head,
                       bool tied) {
    ModelConfig config = small_config();
    config.attention.family = attention == std::string("softmax") ? Family::softmax : Family::linear;
    if (config.attention.family == Family::linear) config.attention.linear.feature_map = attention;
    if (config.attention.linear.feature_map == "relu" ||
        config.attention.linear.feature_map == "squared-relu")
      config.attention.epsilon = 0.1;
    config.norm = norm;
    config.positions = positions;
    config.head = head;
    config.tied_output = tied;
    config.classes = tied ? 4 : 0;
    result.push_back(config);
  };
  add("elu", NormOrder::pre, Positions::learned, OutputDistribution::categorical, false);
  add("elu", NormOrder::post, Positions::sinusoidal, OutputDistribution::logistics, false);
  add("relu", NormOrder::pre, Positions::none, OutputDistribution::categorical, true);
  add("squared-relu", NormOrder::post, Positions::learned, OutputDistribution::categorical, false);
  add("exp", NormOrder::pre, Positions::sinusoidal, OutputDistribution::categorical, false);
  add("softmax", NormOrder::pre, Positions::learned, OutputDistribution::logistics, false);
  add("softmax", NormOrder::post, Positions::sinusoidal, OutputDistribution::categorical, true);
  for (const char* families : {"linear,local", "softmax,linear"}) {
    result.push_back(with_other_blocks(small_config(), families));
    result.back().attention.local.window = 40;
  }
  return result;
}

using Rows = std::vector<std::vector<float>>;

/// The head's numbers for every input, from the parallel form cut at `splits`.
Rows parallel(const Network& network, std::span<const std::int32_t> ids,
              std::vector<std::int64_t> splits = {}) {
  Transformer transformer(network);
  RecurrentState state(network, 1);
  const std::int64_t outputs = network.head().outputs();
  splits.push_back(static_cast<std::int64_t>(ids.size()));
  Rows rows;
  std::int64_t begin = 0;
  for (const std::int64_t end : splits) {
    const View<const float> hidden = transformer.forward(
        any_context(), ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), 1,
        end - begin, begin, begin > 0 ? &state : nullptr, &state);
    EXPECT_EQ(hidden.size(), (end - begin) * network.config().width);
    std::vector<float> numbers(static_cast<std::size_t>((end - begin) * outputs));
    network.head().forward(any_context(), view(numbers, {end - begin, outputs}),
                           hidden.reshape({end - begin, network.config().width}));
    for (auto row = numbers.begin(); row != numbers.end(); row += outputs)
      rows.emplace_back(row, row + outputs);
    begin = end;
  }
  EXPECT_EQ(state.position(0), begin);
  return rows;
}

Rows recurrent(const Network& network, std::span<const std::int32_t> ids) {
  const RecurrentTransformer transformer(network);
  RecurrentState state(network, 3);
  const std::int64_t slot[] = {1}, outputs = network.head().outputs();
  Rows rows;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    rows.emplace_back(static_cast<std::size_t>(outputs));
    transformer.step(any_context(), view(rows.back(), {1, outputs}), ids.subspan(t, 1), slot, state);
  }
  EXPECT_EQ(state.position(1), static_cast<std::int64_t>(ids.size()));
  EXPECT_EQ(state.position(0), 0);
  return rows;
}

/// Every row within the tolerance, and the best token the same unless the best two tie within it.
template <class Expected>
void expect_rows_match(const ModelConfig& config, const Rows& actual, const Expected& expected_row) {
  double worst = 0;
  for (std::size_t t = 0; t < actual.size(); ++t) {
    const std::vector<double> expected = expected_row(t);
    worst = larger(worst, relative_error(actual[t], expected));
    const auto ours = reference::log_probabilities(config, in_double(actual[t]));
    const auto theirs = reference::log_probabilities(config, expected);
    const auto best = std::ranges::max_element(theirs) - theirs.begin();
    const auto chosen = std::ranges::max_element(ours) - ours.begin();
    ASSERT_LE(theirs[static_cast<std::size_t>(best)] - theirs[static_cast<std::size_t>(chosen)], 1e-4)
        << "greedy token " << chosen << " instead of " << best << " at position " << t;
  }
  EXPECT_LT(worst, tolerance);
}

TEST(Forms, AgreeWithTheReferenceAtAThousandTokens) {
  for (const ModelConfig& config : configs()) {
    SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
    const auto model = random_model(config, seed);
    const auto ids = random_inputs(config, 1, 1000, seed);
    const reference::Matrix expected = reference::head_parameters(config, by_name(*model), ids, 1000);
    const auto row = [&](std::size_t t) {
      const double* from = &expected.values[t * static_cast<std::size_t>(expected.columns)];
      return std::vector<double>(from, from + expected.columns);
    };
    {
      SCOPED_TRACE("parallel form");
      expect_rows_match(config, parallel(network_of(*model), ids), row);
    }
    {
      SCOPED_TRACE("recurrent form");
      expect_rows_match(config, recurrent(network_of(*model), ids), row);
    }
    for (const std::vector<std::int64_t>& splits :
         {std::vector<std::int64_t>{1}, {63, 64, 65}, {64, 128, 192}, {0, 500, 500, 999}, {1, 2, 3, 1000}}) {
      SCOPED_TRACE(testing::Message() << "parallel form cut at " << testing::PrintToString(splits));
      expect_rows_match(config, parallel(network_of(*model), ids, splits), row);
    }
  }
}

TEST(Forms, AgreeAtEveryLengthUpTo300) {
  ModelConfig config = small_config();
  config.layers = 1;
  for (const Family family : {Family::linear, Family::softmax}) {
    config.attention.family = family;
    SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
    const auto model = random_model(config, seed);
    const auto ids = random_inputs(config, 1, 300, seed);
    const Rows steps = recurrent(network_of(*model), ids);
    for (std::size_t length = 0; length <= 300; ++length) {
      const Rows rows = parallel(network_of(*model), std::span(ids).first(length));
      ASSERT_EQ(rows.size(), length);
      expect_rows_match(config, rows, [&](std::size_t t) { return in_double(steps[t]); });
    }
  }
}

void expect_same_bits_alone_and_together(const ModelConfig& config) {
  SCOPED_TRACE(describe(config));
  const auto model = random_model(config, seed);
  const Network& network = network_of(*model);
  const RecurrentTransformer transformer(network);
  const std::int64_t streams = 71, steps = 10, outputs = network.head().outputs();
  const auto ids = random_tokens(streams * steps, config.vocabulary, seed);
  RecurrentState together(network, streams);
  std::vector<float> all(static_cast<std::size_t>(streams * outputs));
  std::vector<std::int64_t> order(streams);
  for (std::int64_t i = 0; i < streams; ++i) order[static_cast<std::size_t>(i)] = (4 * i + 2) % streams;
  Rows of_stream_5;
  for (std::int64_t t = 0; t < steps; ++t) {
    std::vector<std::int32_t> now;
    for (const std::int64_t stream : order) now.push_back(ids[static_cast<std::size_t>(stream * steps + t)]);
    transformer.step(any_context(), view(all, {streams, outputs}), now, order, together);
    const std::int64_t row = std::ranges::find(order, 5) - order.begin();
    of_stream_5.emplace_back(&all[static_cast<std::size_t>(row * outputs)],
                             &all[static_cast<std::size_t>(row * outputs)] + outputs);
  }
  const Rows alone = recurrent(network, std::span(ids).subspan(5 * steps, steps));
  for (std::size_t t = 0; t < alone.size(); ++t)
    ASSERT_TRUE(same_bits(alone[t], of_stream_5[t])) << "step " << t;
}

TEST(Forms, StreamsStepAloneOrTogetherWithTheSameBits) {
  kernels::for_every_target([] {
    for (const ModelConfig& config : configs()) expect_same_bits_alone_and_together(config);
  });
}

TEST(Forms, LossMatchesTheReferenceForBatches) {
  for (ModelConfig config : configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const std::int64_t batch = 3, length = 70;
    const auto ids = random_inputs(config, batch, length, seed);
    auto targets = random_tokens(batch * length, config.vocabulary, seed + 1);
    targets[7] = targets.back() = -1;
    Transformer transformer(network_of(*model));
    std::vector<float> nll(targets.size());
    const double loss = transformer.loss(any_context(), ids, targets, batch, length, nll);
    const double expected = reference::loss(config, by_name(*model), ids, targets, length);
    EXPECT_NEAR(loss, expected, 2e-6 * expected);
    double sum = 0;
    for (const float value : nll) sum += value;
    EXPECT_NEAR(sum, expected, 2e-6 * expected);
    EXPECT_EQ(nll[7], 0);
    EXPECT_EQ(transformer.loss(any_context(), ids, targets, batch, length), loss);
    const reference::Matrix rows = reference::head_parameters(config, by_name(*model), ids, length);
    std::vector<float> parameters(
        transformer.heads().parameters().data(),
        transformer.heads().parameters().data() + transformer.heads().parameters().size());
    EXPECT_LT(relative_error(parameters, rows.values), tolerance);
  }
}

TEST(Positions, LearnedOnesEndAtTheTrainedLengthWithASentence) {
  ModelConfig config = small_config();
  config.length = 12;
  const auto model = random_model(config, seed);
  const auto ids = random_inputs(config, 1, 13, seed);
  Transformer transformer(network_of(*model));
  EXPECT_NO_THROW(transformer.forward(any_context(), std::span(ids).first(12), 1, 12));
  EXPECT_THROW(transformer.forward(any_context(), ids, 1, 13), Error);
  const RecurrentTransformer stepper(network_of(*model));
  RecurrentState state(network_of(*model), 2);
  const std::int64_t outputs = config.vocabulary, slots[] = {0, 1};
  std::vector<float> row(static_cast<std::size_t>(outputs)), two(2 * row.size());
  for (std::size_t t = 0; t < 12; ++t)
    stepper.step(any_context(), view(row, {1, outputs}), std::span(ids).subspan(t, 1),
                 std::span(slots).first(1), state);
  try {
    stepper.step(any_context(), view(two, {2, outputs}), std::span(ids).first(2), slots, state);
    ADD_FAILURE() << "a learned position beyond the trained length was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("12"), std::string::npos) << error.what();
  }
  EXPECT_EQ(state.position(0), 12);
  EXPECT_EQ(state.position(1), 0) << "a stream moved although the step was refused";
}

TEST(Positions, SinusoidalAndRotaryOnesAndNoneGoOn) {
  for (const Positions positions : {Positions::sinusoidal, Positions::rotary, Positions::none}) {
    ModelConfig config = small_config();
    config.width = 24;
    config.length = 12;
    config.positions = positions;
    SCOPED_TRACE(name_of(positions));
    const auto model = random_model(config, seed);
    const auto ids = random_inputs(config, 1, 200, seed);
    const reference::Matrix expected = reference::head_parameters(config, by_name(*model), ids, 200);
    const Rows rows = recurrent(network_of(*model), ids);
    for (std::size_t t : {11u, 12u, 13u, 199u})
      EXPECT_LT(relative_error(rows[t], std::span(expected.values).subspan(t * 11, 11)), tolerance) << t;
  }
}

TEST(RecurrentTransformer, RefusesTokensOutsideAndMovesNothing) {
  ModelConfig config = small_config();
  const auto model = random_model(config, seed);
  const RecurrentTransformer stepper(network_of(*model));
  RecurrentState state(network_of(*model), 2), fresh(network_of(*model), 2);
  const std::int64_t outputs = config.vocabulary, slots[] = {0, 1};
  std::vector<float> rows(static_cast<std::size_t>(2 * outputs)), expected(rows.size());
  const std::vector<std::int32_t> good = {1, 2};
  for (const std::int32_t token : {-1, 12, 1 << 30}) {
    const std::vector<std::int32_t> bad = {1, token};
    EXPECT_THROW(stepper.step(any_context(), view(rows, {2, outputs}), bad, slots, state), Error) << token;
  }
  EXPECT_EQ(state.position(0), 0);
  stepper.step(any_context(), view(rows, {2, outputs}), good, slots, state);
  stepper.step(any_context(), view(expected, {2, outputs}), good, slots, fresh);
  EXPECT_TRUE(same_bits(rows, expected));
}

}  // namespace
}  // namespace linnet
