// States that fade to nothing: their numbers pass through the subnormal ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "support/feature_maps.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 101;

#if defined(__SSE__)
constexpr bool can_flush = true;
#else
constexpr bool can_flush = false;
#endif
constexpr const char* no_switch = "this processor has no switch for subnormal numbers";

/// Features that are zero and a state that halves with every token make subnormal numbers.
ModelConfig fading() {
  ModelConfig config;
  config.layers = 2;
  config.heads = 4;
  config.width = 64;
  config.feed_forward = 128;
  config.positions = Positions::none;
  config.attention.linear.feature_map = "relu";
  config.attention.linear.decay = Decay::fixed;
  config.attention.linear.shortest_memory = config.attention.linear.longest_memory = 2;
  return config;
}

/// The same of real numbers.
ModelConfig fading_numbers() {
  ModelConfig config = fading();
  config.vocabulary = 0;
  config.columns = 2;
  return config;
}

/// A fading model whose most probable token is always the same.
std::shared_ptr<const Model> repeating() {
  const ModelConfig config = fading();
  const Network network(config);
  Tensor values = random_values(network.table(), seed);
  for (const auto& row : network.table().rows())
    if (row.name == "head.bias") row.place.of(values.span<float>()).data()[3] = 1e4f;
  return make_model(config, std::move(values));
}

/// The numbers of a saved state, which stand between 80 bytes and the checksum.
std::vector<float> numbers_of(const std::vector<std::byte>& saved) {
  std::vector<float> numbers((saved.size() - 88) / sizeof(float));
  std::memcpy(numbers.data(), saved.data() + 80, numbers.size() * sizeof(float));
  return numbers;
}

std::ptrdiff_t zeros_of(const std::vector<float>& numbers) { return std::ranges::count(numbers, 0.0f); }

bool keeps_subnormal_numbers() {
  const volatile float tiny = 1e-38f, thousandth = 1e-3f;
  return tiny * thousandth != 0;
}

/// Takes 200 steps, each of which halves what no token adds to. No number of the state is ever subnormal, and
/// many were next to it before they became 0.
void expect_fades(const std::function<void()>& take, const std::function<std::vector<std::byte>()>& save) {
  constexpr float least = std::numeric_limits<float>::min();
  std::ptrdiff_t before = 0, small = 0;
  for (int step = 0; step < 200; ++step) {
    take();
    const std::vector<float> numbers = numbers_of(save());
    if (step == 0) before = zeros_of(numbers);
    for (const float number : numbers) {
      ASSERT_NE(std::fpclassify(number), FP_SUBNORMAL) << "step " << step << ": " << number;
      small += number != 0 && std::abs(number) < 2 * least;
    }
  }
  EXPECT_GT(small, 100);
  EXPECT_GT(zeros_of(numbers_of(save())), before + 100);
  EXPECT_TRUE(keeps_subnormal_numbers());
}

TEST(Session, StatesThatFadeDoNotDependOnTheThreads) {
  const auto model = random_model(fading(), seed);
  std::vector<std::vector<std::byte>> expected;
  for (const int threads : {1, 2, 3, 8}) {
    Session session(model, 4, {.threads = threads});
    for (std::int64_t i = 0; i < 4; ++i) {
      session.begin(i, -1, {.temperature = 0});
      session.prefill(i, random_tokens(5, model->config().vocabulary, seed + static_cast<std::uint64_t>(i)));
    }
    std::vector<std::vector<std::byte>> saved;
    std::vector<std::int32_t> tokens(4);
    for (int step = 0; step < 400; ++step) {
      session.step(tokens);
      for (std::int64_t i = 0; i < 4; ++i) saved.push_back(session.save(i));
    }
    if (threads == 1) expected = saved;
    EXPECT_EQ(saved, expected) << threads << " threads";
  }
}

TEST(Session, StatesThatFadeHaveNoSubnormalNumbers) {
  if (!can_flush) GTEST_SKIP() << no_switch;
  const auto model = repeating();
  const auto prompt = random_tokens(5, model->config().vocabulary, seed);
  Session session(model, 2);
  std::vector<std::int32_t> token(1);
  std::vector<float> logits(static_cast<std::size_t>(model->config().vocabulary));
  for (const std::int64_t stream : {0, 1}) {
    SCOPED_TRACE(stream == 0 ? "step" : "observe");
    const std::span<const std::int64_t> one(&stream, 1);
    session.begin(stream, -1, greedy());
    session.prefill(stream, prompt);
    session.step(token, one);
    expect_fades(
        [&] {
          session.logits(stream, logits);
          if (stream == 0)
            session.step(token, one);
          else
            session.observe(token, one);
        },
        [&] { return session.save(stream); });
  }
}

TEST(Session, StatesThatFadeInAPromptHaveNoSubnormalNumbers) {
  if (!can_flush) GTEST_SKIP() << no_switch;
  const auto model = repeating();
  std::vector<std::int32_t> prompt = random_tokens(5, model->config().vocabulary, seed);
  prompt.resize(prompt.size() + 130, 3);
  Session session(model, 1);
  session.prefill(0, prompt);
  for (const float number : numbers_of(session.save(0))) ASSERT_NE(std::fpclassify(number), FP_SUBNORMAL);
  EXPECT_GT(zeros_of(numbers_of(session.save(0))), 0);
  EXPECT_TRUE(keeps_subnormal_numbers());
}

TEST(NumberSession, StatesThatFadeHaveNoSubnormalNumbers) {
  if (!can_flush) GTEST_SKIP() << no_switch;
  const auto model = random_model(fading_numbers(), seed);
  NumberSession session(model, 2);
  std::vector<float> out(2);
  for (const std::int64_t stream : {0, 1}) {
    SCOPED_TRACE(stream == 0 ? "step" : "observe");
    const std::span<const std::int64_t> one(&stream, 1);
    for (std::uint64_t i = 0; i < 5; ++i) session.step(normals(2, seed + i), out, one);
    const std::vector<float> rest = {0, 0};
    expect_fades(
        [&] {
          if (stream == 0)
            session.step(rest, out, one);
          else
            session.observe(rest, one);
        },
        [&] { return session.save(stream); });
  }
}

/// Notes whether the thread that it runs on keeps subnormal numbers.
class NotingMap final : public DoubledRelu {
 public:
  std::string name() const override { return "noting"; }
  void forward(View<float> y, View<const float> x, const TileContext& context) const override {
    (keeps_subnormal_numbers() ? kept : flushed)++;
    DoubledRelu::forward(y, x, context);
  }

  mutable int kept = 0, flushed = 0;
};

// What `logits` and `densities` compute stays in no state, so the map tells.
TEST(Session, EveryStepFlushesSubnormalNumbersAndItsCallerKeepsThem) {
  if (!can_flush) GTEST_SKIP() << no_switch;
  ModelConfig config = fading(), of_numbers = fading_numbers();
  config.attention.linear.feature_map = of_numbers.attention.linear.feature_map = "noting";
  const auto map = std::make_shared<NotingMap>();
  Session session(Model::random(config, seed, map), 1, {.threads = 1});
  NumberSession number_session(Model::random(of_numbers, seed, map), 1, {.threads = 1});
  Session without(Model::random(config, seed, map), 1, {.cache = false, .threads = 1});
  config.encoder_layers = 1;
  config.source_length = 5;
  Session decoder(Model::random(config, seed, map), 1, {.threads = 1});
  const std::vector<std::int32_t> source = {1, 2, 3};
  std::vector<std::int32_t> token(1);
  std::vector<float> logits(static_cast<std::size_t>(config.vocabulary)), in(2), out(2), scale(2), freedom(2);
  map->kept = 0;
  const std::vector<std::function<void()>> steps = {
      [&] { session.step(token); },
      [&] { session.observe(token); },
      [&] { session.logits(0, logits); },
      [&] { session.probabilities(0, logits); },
      [&] { without.step(token); },
      [&] { without.logits(0, logits); },
      [&] { without.probabilities(0, logits); },
      [&] { decoder.begin(0, source, {}); },
      [&] { number_session.densities(0, out, scale, freedom); },  // of the first step
      [&] { number_session.step(in, out); },
      [&] { number_session.observe(in); }};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    map->flushed = 0;
    steps[i]();
    EXPECT_EQ(map->kept, 0) << i;
    EXPECT_GT(map->flushed, 0) << i;
    EXPECT_TRUE(keeps_subnormal_numbers()) << i;
  }
}

}  // namespace
}  // namespace linnet
