#include "generation/snapshot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "model/config.h"
#include "support/errors.h"
#include "support/little_endian.h"
#include "support/sessions.h"

namespace linnet {
namespace {

const std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5, 2, 6};

/// A session whose stream 1 has read a prompt and drawn twenty tokens, its neighbours others.
std::unique_ptr<Session> begun(const std::shared_ptr<const Model>& model,
                               const Session::Options& options = {}) {
  auto session = std::make_unique<Session>(model, 3, options);
  SamplingOptions sampling = seeded(7);
  sampling.temperature = 0.9;
  sampling.top_k = 11;
  session->begin(1, some_label(model->config()), sampling);
  session->prefill(1, prompt);
  draw(*session, 1, 20);
  draw(*session, 0, 3);
  return session;
}

TEST(Snapshot, ContinuesBitForBitInAnotherSession) {
  for (const ModelConfig& config : session_configs()) {
    for (const Session::Options& options : {Session::Options{}, no_cache}) {
      SCOPED_TRACE(describe(config) + (options.cache ? ", cache" : ", no cache"));
      const auto model = Model::random(config, 5);
      const auto session = begun(model, options);
      const std::vector<std::byte> bytes = session->save(1);
      const std::vector<std::int32_t> expected = draw(*session, 1, 30);
      // The same weights read again are the same model.
      Session other(make_model(config, values_of(*model)), 2, options);
      draw(other, 0, 5);
      other.restore(0, bytes);
      EXPECT_EQ(other.position(0), static_cast<std::int64_t>(prompt.size()) + 20);
      EXPECT_EQ(draw(other, 0, 30), expected);
      // And it can be saved and restored again and again.
      session->restore(2, other.save(0));
      EXPECT_EQ(draw(*session, 2, 10), draw(other, 0, 10));
    }
  }
}

TEST(Snapshot, HasTheDocumentedSize) {
  for (const ModelConfig& config : session_configs()) {
    const auto session = begun(Model::random(config, 5));
    for (std::int64_t stream = 0; stream < 3; ++stream)
      EXPECT_EQ(session->save(stream).size(), 88 + session->state_bytes(stream));
  }
  ModelConfig fields = small_config();
  fields.vocabulary = 30;
  fields.fields = "13,5,30";
  Session several(Model::random(fields, 5), 1);
  EXPECT_EQ(several.save(0).size(), 88 + several.state_bytes(0));
  ModelConfig narrow = small_config();
  narrow.attention.family = Family::softmax;
  narrow.attention.softmax.cache = DType::bf16;
  Session cached(Model::random(narrow, 5), 1);
  draw(cached, 0, 10);
  EXPECT_EQ(cached.save(0).size(), 88 + 2 * cached.state_bytes(0));
}

TEST(Snapshot, EveryDamagedByteIsNoticed) {
  const auto model = Model::random(session_configs().front(), 5);
  const auto session = begun(model);
  const std::vector<std::byte> bytes = session->save(1);
  const auto twin = begun(model);
  for (std::size_t at = 0; at < bytes.size(); at += at < 200 ? 1 : 97) {
    std::vector<std::byte> damaged = bytes;
    damaged[at] ^= std::byte{0x10};
    EXPECT_THROW(session->restore(1, damaged), Error) << "byte " << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{87}, bytes.size() - 1})
    EXPECT_THROW(session->restore(1, std::span(bytes).first(size)), Error) << size << " bytes";
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(session->restore(1, longer), Error);
  EXPECT_EQ(draw(*session, 1, 10), draw(*twin, 1, 10)) << "a refused snapshot leaves the stream alone";
}

TEST(Snapshot, WithImpossibleContentsIsRefused) {
  ModelConfig config = session_configs().front();
  const auto model = Model::random(config, 5);
  const auto session = begun(model, no_cache);
  const std::vector<std::byte> bytes = session->save(1);
  for (const std::int32_t token : {-1, static_cast<std::int32_t>(config.input_tokens())}) {
    Snapshot snapshot = Snapshot::read(bytes);
    std::memcpy(snapshot.past.data() + 2 * sizeof(token), &token, sizeof(token));
    EXPECT_THAT(error_of([&] { session->restore(1, snapshot.bytes()); }),
                testing::HasSubstr(fmt::format("got {}", token)));
  }
  std::vector<std::byte> other = bytes;
  other[12] = std::byte{2};  // neither with a cache nor without
  const std::uint64_t sum = checksum(std::span(other).first(other.size() - sizeof(std::uint64_t)));
  std::memcpy(other.data() + other.size() - sizeof sum, &sum, sizeof sum);
  EXPECT_THAT(error_of([&] { session->restore(1, other); }), testing::HasSubstr("1 or 0, got 2"));
  EXPECT_EQ(session->save(1), bytes);

  // Four caches of so many tokens would take 2^64 bytes.
  config = {};
  config.layers = 4;
  config.heads = 4;
  config.width = 64;
  config.feed_forward = 8;
  config.vocabulary = 5;
  config.positions = Positions::none;
  config.attention.family = Family::softmax;
  Session caches(Model::random(config, 5), 1);
  Snapshot snapshot = Snapshot::read(caches.save(0));
  ASSERT_TRUE(snapshot.past.empty());
  snapshot.position = std::int64_t{1} << 53;
  EXPECT_THAT(error_of([&] { caches.restore(0, snapshot.bytes()); }),
              testing::HasSubstr("more than 0 bytes for 4 layers"));
}

TEST(Snapshot, OfAnotherModelIsRefused) {
  for (const ModelConfig& config : session_configs()) {
    const auto session = begun(Model::random(config, 5));
    const std::vector<std::byte> bytes = session->save(1);
    Session weights(Model::random(config, 6), 1);
    EXPECT_THROW(weights.restore(0, bytes), Error);
    ModelConfig changed = config;
    changed.attention.epsilon = 1e-5;
    Session configuration(Model::random(changed, 5), 1);
    EXPECT_THROW(configuration.restore(0, bytes), Error);
    Session uncached(Model::random(config, 5), 1, no_cache);
    EXPECT_THROW(uncached.restore(0, bytes), Error);
    EXPECT_THROW(session->save(3), Error);
    EXPECT_THROW(session->restore(-1, bytes), Error);
  }
}

/// A small linear model under a configuration that `change` has altered, with the weights of a fixed seed.
std::uint64_t fingerprint_after(const std::function<void(ModelConfig&)>& change, std::uint64_t seed = 5) {
  ModelConfig config = session_configs().front();
  change(config);
  return fingerprint(*Model::random(config, seed));
}

TEST(Snapshot, FingerprintsCoverWhatDecidesTheComputation) {
  const std::uint64_t plain = fingerprint_after([](ModelConfig&) {});
  EXPECT_EQ(fingerprint_after([](ModelConfig& c) { c.dropout = 0.3; }), plain);
  EXPECT_EQ(fingerprint_after([](ModelConfig& c) { c.attention.linear.redraw = 100; }), plain);
  EXPECT_NE(fingerprint_after([](ModelConfig&) {}, 6), plain) << "weights";
  EXPECT_NE(fingerprint_after([](ModelConfig& c) { c.attention.linear.feature_map = "relu"; }), plain);
  EXPECT_NE(fingerprint_after([](ModelConfig& c) { c.attention.linear.decay = Decay::fixed; }), plain);
  EXPECT_NE(fingerprint_after(
                [](ModelConfig& c) { c.norm = c.norm == NormOrder::pre ? NormOrder::post : NormOrder::pre; }),
            plain);
  EXPECT_NE(fingerprint_after([](ModelConfig& c) { c.activation = Activation::relu; }), plain);
  EXPECT_NE(fingerprint_after([](ModelConfig& c) { c.attention.normalise = Normalise::none; }), plain);
  EXPECT_NE(fingerprint_after([](ModelConfig& c) { c.attention.epsilon = 1e-4; }), plain);
}

TEST(Snapshot, ANewKeyWithItsDefaultKeepsFingerprints) {
  ModelConfig config = session_configs().front(), of_defaults;
  Options before, after, defaults_before, defaults_after;
  std::string value = "usual", of_default = "usual";
  after.add("attention.added", value, "a key that an older version does not have");  // before all others
  add_options(before, config);
  add_options(after, config);
  add_options(defaults_before, of_defaults);
  add_options(defaults_after, of_defaults);
  defaults_after.add("attention.added", of_default, "");
  const std::string text = generation_keys(before, defaults_before);
  EXPECT_NE(text, "");
  EXPECT_EQ(generation_keys(after, defaults_after), text);
  value = "unusual";
  EXPECT_NE(generation_keys(after, defaults_after), text);
}

// The bytes of docs/format.md.
TEST(Snapshot, HasTheDocumentedBytes) {
  for (const ModelConfig& config : session_configs())
    for (const Session::Options& options : {Session::Options{}, no_cache}) {
      SCOPED_TRACE(describe(config) + (options.cache ? ", cache" : ", no cache"));
      const auto model = Model::random(config, 5);
      Session session(model, 1, options);
      SamplingOptions sampling = seeded(0xfedcba9876543210);
      sampling.temperature = 0.9;
      sampling.top_k = 11;
      sampling.top_p = 0.75;
      session.begin(0, some_label(config), sampling);
      session.prefill(0, prompt);
      const std::vector<std::int32_t> drawn = draw(session, 0, 20);
      const std::vector<std::byte> saved = session.save(0);

      LittleEndian expected;
      expected.text("LINNETST").add<std::uint32_t>(1).add<std::uint32_t>(options.cache ? 1 : 0);
      expected.add<std::uint64_t>(fingerprint(*model));
      expected.add<std::int64_t>(27).add<std::int64_t>(drawn.back());
      expected.add<double>(0.9).add<std::int64_t>(11).add<double>(0.75);
      expected.add<std::uint64_t>(0xfedcba9876543210);
      if (options.cache) {
        ASSERT_EQ(saved.size(), 88 + session.state_bytes(0));
        expected.add<std::uint64_t>(session.state_bytes(0));
        expected.add(std::span(saved).subspan(80, session.state_bytes(0)));
      } else {
        std::vector<std::int32_t> inputs = {config.first_input(some_label(config))};
        inputs.insert(inputs.end(), prompt.begin(), prompt.end());
        inputs.insert(inputs.end(), drawn.begin(), drawn.end() - 1);
        expected.add<std::uint64_t>(4 * 27);
        for (const std::int32_t input : inputs) expected.add<std::int32_t>(input);
      }
      EXPECT_EQ(saved, expected.add_crc32().bytes());
    }
}

// Version 1 as docs/compatibility.md promises it: where a number changes, so has the version to.
TEST(Snapshot, KeepsTheFingerprintsAndTheSizesOfItsVersion) {
  const auto some_model = [](const ModelConfig& config) {
    Tensor values = Tensor::of<float>({Network(config).table().size()});
    const std::span<float> all = values.span<float>();
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i % 61) / 64 - 0.5f;
    return make_model(config, std::move(values));
  };
  ModelConfig config = tiny_config();
  config.classes = 3;
  config.attention.linear.feature_map = "relu";
  config.attention.epsilon = 0.25;
  EXPECT_EQ(fmt::format("{:016x}", fingerprint(*some_model(config))), "119fdc3eda45c7cd");
  std::vector<std::size_t> sizes;
  for (const ModelConfig& each : recurrent_configs()) {
    Session session(some_model(each), 1, {.threads = 1});
    session.observe(std::vector<std::int32_t>{1});
    for (int i = 0; i < 8; ++i) session.observe(std::vector<std::int32_t>{2});
    sizes.push_back(session.save(0).size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{664, 1384, 1240, 1384, 808, 1240, 1496}));
}

// Of a linear layer S [H, F, M] and z [H, F], and the same again where sums are compensated. After one token
// S is the product of z and the values, and no rounding error is left.
TEST(Snapshot, HoldsTheDocumentedStates) {
  for (const bool compensated : {false, true}) {
    SCOPED_TRACE(compensated ? "compensated sums" : "plain sums");
    ModelConfig config = tiny_config();
    config.positions = compensated ? Positions::sinusoidal : Positions::learned;
    constexpr std::size_t layers = 2, heads = 2, e = 3, part = heads * (e * e + e);
    const std::size_t of_layer = compensated ? 2 * part : part;
    Session session(random_model(config, 5), 1);
    const auto numbers = [&] {
      const std::vector<std::byte> saved = session.save(0);
      std::vector<float> result((saved.size() - 88) / sizeof(float));
      std::memcpy(result.data(), saved.data() + 80, result.size() * sizeof(float));
      return result;
    };
    EXPECT_EQ(numbers(), std::vector<float>(layers * of_layer));
    session.observe(std::vector<std::int32_t>{3});
    const std::vector<float> after = numbers();
    ASSERT_EQ(after.size(), layers * of_layer);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::span<const float> s = std::span(after).subspan(layer * of_layer);
      const std::span<const float> z = s.subspan(heads * e * e);
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t f = 0; f < e; ++f) {
          ASSERT_GT(z[h * e + f], 0);
          for (std::size_t m = 0; m < e; ++m) {
            const float value = s[h * e * e + m] / z[h * e];
            EXPECT_NEAR(s[(h * e + f) * e + m], z[h * e + f] * value, 1e-5) << layer << " " << h << " " << f;
            EXPECT_NE(value, 0);
          }
        }
      for (std::size_t i = part; i < of_layer; ++i) EXPECT_EQ(s[i], 0) << i;
    }
  }
}

}  // namespace
}  // namespace linnet
