#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "io/safetensors.h"
#include "layers/parameters.h"
#include "linnet/model.h"

namespace linnet {

/// The two files of a model's folder.
inline constexpr const char* config_file = "config.json";
inline constexpr const char* weights_file = "model.safetensors";
/// Those of its assets, where it has them.
inline constexpr const char* labels_file = "labels.json";
inline constexpr const char* tokenizer_file = "tokenizer.model";
inline constexpr const char* columns_file = "columns.json";

/// The configuration of a config.json, with `settings` ("key=value") in place of its values, checked.
ModelConfig read_config(const std::filesystem::path& path, std::span<const std::string> settings = {});

/// The text of config.json for it.
std::string config_text(const ModelConfig& config);

/// The assets in a model's folder. Throws Error where labels.json has no name for each class, or where the
/// tokenizer is empty or too large to be one.
ModelAssets read_assets(const std::filesystem::path& folder, const ModelConfig& config);

/// The text of columns.json in a folder; empty where there is none. Throws Error for an empty file.
std::string read_columns(const std::filesystem::path& folder);

/// Throws UsageError for names of another number of classes.
void check_assets(const char* operation, const ModelAssets& assets, const ModelConfig& config);

/// The file of a model's parameters. Nothing of the size of the model is taken before the file is known to
/// hold it.
class ParameterFile {
 public:
  /// Throws Error where a parameter is missing, has another type or shape, or is not the table's.
  ParameterFile(const std::filesystem::path& path, const ParameterTable& table);

  /// The parameter of the row `index` of the table, or the first draw of one that is not trained and does not
  /// fit. Throws Error where the numbers are damaged or not finite.
  void read(std::size_t index, std::span<float> to) const;

 private:
  /// Whether the file has all draws of the row's layer, with their shapes: those of one map are drawn
  /// together.
  bool fits(const ParameterTable::Row& row) const;

  std::string path_;
  const ParameterTable& table_;
  Safetensors file_;
};

/// All parameters of a file as one buffer in the table's order. Throws as ParameterFile.
Tensor read_values(const std::filesystem::path& path, const ParameterTable& table);

/// Throws Error, naming the tensor and the file, for a number that is not finite.
void check_finite(std::span<const float> values, const std::string& tensor, const std::string& path);

/// Writes both files and the assets into the folder, each whole or not at all. Files of assets that the model
/// does not have are removed.
void write_model(const std::filesystem::path& folder, const ModelConfig& config, const ParameterTable& table,
                 std::span<const float> values, const ModelAssets& assets = {});

}  // namespace linnet
