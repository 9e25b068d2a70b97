#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/cost.h"
#include "base/settings.h"
#include "linnet/attention_config.h"
#include "linnet/reference.h"

namespace linnet {

/// As in files and on the command line.
const char* name_of(Decay decay);

/// What the options of a layer's attention depend on besides the configuration.
struct LayerConfig {
  SequenceConfig sequence;
  std::int64_t head_dim = 0;
  std::shared_ptr<const FeatureMap> feature_map = nullptr;  ///< one of the user's own
};

/// All that the library knows about a family. Each family's folder defines one of these (family.cc), and
/// family_table.cc lists them.
struct FamilyEntry {
  FamilyInfo info;

  std::unique_ptr<Attention> (*make)(const AttentionOptions&);
  void (*reference_forward)(const AttentionOptions&, View<double> out, const ReferenceInputs&);
  void (*reference_backward)(const AttentionOptions&, const ReferenceGradients&, View<const double> grad_out,
                             const ReferenceInputs&);

  // As the functions of cost.h.
  double (*multiplied_pairs)(const AttentionOptions&, const Mask&, std::int64_t length);
  AttentionCost (*least_cost)(const AttentionOptions&, const CostSizes&, double pairs);
  double (*step_keys)(const AttentionOptions&, double visible);

  /// Adds the keys of the family's own settings; null where it has none.
  void (*add_settings)(Settings&, AttentionConfig&) = nullptr;
  /// Whether it uses a key as it is configured: one of its own, or one that several families share; null
  /// where it uses all of its own and no other.
  bool (*uses)(const AttentionConfig&, std::string_view key) = nullptr;
  /// Throws UsageError for settings that cannot be together; null where any can.
  void (*check)(const AttentionConfig&, const SequenceConfig&) = nullptr;
  /// Writes the family's options; null where it has none.
  void (*configure)(AttentionOptions&, const AttentionConfig&, const LayerConfig&) = nullptr;

  /// Whether a stream's state has the same size however many tokens it has seen.
  bool fixed_state = false;

  // Why a model cannot use the family, as the end of "got linformer, …"; null where it can.
  const char* not_causal = nullptr;         ///< one whose tokens see earlier ones only
  const char* not_bidirectional = nullptr;  ///< one whose tokens see both sides
  const char* not_packed = nullptr;         ///< one that trains on several sequences in an example
};

/// Defined in the family's folder.
extern const FamilyEntry linear_family, softmax_family, kernel_family, linformer_family, lsh_family,
    local_family, strided_family;

const FamilyEntry& entry_of(Family family);
inline const FamilyInfo& info_of(Family family) { return entry_of(family).info; }

/// The configuration of a layer of that family by itself: that family in all layers, and no decay where it
/// takes none.
AttentionConfig config_of_layer(const AttentionConfig& config, Family family);

/// What the layers attend with, in a word: the family's name, or the list attention.layers.
std::string families_text(const AttentionConfig& config);

/// How the random features of the configured map are drawn.
RandomFeatureOptions random_features_of(const AttentionConfig& config);

/// Adds the keys attention.* of all families.
void add_settings(Settings& settings, AttentionConfig& config);

/// The key attention.* has no effect on the configured attention of so many layers: why, as the end of
/// "attention.rounds has no effect …"; empty where it has one.
std::string without_effect(const AttentionConfig& config, std::int64_t layers, std::string_view key);

/// What is allowed but seldom meant, a sentence each.
std::vector<std::string> doubtful_settings(const AttentionConfig& config, std::int64_t layers);

/// Throws UsageError where a layer's family does not take several sequences in an example.
void check_packed(const AttentionConfig& config, std::int64_t layers);

/// Throws UsageError, naming the key, for settings that cannot be used with such sequences in so many layers.
void check(const AttentionConfig& config, const SequenceConfig& sequence, std::int64_t layers);

}  // namespace linnet
