#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "layers/parameters.h"
#include "linnet/model.h"

namespace linnet {

/// The two files of a model's folder.
inline constexpr const char* config_file = "config.json";
inline constexpr const char* weights_file = "model.safetensors";

/// The configuration of a config.json, with `settings` ("key=value") in place of its values, checked.
ModelConfig read_config(const std::filesystem::path& path, std::span<const std::string> settings = {});

/// The parameters of a safetensors file as one buffer in the table's order. Throws Error where one is
/// missing, has another shape, or is not the table's.
Tensor read_values(const std::filesystem::path& path, const ParameterTable& table);

/// Writes both files into the folder, each whole or not at all.
void write_model(const std::filesystem::path& folder, const ModelConfig& config, const ParameterTable& table,
                 std::span<const float> values);

}  // namespace linnet
