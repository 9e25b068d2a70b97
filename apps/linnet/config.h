#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "linnet/run_config.h"

namespace linnet {

/// Whether what a command is given is a configuration, a file or the name of a shipped one, and no folder of
/// a model or a run, which comes first. Throws UsageError of the command for a name that is neither.
bool is_configuration(const char* command, const std::string& name);

/// Loads a file, or the configuration shipped under that name, then the settings "key=value".
void load(RunConfig& config, const std::string& file_or_name, const std::vector<std::string>& settings);

/// Puts --data on top of a configuration, with absolute paths. A kind of files among the settings counts for
/// more than their names.
void set_data(RunConfig& config, const std::string& data, const std::vector<std::string>& settings);

/// Throws UsageError where a configuration names files for data that are made up.
void check_source(const DataOptions& data);

/// `load`, with length, vocabulary, classes and picture size from the kind of data alone: nothing is read.
/// For benchmarks.
void load_without_data(RunConfig& config, const std::string& file_or_name,
                       const std::vector<std::string>& settings);

/// The model with another family in every layer, less the decay that linear alone has.
ModelConfig with_family(ModelConfig config, Family family);

/// The feature map of the layers of the linear family; none where there is none of them.
std::optional<std::string> feature_map_of(const ModelConfig& config);

/// The values of --split, and the part that each means.
std::vector<std::string> split_names();
Split split_named(const std::string& name);

/// The names of the shipped configurations, sorted.
std::vector<std::string> shipped_configs();

/// The file itself, or configs/NAME.toml above the program's own folder or in its share/linnet.
std::filesystem::path find_config(const std::string& file_or_name);

}  // namespace linnet
