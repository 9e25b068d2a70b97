// Streams of softmax with caches of bf16.
#include <gtest/gtest.h>

#include <cmath>

#include "support/folder.h"
#include "support/sessions.h"

namespace linnet {
namespace {

ModelConfig softmax_config(DType cache) {
  ModelConfig config = small_config();
  config.attention.family = Family::softmax;
  config.attention.softmax.cache = cache;
  config.positions = Positions::sinusoidal;
  return config;
}

const std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5, 2, 6};

std::vector<float> probabilities_of(Session& session, std::int64_t stream) {
  std::vector<float> result(static_cast<std::size_t>(small_config().vocabulary));
  session.probabilities(stream, result);
  return result;
}

TEST(NarrowCache, TakesHalfTheMemoryAndChangesProbabilitiesLittle) {
  const auto model = Model::random(softmax_config(DType::f32), 3);
  Session wide(model, 1), narrow(make_model(softmax_config(DType::bf16), values_of(*model)), 1);
  for (int i = 0; i < 30; ++i) {
    wide.prefill(0, prompt);
    narrow.prefill(0, prompt);
  }
  EXPECT_EQ(2 * narrow.state_bytes(0), wide.state_bytes(0));
  const std::vector<float> exact = probabilities_of(wide, 0), found = probabilities_of(narrow, 0);
  EXPECT_NE(found, exact);
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_NEAR(std::log(found[i]), std::log(exact[i]), 0.02) << i;
}

TEST(NarrowCache, StreamsContinueBitForBitElsewhere) {
  const auto model = Model::random(softmax_config(DType::bf16), 4);
  Session session(model, 3);
  session.begin(1, -1, seeded(5));
  session.prefill(1, prompt);
  draw(session, 1, 20);
  const std::vector<std::byte> bytes = session.save(1);
  session.fork(2, 1, 5);
  const std::vector<std::int32_t> expected = draw(session, 1, 30);
  EXPECT_EQ(draw(session, 2, 30), expected);
  Session other(model, 1);
  other.restore(0, bytes);
  EXPECT_EQ(draw(other, 0, 30), expected);
}

TEST(NarrowCache, IsASettingOfModelsThatAreLoaded) {
  const Folder folder;
  Model::random(softmax_config(DType::f32), 3)->save(folder.path());
  const std::string setting = "attention.cache=bf16";
  const auto model = Model::load(folder.path(), std::span(&setting, 1));
  EXPECT_EQ(model->config().attention.softmax.cache, DType::bf16);
  const Folder again;
  model->save(again.path());
  EXPECT_EQ(Model::load(again.path())->config().attention.softmax.cache, DType::bf16);
}

}  // namespace
}  // namespace linnet
