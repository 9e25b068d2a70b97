// Positions that a snapshot claims, its checksum being right.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "generation/snapshot.h"
#include "generation/stream_file.h"
#include "io/temporary_folder.h"
#include "linnet/c_api.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 5;
constexpr std::int64_t given = 27;  // tokens, more than a state of fixed size holds

struct Case {
  ModelConfig config;
  Session::Options options;
};

/// Every family with a recurrent form, each kind of positions, with and without a cache.
std::vector<Case> cases() {
  std::vector<Case> result;
  for (ModelConfig config : recurrent_configs())
    for (const Positions positions : {Positions::sinusoidal, Positions::learned, Positions::none})
      for (const Session::Options& options : {Session::Options{.threads = 1}, no_cache}) {
        config.positions = positions;
        config.length = 60;
        result.push_back({config, options});
      }
  return result;
}

std::string name_of_case(const Case& c) { return describe(c.config) + (c.options.cache ? "" : ", no cache"); }

std::unique_ptr<Session> begun(const std::shared_ptr<const Model>& model, const Session::Options& options) {
  auto session = std::make_unique<Session>(model, 2, options);
  session->begin(1, -1, seeded(7));
  session->prefill(1, random_tokens(given, model->config().vocabulary, seed));
  return session;
}

/// Positions that overflow when a length is added, or when they are multiplied by the bytes of a token.
std::vector<std::int64_t> impossible_positions() {
  std::vector<std::int64_t> result = {-1, std::numeric_limits<std::int64_t>::min()};
  for (int bits = 54; bits < 63; ++bits)
    for (const int offset : {-1, 0, 1, 7})
      if (const std::int64_t position = (std::int64_t{1} << bits) + offset; position > State::most_position)
        result.push_back(position);
  for (const int offset : {0, 1, 2, 7, 26, 27, 28, 60, 127, 128})
    result.push_back(std::numeric_limits<std::int64_t>::max() - offset);
  result.push_back(State::most_position + 1);
  return result;
}

void expect_sentence(const std::string& message) {
  EXPECT_NE(message.find("[snapshot] expected a position from 0 to 2^53, got "), std::string::npos)
      << message;
}

/// Calls restore(bytes) with snapshots of impossible positions: of that past, of none and of much more.
void for_impossible(const std::vector<std::byte>& good,
                    const std::function<void(std::span<const std::byte>)>& restore) {
  for (const std::int64_t position : impossible_positions()) {
    SCOPED_TRACE(position);
    Snapshot crafted = Snapshot::read(good);
    crafted.position = position;
    restore(crafted.bytes());
    crafted.past.resize(3 * crafted.past.size());
    restore(crafted.bytes());
    crafted.past.clear();
    restore(crafted.bytes());
  }
}

TEST(Position, ImpossibleOnesAreRefusedBySessions) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of_case(c));
    const auto model = Model::random(c.config, seed);
    const auto session = begun(model, c.options), twin = begun(model, c.options);
    for_impossible(session->save(1), [&](std::span<const std::byte> bytes) {
      expect_sentence(error_of([&] { session->restore(1, bytes); }));
    });
    EXPECT_EQ(session->position(1), given);
    EXPECT_EQ(draw(*session, 1, 10), draw(*twin, 1, 10)) << "a refused snapshot leaves the stream alone";
  }
}

TEST(Position, ImpossibleOnesAreRefusedInFilesOfStreams) {
  const TemporaryFolder folder;
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of_case(c));
    const auto model = Model::random(c.config, seed);
    const auto session = begun(model, c.options), twin = begun(model, c.options);
    Snapshot crafted = Snapshot::read(session->save(1));
    for (const std::int64_t position : {std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}}) {
      crafted.position = position;
      write_streams(folder / "states", std::vector<SavedStream>{{1, {}, crafted.bytes()}});
      const auto read = read_streams(folder / "states");
      expect_sentence(error_of([&] { session->restore(1, read.front().state); }));
    }
    EXPECT_EQ(draw(*session, 1, 10), draw(*twin, 1, 10));
  }
}

TEST(Position, ImpossibleOnesAreRefusedInC) {
  const TemporaryFolder folder;
  int number = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of_case(c));
    const std::string path = folder / std::to_string(number++);
    Model::random(c.config, seed)->save(path);
    linnet_model* model = nullptr;
    ASSERT_EQ(linnet_model_load(path.c_str(), &model), LINNET_OK) << linnet_error();
    linnet_session_options options;
    linnet_session_options_init(&options, sizeof options);
    options.cache = c.options.cache;
    options.threads = 1;
    linnet_session* session = nullptr;
    ASSERT_EQ(linnet_session_create(model, 1, &options, &session), LINNET_OK) << linnet_error();
    const auto prompt = random_tokens(given, c.config.vocabulary, seed);
    ASSERT_EQ(linnet_prefill(session, 0, prompt.data(), prompt.size()), LINNET_OK) << linnet_error();
    size_t size = 0;
    ASSERT_EQ(linnet_save(session, 0, nullptr, 0, &size), LINNET_OK);
    std::vector<std::byte> good(size);
    ASSERT_EQ(linnet_save(session, 0, good.data(), size, &size), LINNET_OK);
    for_impossible(good, [&](std::span<const std::byte> bytes) {
      EXPECT_EQ(linnet_restore(session, 0, bytes.data(), bytes.size()), LINNET_FAILED);
      expect_sentence(linnet_error());
    });
    std::int64_t position = 0;
    EXPECT_EQ(linnet_position(session, 0, &position), LINNET_OK);
    EXPECT_EQ(position, given);
    EXPECT_EQ(linnet_restore(session, 0, good.data(), good.size()), LINNET_OK) << linnet_error();
    EXPECT_EQ(linnet_prefill(session, 0, prompt.data(), prompt.size()), LINNET_OK) << linnet_error();
    linnet_session_free(session);
    linnet_model_free(model);
  }
}

// A state of a fixed size may stand at any position. Others say by their size where they stand.
TEST(Position, AStreamEndsAtTheLargestOne) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of_case(c));
    const bool fixed_size = c.options.cache && (c.config.attention.family == Family::linear ||
                                                c.config.attention.family == Family::local);
    const auto session = begun(Model::random(c.config, seed), c.options);
    const std::vector<std::byte> before = session->save(1);
    Snapshot crafted = Snapshot::read(before);
    crafted.position = State::most_position - 2;
    if (!fixed_size) {
      error_of([&] { session->restore(1, crafted.bytes()); });
      EXPECT_EQ(session->save(1), before);
      continue;
    }
    session->restore(1, crafted.bytes());
    const auto moved = session->save(1);
    error_of([&] { session->prefill(1, std::vector<std::int32_t>{1, 2, 3}); });
    EXPECT_EQ(session->save(1), moved);
    if (c.config.positions != Positions::learned) {
      draw(*session, 1, 1);
      session->prefill(1, std::vector<std::int32_t>{1});
      EXPECT_EQ(session->position(1), State::most_position);
    }
    error_of([&] { draw(*session, 1, 1); });
    error_of([&] { session->observe(std::vector<std::int32_t>{1}, std::vector<std::int64_t>{1}); });
    session->restore(0, session->save(1));
    EXPECT_EQ(session->position(0), session->position(1));
  }
}

}  // namespace
}  // namespace linnet
