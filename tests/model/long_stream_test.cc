// One stream of ten million tokens, step by step: its memory stays what it is, and its outputs do not drift.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/transformer.h"
#include "support/contexts.h"
#include "support/models.h"
#include "support/numbers.h"

namespace linnet {
namespace {

/// The tokens of the stream repeat. Without positions the sums of the first layer are then, at the end of
/// every period, whole multiples of those of one period, and a layer of attention answers the same each time.
constexpr std::int64_t period = 10, tokens = 10'000'000;

ModelConfig stream_config(std::int64_t layers) {
  ModelConfig config = tiny_config();
  config.layers = layers;
  config.width = 16;
  config.feed_forward = 16;
  config.positions = Positions::none;
  return config;
}

class Stream {
 public:
  explicit Stream(const ModelConfig& config)
      : model_(random_model(config, 1)),
        transformer_(network_of(*model_)),
        state_(network_of(*model_), 1, 0),
        parameters_(Tensor::of<float>({1, network_of(*model_).head().outputs()})),
        ids_(random_tokens(period, config.vocabulary, 2)) {}

  /// What the model says after `count` tokens, a whole number of periods.
  std::vector<float> outputs_at(std::int64_t count) {
    const std::int64_t slot = 0;
    for (; seen_ < count; ++seen_)
      transformer_.step(any_context(), parameters_.view<float>(), std::span(ids_).subspan(seen_ % period, 1),
                        {&slot, 1}, state_);
    const auto outputs = parameters_.span<float>();
    for (const float output : outputs) EXPECT_TRUE(std::isfinite(output)) << "after " << count << " tokens";
    return {outputs.begin(), outputs.end()};
  }
  std::size_t bytes() const { return state_.bytes(0); }

 private:
  std::shared_ptr<const Model> model_;
  RecurrentTransformer transformer_;
  RecurrentState state_;
  Tensor parameters_;
  std::vector<std::int32_t> ids_;
  std::int64_t seen_ = 0;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = larger(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

TEST(LongStream, OneLayerAnswersTheSameAfterTenMillionTokens) {
  Stream stream(stream_config(1));
  const std::vector<float> early = stream.outputs_at(period);
  const std::size_t bytes = stream.bytes();
  EXPECT_LT(distance(stream.outputs_at(tokens), early), 2e-6);
  EXPECT_EQ(stream.bytes(), bytes);
  // The outputs do depend on what came last.
  double largest = 0;
  for (std::int64_t i = 1; i < period; ++i)
    largest = larger(largest, distance(stream.outputs_at(tokens + i), early));
  EXPECT_GT(largest, 1e-2);
}

TEST(LongStream, DeeperLayersSettle) {
  // What a layer saw before the ones below had settled fades as the share of those tokens does.
  Stream stream(stream_config(3));
  const std::vector<float> early = stream.outputs_at(1'000), later = stream.outputs_at(100'000);
  const double before = distance(early, later), after = distance(later, stream.outputs_at(1'000'000));
  EXPECT_GT(before, 0);
  EXPECT_LT(before, 1e-1);
  EXPECT_LT(after, before / 20 + 1e-6);
}

}  // namespace
}  // namespace linnet
