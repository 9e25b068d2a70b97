#include "training/initial.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/columns.h"
#include "linnet/training.h"
#include "model/access.h"
#include "model/network.h"

namespace linnet {

namespace {

/// Rows of tokens that the embedding of this name has in both models, which are its first ones; 0 for other
/// parameters, and where the tokens are not as many.
std::int64_t shared_tokens(const std::string& name, const ModelConfig& one, const ModelConfig& other) {
  const std::vector<std::int64_t> sizes = one.field_sizes(), others = other.field_sizes();
  for (std::size_t f = 0; f < std::min(sizes.size(), others.size()); ++f)
    if (name == (f == 0 ? "embedding.weight" : fmt::format("embedding.fields.{}.weight", f)))
      return one.width == other.width && sizes[f] == others[f] ? sizes[f] : 0;
  return 0;
}

/// Whether two models count their real numbers from the same scale; true where neither has any.
bool same_columns(const std::optional<Columns>& one, const std::optional<Columns>& other) {
  return one.has_value() == other.has_value() && (!one || one->shape() == other->shape());
}

}  // namespace

std::vector<std::string> start_from(std::span<float> values, const Network& network,
                                    const ModelConfig& config, const Model& model, std::uint64_t seed) {
  const ParameterTable& table = network.table();
  table.initialise(values, seed);
  const std::optional<Columns>& columns = network.columns();
  const bool same_scale = same_columns(columns, network_of(model).columns());
  const auto& given = network_of(model).table().rows();
  const Tensor all = values_of(model);
  std::vector<std::string> differences;
  for (const ParameterTable::Row& row : table.rows()) {
    if (!same_scale && columns && columns->owns(row.place)) continue;
    const auto found = std::ranges::find(given, row.name, &ParameterTable::Row::name);
    const auto copy = [&](std::int64_t count) {
      std::copy_n(all.span<float>().data() + found->place.offset(), count,
                  values.data() + row.place.offset());
    };
    if (found == given.end()) {
      if (row.trained)
        differences.push_back(fmt::format("{} {} is missing", row.name, to_string(row.place.shape())));
    } else if (found->place.shape() == row.place.shape()) {
      copy(row.count);
    } else if (row.trained) {
      const std::int64_t tokens = shared_tokens(row.name, config, model.config());
      copy(tokens * config.width);
      differences.push_back(fmt::format(
          "{} is {} instead of {}{}", row.name, to_string(found->place.shape()), to_string(row.place.shape()),
          tokens > 0 ? fmt::format(" (the rows of its {} tokens are shared)", tokens) : ""));
    }
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
  std::vector<std::string> found = start_from(values.span<float>(), network, config, model, seed);
  if (differences != nullptr) *differences = std::move(found);
  return make_model(config, std::move(values), model.feature_map());
}

}  // namespace linnet
