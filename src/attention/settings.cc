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

}  // namespace

std::string without_effect(const AttentionConfig& config, std::string_view key) {
  if (key == "attention.family") return {};
  const FamilyEntry& entry = entry_of(config.family);
  const bool own = owns(entry, key);
  const bool used = entry.uses != nullptr ? entry.uses(config, key) : own;
  if (used) return {};
  if (own) return "beside the other settings of the family " + entry.info.name;
  return "on the family " + entry.info.name;
}

std::vector<std::string> doubtful_settings(const AttentionConfig& config) {
  std::vector<std::string> sentences;
  const FamilyEntry& entry = entry_of(config.family);
  const std::string& map = config.linear.feature_map;
  if (entry.info.takes_feature_map && config.normalise == Normalise::sum && is_feature_map(map) &&
      !is_random_feature_map(map) && !find_feature_map(map)->traits().non_negative)
    sentences.push_back(
        fmt::format("attention.feature_map = {} has negative features, whose sums attention.normalise = sum "
                    "divides by: they may be 0 or below; attention.normalise = none divides by nothing",
                    map));
  return sentences;
}

}  // namespace linnet
