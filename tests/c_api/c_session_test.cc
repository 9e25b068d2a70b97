// Streams of several fields, and of encoder–decoder models, in the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "io/temporary_folder.h"
#include "linnet/c_api.h"
#include "linnet/generation.h"
#include "support/models.h"

namespace linnet {
namespace {

using testing::HasSubstr;

class CSession : public testing::Test {
 protected:
  ~CSession() override {
    linnet_session_free(session_);
    linnet_model_free(model_);
  }

  /// A session of a random model of that configuration.
  void make(const ModelConfig& config, std::int64_t streams) {
    Model::random(config, 3)->save(folder_ / "model");
    ASSERT_EQ(linnet_model_load((folder_ / "model").string().c_str(), &model_), LINNET_OK);
    ASSERT_EQ(linnet_session_create(model_, streams, nullptr, &session_), LINNET_OK) << linnet_error();
  }

  TemporaryFolder folder_;
  linnet_model* model_ = nullptr;
  linnet_session* session_ = nullptr;
};

ModelConfig of_fields() {
  ModelConfig config = tiny_config();
  config.fields = "5,3";
  config.length = 40;
  return config;
}

/// Lets field 1 be token 2 alone, and counts the calls of each size.
std::int32_t only_two(void* data, std::int64_t, std::int64_t field, float* logits, std::size_t count) {
  if (count != (field == 1 ? 3 : 5)) return 1;
  if (field == 1) logits[0] = logits[1] = -INFINITY;
  ++static_cast<int*>(data)[field];
  return 0;
}

TEST_F(CSession, StepsOfSeveralFieldsHaveATokenOfEach) {
  make(of_fields(), 2);
  EXPECT_EQ(linnet_model_fields(model_), 2);
  EXPECT_EQ(linnet_model_vocabulary(model_), 5);
  EXPECT_EQ(linnet_model_field_vocabulary(model_, 0), 5);
  EXPECT_EQ(linnet_model_field_vocabulary(model_, 1), 3);
  EXPECT_EQ(linnet_model_field_vocabulary(model_, 2), -1);
  EXPECT_EQ(linnet_model_source_vocabulary(model_), 0);

  Session twin(Model::load(folder_ / "model"), 2, {.threads = 1});
  const std::vector<std::int32_t> prompt = {4, 2, 0, 1, 3, 0};
  ASSERT_EQ(linnet_prefill(session_, 1, prompt.data(), 3), LINNET_OK) << linnet_error();
  twin.prefill(1, prompt);
  std::int64_t position = 0;
  ASSERT_EQ(linnet_position(session_, 1, &position), LINNET_OK);
  EXPECT_EQ(position, 3);
  std::vector<std::int32_t> here(4), there(4);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(linnet_step(session_, here.data(), nullptr, 2), LINNET_OK) << linnet_error();
    twin.step(there);
    EXPECT_EQ(here, there);
  }
  const std::int64_t one[] = {1};
  ASSERT_EQ(linnet_observe(session_, prompt.data(), one, 1), LINNET_OK);
  EXPECT_EQ(linnet_observe(session_, prompt.data(), one, SIZE_MAX / 2 + 1), LINNET_USAGE);

  int calls[2] = {};
  std::vector<float> log_probabilities(4, 1);
  linnet_step_options options;
  ASSERT_EQ(linnet_step_options_init(&options, sizeof options), LINNET_OK);
  options.process_logits = only_two;
  options.data = calls;
  options.log_probabilities = log_probabilities.data();
  linnet_session_options of_session;
  ASSERT_EQ(linnet_session_options_init(&of_session, sizeof of_session), LINNET_OK);
  of_session.threads = 1;
  linnet_session* alone = nullptr;
  ASSERT_EQ(linnet_session_create(model_, 2, &of_session, &alone), LINNET_OK);
  ASSERT_EQ(linnet_step_with_options(alone, here.data(), nullptr, 2, &options), LINNET_OK) << linnet_error();
  linnet_session_free(alone);
  EXPECT_TRUE(here[1] == 2 && here[3] == 2);
  EXPECT_TRUE(calls[0] == 2 && calls[1] == 2);
  for (const float number : log_probabilities) EXPECT_LT(number, 0);
}

TEST_F(CSession, EncoderDecoderModelsBeginWithASource) {
  ModelConfig config = tiny_config();
  config.encoder_layers = 1;
  config.source_length = 8;
  config.source_vocabulary = 7;
  make(config, 2);
  EXPECT_EQ(linnet_model_source_vocabulary(model_), 7);
  std::int32_t tokens[2];
  std::int32_t can = 1;
  ASSERT_EQ(linnet_can_continue(session_, 0, &can), LINNET_OK);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(linnet_step(session_, tokens, nullptr, 2), LINNET_FAILED);
  EXPECT_THAT(linnet_error(), HasSubstr("source"));
  const std::vector<std::int32_t> source = {6, 0, 3};
  Session twin(Model::load(folder_ / "model"), 2, {.threads = 1});
  for (std::int64_t i = 0; i < 2; ++i) {
    linnet_sampling sampling;
    ASSERT_EQ(linnet_sampling_init(&sampling, sizeof sampling), LINNET_OK);
    sampling.seed = static_cast<std::uint64_t>(4 + i);
    ASSERT_EQ(linnet_begin_with_source(session_, i, source.data(), source.size(), &sampling), LINNET_OK)
        << linnet_error();
    twin.begin(i, source, {.seed = sampling.seed});
  }
  std::vector<std::int32_t> own(2);
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(linnet_step(session_, tokens, nullptr, 2), LINNET_OK) << linnet_error();
    twin.step(own);
    EXPECT_TRUE(tokens[0] == own[0] && tokens[1] == own[1]);
  }
  const std::vector<std::int32_t> answer(tokens, tokens + 2);
  float scores[2];
  ASSERT_EQ(linnet_model_score_with_source(model_, 1, source.data(), 3, tokens, 2, scores), LINNET_OK);
  Context context(1);
  const std::vector<float> expected = Model::load(folder_ / "model")->score(context, source, answer);
  EXPECT_TRUE(scores[0] == expected[0] && scores[1] == expected[1]);
  EXPECT_EQ(linnet_model_score_with_source(model_, 1, source.data(), 0, tokens, 2, scores), LINNET_USAGE);
  EXPECT_EQ(linnet_model_score_with_source(model_, 1, nullptr, 3, tokens, 2, scores), LINNET_USAGE);
  EXPECT_EQ(linnet_model_score_with_source(model_, 1, source.data(), 3, nullptr, 2, scores), LINNET_USAGE);
  EXPECT_EQ(linnet_model_score_with_source(model_, 1, source.data(), 3, tokens, 2, nullptr), LINNET_USAGE);
  EXPECT_EQ(linnet_model_score_with_source(nullptr, 1, source.data(), 3, tokens, 2, scores), LINNET_USAGE);

  const std::int32_t outside = 7;
  EXPECT_EQ(linnet_begin_with_source(session_, 0, &outside, 1, nullptr), LINNET_USAGE);
  EXPECT_EQ(linnet_begin_with_source(session_, 0, source.data(), 0, nullptr), LINNET_USAGE);
  EXPECT_EQ(linnet_begin_with_source(session_, 0, nullptr, 1, nullptr), LINNET_USAGE);
  EXPECT_EQ(linnet_begin_with_source(nullptr, 0, source.data(), 3, nullptr), LINNET_USAGE);
  ASSERT_EQ(linnet_begin(session_, 0, -1, nullptr), LINNET_OK);
  ASSERT_EQ(linnet_can_continue(session_, 0, &can), LINNET_OK);
  EXPECT_EQ(can, 0);
}

TEST_F(CSession, ModelsWithoutAnEncoderTakeNoSource) {
  make(tiny_config(), 1);
  EXPECT_EQ(linnet_model_fields(model_), 1);
  const std::int32_t source[] = {1};
  EXPECT_EQ(linnet_begin_with_source(session_, 0, source, 1, nullptr), LINNET_USAGE);
  EXPECT_THAT(linnet_error(), HasSubstr("encoder"));
}

TEST_F(CSession, ThreadsScoreWithOneModelAtOnce) {
  make(tiny_config(), 1);
  const std::int32_t tokens[] = {1, 4, 2, 0, 3};
  float expected[5];
  ASSERT_EQ(linnet_model_score(model_, 2, tokens, 5, -1, expected), LINNET_OK) << linnet_error();
  std::atomic<int> equal = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        float found[5];
        if (linnet_model_score(model_, 1 + t % 2, tokens, 5, -1, found) == LINNET_OK &&
            std::ranges::equal(found, expected))
          ++equal;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 80);
  // A call that fails takes nothing from those that follow.
  const std::int32_t outside[] = {99};
  EXPECT_EQ(linnet_model_score(model_, 2, outside, 1, -1, expected), LINNET_USAGE);
  EXPECT_EQ(linnet_model_score(model_, 2, tokens, 5, -1, expected), LINNET_OK);
}

TEST_F(CSession, ModelsOfLabelsHaveNoStreams) {
  ModelConfig config = tiny_config();
  config.objective = Objective::classify;
  config.classes = 3;
  Model::random(config, 3)->save(folder_ / "model");
  ASSERT_EQ(linnet_model_load((folder_ / "model").string().c_str(), &model_), LINNET_OK);
  EXPECT_EQ(linnet_session_create(model_, 1, nullptr, &session_), LINNET_USAGE);
  EXPECT_EQ(session_, nullptr);
}

}  // namespace
}  // namespace linnet
