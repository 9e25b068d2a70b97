// Sessions whose memory runs out in the midst of a call, at every allocation that the call makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <new>
#include <numeric>

#include "base/parallel.h"
#include "support/allocations.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 171;

struct Case {
  ModelConfig config;
  Session::Options options;
};

/// With a cache on one thread and on two, and without one.
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const ModelConfig& config : recurrent_configs())
    for (const Session::Options& options : {Session::Options{.capacity = 0, .cache = true, .threads = 1},
                                            Session::Options{.capacity = 0, .cache = true, .threads = 2},
                                            Session::Options{.capacity = 0, .cache = false, .threads = 1}})
      result.push_back({config, options});
  return result;
}

std::string describe(const Case& c) {
  return linnet::describe(c.config) + " " + std::to_string(c.options.threads) + " threads" +
         (c.options.cache ? "" : ", no cache");
}

std::unique_ptr<Session> begun(const std::shared_ptr<const Model>& model, const Session::Options& options,
                               std::int64_t streams) {
  auto session = std::make_unique<Session>(model, streams, options);
  // At different positions, so that their states grow at different steps.
  for (std::int64_t i = 0; i < streams; ++i) {
    session->begin(i, -1, seeded(static_cast<std::uint64_t>(i + 5)));
    session->prefill(i, random_tokens(3 * i + 1, model->config().vocabulary, seed));
  }
  return session;
}

std::vector<std::vector<std::byte>> saved(const Session& session) {
  std::vector<std::vector<std::byte>> result;
  for (std::int64_t i = 0; i < session.streams(); ++i) result.push_back(session.save(i));
  return result;
}

/// Calls `action` with memory for 0, 1, 2 … allocations until it succeeds, and `after_failure` after each of
/// the others; how many there were.
int with_every_shortage(const std::function<void()>& action, const std::function<void()>& after_failure) {
  for (int allowed = 0;; ++allowed) {
    try {
      const allocations::Short memory(allowed);
      action();
      return allowed;
    } catch (const std::bad_alloc&) {
    }
    after_failure();
    if (testing::Test::HasFailure() || allowed == 10'000) {
      ADD_FAILURE() << "with memory for " << allowed << " allocations";
      return allowed;
    }
  }
}

/// Gives each stream its prompt, with every shortage until all have taken theirs. After each of them a stream
/// is as it was or has its whole prompt; how often some had and others not.
int prefill_with_every_shortage(Session& session, const std::vector<std::vector<std::int32_t>>& prompts,
                                const std::vector<std::vector<std::byte>>& after) {
  const auto before = saved(session);
  std::vector<std::int64_t> open(prompts.size());
  std::iota(open.begin(), open.end(), 0);
  std::vector<std::span<const std::int32_t>> rest(prompts.begin(), prompts.end());
  int parted = 0;
  with_every_shortage([&] { session.prefill(open, rest); },
                      [&] {
                        const auto now = saved(session);
                        open.clear();
                        rest.clear();
                        for (std::size_t i = 0; i < prompts.size(); ++i) {
                          EXPECT_TRUE(now[i] == before[i] || now[i] == after[i]) << "stream " << i;
                          if (now[i] != before[i]) continue;
                          open.push_back(static_cast<std::int64_t>(i));
                          rest.push_back(prompts[i]);
                        }
                        parted += open.size() < prompts.size();
                      });
  return parted;
}

class ShortMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!allocations::can_fail) GTEST_SKIP() << "sanitizers have a malloc of their own";
  }
};

TEST_F(ShortMemory, AContextHasAllItsThreadsOrNone) {
  const int failures = with_every_shortage(
      [] {
        Context context(8);
        parallel_for(context, 20, [](std::int64_t) {});
      },
      [] {});
  EXPECT_GT(failures, 8);
}

TEST_F(ShortMemory, AStepMovesAllStreamsOrNone) {
  for (const Case& c : cases())
    for (const bool draws : {true, false}) {
      // Blocks of several threads take working memory of their own: what moves together is tested with one.
      // Without a cache every step allocates a lot.
      const std::int64_t streams = !c.options.cache ? 2 : c.options.threads == 1 ? 11 : 6;
      const int steps = c.options.cache ? 24 : 2;
      SCOPED_TRACE(describe(c) + (draws ? ", step" : ", observe"));
      const auto model = random_model(c.config, seed);
      const auto session = begun(model, c.options, streams), twin = begun(model, c.options, streams);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(streams)), expected = tokens;
      int failures = 0;
      for (int step = 0; step < steps && !HasFailure(); ++step) {
        const auto before = saved(*session);
        failures += with_every_shortage([&] { draws ? session->step(tokens) : session->observe(tokens); },
                                        [&] { EXPECT_TRUE(saved(*session) == before) << "step " << step; });
        draws ? twin->step(expected) : twin->observe(expected);
        EXPECT_EQ(tokens, expected) << "step " << step;
      }
      EXPECT_TRUE(saved(*session) == saved(*twin));
      EXPECT_TRUE(c.config.attention.family != Family::softmax || failures > 0) << "nothing was tested";
    }
}

TEST_F(ShortMemory, APromptIsTakenWholeOrNotAtAll) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const auto model = random_model(c.config, seed);
    const auto session = begun(model, c.options, 5), twin = begun(model, c.options, 5);
    std::vector<std::vector<std::int32_t>> prompts;
    for (std::int64_t i = 0; i < 5; ++i)
      prompts.push_back(random_tokens(90 - 7 * i, c.config.vocabulary, seed + 1));
    const std::vector<std::int64_t> all = {0, 1, 2, 3, 4};
    twin->prefill(all, std::vector<std::span<const std::int32_t>>(prompts.begin(), prompts.end()));
    const auto after = saved(*twin);
    prefill_with_every_shortage(*session, prompts, after);
    EXPECT_TRUE(saved(*session) == after);
    EXPECT_EQ(draw(*session, 2, 20), draw(*twin, 2, 20));
  }
}

// Prompts that pass through the layers together only at first.
TEST_F(ShortMemory, PromptsThatPartAreTakenWholeOrNotAtAll) {
  ModelConfig config = tiny_config();
  config.positions = Positions::sinusoidal;
  config.attention.family = Family::softmax;
  const auto model = random_model(config, seed);
  const std::vector<std::int64_t> all = {0, 1, 2};
  Session session(model, std::ssize(all), {.threads = 1}), twin(model, std::ssize(all), {.threads = 1});
  constexpr std::int64_t together = 32;
  const auto past = random_tokens(Session::prefill_slice - together, config.vocabulary, seed);
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::int64_t i : all) {
    prompts.push_back(random_tokens(together + (i == 0 ? 0 : 30), config.vocabulary, seed + 1));
    for (Session* one : {&session, &twin}) one->prefill(i, past);
    twin.prefill(i, prompts.back());
  }
  const auto after = saved(twin);
  const int parted = prefill_with_every_shortage(session, prompts, after);
  EXPECT_GT(parted, 0) << "memory never ran out behind the first prompt";
  EXPECT_TRUE(saved(session) == after);
}

TEST_F(ShortMemory, OtherCallsChangeNothingWhereTheyFail) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const auto model = random_model(c.config, seed);
    const auto session = begun(model, c.options, 4);
    Session other(model, 1, c.options);
    other.prefill(0, random_tokens(70, c.config.vocabulary, seed + 2));
    const std::vector<std::byte> snapshot = other.save(0);
    std::vector<float> row(static_cast<std::size_t>(c.config.vocabulary));
    for (const auto& action : std::vector<std::function<void()>>{
             [&] { session->save(3); }, [&] { session->logits(3, row); },
             [&] { session->probabilities(3, row); }, [&] { session->fork(0, 3, 77); },
             [&] { session->restore(1, snapshot); }, [&] { session->resize(9); }, [&] { session->resize(3); },
             [&] { session->begin(2, -1, {}); }}) {
      const auto before = saved(*session);
      with_every_shortage(action, [&] { EXPECT_TRUE(saved(*session) == before); });
    }
    EXPECT_EQ(draw(*session, 1, 20), draw(other, 0, 20)) << "the restored stream";
  }
}

}  // namespace
}  // namespace linnet
