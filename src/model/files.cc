#include "model/files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"
#include "io/json.h"
#include "model/config.h"

namespace linnet {
namespace {

constexpr const char* model_type = "linnet";
constexpr int format_version = 1;
constexpr const char* scale_suffix = "_scale";

/// Whether a tensor holds the draws of a random feature map, which other maps leave alone.
bool is_draw(const std::string& name) {
  return std::ranges::any_of(std::array{"directions", "phases", "signs", "lengths"}, [&](const char* part) {
    return name.ends_with(std::string("attention.") + part);
  });
}

/// The name without that of its part.
std::string_view layer_of(const ParameterTable::Row& row) {
  return std::string_view(row.name).substr(0, row.name.rfind('.'));
}

/// Throws Error unless the file holds a parameter as f32, or, for the weights of dense products, also as
/// bf16, or as int8 codes [outputs, inputs] with a tensor of scales [outputs] beside them.
void check_parameter(const Safetensors& file, const ParameterTable::Row& row, const std::string& path) {
  const auto check = [&](const std::string& name, const Shape& shape, bool narrow) {
    if (!file.contains(name)) fail("model", "expected {} to contain {}, which it does not", path, name);
    const DType type = file.dtype(name);
    const bool fits = type == DType::f32 || (narrow && (type == DType::bf16 || type == DType::i8));
    if (!fits || file.shape(name) != shape)
      fail("model", "expected {} in {} to be f32{} {}, got {} {}", name, path, narrow ? ", bf16 or i8" : "",
           to_string(shape), name_of(type), shortened(to_string(file.shape(name))));
  };
  check(row.name, row.place.shape(), row.product);
  if (file.dtype(row.name) == DType::i8) check(row.name + scale_suffix, {row.place.shape()[0]}, false);
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
         json.contains("format")
             ? shortened(json["format"].dump(-1, ' ', false, Json::error_handler_t::replace))
             : "none");
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

std::string config_text(const ModelConfig& config) {
  ModelConfig copy = config;
  Options options;
  add_options(options, copy);
  Json json = {{"model_type", model_type}, {"format", format_version}};
  json.update(options.to_json());
  return json_text(json);
}

ModelAssets read_assets(const std::filesystem::path& folder, const ModelConfig& config) {
  constexpr std::size_t most_tokenizer_bytes = std::size_t{256} << 20;
  ModelAssets assets;
  if (const auto path = folder / labels_file; std::filesystem::exists(path)) {
    const Json names = read_json(path);
    const bool fits = names.is_array() && std::ssize(names) == config.classes && config.classes > 0 &&
                      std::ranges::all_of(names, [](const Json& name) { return name.is_string(); });
    if (!fits)
      fail("model", "expected {} to be an array of the names of {} labels, got another one", path.string(),
           config.classes);
    for (const Json& name : names) assets.class_names.push_back(name.get<std::string>());
  }
  if (const auto path = folder / tokenizer_file; std::filesystem::exists(path)) {
    assets.tokenizer = read_regular_file(path, most_tokenizer_bytes);
    if (assets.tokenizer.empty())
      fail("model", "expected {} to be a model of SentencePiece, got an empty file", path.string());
  }
  assets.columns = read_columns(folder);
  return assets;
}

std::string read_columns(const std::filesystem::path& folder) {
  const auto path = folder / columns_file;
  if (!std::filesystem::exists(path)) return {};
  std::string columns = read_regular_file(path, most_settings_bytes);
  if (columns.empty()) fail("model", "expected {} to describe data, got an empty file", path.string());
  return columns;
}

void check_assets(const char* operation, const ModelAssets& assets, const ModelConfig& config) {
  if (!assets.class_names.empty() && std::ssize(assets.class_names) != config.classes)
    fail<UsageError>(operation, "expected names for the {} labels of the model, got {}", config.classes,
                     assets.class_names.size());
}

ParameterFile::ParameterFile(const std::filesystem::path& path, const ParameterTable& table)
    : path_(path.string()), table_(table), file_(Safetensors::read(path)) {
  std::unordered_set<std::string> known;
  for (const ParameterTable::Row& row : table.rows()) {
    known.insert(row.name);
    if (file_.contains(row.name) && file_.dtype(row.name) == DType::i8) known.insert(row.name + scale_suffix);
    if (!is_draw(row.name) || fits(row)) check_parameter(file_, row, path_);
  }
  for (const std::string& name : file_.names())
    if (!known.contains(name) && !is_draw(name))
      fail("model", "expected {} to contain only the {} parameters of the model, got also {}", path_,
           table.rows().size(), shortened(name));
}

bool ParameterFile::fits(const ParameterTable::Row& row) const {
  const std::string_view layer = layer_of(row);
  return std::ranges::all_of(table_.rows(), [&](const ParameterTable::Row& other) {
    if (!is_draw(other.name) || layer_of(other) != layer) return true;
    return file_.contains(other.name) && file_.shape(other.name) == other.place.shape();
  });
}

void ParameterFile::read(std::size_t index, std::span<float> to) const {
  const ParameterTable::Row& row = table_.rows()[index];
  // The weights may be used under another feature map or another number of features: these are drawn.
  if (is_draw(row.name) && !fits(row)) return table_.initialise_row(to, index, 0);
  const DType type = file_.dtype(row.name);
  if (type == DType::f32) {
    file_.copy(row.name, std::as_writable_bytes(to));
  } else if (type == DType::bf16) {
    std::ranges::transform(file_.tensor(row.name).span<bf16>(), to.begin(), to_float);
  } else {
    const Tensor codes = file_.tensor(row.name), scales = file_.tensor(row.name + scale_suffix);
    check_finite(scales.span<float>(), row.name + scale_suffix, path_);
    auto code = codes.span<std::int8_t>().begin();
    const std::size_t inputs = to.size() / std::max<std::size_t>(1, scales.span<float>().size());
    for (std::size_t n = 0; n < scales.span<float>().size(); ++n) {
      const float scale = scales.span<float>()[n];
      for (float& weight : to.subspan(n * inputs, inputs)) weight = scale * static_cast<float>(*code++);
    }
  }
  check_finite(to, row.name, path_);
  const auto wrong = std::ranges::find_if_not(to, [&](float value) { return holds(row.range, value); });
  if (wrong != to.end())
    fail("model", "expected {} in {} of {}, got {} at index {}", name_of(row.range), row.name, path_, *wrong,
         wrong - to.begin());
}

Tensor read_values(const std::filesystem::path& path, const ParameterTable& table) {
  const ParameterFile file(path, table);
  Tensor values = Tensor::of<float>({table.size()});
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const ParameterTable::Row& row = table.rows()[i];
    file.read(i, values.span<float>().subspan(static_cast<std::size_t>(row.place.offset()),
                                              static_cast<std::size_t>(row.count)));
  }
  return values;
}

void check_finite(std::span<const float> values, const std::string& tensor, const std::string& path) {
  const auto found = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (found != values.end())
    fail("model", "expected finite numbers in {} of {}, got {} at index {}", tensor, path, *found,
         found - values.begin());
}

void write_model(const std::filesystem::path& folder, const ModelConfig& config, const ParameterTable& table,
                 std::span<const float> values, const ModelAssets& assets) {
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
  // In this order, a program that is killed between them leaves no weights without their configuration.
  write_file_atomically(folder / config_file, config_text(config));
  const auto write_asset = [&](const char* name, bool exists, const auto& write) {
    std::error_code ignored;
    if (exists)
      write(folder / name);
    else
      std::filesystem::remove(folder / name, ignored);
  };
  write_asset(labels_file, !assets.class_names.empty(),
              [&](const auto& path) { write_json(path, assets.class_names); });
  write_asset(tokenizer_file, !assets.tokenizer.empty(),
              [&](const auto& path) { write_file_atomically(path, assets.tokenizer); });
  write_asset(columns_file, !assets.columns.empty(),
              [&](const auto& path) { write_file_atomically(path, assets.columns); });
  write_safetensors(folder / weights_file, tensors, {{"format", "linnet"}});
}

}  // namespace linnet
