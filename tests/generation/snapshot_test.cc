#include "generation/snapshot.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "support/errors.h"
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

}  // namespace
}  // namespace linnet
