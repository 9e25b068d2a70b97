#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "linnet/attention.h"
#include "linnet/export.h"

namespace linnet {

/// γ of every head in the linear family (`AttentionInputs::decay`): none, fixed, or learned from the same
/// initial values.
enum class Decay { none, fixed, learned };

/// Which of Linformer's projections E and F (Wang et al. 2020, section 4) are the same matrix: none, the
/// pairs of all heads (headwise), keys and values too (key_value), and all layers too (layerwise).
enum class ProjectionSharing { none, headwise, key_value, layerwise };

/// Attention of the linear family in a model.
struct LinearConfig {
  std::string feature_map = "elu";  ///< attention.feature_map, a built-in one or one of your own
  double alpha = 1;                 ///< attention.alpha, of elu
  std::int64_t features = 0;        ///< attention.features, F of random feature maps; 0 is E ln E, rounded up
  Directions directions = Directions::automatic;  ///< attention.directions, of random feature maps
  /// attention.redraw: training steps until random features are drawn anew; 0: never.
  std::int64_t redraw = 0;
  Decay decay = Decay::none;     ///< attention.decay
  double shortest_memory = 32;   ///< attention.shortest_memory, 1/(1 − γ) tokens of the first head
  double longest_memory = 4096;  ///< attention.longest_memory, of the last one; geometric between them
};

/// Attention of the softmax family in a model.
struct SoftmaxConfig {
  DType cache = DType::f32;  ///< attention.cache, f32 or bf16: of the keys and values kept in generation
};

/// Attention of the kernel family in a model.
struct KernelConfig {
  std::string similarity = "exponential";  ///< attention.similarity
};

/// Attention of the local family in a model.
struct LocalConfig {
  std::int64_t window = 128;  ///< attention.window: keys before the query, in encoders also behind it
};

/// Attention of the linformer family in a model.
struct LinformerConfig {
  std::int64_t rank = 128;  ///< attention.rank, of the projections, at most the length
  ProjectionSharing sharing = ProjectionSharing::none;  ///< attention.sharing
};

/// The attention of a model's layers. A family ignores the settings of the other families.
struct AttentionConfig {
  Family family = Family::linear;  ///< attention.family, of every layer unless `layers` names them
  /// attention.layers: one family a layer, as "linear,linear,local" or "linear*2,local"; where the list is
  /// shorter than the model, it repeats. Empty: `family` in every layer.
  std::string layers = {};
  Normalise normalise = Normalise::sum;  ///< attention.normalise, of the linear and the kernel family
  double epsilon = 1e-6;                 ///< attention.epsilon, of the linear and the kernel family
  std::int64_t seed = 0;                 ///< attention.seed, of random features and of lsh's rotations
  LinearConfig linear = {};
  SoftmaxConfig softmax = {};
  KernelConfig kernel = {};
  LocalConfig local = {};
  StridedOptions strided = {};  ///< attention.pattern, stride (0: from the length) and summary
  LinformerConfig linformer = {};
  LshOptions lsh = {};  ///< attention.buckets, chunk and rounds; the seed is `seed`
};

/// The sequences that a model's attention meets.
struct SequenceConfig {
  std::int64_t length = 0;  ///< tokens of a training example
  bool causal = true;       ///< whether a token sees those up to itself only
  bool bounded = false;     ///< whether no sequence is longer than `length`
};

/// The family of every one of `layers` layers. Throws UsageError for a list of families that is none, or that
/// does not fit that number.
LINNET_API std::vector<Family> layer_families(const AttentionConfig& config, std::int64_t layers);

/// The options of a layer's attention: the configured ones of `config.family`, and what they leave to the
/// length. `feature_map` is used if the configuration names it; otherwise the built-in map of that name is
/// made, for heads of `head_dim` numbers. Throws UsageError for an unknown name, and for a `feature_map` of
/// another name.
LINNET_API AttentionOptions attention_options(const AttentionConfig& config, const SequenceConfig& sequence,
                                              std::int64_t head_dim,
                                              std::shared_ptr<const FeatureMap> feature_map = nullptr);

}  // namespace linnet
