// What a model says of itself, of labels and of real numbers in the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/temporary_folder.h"
#include "linnet/c_api.h"
#include "linnet/model.h"
#include "support/models.h"

namespace linnet {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

class CModel : public testing::Test {
 protected:
  ~CModel() override { linnet_model_free(model_); }

  /// A random model, also as the C++ interface has it.
  void load(const ModelConfig& config) {
    Model::random(config, 5)->save(folder_ / "model");
    reload();
  }

  void reload() {
    linnet_model_free(model_);
    ASSERT_EQ(linnet_model_load((folder_ / "model").string().c_str(), &model_), LINNET_OK) << linnet_error();
    own_ = Model::load(folder_ / "model");
  }

  void expect_refused(linnet_status found, const char* words) {
    EXPECT_EQ(found, LINNET_USAGE) << words;
    EXPECT_THAT(linnet_error(), HasSubstr(words));
  }

  TemporaryFolder folder_;
  Context context_{1};
  linnet_model* model_ = nullptr;
  std::shared_ptr<const Model> own_;
};

TEST_F(CModel, TellsItsConfigurationAndNames) {
  ModelConfig config = tiny_config();
  config.classes = 2;
  load(config);
  EXPECT_EQ(linnet_model_config(model_), read_file(folder_ / "model/config.json"));
  EXPECT_EQ(linnet_model_width(model_), 6);
  EXPECT_EQ(linnet_model_class_name(model_, 1), nullptr);
  EXPECT_EQ(linnet_model_columns_json(model_), nullptr);
  write_file_atomically(folder_ / "model/labels.json", "[\"no\", \"yes\"]");
  write_file_atomically(folder_ / "model/columns.json", "{\"names\": [\"load\"]}");
  reload();
  EXPECT_STREQ(linnet_model_class_name(model_, 1), "yes");
  EXPECT_STREQ(linnet_model_columns_json(model_), "{\"names\": [\"load\"]}");
  EXPECT_EQ(linnet_model_class_name(model_, 2), nullptr);
  EXPECT_THAT(linnet_error(), HasSubstr("[class name] expected a label in 0 … 1, got 2"));
  EXPECT_EQ(linnet_model_class_name(model_, -1), nullptr);
  EXPECT_EQ(linnet_model_config(nullptr), nullptr);
  EXPECT_EQ(linnet_model_class_name(nullptr, 0), nullptr);
  EXPECT_EQ(linnet_model_columns_json(nullptr), nullptr);
  EXPECT_EQ(linnet_model_width(nullptr), -1);
}

TEST_F(CModel, ClassifiesTokensAndNumbers) {
  ModelConfig config = tiny_config();
  config.objective = Objective::classify;
  config.classes = 3;
  config.columns = 2;
  load(config);
  const std::vector<std::int32_t> tokens = {0, 1, 2, 3, 4, 0, 1, 1};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 1, 0, 1, 0, 1, 0};
  const std::vector<std::int64_t> lengths = {4, 2};
  std::vector<float> found(6);
  ASSERT_EQ(
      linnet_model_classify(model_, 1, tokens.data(), values.data(), 2, 4, lengths.data(), found.data(), 6),
      LINNET_OK)
      << linnet_error();
  const Tensor expected = own_->classify(
      context_, {.batch = 2, .length = 4, .tokens = tokens, .values = values, .key_lengths = lengths});
  EXPECT_THAT(found, ElementsAreArray(expected.span<float>()));
  expect_refused(linnet_model_classify(model_, 1, tokens.data(), nullptr, 2, 4, nullptr, found.data(), 6),
                 "[classify] expected values, got NULL");
  expect_refused(linnet_model_classify(model_, 1, nullptr, values.data(), 2, 4, nullptr, found.data(), 6),
                 "[classify] expected tokens, got NULL");
  expect_refused(
      linnet_model_classify(model_, 1, tokens.data(), values.data(), 2, 4, nullptr, found.data(), 5),
      "[classify] expected memory for 6 probabilities, got 5");
  expect_refused(
      linnet_model_classify(model_, 1, tokens.data(), values.data(), 0, 4, nullptr, found.data(), 0),
      "at least 1 sequence");
  expect_refused(linnet_model_classify(model_, 1, tokens.data(), values.data(), std::int64_t{1} << 62,
                                       std::int64_t{1} << 62, nullptr, found.data(), 6),
                 "at most 1099511627776 steps");
  expect_refused(linnet_model_classify(nullptr, 1, tokens.data(), nullptr, 2, 4, nullptr, found.data(), 6),
                 "expected a model");
}

TEST_F(CModel, PredictsNumbers) {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.columns = 2;
  config.value_head = ValueDistribution::student_t;
  load(config);
  const float none = std::numeric_limits<float>::quiet_NaN();
  std::int32_t first = -1;
  ASSERT_EQ(linnet_model_first_input(model_, -1, &first), LINNET_OK);
  const std::vector<std::int32_t> tokens = {first, -1, -1};
  const std::vector<float> values = {none, none, 1, 2, 3, none};
  std::vector<float> mean(6), scale(6), freedom(6), hidden(18);
  ASSERT_EQ(linnet_model_predict(model_, 1, tokens.data(), values.data(), 1, 3, nullptr, mean.data(),
                                 scale.data(), freedom.data(), 6),
            LINNET_OK)
      << linnet_error();
  const Steps steps{.batch = 1, .length = 3, .tokens = tokens, .values = values};
  const Densities expected = own_->predict(context_, steps);
  EXPECT_THAT(mean, ElementsAreArray(expected.mean.span<float>()));
  EXPECT_THAT(scale, ElementsAreArray(expected.scale.span<float>()));
  EXPECT_THAT(freedom, ElementsAreArray(expected.freedom.span<float>()));
  ASSERT_EQ(linnet_model_hidden(model_, 1, tokens.data(), values.data(), 1, 3, nullptr, hidden.data(), 18),
            LINNET_OK)
      << linnet_error();
  EXPECT_THAT(hidden, ElementsAreArray(own_->hidden(context_, steps).span<float>()));
  expect_refused(linnet_model_predict(model_, 1, tokens.data(), values.data(), 1, 3, nullptr, mean.data(),
                                      scale.data(), nullptr, 6),
                 "degrees of freedom, got NULL");
  expect_refused(
      linnet_model_hidden(model_, 1, tokens.data(), values.data(), 1, 3, nullptr, hidden.data(), 17),
      "memory for 18 numbers of rows, got 17");
  expect_refused(
      linnet_model_classify(model_, 1, tokens.data(), values.data(), 1, 3, nullptr, hidden.data(), 10),
      "[classify] expected a classifier");
  expect_refused(linnet_model_hidden(model_, 1, tokens.data(), values.data(), std::int64_t{1} << 30,
                                     std::int64_t{1} << 30, nullptr, hidden.data(), 0),
                 "at most 1099511627776 steps");
  EXPECT_EQ(linnet_model_class_name(model_, 0), nullptr);
  EXPECT_THAT(linnet_error(), HasSubstr("expected a model with labels"));
}

TEST_F(CModel, HiddenRowsOfTokensAndFields) {
  ModelConfig config = tiny_config();
  load(config);
  const std::vector<std::int32_t> tokens = {5, 0, 1, 2};
  std::vector<float> hidden(24);
  ASSERT_EQ(linnet_model_hidden(model_, 1, tokens.data(), nullptr, 2, 2, nullptr, hidden.data(), 24),
            LINNET_OK)
      << linnet_error();
  EXPECT_THAT(hidden, ElementsAreArray(own_->hidden(context_, tokens, 2, 2).span<float>()));
  config.fields = "5,3";
  load(config);
  ASSERT_EQ(linnet_model_hidden(model_, 1, tokens.data(), nullptr, 1, 2, nullptr, hidden.data(), 12),
            LINNET_OK)
      << linnet_error();
}

}  // namespace
}  // namespace linnet
