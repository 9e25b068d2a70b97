// What a loaded model holds, and the most that loading takes, beside the bytes of its weights and its file.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <sstream>
#include <string>

#include "base/sanitizers.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/training_transformer.h"
#include "support/errors.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/numbers.h"

namespace linnet {
namespace {

/// A line of /proc/self/status, in bytes.
double status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return 1024 * std::stod(line.substr(name.size() + 1));
  return 0;
}

void reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  EXPECT_TRUE(file.good());
}

ModelConfig large_config(WeightType weights) {
  ModelConfig config;
  config.layers = 20;
  config.heads = 6;
  config.width = 384;
  config.feed_forward = 1536;
  config.length = 64;
  config.weights = weights;
  return config;
}

TEST(ModelMemory, ALoadedModelHoldsLittleMoreThanItsWeights) {
#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
  GTEST_SKIP() << "sanitizers keep memory of their own beside ours";
#endif
  constexpr double slack = 4e6;  // code, tables and pages that are not full
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    const Folder folder;
    Model::random(large_config(weights), 1)->save(folder.path());
    const auto file = static_cast<double>(std::filesystem::file_size(folder / "model.safetensors"));
    malloc_trim(0);  // freed memory that the process keeps would serve unseen
    const double before = status("VmRSS");
    reset_peak();
    const auto model = Model::load(folder.path());
    ASSERT_GT(status("VmHWM"), 0);
    const double held = status("VmRSS") - before, peak = status("VmHWM") - before;
    const auto bytes = static_cast<double>(model->weight_bytes());
    EXPECT_LE(held, 1.3 * bytes + slack) << name_of(weights) << ": " << bytes << " bytes of weights";
    EXPECT_LE(peak, 2 * file + 64e6) << name_of(weights) << ": a file of " << file << " bytes";
    EXPECT_GE(held, 0.8 * bytes) << name_of(weights) << ": the measure does not see the weights";
  }
}

TEST(TrainingMemory, IsWhatAConfigurationSays) {
#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
  GTEST_SKIP() << "sanitizers have a malloc of their own";
#endif
  const auto taken = [] {
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  constexpr std::int64_t batch = 2;
  ModelConfig plain = large_config(WeightType::f32);
  plain.layers = 3;
  ModelConfig reading = plain, mixed = plain;
  reading.encoder_layers = 3;
  reading.source_length = 40;
  reading.source_vocabulary = 7;
  mixed.attention.layers = "linear,softmax,linear";
  for (const ModelConfig& config : {plain, reading, mixed, with_other_blocks(plain, "linear")}) {
    for (const bool recompute : {false, true}) {
      double bytes[2];
      for (const bool rounded : {false, true}) {
        const WeightType precision = rounded ? WeightType::bf16 : WeightType::f32;
        SCOPED_TRACE(testing::Message()
                     << describe(config) << ", " << name_of(precision) << ", recompute " << recompute);
        const Network network(config, nullptr, precision);
        const double before = taken();
        const TrainingTransformer transformer(network, batch, config.length, recompute);
        bytes[rounded] = taken() - before;
        const double floats = TrainingTransformer::floats_per_token(config, recompute, precision);
        const double expected = sizeof(float) * batch * static_cast<double>(config.length) * floats;
        EXPECT_NEAR(bytes[rounded], expected, 0.01 * expected);
      }
      // Gated layers keep all they have.
      const bool rounds =
          config.activation == kernels::Activation::gelu && kernels::multiplies_fast(WeightType::bf16);
      EXPECT_EQ(bytes[1] < 0.9 * bytes[0], rounds);
    }
  }
}

TEST(ModelMemory, AFileThatDoesNotFitTakesNoMemory) {
#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
  GTEST_SKIP() << "sanitizers keep memory of their own beside ours";
#endif
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    const Folder folder;
    ModelConfig config;
    config.weights = weights;
    Model::random(config, 1)->save(folder.path());
    for (const auto& [setting, tensor] : {std::pair("model.width=4096", "embedding.weight"),
                                          std::pair("model.length=4294967296", "embedding.positions")}) {
      const std::string settings[] = {setting, "model.layers=100", "model.heads=64"};
      malloc_trim(0);
      const double before = status("VmRSS");
      reset_peak();
      const std::string said = error_of([&] { Model::load(folder.path(), settings); });
      EXPECT_NE(said.find(tensor), std::string::npos) << said;
      ASSERT_GT(status("VmHWM"), 0);
      EXPECT_LE(status("VmHWM") - before, 64e6) << setting << ", " << name_of(weights);
    }
  }
}

TEST(ModelMemory, ALongModelWithSinusoidsTakesNoMemoryForItsLength) {
  const Folder folder;
  ModelConfig config;
  config.layers = 1;
  config.positions = Positions::sinusoidal;
  config.length = std::int64_t{1} << 32;
  Model::random(config, 1)->save(folder.path());
  EXPECT_EQ(Model::load(folder.path())->config().length, config.length);
}

TEST(ModelMemory, ValuesAreThoseThatWereGiven) {
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    ModelConfig config;
    config.weights = weights;
    config.width = 36;
    config.feed_forward = 70;
    const auto model = Model::random(config, 2);
    const Tensor values = values_of(*model);
    const auto again = make_model(config, values.clone());
    EXPECT_TRUE(same_bits(values_of(*again).span<float>(), values.span<float>())) << name_of(weights);
  }
}

}  // namespace
}  // namespace linnet
