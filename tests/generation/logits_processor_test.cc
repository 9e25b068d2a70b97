// Steps whose logits the caller changes, and the log-probabilities of what they draw.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "generation/snapshot.h"
#include "model/transformer.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 61;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// One sampling after another for streams 0, 1, 2 …
SamplingOptions some_sampling(std::int64_t stream) {
  SamplingOptions sampling = seeded(static_cast<std::uint64_t>(stream));
  switch (stream % 4) {
    case 0:
      sampling.temperature = 0;
      break;
    case 1:
      sampling.top_k = 3;
      break;
    case 2:
      sampling.temperature = 0.7;
      sampling.top_p = 0.8;
      break;
    default:
      break;
  }
  return sampling;
}

std::unique_ptr<Session> begun(const std::shared_ptr<const Model>& model, std::int64_t streams,
                               const Session::Options& options) {
  auto session = std::make_unique<Session>(model, streams, options);
  for (std::int64_t i = 0; i < streams; ++i) session->begin(i, some_label(model->config()), some_sampling(i));
  return session;
}

/// Leaves `token` alone possible.
void force(std::span<float> logits, std::size_t token) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (i != token) logits[i] = -infinity;
}

TEST(LogitsProcessor, ThatChangesNothingLeavesTheTokensOfCategoricalHeads) {
  const auto model = random_model(small_config(), seed);
  for (const std::int64_t streams : {1, 3, 20, 70})
    for (const int threads : {1, 3}) {
      const auto session = begun(model, streams, {.threads = threads});
      const auto twin = begun(model, streams, {.threads = threads});
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(streams)), expected(tokens.size());
      std::vector<float> chances(tokens.size());
      std::atomic<std::int64_t> calls = 0;
      const Session::StepOptions options = {
          .process_logits = [&](std::int64_t, std::int64_t, std::span<float>) { ++calls; },
          .log_probabilities = chances};
      for (int i = 0; i < 10; ++i) {
        session->step(tokens, options);
        twin->step(expected);
        ASSERT_EQ(tokens, expected) << streams << " streams, " << threads << " threads";
      }
      EXPECT_EQ(calls, 10 * streams);
    }
}

// One pass gives the logits of all streams, and the tokens are the caller's to choose.
TEST(LogitsProcessor, GetsTheLogitsOfEachStreamAndDecides) {
  for (const ModelConfig& config : session_configs())
    for (const Session::Options& options : {Session::Options{.threads = 3}, no_cache}) {
      SCOPED_TRACE(describe(config) + (options.cache ? "" : ", no cache"));
      const auto model = random_model(config, seed);
      const std::int64_t streams = options.cache ? 20 : 3;
      const auto session = begun(model, streams, options), twin = begun(model, streams, options);
      const auto vocabulary = static_cast<std::size_t>(config.vocabulary);
      std::vector<float> seen(static_cast<std::size_t>(streams) * vocabulary), row(vocabulary);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(streams));
      const auto wanted = random_tokens(streams, config.vocabulary, seed);
      const Session::StepOptions forced = {
          .process_logits = [&](std::int64_t stream, std::int64_t field, std::span<float> logits) {
            EXPECT_EQ(field, 0);
            const auto i = static_cast<std::size_t>(stream);
            std::ranges::copy(logits, seen.begin() + static_cast<std::ptrdiff_t>(i * vocabulary));
            force(logits, static_cast<std::size_t>(wanted[i]));
          }};
      for (int round = 0; round < 3; ++round) {
        session->step(tokens, forced);
        EXPECT_EQ(tokens, wanted);
        for (std::int64_t i = 0; i < streams; ++i) {
          twin->logits(i, row);
          EXPECT_TRUE(std::ranges::equal(
              std::span(seen).subspan(static_cast<std::size_t>(i) * vocabulary, vocabulary), row))
              << "stream " << i;
        }
        twin->observe(wanted);
      }
      for (std::int64_t i = 0; i < streams; ++i) EXPECT_EQ(session->save(i), twin->save(i)) << "stream " << i;
    }
}

TEST(LogitsProcessor, DrawsFollowTheLogitsThatItLeaves) {
  constexpr std::int64_t streams = 2000;
  const std::vector<double> known = {0.5, 0.3, 0.2};
  std::vector<float> logits;
  for (const double p : known) logits.push_back(static_cast<float>(std::log(p)));
  const auto model = model_of_distribution(logits);
  // The most probable token is banned, and the others change places: 0, 0.4 and 0.6.
  const Session::StepOptions swapped = {
      .process_logits = [](std::int64_t, std::int64_t, std::span<float> row) {
        row[0] = -infinity;
        std::swap(row[1], row[2]);
      }};
  const auto shares = [&](SamplingOptions sampling) {
    Session session(model, streams);
    for (std::int64_t i = 0; i < streams; ++i) {
      sampling.seed = static_cast<std::uint64_t>(i);
      session.begin(i, -1, sampling);
    }
    std::vector<std::int32_t> tokens(streams);
    std::vector<double> result(3);
    for (int round = 0; round < 10; ++round) {
      session.step(tokens, swapped);
      for (const std::int32_t token : tokens) result[static_cast<std::size_t>(token)] += 0.1 / streams;
    }
    return result;
  };
  const auto expect_near = [](const std::vector<double>& found, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (expected[i] == 0)
        EXPECT_EQ(found[i], 0) << i;
      else
        EXPECT_NEAR(found[i], expected[i], 6 * std::sqrt(0.25 / (10.0 * streams))) << i;
    }
  };
  expect_near(shares({}), {0, 0.4, 0.6});
  expect_near(shares({.temperature = 0.5}), {0, 0.16 / 0.52, 0.36 / 0.52});
  expect_near(shares({.top_p = 0.99}), {0, 0.4, 0.6});
  for (const SamplingOptions& one :
       {SamplingOptions{.temperature = 0}, SamplingOptions{.top_k = 1}, SamplingOptions{.top_p = 0.5}})
    expect_near(shares(one), {0, 0, 1});
}

TEST(LogitsProcessor, OfAMixtureBansTokensToo) {
  ModelConfig config = small_config();
  config.head = OutputDistribution::logistics;
  const auto model = random_model(config, seed);
  const auto session = begun(model, 20, {.threads = 1});
  std::vector<std::int32_t> tokens(20);
  const Session::StepOptions even = {
      .process_logits = [](std::int64_t, std::int64_t, std::span<float> logits) {
        for (std::size_t i = 1; i < logits.size(); i += 2) logits[i] = -infinity;
      }};
  for (int i = 0; i < 50; ++i) {
    session->step(tokens, even);
    for (const std::int32_t token : tokens) ASSERT_EQ(token % 2, 0);
  }
}

TEST(LogitsProcessor, IsCalledForEveryFieldInOrder) {
  ModelConfig config = tiny_config();
  config.fields = "5,2,3";
  const auto model = random_model(config, seed);
  constexpr std::int64_t streams = 20;
  Session session(model, streams, {.threads = 3}), twin(model, streams, {.threads = 3});
  std::vector<std::int64_t> next(streams);
  std::vector<std::int32_t> tokens(3 * streams), wanted(3 * streams);
  const std::int64_t sizes[] = {5, 2, 3};
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(sizes[i % 3]));
  session.step(tokens,
               {.process_logits = [&](std::int64_t stream, std::int64_t field, std::span<float> logits) {
                 const auto i = static_cast<std::size_t>(stream);
                 EXPECT_EQ(field, next[i]++);
                 EXPECT_EQ(std::ssize(logits), sizes[field]);
                 force(logits, static_cast<std::size_t>(wanted[3 * i + static_cast<std::size_t>(field)]));
               }});
  EXPECT_EQ(tokens, wanted);
  EXPECT_EQ(next, std::vector<std::int64_t>(streams, 3));
  twin.observe(wanted);
  for (std::int64_t i = 0; i < streams; ++i) EXPECT_EQ(session.save(i), twin.save(i));
}

TEST(LogProbabilities, AreThoseOfTheModel) {
  constexpr std::int64_t streams = 5, steps = 20;
  for (const ModelConfig& config : session_configs())
    for (const Session::Options& options : {Session::Options{.threads = 2}, no_cache})
      for (const bool processed : {false, true}) {
        SCOPED_TRACE(describe(config) + (options.cache ? "" : ", no cache"));
        const auto model = random_model(config, seed);
        const auto session = begun(model, streams, options);
        std::vector<std::vector<std::int32_t>> drawn(streams);
        std::vector<std::vector<float>> found(streams);
        std::vector<std::int32_t> tokens(streams);
        std::vector<float> chances(streams);
        Session::StepOptions wanted = {.log_probabilities = chances};
        if (processed)
          wanted.process_logits = [](std::int64_t, std::int64_t, std::span<float> logits) { logits[1] += 2; };
        for (std::int64_t t = 0; t < steps; ++t) {
          session->step(tokens, wanted);
          for (std::size_t i = 0; i < tokens.size(); ++i) {
            drawn[i].push_back(tokens[i]);
            found[i].push_back(chances[i]);
          }
        }
        Context context;
        for (std::size_t i = 0; i < drawn.size(); ++i) {
          const std::vector<float> expected = model->score(context, drawn[i], some_label(config));
          for (std::size_t t = 0; t < expected.size(); ++t)
            EXPECT_NEAR(found[i][t], expected[t], 1e-3) << "stream " << i << ", step " << t;
        }
      }
}

TEST(LogProbabilities, OfFieldsAreTheScores) {
  ModelConfig config = small_config();
  config.vocabulary = 13;
  config.fields = "5,13,3";
  config.classes = 2;
  const std::size_t fields = 3;
  for (const Family family : {Family::linear, Family::softmax}) {
    config.attention.family = family;
    const auto model = random_model(config, seed);
    for (const std::size_t steps :
         {std::size_t{1}, std::size_t{60}, static_cast<std::size_t>(Model::slice + 1)}) {
      Session session(model, 1, {.threads = 1});
      session.begin(0, 1, seeded(4));
      std::vector<std::int32_t> tokens(steps * fields);
      std::vector<float> found(tokens.size());
      for (std::size_t t = 0; t < steps; ++t)
        session.step(std::span(tokens).subspan(t * fields, fields),
                     {.log_probabilities = std::span(found).subspan(t * fields, fields)});
      Context context;
      const std::vector<float> scores = model->score(context, tokens, 1);
      ASSERT_EQ(scores.size(), found.size());
      for (std::size_t i = 0; i < scores.size(); ++i) EXPECT_NEAR(scores[i], found[i], 1e-3) << i;
      EXPECT_THROW(model->score(context, std::span(tokens).first(2), 1), UsageError);
      tokens[2] = 3;  // beyond the third field, not beyond the others
      EXPECT_THROW(model->score(context, tokens, 1), UsageError);
      EXPECT_TRUE(model->score(context, {}, 1).empty());
    }
  }
}

TEST(LogProbabilities, OfFieldsAddUpToThatOfTheStep) {
  ModelConfig config = tiny_config();
  config.fields = "5,3";
  const auto model = random_model(config, seed);
  Session session(model, 10, {.threads = 1});
  std::vector<std::int32_t> tokens(20);
  std::vector<float> chances(20);
  session.step(tokens, {.log_probabilities = chances});
  Transformer transformer(network_of(*model));
  for (std::size_t i = 0; i < 10; ++i) {
    const std::vector<std::int32_t> ids = {config.first_input(-1), 3};
    const double expected = -transformer.loss(
        any_context(), {.batch = 1, .length = 1, .ids = ids, .targets = std::span(tokens).subspan(2 * i, 2)});
    EXPECT_NEAR(chances[2 * i] + chances[2 * i + 1], expected, 1e-5) << "stream " << i;
  }
}

TEST(LogProbabilities, NeedMemoryForEachToken) {
  Session session(random_model(small_config(), seed), 2, {.threads = 1});
  std::vector<std::int32_t> tokens(2);
  std::vector<float> wrong(3);
  EXPECT_EQ(error_of<UsageError>([&] { session.step(tokens, {.log_probabilities = wrong}); }),
            "[step] expected memory for 2 log-probabilities, one per token, got 3");
  EXPECT_EQ(session.position(0), 0);
}

// The stream whose logits cannot be drawn from ends, and no other.
TEST(LogitsProcessor, ThatFailsEndsItsStreamAlone) {
  constexpr std::int64_t streams = 12;
  const auto model = random_model(small_config(), seed);
  const std::vector<std::pair<LogitsProcessor, std::string>> cases = {
      {[](std::int64_t, std::int64_t, std::span<float>) {
         throw Error("[grammar] expected a rule, got none");
       },
       "[grammar] expected a rule, got none"},
      {[](std::int64_t, std::int64_t, std::span<float> row) { std::ranges::fill(row, -infinity); },
       "[step] expected processed logits that are not all -inf, got those in stream 5"},
      {[](std::int64_t, std::int64_t, std::span<float> row) { row[3] = infinity; },
       "[step] expected processed logits that are finite or -inf, got inf in stream 5"},
      {[](std::int64_t, std::int64_t, std::span<float> row) { row.back() = std::nanf(""); },
       "[step] expected processed logits that are finite or -inf, got nan in stream 5"}};
  for (const auto& [process, sentence] : cases) {
    const Session::StepOptions fifth = {.process_logits = [&body = process](std::int64_t stream,
                                                                            std::int64_t field,
                                                                            std::span<float> logits) {
      if (stream == 5) body(stream, field, logits);
    }};
    for (const Session::Options& options :
         {Session::Options{.threads = 1}, Session::Options{.threads = 3}, no_cache}) {
      SCOPED_TRACE(sentence + (options.cache ? "" : ", no cache"));
      const auto session = begun(model, streams, options), twin = begun(model, streams, options);
      const auto before = session->save(5);
      std::vector<std::int32_t> tokens(streams), expected(streams);
      EXPECT_EQ(error_of([&] { session->step(tokens, fifth); }), sentence);
      if (!options.cache) {
        for (std::int64_t i = 0; i < streams; ++i) EXPECT_EQ(session->position(i), 0);
        session->step(tokens);
        twin->step(expected);
        EXPECT_EQ(tokens, expected);
        continue;
      }
      twin->step(expected);
      for (std::int64_t i = 0; i < streams; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_EQ(session->can_continue(i), i != 5);
        if (i == 5) {
          session->restore(5, before);
          EXPECT_TRUE(session->can_continue(5));
          tokens[at] = draw(*session, 5, 1)[0];
        }
        EXPECT_EQ(tokens[at], expected[at]);
        EXPECT_EQ(draw(*session, i, 5), draw(*twin, i, 5)) << "stream " << i;
      }
    }
  }
}

TEST(Sampling, OfARunningStreamChangesWhatFollows) {
  const auto model = random_model(small_config(), seed);
  Session session(model, 3, {.threads = 1}), twin(model, 3, {.threads = 1});
  draw(session, 0, 5);
  draw(twin, 0, 5);
  session.set_sampling(0, greedy());
  EXPECT_EQ(session.sampling(0).temperature, 0);
  // A twin that has been greedy from the same place on.
  Snapshot snapshot = Snapshot::read(twin.save(0));
  snapshot.sampling = greedy();
  twin.restore(0, snapshot.bytes());
  EXPECT_EQ(draw(session, 0, 20), draw(twin, 0, 20));
  EXPECT_THROW(session.set_sampling(0, {.temperature = -1}), UsageError);
  EXPECT_EQ(session.sampling(0).temperature, 0);
  EXPECT_THROW(session.set_sampling(3, {}), UsageError);
  EXPECT_THROW(session.sampling(-1), UsageError);

  session.set_sampling(1, {.temperature = 0.9, .top_k = 7, .seed = 11});
  session.fork(2, 1, session.sampling(1).seed);
  EXPECT_EQ(session.sampling(2).top_k, 7);
  EXPECT_EQ(draw(session, 2, 20), draw(session, 1, 20));
}

TEST(Limit, IsThatOfLearnedPositions) {
  ModelConfig config = small_config();
  config.positions = Positions::learned;
  config.length = 10;
  const auto model = random_model(config, seed);
  for (const bool cache : {true, false}) {
    Session session(model, 3, {.cache = cache, .threads = 1});
    EXPECT_EQ(session.limit(), 10);
    draw(session, 1, 9);
    EXPECT_TRUE(session.can_continue(1));
    draw(session, 1, 1);
    EXPECT_FALSE(session.can_continue(1));
    EXPECT_TRUE(session.can_continue(0));
    EXPECT_THROW(session.can_continue(3), UsageError);
    std::vector<std::int32_t> tokens(3);
    EXPECT_TRUE(
        error_of<Error>([&] { session.step(tokens); })
            .starts_with("[step] expected at most 10 steps of a stream, the learned positions of this "
                         "model, got position 10 in stream 1;"));
    EXPECT_EQ(session.position(0), 0);
  }
  config.positions = Positions::sinusoidal;
  EXPECT_EQ(Session(random_model(config, seed), 1).limit(), State::most_position);
}

TEST(Limit, AStreamWithoutItsSourceCannotContinue) {
  ModelConfig config = small_config();
  config.encoder_layers = 1;
  config.source_length = 10;
  Session session(random_model(config, seed), 1, {.threads = 1});
  EXPECT_FALSE(session.can_continue(0));
  session.begin(0, std::vector<std::int32_t>{1, 2, 3}, {});
  EXPECT_TRUE(session.can_continue(0));
}

}  // namespace
}  // namespace linnet
