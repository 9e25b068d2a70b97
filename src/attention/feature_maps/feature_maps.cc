#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "attention/feature_maps/elementwise_kernels.h"
#include "base/fail.h"
#include "base/names.h"
#include "linnet/feature_map.h"

namespace linnet {
namespace {

const std::array<FeatureMapInfo, 5> table = {{
    {"elu", "x + 1 for x > 0, alpha (exp(x) - 1) + 1 otherwise; alpha = 1", "E", true},
    {"relu", "max(x, 0)", "E", true},
    {"squared-relu", "max(x, 0)^2", "E", true},
    {"exp", "exp(min(x, 32))", "E", true},
    {"identity", "x", "E", false},
}};

/// The row of `table` is the map's number in Elementwise.
class BuiltInMap : public FeatureMap {
 public:
  explicit BuiltInMap(Elementwise map, float alpha = 1.0f) : map_(map), alpha_(alpha) {}

  std::string name() const override { return info().name; }

  FeatureMapTraits traits() const override {
    return {.non_negative = info().non_negative && alpha_ <= 1.0f, .row_alone = true};
  }

  void forward(View<float> y, View<const float> x, const TileContext&) const override {
    map_tile(map_, alpha_, y, x);
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext&) const override {
    map_tile_backward(map_, alpha_, dx, dy, x, y);
  }

  void exact_forward(View<double> y, std::span<double> log_scale, View<const double> x,
                     const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t i = 0; i < x.extent(1); ++i) y(r, i) = exact(x(r, i));
    std::ranges::fill(log_scale, 0.0);
  }

  void exact_backward(View<double> dx, View<const double> dy, View<const double> x,
                      const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t i = 0; i < x.extent(1); ++i) dx(r, i) = dy(r, i) * exact_slope(x(r, i));
  }

 private:
  double exact(double x) const {
    switch (map_) {
      case Elementwise::elu:
        return x > 0 ? x + 1 : alpha_ * std::exp(x) + (1.0 - alpha_);
      case Elementwise::relu:
        return x > 0 ? x : 0;
      case Elementwise::squared_relu:
        return x > 0 ? x * x : 0;
      case Elementwise::exp:
        return std::exp(std::min<double>(x, kMostExponent));
      case Elementwise::identity:
        return x;
    }
    return 0;
  }

  double exact_slope(double x) const {
    switch (map_) {
      case Elementwise::elu:
        return x > 0 ? 1 : alpha_ * std::exp(x);
      case Elementwise::relu:
        return x > 0 ? 1 : 0;
      case Elementwise::squared_relu:
        return x > 0 ? 2 * x : 0;
      case Elementwise::exp:
        return x > kMostExponent ? 0 : std::exp(x);
      case Elementwise::identity:
        return 1;
    }
    return 0;
  }

  const FeatureMapInfo& info() const { return table[static_cast<std::size_t>(map_)]; }

  Elementwise map_;
  float alpha_;
};

/// The maps that callers have registered. Never destroyed: a thread may still use one when the program ends.
struct Registered {
  static Registered& get() {
    static auto& registered = *new Registered;
    return registered;
  }

  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const FeatureMap>> maps;
};

}  // namespace

std::shared_ptr<const FeatureMap> elu_map(float alpha) {
  if (!(alpha > 0) || !std::isfinite(alpha))
    fail<UsageError>("elu", "expected a finite alpha above 0, got {}", alpha);
  return std::make_shared<BuiltInMap>(Elementwise::elu, alpha);
}

std::shared_ptr<const FeatureMap> relu_map() { return std::make_shared<BuiltInMap>(Elementwise::relu); }

std::shared_ptr<const FeatureMap> squared_relu_map() {
  return std::make_shared<BuiltInMap>(Elementwise::squared_relu);
}

std::shared_ptr<const FeatureMap> exp_map() { return std::make_shared<BuiltInMap>(Elementwise::exp); }

std::shared_ptr<const FeatureMap> identity_map() {
  return std::make_shared<BuiltInMap>(Elementwise::identity);
}

std::span<const FeatureMapInfo> feature_map_table() { return table; }

bool is_feature_map(const std::string& name) {
  return std::ranges::find(table, name, &FeatureMapInfo::name) != table.end() || is_random_feature_map(name);
}

void register_feature_map(std::shared_ptr<const FeatureMap> map) {
  const char* operation = "register_feature_map";
  if (map == nullptr) fail<UsageError>(operation, "expected a feature map, got none");
  const std::string name = map->name();
  if (name.empty() || is_feature_map(name))
    fail<UsageError>(operation, "expected a name that no built-in map has, got '{}'", name);
  Registered& registered = Registered::get();
  const std::lock_guard lock(registered.mutex);
  if (!registered.maps.emplace(name, std::move(map)).second)
    fail<UsageError>(operation, "expected a name that is not registered yet, got '{}'", name);
}

std::shared_ptr<const FeatureMap> find_feature_map(const std::string& name,
                                                   const FeatureMapOptions& options) {
  if (is_random_feature_map(name)) {
    if (options.head_dim == 0)
      fail<UsageError>("feature map", "expected a head size, for which {} draws its directions, got none",
                       name);
    return random_feature_map(name, options.head_dim, options.random);
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) {
      const auto map = static_cast<Elementwise>(i);
      return map == Elementwise::elu ? elu_map(options.alpha) : std::make_shared<BuiltInMap>(map);
    }
    names.push_back(table[i].name);
  }
  for (const FeatureMapInfo& row : random_feature_map_table()) names.push_back(row.name);
  {
    Registered& registered = Registered::get();
    const std::lock_guard lock(registered.mutex);
    if (const auto found = registered.maps.find(name); found != registered.maps.end()) return found->second;
    for (const auto& [own, map] : registered.maps) names.push_back(own);
  }
  const std::string nearest = nearest_name(name, names);
  if (nearest.empty())
    fail<UsageError>("feature map", "expected one of {} or a registered map, got '{}'",
                     fmt::join(names, ", "), name);
  fail<UsageError>("feature map", "expected one of {}, got '{}'; did you mean {}?", fmt::join(names, ", "),
                   name, nearest);
}

}  // namespace linnet
