#include "training/initial.h"

#include <fmt/format.h>

#include <algorithm>

#include "linnet/training.h"
#include "model/access.h"

namespace linnet {

std::vector<std::string> start_from(std::span<float> values, const ParameterTable& table, const Model& model,
                                    std::uint64_t seed) {
  table.initialise(values, seed);
  const auto& given = network_of(model).table().rows();
  const Tensor all = values_of(model);
  std::vector<std::string> differences;
  for (const ParameterTable::Row& row : table.rows()) {
    const auto found = std::ranges::find(given, row.name, &ParameterTable::Row::name);
    if (found != given.end() && found->place.shape() == row.place.shape())
      std::copy_n(all.span<float>().data() + found->place.offset(), row.count,
                  values.data() + row.place.offset());
    else if (row.trained)
      differences.push_back(found == given.end()
                                ? fmt::format("{} {} is missing", row.name, to_string(row.place.shape()))
                                : fmt::format("{} is {} instead of {}", row.name,
                                              to_string(found->place.shape()), to_string(row.place.shape())));
  }
  for (const ParameterTable::Row& row : given)
    if (row.trained &&
        std::ranges::find(table.rows(), row.name, &ParameterTable::Row::name) == table.rows().end())
      differences.push_back(fmt::format("{} {} has no place", row.name, to_string(row.place.shape())));
  return differences;
}

std::shared_ptr<const Model> adapt_model(const Model& model, const ModelConfig& config, std::uint64_t seed,
                                         std::vector<std::string>* differences) {
  const Network network(config, model.feature_map());
  Tensor values = Tensor::of<float>({network.table().size()});
  std::vector<std::string> found = start_from(values.span<float>(), network.table(), model, seed);
  if (differences != nullptr) *differences = std::move(found);
  return make_model(config, std::move(values), model.feature_map());
}

}  // namespace linnet
