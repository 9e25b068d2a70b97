#pragma once

#include <string>

#include "command_line.h"
#include "linnet/run_config.h"

namespace linnet {

/// The options of a command that reads data for a model.
struct GivenData {
  std::string model;        ///< folder of a model or of a run
  std::string data;         ///< --data, or empty for the data of the run
  std::string kind;         ///< --data-kind, or empty
  std::string split;        ///< "training", "validation" or "test"
  std::string target = {};  ///< --target: the outputs for sound in `data`, or empty
  bool has_target = false;  ///< whether the command has --target
};

/// Adds --data-kind.
Option add_data_kind(Command& command, std::string& kind);

/// Adds --missing, what to do with empty cells of a series.
Option add_missing(Command& command, std::string& missing);

/// What to read: --data in the form of the run's data, or these themselves. Throws UsageError of the command
/// where neither is there, and as `data_for_model` does.
DataOptions data_of(const char* command, const ModelConfig& config, const GivenData& arguments);

}  // namespace linnet
