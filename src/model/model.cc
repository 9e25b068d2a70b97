#include "linnet/model.h"

#include "base/fail.h"
#include "base/hidden.h"
#include "base/pages.h"
#include "model/access.h"
#include "model/files.h"

namespace linnet {

class LINNET_HIDDEN Model::Impl {
 public:
  Impl(const ModelConfig& config, Tensor values, std::shared_ptr<const FeatureMap> feature_map)
      : feature_map_(std::move(feature_map)), values_(std::move(values)), network_(config, feature_map_) {
    if (values_.size() != network_.table().size())
      fail("model", "expected a buffer of {} parameters, got {}", network_.table().size(), values_.size());
    network_.table().round(values_.span<float>());
    Context context;
    network_.pack(context, values_.span<float>(), false);
    // The dense products have their weights in the form that they are used in.
    for (const ParameterTable::Row& row : network_.table().rows())
      if (row.packed)
        release_pages(row.place.of(values_.span<float>()).data(),
                      static_cast<std::size_t>(row.count) * sizeof(float));
  }

  static std::shared_ptr<const Model> model_of(std::unique_ptr<const Impl> impl) {
    std::shared_ptr<Model> model(new Model());
    model->impl_ = std::move(impl);
    return model;
  }

  Tensor values() const {
    Tensor all = values_.clone();
    network_.unpack(all.span<float>());
    return all;
  }

  const std::shared_ptr<const FeatureMap>& feature_map() const { return feature_map_; }
  const Network& network() const { return network_; }

 private:
  std::shared_ptr<const FeatureMap> feature_map_;
  Tensor values_;  // without the weights that the network has packed
  Network network_;
};

std::shared_ptr<const Model> make_model(const ModelConfig& config, Tensor values,
                                        std::shared_ptr<const FeatureMap> feature_map) {
  return Model::Impl::model_of(
      std::make_unique<const Model::Impl>(config, std::move(values), std::move(feature_map)));
}

const Network& network_of(const Model& model) { return model.impl().network(); }

Tensor values_of(const Model& model) { return model.impl().values(); }

Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::filesystem::path& folder,
                                         std::span<const std::string> settings,
                                         std::shared_ptr<const FeatureMap> feature_map) {
  if (!std::filesystem::is_directory(folder))
    fail("model", "expected a folder with config.json and model.safetensors, got {}", folder.string());
  const ModelConfig config = read_config(folder / config_file, settings);
  Tensor values = read_values(folder / weights_file, Network(config, feature_map).table());
  auto model = make_model(config, std::move(values), std::move(feature_map));
  release_free_memory();  // as large as the file, where it was read in pieces
  return model;
}

std::shared_ptr<const Model> Model::random(const ModelConfig& config, std::uint64_t seed,
                                           std::shared_ptr<const FeatureMap> feature_map) {
  const Network network(config, feature_map);
  Tensor values = Tensor::of<float>({network.table().size()});
  network.table().initialise(values.span<float>(), seed);
  return make_model(config, std::move(values), std::move(feature_map));
}

void Model::save(const std::filesystem::path& folder) const {
  const Tensor all = values_of(*this);
  write_model(folder, config(), network_of(*this).table(), all.span<float>());
}

const ModelConfig& Model::config() const { return impl_->network().config(); }

const std::shared_ptr<const FeatureMap>& Model::feature_map() const { return impl_->feature_map(); }

std::int64_t Model::parameter_count() const { return impl_->network().table().parameter_count(); }

std::size_t Model::weight_bytes() const { return impl_->network().table().bytes(); }

}  // namespace linnet
