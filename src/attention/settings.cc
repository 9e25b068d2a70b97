#include <algorithm>

#include "attention/family.h"
#include "base/fail.h"
#include "linnet/feature_map.h"

namespace linnet {
namespace {

/// The keys that are added.
class Keys : public Settings {
 public:
  using Settings::add;
  void add(std::string key, std::int64_t&, std::string, std::int64_t, std::int64_t) override { take(key); }
  void add(std::string key, double&, std::string, double, double) override { take(key); }
  void add(std::string key, bool&, std::string) override { take(key); }
  void add(std::string key, std::string&, std::string, std::vector<std::string>) override { take(key); }

  bool contain(std::string_view key) const { return std::ranges::find(keys_, key) != keys_.end(); }

 private:
  void add_choice(std::string key, Choice, std::string, std::vector<std::string>) override { take(key); }
  void take(std::string& key) { keys_.push_back(std::move(key)); }

  std::vector<std::string> keys_;
};

/// Whether a key belongs to that family alone.
bool owns(const FamilyEntry& entry, std::string_view key) {
  if (entry.add_settings == nullptr) return false;
  AttentionConfig any;
  Keys keys;
  entry.add_settings(keys, any);
  return keys.contain(key);
}

/// Whether that is a built-in map with features of either sign.
bool has_negative_features(const std::string& map) {
  const auto found = [&](const FeatureMapInfo& info) { return info.name == map && !info.non_negative; };
  return std::ranges::any_of(feature_map_table(), found) ||
         std::ranges::any_of(random_feature_map_table(), found);
}

}  // namespace

std::string without_effect(const AttentionConfig& config, std::int64_t layers, std::string_view key) {
  if (key == "attention.layers") return {};
  if (key == "attention.family") return config.layers.empty() ? "" : "beside attention.layers";
  const std::vector<Family> families = layer_families(config, layers);
  const auto is_own = [&](Family family) { return owns(entry_of(family), key); };
  const auto is_used = [&](Family family) {
    const FamilyEntry& entry = entry_of(family);
    return entry.uses != nullptr ? entry.uses(config, key) : is_own(family);
  };
  if (std::ranges::any_of(families, is_used)) return {};
  const auto owner = std::ranges::find_if(families, is_own);
  if (owner != families.end())
    return fmt::format("beside the other settings of the family {}", name_of(*owner));
  return config.layers.empty() ? fmt::format("on the family {}", name_of(config.family))
                               : fmt::format("on the families {}", config.layers);
}

std::vector<std::string> doubtful_settings(const AttentionConfig& config, std::int64_t layers) {
  std::vector<std::string> sentences;
  const std::string& map = config.linear.feature_map;
  const bool takes_map = std::ranges::any_of(layer_families(config, layers),
                                             [](Family family) { return info_of(family).takes_feature_map; });
  if (takes_map && config.normalise == Normalise::sum && has_negative_features(map))
    sentences.push_back(
        fmt::format("attention.feature_map = {} has negative features, whose sums attention.normalise = sum "
                    "divides by: they may be 0 or below; attention.normalise = none divides by nothing",
                    map));
  return sentences;
}

}  // namespace linnet
