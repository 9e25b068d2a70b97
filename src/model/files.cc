#include "model/files.h"

#include <algorithm>
#include <deque>

#include "base/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"

namespace linnet {
namespace {

constexpr const char* model_type = "linnet";
constexpr int format_version = 1;
constexpr const char* scale_suffix = "_scale";

/// Whether a tensor holds the draws of a random feature map, which other maps leave alone.
bool is_draw(const std::string& name) {
  return name.ends_with(".attention.directions") || name.ends_with(".attention.phases");
}

/// A parameter in f32, from what the file holds it as: f32, or for weights of dense products also bf16, or
/// int8 codes [outputs, inputs] with a tensor of scales [outputs] beside them.
void read_parameter(float* to, const Safetensors& file, const ParameterTable::Row& row,
                    const std::string& path) {
  const Tensor tensor = file.tensor(row.name);
  const DType type = tensor.dtype();
  const bool narrow = row.product && (type == DType::bf16 || type == DType::i8);
  if ((type != DType::f32 && !narrow) || tensor.shape() != row.place.shape())
    fail("model", "expected {} in {} to be f32{} {}, got {} {}", row.name, path,
         row.product ? ", bf16 or i8" : "", to_string(row.place.shape()), name_of(type),
         to_string(tensor.shape()));
  if (type == DType::f32) {
    std::copy_n(tensor.span<float>().data(), row.count, to);
    return;
  }
  if (type == DType::bf16) {
    std::ranges::transform(tensor.span<bf16>(), to, to_float);
    return;
  }
  const Tensor scales = file.tensor(row.name + scale_suffix);
  const std::int64_t outputs = row.place.shape()[0];
  if (scales.dtype() != DType::f32 || scales.shape() != Shape{outputs})
    fail("model", "expected {}{} in {} to be f32 [{}], got {} {}", row.name, scale_suffix, path, outputs,
         name_of(scales.dtype()), to_string(scales.shape()));
  const std::int64_t inputs = row.count / std::max<std::int64_t>(1, outputs);
  for (std::int64_t i = 0; i < row.count; ++i)
    to[i] = scales.span<float>()[static_cast<std::size_t>(i / inputs)] *
            static_cast<float>(tensor.span<std::int8_t>()[static_cast<std::size_t>(i)]);
}

/// The weights of a dense product as bf16, or as int8 codes and their scales.
Tensor as_bf16(View<const float> weights) {
  Tensor halves = Tensor::of<bf16>({weights.extent(0), weights.extent(1)});
  std::transform(weights.data(), weights.data() + weights.size(), halves.span<bf16>().begin(), to_bf16);
  return halves;
}
std::pair<Tensor, Tensor> as_codes(View<const float> weights) {
  const std::int64_t outputs = weights.extent(0), inputs = weights.extent(1);
  Tensor codes = Tensor::of<std::int8_t>({outputs, inputs}), scales = Tensor::of<float>({outputs});
  for (std::int64_t n = 0; n < outputs; ++n)
    scales.view<float>()(n) =
        kernels::quantise_weights(codes.span<std::int8_t>().subspan(static_cast<std::size_t>(n * inputs),
                                                                    static_cast<std::size_t>(inputs)),
                                  {weights.at(n), static_cast<std::size_t>(inputs)});
  return {std::move(codes), std::move(scales)};
}

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
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const ParameterTable::Row& row = table.rows()[i];
    const bool there = file.contains(row.name);
    if (!row.trained && (!there || file.shape(row.name) != row.place.shape())) {
      // The weights are used under another feature map or another number of features: these are drawn.
      table.initialise_row(values.span<float>(), i, 0);
      continue;
    }
    if (!there) fail("model", "expected {} to contain {}, which it does not", path.string(), row.name);
    read_parameter(values.span<float>().data() + row.place.offset(), file, row, path.string());
  }
  for (const std::string& name : file.names()) {
    const auto names_row = [&](const ParameterTable::Row& row) {
      return row.name == name || (row.product && row.name + scale_suffix == name);
    };
    if (std::ranges::none_of(table.rows(), names_row) && !is_draw(name))
      fail("model", "expected {} to contain only the {} parameters of the model, got also {}", path.string(),
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
  std::deque<Tensor> converted;
  const auto add = [&](const std::string& name, Tensor tensor) {
    converted.push_back(std::move(tensor));
    tensors.push_back({name, converted.back().dtype(), converted.back().shape(), converted.back().raw()});
  };
  for (const ParameterTable::Row& row : table.rows()) {
    if (!row.product || table.weight_type() == kernels::WeightType::f32) {
      tensors.push_back({row.name, DType::f32, row.place.shape(), values.data() + row.place.offset()});
    } else if (table.weight_type() == kernels::WeightType::bf16) {
      add(row.name, as_bf16(row.place.of(values)));
    } else {
      auto [codes, scales] = as_codes(row.place.of(values));
      add(row.name, std::move(codes));
      add(row.name + scale_suffix, std::move(scales));
    }
  }
  create_folders(folder);
  write_safetensors(folder / weights_file, tensors, {{"format", "linnet"}});
  write_json(folder / config_file, json);
}

}  // namespace linnet
