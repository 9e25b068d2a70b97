#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linnet/dataset.h"
#include "linnet/export.h"
#include "linnet/model.h"
#include "linnet/training.h"

namespace linnet {

/// A key of a configuration, "training.steps", as `RunConfig::settings` lists it.
struct LINNET_API Setting {
  std::string key;
  std::string type;   ///< "integer", "number", "boolean" or "text"
  std::string value;  ///< the present one
  std::string range;  ///< the values that it takes
  std::string help;
};

/// What a TOML file of configs/ holds: a model, its data and its training. All keys are those that
/// `linnet train --options` lists.
///
/// The functions that set values throw UsageError, one sentence with the value found and the values expected;
/// for an unknown key with the nearest known one. Values that were set before the error stay set.
struct LINNET_API RunConfig {
  ModelConfig model;
  DataOptions data;
  TrainingOptions training;

  /// model.length, model.vocabulary, model.classes and image.* are 0 until `fit_to_data`.
  RunConfig();
  /// The configuration of a model, with the defaults of everything else.
  explicit RunConfig(const ModelConfig& config);

  /// Sets the keys in a TOML document. `origin` stands for the document in errors.
  void read_toml(std::string_view text, const std::string& origin);
  /// The same for JSON whose objects are the tables: {"model": {"layers": 2}, …}, as config.json has them.
  void read_json(std::string_view text, const std::string& origin);
  /// The same for one key, from "key=value".
  void set(const std::string& assignment);

  /// All keys as JSON, which `read_json` takes back: {"model": …, "attention": …, "image": …, "data": …,
  /// "training": …}.
  std::string json() const;
  std::vector<Setting> settings() const;

  /// Takes length, vocabulary, classes and picture size from the data where the configuration leaves them
  /// open. Throws UsageError for a model that is not valid then.
  void fit_to_data(const Dataset& dataset);

  /// Throws Error where training, or generation alone, needs more memory than the machine has free. After
  /// fitting.
  void check_memory(bool for_training) const;
};

/// The values of `data.kind`.
LINNET_API std::vector<std::string> data_kinds();

/// "digits", "copy", a folder, a file or a list of files with commas between them, put into `data`. A file is
/// FASTA, plain bytes, a series or sound where `data` says so already, FASTA where it is called .fasta, .fa
/// or .faa, a series where it is called .csv, sound where it is called .wav or .flac, otherwise text. Throws
/// UsageError for anything else.
LINNET_API void set_source(DataOptions& data, const std::string& source);

/// The data of `source` in the form that a model takes: its length, its picture size and its levels. `kind`
/// is the kind of data; empty takes CIFAR-10 for a folder and a model of three channels, otherwise as
/// `set_source` says. Throws UsageError where tokens of that kind cannot be the model's.
LINNET_API DataOptions data_for_model(const ModelConfig& model, const std::string& source,
                                      const std::string& kind = "");

}  // namespace linnet
