#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "apps/program.h"
#include "io/temporary_folder.h"

namespace linnet {

// Configurations of which a step takes about a millisecond.

inline const char* tiny_digits =
    "[data]\nkind = \"digits\"\nsize = 8\nlevels = 8\nexamples = 100\n"
    "[model]\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\n"
    "[training]\nsteps = 6\nbatch = 4\nsample_every = 3\nevaluate_every = 3\nevaluate_examples = 4\n"
    "checkpoint_every = 2\nlog_every = 2\n";

inline const char* tiny_copy =
    "[data]\nkind = \"copy\"\nlength = 16\nexamples = 200\n"
    "[model]\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\ndropout = 0.1\n"
    "[training]\nsteps = 6\nbatch = 4\nsample_every = 3\nevaluate_every = 3\nevaluate_examples = 4\n"
    "checkpoint_every = 2\nlog_every = 1\n";

/// Of text, whose path `--data` gives: softmax attention, and positions that go on beyond the trained length.
inline const char* tiny_text =
    "[data]\nkind = \"text\"\nlength = 24\n"
    "[model]\nlayers = 2\nheads = 2\nwidth = 16\nfeed_forward = 32\npositions = \"sinusoidal\"\n"
    "[attention]\nfamily = \"softmax\"\n"
    "[training]\nsteps = 6\nbatch = 4\nsample_every = 3\nevaluate_examples = 4\n";

/// One run of each, trained when it is first asked for and removed with the test program.
class TinyModels {
 public:
  static const TinyModels& get() {
    static const TinyModels models;
    return models;
  }

  std::string digits() const { return path("digits"); }
  std::string copy() const { return path("copy"); }
  std::string text() const { return path("text"); }
  /// The text that the text model has learnt.
  std::string learnt() const { return path("learnt.txt"); }
  /// NAME.toml of a configuration above.
  std::string config(const std::string& name) const { return path(name + ".toml"); }

 private:
  TinyModels()
      : folder_(std::filesystem::temp_directory_path() / ("linnet-tiny-models-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(learnt()) << [] {
      std::string text;
      for (int i = 0; i < 40; ++i) text += "the quick brown fox jumps over the lazy dog. ";
      return text;
    }();
    std::ofstream(config("digits")) << tiny_digits;
    std::ofstream(config("copy")) << tiny_copy;
    std::ofstream(config("text")) << tiny_text;
    succeed({"train", config("digits"), "--out", digits()});
    succeed({"train", config("copy"), "--out", copy()});
    succeed({"train", config("text"), "--out", text(), "--data", learnt()});
  }
  ~TinyModels() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

/// A copy of a run, in a folder that is removed with the test.
inline std::string copy_of(const std::string& run, const TemporaryFolder& folder) {
  std::filesystem::copy(run, folder / "run", std::filesystem::copy_options::recursive);
  return (folder / "run").string();
}

}  // namespace linnet
