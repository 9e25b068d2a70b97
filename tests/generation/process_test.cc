// Sessions in child processes.
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 181;
constexpr std::int64_t streams = 20;

/// Prompts and steps of all streams.
std::vector<std::int32_t> continued(Session& session, const ModelConfig& config) {
  std::vector<std::int32_t> result, tokens(streams);
  for (int round = 0; round < 3; ++round) {
    session.prefill(round, random_tokens(40, config.vocabulary, seed));
    for (int step = 0; step < 10; ++step) {
      session.step(tokens);
      result.insert(result.end(), tokens.begin(), tokens.end());
    }
  }
  return result;
}

std::unique_ptr<Session> begun(const std::shared_ptr<const Model>& model, int threads) {
  auto session = std::make_unique<Session>(model, streams, Session::Options{.threads = threads});
  continued(*session, model->config());
  return session;
}

TEST(ChildProcess, ContinuesASessionOfItsParent) {
  if (!children_work) GTEST_SKIP();
  for (const ModelConfig& config : session_configs())
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(describe(config) + ", " + std::to_string(threads) + " threads");
      const auto model = random_model(config, seed);
      const auto session = begun(model, threads), twin = begun(model, threads);
      const auto expected = continued(*twin, config);
      EXPECT_EQ(in_child([&] { return continued(*session, config) == expected; }), 0);
      EXPECT_EQ(in_child([&] {  // and gives it up
                  const bool same = continued(*session, config) == expected;
                  return Session(std::move(*session)).streams() == streams && same;
                }),
                0);
      EXPECT_EQ(continued(*session, config), expected) << "in the parent, after its children";
    }
}

TEST(ChildProcess, MakesASessionOfItsOwn) {
  if (!children_work) GTEST_SKIP();
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const auto session = begun(model, 4);
    const auto expected = continued(*session, config);
    EXPECT_EQ(in_child([&] { return continued(*begun(model, 4), config) == expected; }), 0);
  }
}

}  // namespace
}  // namespace linnet
