#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "linnet/generation.h"

namespace linnet {

/// What goes on after a series of numbers or a sound.
struct Continuation {
  std::string model;        ///< folder
  std::string prompt;       ///< CSV or sound file
  std::string out;          ///< CSV file of a series, WAV file of a sound
  std::int64_t length = 0;  ///< rows or frames; 0: those that a step predicts, or a second
  SamplingOptions sampling = {};
  int threads = 0;
  bool json = false;
};

/// Whether generation with that model and these files is such a continuation: a model of real numbers, or of
/// tokens that are to become sound.
bool is_continuation(const ModelConfig& config, const std::string& prompt, const std::string& out);

/// Draws it, writes the file and prints a line. Throws UsageError for files that are neither, for options
/// and models that do not fit.
void write_continuation(const std::shared_ptr<const Model>& model, const Continuation& wanted);

}  // namespace linnet
