#include "linnet/model.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "base/fail.h"
#include "base/hidden.h"
#include "base/pages.h"
#include "model/access.h"
#include "model/files.h"

namespace linnet {

class LINNET_HIDDEN Model::Impl {
 public:
  /// Writes the values of one row of the table.
  using Reader = std::function<void(std::size_t row, std::span<float> to)>;

  /// `open` gives the reader of a network's parameters.
  Impl(const ModelConfig& config, const std::function<Reader(const ParameterTable&)>& open,
       std::shared_ptr<const FeatureMap> feature_map, ModelAssets assets)
      : assets_(std::move(assets)), feature_map_(std::move(feature_map)), network_(config, feature_map_) {
    check_assets("model", assets_, config);
    const ParameterTable& table = network_.table();
    const Reader read = open(table);
    values_.emplace(static_cast<std::size_t>(table.size()) * sizeof(float));
    std::vector<bool> filled(table.rows().size());
    const auto fill = [&](std::size_t row) {
      if (filled[row]) return;
      filled[row] = true;
      read(row, values_of(row));
      table.round_row(row, values_of(row));
    };
    // The dense products have their weights in the form that they are used in.
    const auto release = [&](const ParameterPlace& place) {
      const std::span<float> unused = values_of(table.row_at(place));
      release_pages(unused.data(), unused.size_bytes());
    };
    Context context = packing_context();
    network_.pack(
        context,
        {values_->as<float>(), [&](const ParameterPlace& place) { fill(table.row_at(place)); }, release},
        false);
  }

  /// One thread does where the system gives no other.
  static Context packing_context() {
    try {
      return Context();
    } catch (const Error&) {
      return Context(1);
    }
  }

  static std::shared_ptr<const Model> model_of(std::unique_ptr<const Impl> impl) {
    std::shared_ptr<Model> model(new Model());
    model->impl_ = std::move(impl);
    return model;
  }

  Tensor values() const {
    const std::span<const float> values = values_->as<float>();
    Tensor all = Tensor::of<float>({std::ssize(values)});
    std::ranges::copy(values, all.span<float>().begin());
    network_.unpack(all.span<float>());
    return all;
  }

  const std::shared_ptr<const FeatureMap>& feature_map() const { return feature_map_; }
  const Network& network() const { return network_; }
  const ModelAssets& assets() const { return assets_; }

 private:
  std::span<float> values_of(std::size_t row) const {
    const ParameterTable::Row& found = network_.table().rows()[row];
    return values_->as<float>().subspan(static_cast<std::size_t>(found.place.offset()),
                                        static_cast<std::size_t>(found.count));
  }

  ModelAssets assets_;
  std::shared_ptr<const FeatureMap> feature_map_;
  std::optional<LazyPages> values_;  // without the weights that the network has packed
  Network network_;
};

std::shared_ptr<const Model> make_model(const ModelConfig& config, Tensor values,
                                        std::shared_ptr<const FeatureMap> feature_map, ModelAssets assets) {
  const auto open = [&](const ParameterTable& table) -> Model::Impl::Reader {
    if (values.size() != table.size())
      fail("model", "expected a buffer of {} parameters, got {}", table.size(), values.size());
    return [&](std::size_t row, std::span<float> to) {
      std::copy_n(table.rows()[row].place.of(values.span<float>()).data(), to.size(), to.data());
    };
  };
  return Model::Impl::model_of(
      std::make_unique<const Model::Impl>(config, open, std::move(feature_map), std::move(assets)));
}

const Network& network_of(const Model& model) { return model.impl().network(); }

Tensor values_of(const Model& model) { return model.impl().values(); }

Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::filesystem::path& folder,
                                         std::span<const std::string> settings,
                                         std::shared_ptr<const FeatureMap> feature_map) {
  if (std::error_code ignored; !std::filesystem::is_directory(folder, ignored))
    fail("model", "expected a folder with config.json and model.safetensors, got {}", folder.string());
  const ModelConfig config = read_config(folder / config_file, settings);
  std::optional<ParameterFile> file;
  const auto open = [&](const ParameterTable& table) -> Impl::Reader {
    file.emplace(folder / weights_file, table);
    return [&](std::size_t row, std::span<float> to) { file->read(row, to); };
  };
  auto model = Impl::model_of(
      std::make_unique<const Impl>(config, open, std::move(feature_map), read_assets(folder, config)));
  release_free_memory();  // what narrow weights were read through
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
  write_model(folder, config(), network_of(*this).table(), all.span<float>(), assets());
}

const ModelConfig& Model::config() const { return impl_->network().config(); }

const ModelAssets& Model::assets() const { return impl_->assets(); }

const std::shared_ptr<const FeatureMap>& Model::feature_map() const { return impl_->feature_map(); }

std::int64_t Model::parameter_count() const { return impl_->network().table().parameter_count(); }

std::size_t Model::weight_bytes() const { return impl_->network().table().bytes(); }

}  // namespace linnet
