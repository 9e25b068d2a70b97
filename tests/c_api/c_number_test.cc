// Streams of real numbers in the C interface, beside the same streams of the C++ interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "io/temporary_folder.h"
#include "linnet/c_api.h"
#include "linnet/generation.h"
#include "support/models.h"
#include "support/numbers.h"

namespace linnet {
namespace {

using testing::HasSubstr;

constexpr float missing = std::numeric_limits<float>::quiet_NaN();

ModelConfig forecaster() {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.columns = 2;
  config.targets = 3;
  config.objective = Objective::same_step;
  config.length = 400;
  config.value_head = ValueDistribution::student_t;
  return config;
}

class CNumbers : public testing::Test {
 protected:
  CNumbers() { load(forecaster()); }
  ~CNumbers() override {
    linnet_number_session_free(session_);
    linnet_model_free(model_);
  }

  void load(const ModelConfig& config) {
    linnet_model_free(model_);
    Model::random(config, 3)->save(folder_ / "model");
    ASSERT_EQ(linnet_model_load((folder_ / "model").string().c_str(), &model_), LINNET_OK);
  }

  void create(std::int64_t streams) {
    linnet_number_session_free(session_);
    ASSERT_EQ(linnet_number_session_create(model_, streams, nullptr, &session_), LINNET_OK) << linnet_error();
  }

  NumberSession twin(std::int64_t streams) {
    return NumberSession(Model::load(folder_ / "model"), streams, {.threads = 1});
  }

  std::int64_t position(std::int64_t stream) {
    std::int64_t found = -1;
    EXPECT_EQ(linnet_number_position(session_, stream, &found), LINNET_OK);
    return found;
  }

  void expect_refused(linnet_status found, linnet_status wanted, const char* words) {
    EXPECT_EQ(found, wanted) << words;
    EXPECT_THAT(linnet_error(), HasSubstr(words));
  }

  TemporaryFolder folder_;
  linnet_model* model_ = nullptr;
  linnet_number_session* session_ = nullptr;
};

TEST_F(CNumbers, ModelsTellTheirNumbers) {
  EXPECT_EQ(linnet_model_columns(model_), 2);
  EXPECT_EQ(linnet_model_targets(model_), 3);
  EXPECT_EQ(linnet_model_vocabulary(model_), 0);
  EXPECT_EQ(linnet_model_fields(model_), 0);
  EXPECT_EQ(linnet_model_columns(nullptr), -1);
  EXPECT_EQ(linnet_model_targets(nullptr), -1);
  load(tiny_config());
  EXPECT_EQ(linnet_model_columns(model_), 0);
  EXPECT_EQ(linnet_model_targets(model_), 0);
}

TEST_F(CNumbers, StepsAreThoseOfTheLibrary) {
  create(3);
  NumberSession own = twin(3);
  const std::vector<float> numbers = normals(3 * 2 * 20, 5);
  std::vector<float> here(9), there(9);
  for (std::size_t i = 0; i < 20; ++i) {
    std::vector<float> row(numbers.begin() + static_cast<std::ptrdiff_t>(6 * i),
                           numbers.begin() + static_cast<std::ptrdiff_t>(6 * i + 6));
    if (i == 7) row[2] = missing;
    ASSERT_EQ(linnet_number_step(session_, row.data(), here.data(), nullptr, 3), LINNET_OK) << linnet_error();
    own.step(row, there);
    EXPECT_TRUE(same_bits(here, there)) << i;
  }
  const std::int64_t some[] = {2, 0};
  ASSERT_EQ(linnet_number_observe(session_, numbers.data(), some, 2), LINNET_OK);
  own.observe(std::span(numbers).first(4), some);
  ASSERT_EQ(linnet_number_step(session_, numbers.data(), here.data(), some, 2), LINNET_OK);
  own.step(std::span(numbers).first(4), std::span(there).first(6), some);
  EXPECT_TRUE(same_bits(here, there));
  EXPECT_EQ(position(0), 22);
  EXPECT_EQ(position(1), 20);

  std::vector<float> mean(3), scale(3), freedom(3), own_mean(3), own_scale(3), own_freedom(3);
  ASSERT_EQ(linnet_number_densities(session_, 2, mean.data(), scale.data(), freedom.data(), 3), LINNET_OK);
  own.densities(2, own_mean, own_scale, own_freedom);
  EXPECT_TRUE(same_bits(mean, own_mean) && same_bits(scale, own_scale) && same_bits(freedom, own_freedom));
  EXPECT_TRUE(std::isfinite(freedom[0]));
  ASSERT_EQ(linnet_number_draw(session_, 2, 8, 0.5, mean.data(), 3), LINNET_OK);
  own.draw(2, 8, own_mean, 0.5);
  EXPECT_TRUE(same_bits(mean, own_mean));
}

TEST_F(CNumbers, StreamsForkAndAreRestored) {
  create(3);
  const std::vector<float> numbers = normals(6, 6);
  std::vector<float> out(9);
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(linnet_number_step(session_, numbers.data(), out.data(), nullptr, 3), LINNET_OK);
  std::size_t size = 0;
  ASSERT_EQ(linnet_number_save(session_, 0, nullptr, 0, &size), LINNET_OK);
  std::vector<char> bytes(size);
  ASSERT_EQ(linnet_number_save(session_, 0, bytes.data(), size, &size), LINNET_OK);
  ASSERT_EQ(linnet_number_fork(session_, 1, 0), LINNET_OK);
  ASSERT_EQ(linnet_number_begin(session_, 2, -1), LINNET_OK);
  EXPECT_EQ(position(2), 0);
  ASSERT_EQ(linnet_number_restore(session_, 2, bytes.data(), size), LINNET_OK);
  EXPECT_EQ(position(2), 5);
  expect_refused(linnet_number_session_resize(session_, 0), LINNET_USAGE, "streams, got 0");
  ASSERT_EQ(linnet_number_session_resize(session_, 4), LINNET_OK);
  EXPECT_EQ(position(2), 5);
  EXPECT_EQ(position(3), 0);
  ASSERT_EQ(linnet_number_session_resize(session_, 3), LINNET_OK);
  const float same[] = {0.3f, -1, 0.3f, -1, 0.3f, -1};
  ASSERT_EQ(linnet_number_step(session_, same, out.data(), nullptr, 3), LINNET_OK);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(out[i] == out[3 + i] && out[i] == out[6 + i]);
  bytes[size / 2] ^= 1;
  expect_refused(linnet_number_restore(session_, 2, bytes.data(), size), LINNET_FAILED, "damaged");
  EXPECT_EQ(position(2), 6);
}

TEST_F(CNumbers, LearnedPositionsEnd) {
  create(1);
  std::int64_t limit = 0;
  ASSERT_EQ(linnet_number_limit(session_, &limit), LINNET_OK);
  ASSERT_EQ(limit, 400);
  const float in[] = {1, 2};
  float out[3];
  std::int32_t can = 0;
  for (std::int64_t i = 0; i < limit; ++i) {
    ASSERT_EQ(linnet_number_can_continue(session_, 0, &can), LINNET_OK);
    ASSERT_EQ(can, 1);
    ASSERT_EQ(linnet_number_step(session_, in, out, nullptr, 1), LINNET_OK);
  }
  ASSERT_EQ(linnet_number_can_continue(session_, 0, &can), LINNET_OK);
  EXPECT_EQ(can, 0);
  expect_refused(linnet_number_step(session_, in, out, nullptr, 1), LINNET_FAILED, "[step] expected");
}

TEST_F(CNumbers, WhatCannotBeIsRefused) {
  create(2);
  const float in[] = {1, 2, 3, 4}, infinite[] = {1, INFINITY, 3, 4};
  float out[6];
  const std::int64_t twice[] = {1, 1}, outside[] = {0, 2}, three[] = {0, 1, 0};
  expect_refused(linnet_number_step(session_, infinite, out, nullptr, 2), LINNET_USAGE, "[step] expected");
  expect_refused(linnet_number_step(session_, in, out, twice, 2), LINNET_USAGE, "[step] expected");
  expect_refused(linnet_number_step(session_, in, out, outside, 2), LINNET_USAGE, "expected a stream in");
  expect_refused(linnet_number_step(session_, in, out, three, 3), LINNET_USAGE,
                 "at most the session's 2 streams");
  expect_refused(linnet_number_step(session_, in, out, nullptr, 1), LINNET_USAGE, "[step] expected");
  for (const std::size_t absurd : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1}) {
    EXPECT_EQ(linnet_number_step(session_, in, out, nullptr, absurd), LINNET_USAGE);
    EXPECT_EQ(linnet_number_step(session_, in, out, twice, absurd), LINNET_USAGE);
    EXPECT_EQ(linnet_number_observe(session_, in, nullptr, absurd), LINNET_USAGE);
  }
  expect_refused(linnet_number_densities(session_, 0, out, out, out, 3), LINNET_FAILED,
                 "[densities] expected");
  expect_refused(linnet_number_densities(session_, 0, out, out, out, 2), LINNET_USAGE,
                 "memory for 3 numbers");
  EXPECT_EQ(linnet_number_step(session_, in, out, nullptr, 2), LINNET_OK);
  expect_refused(linnet_number_draw(session_, 0, 1, -1, out, 3), LINNET_USAGE, "temperature");
  expect_refused(linnet_number_begin(session_, 0, 4), LINNET_USAGE, "label");
  expect_refused(linnet_number_fork(session_, 0, 5), LINNET_USAGE, "expected a stream");

  linnet_number_session* none = session_;
  expect_refused(linnet_number_session_create(model_, 0, nullptr, &none), LINNET_USAGE, "streams, got 0");
  EXPECT_EQ(none, nullptr);
  linnet_session_options options;
  ASSERT_EQ(linnet_session_options_init(&options, sizeof options), LINNET_OK);
  options.cache = 0;
  expect_refused(linnet_number_session_create(model_, 1, &options, &none), LINNET_USAGE, "the cache 1");
  linnet_session* tokens = nullptr;
  expect_refused(linnet_session_create(model_, 1, nullptr, &tokens), LINNET_USAGE, "predicts the next step");
  load(tiny_config());
  expect_refused(linnet_number_session_create(model_, 1, nullptr, &none), LINNET_USAGE,
                 "[number session] expected");
}

TEST_F(CNumbers, NullIsRefused) {
  create(1);
  float numbers[3] = {};
  std::int64_t whole = 0;
  std::int32_t can = 0;
  std::size_t size = 0;
  char byte = 0;
  linnet_number_session *none = nullptr, *own = session_;
  const auto refused = [&](linnet_status status) { expect_refused(status, LINNET_USAGE, "got NULL"); };
  refused(linnet_number_session_create(nullptr, 1, nullptr, &none));
  refused(linnet_number_session_create(model_, 1, nullptr, nullptr));
  refused(linnet_number_begin(none, 0, -1));
  refused(linnet_number_step(none, numbers, numbers, nullptr, 1));
  refused(linnet_number_step(own, nullptr, numbers, nullptr, 1));
  refused(linnet_number_step(own, numbers, nullptr, nullptr, 1));
  refused(linnet_number_observe(none, numbers, nullptr, 1));
  refused(linnet_number_observe(own, nullptr, nullptr, 1));
  refused(linnet_number_densities(none, 0, numbers, numbers, numbers, 3));
  refused(linnet_number_densities(own, 0, nullptr, numbers, numbers, 3));
  refused(linnet_number_densities(own, 0, numbers, nullptr, numbers, 3));
  refused(linnet_number_densities(own, 0, numbers, numbers, nullptr, 3));
  refused(linnet_number_draw(none, 0, 0, 1, numbers, 3));
  refused(linnet_number_draw(own, 0, 0, 1, nullptr, 3));
  refused(linnet_number_fork(none, 0, 0));
  refused(linnet_number_session_resize(none, 2));
  refused(linnet_number_position(none, 0, &whole));
  refused(linnet_number_position(own, 0, nullptr));
  refused(linnet_number_limit(none, &whole));
  refused(linnet_number_limit(own, nullptr));
  refused(linnet_number_can_continue(none, 0, &can));
  refused(linnet_number_can_continue(own, 0, nullptr));
  refused(linnet_number_save(none, 0, nullptr, 0, &size));
  refused(linnet_number_save(own, 0, nullptr, 0, nullptr));
  refused(linnet_number_save(own, 0, nullptr, 9, &size));
  refused(linnet_number_restore(none, 0, &byte, 1));
  refused(linnet_number_restore(own, 0, nullptr, 1));
  EXPECT_EQ(linnet_number_step(own, numbers, numbers, nullptr, 1), LINNET_OK);
  linnet_number_session_free(nullptr);
}

}  // namespace
}  // namespace linnet
