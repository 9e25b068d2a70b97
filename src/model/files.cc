#include "model/files.h"

#include <algorithm>

#include "base/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"

namespace linnet {
namespace {

constexpr const char* model_type = "linnet";
constexpr int format_version = 1;

}  // namespace

ModelConfig read_config(const std::filesystem::path& path, std::span<const std::string> settings) {
  Json json = read_json(path);
  if (!json.is_object() || !json.contains("model_type") || json["model_type"] != model_type)
    fail("model", "expected {} to have model_type \"{}\", got another kind of file", path.string(),
         model_type);
  if (!json.contains("format") || json["format"] != format_version)
    fail("model", "expected {} to have format {}, got {}", path.string(), format_version,
         json.contains("format") ? json["format"].dump() : "none");
  json.erase("model_type");
  json.erase("format");
  ModelConfig config;
  Options options;
  add_options(options, config);
  options.load_json(json, path.string());
  for (const std::string& setting : settings) options.apply_assignment(setting);
  config.check();
  return config;
}

Tensor read_values(const std::filesystem::path& path, const ParameterTable& table) {
  const Safetensors file = Safetensors::read(path);
  Tensor values = Tensor::of<float>({table.size()});
  for (const ParameterTable::Row& row : table.rows()) {
    if (!file.contains(row.name))
      fail("model", "expected {} to contain {}, which it does not", path.string(), row.name);
    const Tensor tensor = file.tensor(row.name);
    if (tensor.dtype() != DType::f32 || tensor.shape() != row.slot.shape())
      fail("model", "expected {} in {} to be f32 {}, got {} {}", row.name, path.string(),
           to_string(row.slot.shape()), name_of(tensor.dtype()), to_string(tensor.shape()));
    std::copy_n(tensor.span<float>().data(), row.count, values.span<float>().data() + row.slot.offset());
  }
  for (const std::string& name : file.names()) {
    if (std::ranges::find(table.rows(), name, &ParameterTable::Row::name) == table.rows().end())
      fail("model", "expected {} to contain the model's {} parameters alone, got {} too", path.string(),
           table.rows().size(), name);
  }
  return values;
}

void write_model(const std::filesystem::path& folder, const ModelConfig& config, const ParameterTable& table,
                 std::span<const float> values) {
  ModelConfig copy = config;
  Options options;
  add_options(options, copy);
  Json json = {{"model_type", model_type}, {"format", format_version}};
  json.update(options.to_json());
  std::vector<NamedTensor> tensors;
  for (const ParameterTable::Row& row : table.rows())
    tensors.push_back({row.name, DType::f32, row.slot.shape(), values.data() + row.slot.offset()});
  create_folders(folder);
  write_safetensors(folder / weights_file, tensors, {{"format", "linnet"}});
  write_json(folder / config_file, json);
}

}  // namespace linnet
