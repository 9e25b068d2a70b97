#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/options.h"
#include "linnet/dataset.h"
#include "linnet/model.h"
#include "linnet/training.h"

namespace linnet {

/// What a TOML file of configs/ holds: one definition of every option, for the file, `--set` and help.
struct RunConfig {
  ModelConfig model;
  DataOptions data;
  TrainingOptions training;

  /// model.length, model.vocabulary, model.classes and image.* are 0 until `fit_to_data`.
  RunConfig();

  /// All keys, bound to this object.
  Options options();

  /// Loads a file, or the configuration shipped under that name, then the settings "key=value".
  void load(const std::string& file_or_name, const std::vector<std::string>& settings);

  /// Takes length, vocabulary, classes and picture size from the data where the configuration leaves them
  /// open.
  void fit_to_data(const Dataset& dataset);

  /// `load`, with length, vocabulary, classes and picture size from the kind of data alone: nothing is read.
  /// For benchmarks.
  void load_without_data(const std::string& file_or_name, const std::vector<std::string>& settings);

  /// Throws Error where training, or generation alone, needs more memory than the machine has free. After
  /// fitting.
  void check_memory(bool training) const;
};

/// The names of the shipped configurations, sorted.
std::vector<std::string> shipped_configs();

/// The file itself, or configs/NAME.toml above the program's own folder or in its share/linnet.
std::filesystem::path find_config(const std::string& file_or_name);

/// The values of `data.kind`.
std::vector<std::string> data_kinds();

/// The data of `source` in the form that a model takes: its length, its picture size and its levels. `kind`
/// is the kind of data; empty takes CIFAR-10 for a folder and a model of three channels, otherwise as
/// `set_source` says. Throws UsageError where tokens of that kind cannot be the model's.
DataOptions data_for_model(const ModelConfig& model, const std::string& source, const std::string& kind = "");

/// "digits", "copy", a folder or a file, put into `data`. A file is FASTA or plain bytes where `data` says
/// so already, FASTA where it is called .fasta, .fa or .faa, otherwise text.
void set_source(DataOptions& data, const std::string& source);

}  // namespace linnet
