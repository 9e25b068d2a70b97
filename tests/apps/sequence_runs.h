#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "apps/program.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {

/// Settings of a small run.
inline const Strings tiny = {"--set",
                             "model.layers=1",
                             "model.heads=2",
                             "model.width=16",
                             "model.feed_forward=32",
                             "training.batch=4",
                             "training.evaluate_examples=4",
                             "training.log_every=1",
                             "training.sample_every=0",
                             "training.evaluate_every=0"};

/// A series of two columns, and runs on it.
class SeriesProgram : public testing::Test {
 protected:
  static constexpr int rows = 600;

  SeriesProgram() {
    // A sine and a ramp, with a jump at row 500.
    std::string text = "time,wave,ramp\n";
    for (int i = 0; i < rows; ++i)
      text += std::to_string(i) + "," + std::to_string(std::sin(0.3 * i) + (i == 500 ? 40 : 0)) + "," +
              std::to_string(0.01 * i) + "\n";
    folder_.file("series.csv", text);
    folder_.file(
        "series.toml",
        "[data]\nkind = \"series\"\nlength = 32\ntime = \"time\"\n"
        "[model]\npositions = \"none\"\nrelative = true\n[training]\nsteps = 30\nlearning_rate = 1e-2\n");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void train(const Strings& settings = {}) {
    succeed(joined(
        joined({"train", path("series.toml"), "--data", path("series.csv"), "--out", path("run")}, tiny),
        settings));
  }

  TemporaryFolder folder_;
};

/// A run on tokens of two fields, which are pitches.
class FieldsProgram : public testing::Test {
 protected:
  FieldsProgram() {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 400; ++i) {
      tokens.push_back(i / 4 % 8);
      tokens.push_back(i / 4 % 8 == 0 ? 0 : 30 + i / 8 % 5);
    }
    std::vector<std::int64_t> offsets;
    for (int i = 0; i <= 20; ++i) offsets.push_back(20 * i);
    const std::vector<NamedTensor> tensors = {{"tokens", DType::i32, {400, 2}, tokens.data()},
                                              {"offsets", DType::i64, {21}, offsets.data()}};
    write_safetensors(folder_ / "pieces.safetensors", tensors, {});
    folder_.file("fields.toml", "[data]\nkind = \"tokens\"\nlength = 16\n[training]\nsteps = 5\n");
    succeed(joined({"train", path("fields.toml"), "--data", path("pieces.safetensors"), "--out", path("run")},
                   tiny));
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  TemporaryFolder folder_;
};

}  // namespace linnet
