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

  /// All keys as JSON, which `read_json` takes back once the configuration fits data: {"model": …,
  /// "attention": …, "image": …, "data": …, "training": …}.
  std::string json() const;
  std::vector<Setting> settings() const;

  /// Takes length, vocabulary, classes and picture size from the data where the configuration leaves them
  /// open. Throws UsageError for a model that is not valid then.
  void fit_to_data(const Dataset& dataset);

  /// Throws Error where training on one of `ranks` processes, or generation alone, needs more memory than the
  /// machine has free. After fitting.
  void check_memory(bool for_training, std::int64_t ranks = 1) const;
};

/// "digits", "copy", a folder, a file or several files (DataOptions), put into `data`. Files are of the kind
/// that `data` names, if it is one of files other than text. Otherwise the name of the first decides: FASTA
/// for .fasta, .fa and .faa, tokens for .npy, .safetensors and .bin, a series for .csv, sound for .wav and
/// .flac, text for others. A folder of CIFAR-10's files or of images is known by them, any other one is
/// MNIST's. Throws UsageError for anything else.
LINNET_API void set_source(DataOptions& data, const std::string& source);

/// The data of `source` in the form that a model takes: its length, its picture size and its levels. Text is
/// read as bytes: DataOptions::tokenizer or `opened_tokenizer` is to be set for a model that has one. `kind`
/// is the kind of data; empty takes what `set_source` says, with CIFAR-10 for MNIST where the model has three
/// channels, pairs for text where it has their 258 tokens, and lines for text where it is a classifier.
/// Throws UsageError where tokens of that kind cannot be the model's.
LINNET_API DataOptions data_for_model(const ModelConfig& model, const std::string& source,
                                      const std::string& kind = "");

/// The same for a model with its weights and its assets: text becomes tokens through its tokenizer, and where
/// it takes one number of a series that is normalised already, every column is a sequence of its own, by the
/// statistics of `source`.
LINNET_API DataOptions data_for_model(const Model& model, const std::string& source,
                                      const std::string& kind = "");

/// Has these columns of a series read (DataOptions::columns), in the form that a model takes. Others than the
/// model's may stand in their place, and are then normalised by their own statistics; the model's own in
/// another order are refused when the series is opened.
LINNET_API void choose_columns(DataOptions& data, const std::string& columns);

/// Makes all files of data.path those of the test part, but of MNIST and CIFAR-10, whose folder says which
/// they are. Throws UsageError for kinds of data without one.
LINNET_API void take_as_test(DataOptions& data);

}  // namespace linnet
