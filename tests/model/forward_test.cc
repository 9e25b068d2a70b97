// The public forward: logits, hidden rows, scores and fillings of whole models.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "model/transformer.h"
#include "reference/transformer.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 131;

/// Decoders of every family and of both heads.
std::vector<ModelConfig> decoders() {
  std::vector<ModelConfig> result;
  for (const Family family :
       {Family::linear, Family::softmax, Family::local, Family::strided, Family::kernel, Family::lsh})
    for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics}) {
      ModelConfig config = small_config();
      config.attention.family = family;
      config.head = head;
      config.attention.local.window = 20;
      config.classes = head == OutputDistribution::logistics ? 3 : 0;
      config.positions = family == Family::linear ? Positions::sinusoidal : Positions::learned;
      result.push_back(config);
    }
  return result;
}

ModelConfig encoder() {
  ModelConfig config = small_config();
  config.objective = Objective::masked;
  return config;
}

std::int64_t some_label(const ModelConfig& config) { return config.classes > 0 ? 2 : -1; }

std::vector<double> row_of(const reference::Matrix& rows, std::int64_t i) {
  const double* from = &rows.values[static_cast<std::size_t>(i * rows.columns)];
  return {from, from + rows.columns};
}

/// log-softmax in double precision.
std::vector<double> normalised(std::span<const float> logits) {
  double sum = 0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value));
  std::vector<double> result;
  for (const float value : logits) result.push_back(value - std::log(sum));
  return result;
}

TEST(Forward, LogitsAreTheReferences) {
  const std::int64_t batch = 3, length = 70;
  for (const ModelConfig& config : decoders()) {
    // Rounding may move a token of lsh to another bucket; strided and kernel models have no reference.
    if (config.attention.family == Family::lsh || config.attention.family == Family::strided ||
        config.attention.family == Family::kernel)
      continue;
    SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
    const auto model = random_model(config, seed);
    const auto ids = random_inputs(config, batch, length, seed);
    const Tensor logits = model->forward(any_context(), ids, batch, length);
    ASSERT_EQ(logits.shape(), (Shape{batch, length, config.vocabulary}));
    const auto expected = reference::head_parameters(config, by_name(*model), ids, length);
    for (std::int64_t i = 0; i < batch * length; ++i) {
      const auto row = logits.span<float>().subspan(static_cast<std::size_t>(i * config.vocabulary),
                                                    static_cast<std::size_t>(config.vocabulary));
      EXPECT_LT(relative_error(normalised(row), reference::log_probabilities(config, row_of(expected, i))),
                2e-5)
          << "row " << i;
      if (config.head == OutputDistribution::logistics) {
        EXPECT_LT(relative_error(row, normalised(row)), 2e-5) << "not normalised in row " << i;
      }
    }
  }
}

TEST(Forward, HiddenRowsAreWhatTheHeadTakes) {
  const std::int64_t batch = 2, length = 33;
  for (const ModelConfig& config : {decoders().front(), encoder()}) {
    const auto model = random_model(config, seed);
    const auto ids = random_inputs(config, batch, length, seed);
    const Tensor hidden = model->hidden(any_context(), ids, batch, length);
    EXPECT_EQ(hidden.shape(), (Shape{batch, length, config.width}));
    Tensor logits = Tensor::of<float>({batch * length, config.vocabulary});
    network_of(*model).head().forward(any_context(), logits.view<float>(),
                                      hidden.view<float>().reshape({batch * length, config.width}));
    EXPECT_TRUE(
        same_bits(logits.span<float>(), model->forward(any_context(), ids, batch, length).span<float>()));
  }
}

TEST(Forward, APassThatMemoryCannotHoldIsRefused) {
  ModelConfig config;
  config.layers = config.heads = 1;
  config.width = 2;
  config.feed_forward = std::int64_t{1} << 18;
  config.length = std::int64_t{1} << 21;
  config.positions = Positions::sinusoidal;
  const auto model = Model::random(config, seed);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(config.length));
  const std::string said = error_of<Error>([&] { model->hidden(any_context(), ids, 1, config.length); });
  EXPECT_NE(said.find("[memory] expected a pass of 2097152 tokens to fit into"), std::string::npos) << said;
  EXPECT_EQ(model->hidden(any_context(), std::span(ids).first(3), 1, 3).shape()[1], 3);
}

TEST(Forward, PaddingMayHoldAnythingAndChangesNothing) {
  const std::int64_t length = 40;
  for (const ModelConfig& config : {decoders().front(), encoder()}) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    auto ids = random_inputs(config, 2, length, seed);
    const std::int64_t key_lengths[] = {length, 17};
    const auto rows = static_cast<std::size_t>((length + 17) * config.vocabulary);
    const Tensor before = model->forward(any_context(), ids, 2, length, key_lengths);
    std::fill(ids.begin() + length + 17, ids.end(), -5);
    const Tensor after = model->forward(any_context(), ids, 2, length, key_lengths);
    EXPECT_TRUE(same_bits(before.span<float>().first(rows), after.span<float>().first(rows)));
    EXPECT_THROW(model->forward(any_context(), ids, 2, length), UsageError);
  }
}

TEST(Forward, BitsAreThoseOfAnyNumberOfThreadsAndOfContextsAtOnce) {
  for (const ModelConfig& config : decoders()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const auto ids = random_inputs(config, 2, 100, seed);
    const Tensor expected = model->forward(any_context(), ids, 2, 100);
    std::vector<Tensor> found(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < found.size(); ++i)
      threads.emplace_back([&, i] {
        Context own(static_cast<int>(i + 1));
        found[i] = model->forward(own, ids, 2, 100);
      });
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& logits : found) EXPECT_TRUE(same_bits(logits.span<float>(), expected.span<float>()));
  }
}

TEST(Score, IsTheLogProbabilityOfEveryToken) {
  for (const ModelConfig& config : decoders()) {
    SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
    const auto model = random_model(config, seed);
    for (const std::int64_t length : {1, 40, 512, 513, 1000}) {
      const auto tokens = random_tokens(length, config.vocabulary, seed + 1);
      const std::vector<float> scores = model->score(any_context(), tokens, some_label(config));
      std::vector<std::int32_t> inputs = {config.first_input(some_label(config))};
      inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
      const Tensor logits = model->forward(any_context(), inputs, 1, length);
      std::vector<double> expected;
      for (std::int64_t i = 0; i < length; ++i)
        expected.push_back(normalised(logits.span<float>().subspan(
            static_cast<std::size_t>(i * config.vocabulary),
            static_cast<std::size_t>(
                config.vocabulary)))[static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)])]);
      EXPECT_LT(relative_error(scores, expected), 2e-5) << length << " tokens";
    }
    EXPECT_TRUE(model->score(any_context(), {}, some_label(config)).empty());
  }
}

TEST(Score, WorkingMemoryOfALinearModelDoesNotGrowWithTheSequence) {
  ModelConfig config = small_config();
  config.positions = Positions::none;
  const auto model = random_model(config, seed);
  const auto bytes_for = [&](std::int64_t length) {
    Context own(1);
    model->score(own, random_tokens(length, config.vocabulary, seed));
    return own.workspace_bytes();
  };
  EXPECT_EQ(bytes_for(20'000), bytes_for(2'000));
}

TEST(Fill, PredictsHiddenTokensFromTheOthers) {
  const std::int64_t batch = 2, length = 50;
  const ModelConfig config = encoder();
  const auto model = random_model(config, seed);
  auto tokens = random_tokens(batch * length, config.vocabulary, seed);
  const std::vector<std::int64_t> hidden = {0, 7, 49, 50, 60};
  auto inputs = tokens;
  for (const std::int64_t i : hidden) {
    tokens[static_cast<std::size_t>(i)] = -1;
    inputs[static_cast<std::size_t>(i)] = config.mask_token();
  }
  std::fill(tokens.begin() + length + 20, tokens.end(), -1);  // padding is not hidden
  const std::int64_t key_lengths[] = {length, 20};
  const Filling filling = model->fill(any_context(), tokens, batch, length, key_lengths);
  EXPECT_EQ(filling.positions, hidden);
  ASSERT_EQ(filling.probabilities.shape(), (Shape{5, config.vocabulary}));
  const Tensor logits = model->forward(any_context(), inputs, batch, length, key_lengths);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const auto width = static_cast<std::size_t>(config.vocabulary);
    const auto row = filling.probabilities.span<float>().subspan(i * width, width);
    std::vector<double> expected =
        normalised(logits.span<float>().subspan(static_cast<std::size_t>(hidden[i]) * width, width));
    for (double& value : expected) value = std::exp(value);
    EXPECT_LT(relative_error(row, expected), 1e-5) << "hidden token " << i;
    EXPECT_EQ(filling.tokens[i], largest(row));
  }
  EXPECT_TRUE(model->fill(any_context(), inputs, batch, length).positions.empty());
}

TEST(Forward, RefusesWhatDoesNotFit) {
  const ModelConfig config = decoders().front();
  const auto decoder = random_model(config, seed), masked = random_model(encoder(), seed);
  Context& context = any_context();
  const auto ids = random_tokens(12, config.vocabulary, seed);
  const std::vector<std::int32_t> bad = {0, 1, 12}, hidden = {0, -1, 2};
  const std::vector<std::int64_t> too_few = {4}, too_long = {4, 7}, none = {4, 0};
  const auto expect_refused = [](const std::function<void()>& action, const char* sentence) {
    EXPECT_NE(error_of<UsageError>(action).find(sentence), std::string::npos) << error_of<UsageError>(action);
  };
  expect_refused([&] { decoder->forward(context, ids, 0, 12); }, "[forward] expected a batch");
  expect_refused([&] { decoder->forward(context, ids, 2, -6); }, "[forward] expected a batch");
  expect_refused([&] { decoder->forward(context, ids, 5, 2); }, "[forward] expected 5 · 2 tokens, got 12");
  expect_refused([&] { decoder->forward(context, ids, std::int64_t{1} << 62, 4); }, "tokens, got 12");
  expect_refused([&] { decoder->forward(context, ids, 2, 6, too_few); }, "expected 2 key lengths");
  expect_refused([&] { decoder->forward(context, ids, 2, 6, too_long); },
                 "expected key lengths in 1 … 6, got 7");
  expect_refused([&] { decoder->forward(context, ids, 2, 6, none); }, "expected key lengths in 1 … 6, got 0");
  expect_refused([&] { decoder->forward(context, bad, 1, 3); },
                 "[forward] expected tokens in 0 … 11, got 12");
  expect_refused([&] { decoder->hidden(context, hidden, 1, 3); },
                 "[hidden] expected tokens in 0 … 11, got -1");
  expect_refused([&] { decoder->score(context, {{0, 11}}); }, "[score] expected tokens in 0 … 10, got 11");
  expect_refused([&] { decoder->fill(context, hidden, 1, 3); }, "[fill] expected an encoder");
  expect_refused([&] { masked->score(context, ids); },
                 "[score] expected a model that predicts the next token");
  expect_refused([&] { masked->fill(context, {{0, -2}}, 1, 2); }, "[fill] expected tokens in 0 … 11, got -2");
  EXPECT_THROW(decoder->score(context, ids, 1), Error);
  EXPECT_THROW(masked->forward(context, random_tokens(1001, 11, seed), 1, 1001), Error);
}

}  // namespace
}  // namespace linnet
