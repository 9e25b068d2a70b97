#include "linnet/model.h"

#include "base/fail.h"
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
}

Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::filesystem::path& folder,
                                         std::span<const std::string> settings,
                                         std::shared_ptr<const FeatureMap> feature_map) {
  if (!std::filesystem::is_directory(folder))
    fail("model", "expected a folder with config.json and model.safetensors, got {}", folder.string());
  const ModelConfig config = read_config(folder / config_file, settings);
  const Network network(config, feature_map);
  Tensor values = read_values(folder / weights_file, network.table());
  return std::make_shared<const Model>(config, std::move(values), std::move(feature_map));
}

std::shared_ptr<const Model> Model::random(const ModelConfig& config, std::uint64_t seed) {
  const Network network(config);
  Tensor values = Tensor::of<float>({network.table().size()});
  network.table().initialise(values.span<float>(), seed);
  return std::make_shared<const Model>(config, std::move(values));
}

void Model::save(const std::filesystem::path& folder) const {
  write_model(folder, config_, network_->table(), values_.span<float>());
}

std::int64_t Model::parameter_count() const { return network_->table().parameter_count(); }

std::size_t Model::weight_bytes() const { return network_->table().bytes(); }

}  // namespace linnet
