#include "linnet/model.h"

#include "base/fail.h"
#include "base/pages.h"
#include "model/files.h"
#include "model/network.h"

namespace linnet {
Model::Model(const ModelConfig& config, Tensor values, std::shared_ptr<const FeatureMap> feature_map)
    : config_(config),
      feature_map_(std::move(feature_map)),
      values_(std::move(values)),
      network_(std::make_unique<Network>(config, feature_map_)) {
  if (values_.size() != network_->table().size())
    fail("model", "expected a buffer of {} parameters, got {}", network_->table().size(), values_.size());
  network_->table().round(values_.span<float>());
  Context context;
  network_->pack(context, values_.span<float>(), false);
  // The dense products have their weights in the form that they are used in.
  for (const ParameterTable::Row& row : network_->table().rows())
    if (row.packed)
      release_pages(row.slot.of(values_.span<float>()).data(),
                    static_cast<std::size_t>(row.count) * sizeof(float));
}

Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::filesystem::path& folder,
                                         std::span<const std::string> settings,
                                         std::shared_ptr<const FeatureMap> feature_map) {
  if (!std::filesystem::is_directory(folder))
    fail("model", "expected a folder with config.json and model.safetensors, got {}", folder.string());
  const ModelConfig config = read_config(folder / config_file, settings);
  Tensor values = read_values(folder / weights_file, Network(config, feature_map).table());
  auto model = std::make_shared<const Model>(config, std::move(values), std::move(feature_map));
  release_free_memory();  // as large as the file, where it was read in pieces
  return model;
}

std::shared_ptr<const Model> Model::random(const ModelConfig& config, std::uint64_t seed) {
  const Network network(config);
  Tensor values = Tensor::of<float>({network.table().size()});
  network.table().initialise(values.span<float>(), seed);
  return std::make_shared<const Model>(config, std::move(values));
}

void Model::save(const std::filesystem::path& folder) const {
  const Tensor all = values();
  write_model(folder, config_, network_->table(), all.span<float>());
}

Tensor Model::values() const {
  Tensor all = values_.clone();
  network_->unpack(all.span<float>());
  return all;
}

std::int64_t Model::parameter_count() const { return network_->table().parameter_count(); }

std::size_t Model::weight_bytes() const { return network_->table().bytes(); }

}  // namespace linnet
