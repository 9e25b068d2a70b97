#include <algorithm>
#include <array>

#include "attention/arguments.h"
#include "attention/family.h"
#include "base/fail.h"
#include "base/names.h"
#include "linnet/instruction_set.h"

namespace linnet {
namespace {

/// In the order of `Family`.
const std::array<const FamilyEntry*, 7> table = {&linear_family,    &softmax_family, &kernel_family,
                                                 &linformer_family, &lsh_family,     &local_family,
                                                 &strided_family};

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const FamilyEntry* entry : table) result.push_back(entry->info.name);
  return result;
}

}  // namespace

const FamilyEntry& entry_of(Family family) {
  const auto index = static_cast<std::size_t>(family);
  if (index >= table.size())
    fail<UsageError>("attention family", "expected one of {}, got number {}", fmt::join(names(), ", "),
                     index);
  return *table[index];
}

std::span<const FamilyInfo> family_table() {
  // Never destroyed: a thread may still read it when the program ends.
  static const auto& rows = *new std::vector<FamilyInfo>([] {
    std::vector<FamilyInfo> result;
    for (const FamilyEntry* entry : table) result.push_back(entry->info);
    return result;
  }());
  return rows;
}

Family find_family(const std::string& name) {
  for (const FamilyEntry* entry : table)
    if (entry->info.name == name) return entry->info.family;
  const std::string nearest = nearest_name(name, names());
  if (nearest.empty())
    fail<UsageError>("attention family", "expected one of {}, got '{}'", fmt::join(names(), ", "), name);
  fail<UsageError>("attention family", "expected one of {}, got '{}'; did you mean {}?",
                   fmt::join(names(), ", "), name, nearest);
}

const char* name_of(Decay decay) {
  constexpr std::array names = {"none", "fixed", "learned"};
  return names[static_cast<std::size_t>(decay)];
}

const char* name_of(Family family) { return info_of(family).name.c_str(); }

std::unique_ptr<Attention> make_attention(const AttentionOptions& options) {
  instruction_set();  // throws where LINNET_ISA cannot be obeyed
  return entry_of(options.family).make(options);
}

void Attention::read(Context&, View<float>, View<const float>, const State&, std::span<const std::int64_t>,
                     std::span<const std::int64_t>) const {
  fail("attention", "expected the linear or the softmax family to read a state, got another");
}

namespace {

/// The entry of options that are checked, with inputs that its family takes.
const FamilyEntry& checked_entry(const AttentionOptions& options, const ReferenceInputs& inputs) {
  (void)make_attention(options);  // checks them
  if (!info_of(options.family).takes_decay) refuse_decay("reference", inputs.decay);
  return entry_of(options.family);
}

}  // namespace

void reference_forward(const AttentionOptions& options, View<double> out, const ReferenceInputs& inputs) {
  checked_entry(options, inputs).reference_forward(options, out, inputs);
}

void reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                        View<const double> grad_out, const ReferenceInputs& inputs) {
  checked_entry(options, inputs).reference_backward(options, gradients, grad_out, inputs);
}

void add_settings(Settings& settings, AttentionConfig& config) {
  settings.add("attention.family", config.family, "attention family; `linnet families` describes them",
               names());
  settings.add("attention.layers", config.layers,
               "a family for every layer, as linear,linear,local or linear*2,local; a shorter list repeats; "
               "empty: attention.family in all");
  settings.add("attention.normalise", config.normalise,
               "whether the linear and the kernel family divide by their denominator", {"sum", "none"});
  settings.add("attention.epsilon", config.epsilon, "ε of this denominator", 0, 1);
  settings.add("attention.seed", config.seed, "seed of random features and of the rotations of lsh", 0,
               std::numeric_limits<std::int64_t>::max());
  for (const FamilyEntry* entry : table)
    if (entry->add_settings != nullptr) entry->add_settings(settings, config);
}

namespace {

/// Of one layer.
void check_layer(const AttentionConfig& config, const SequenceConfig& sequence) {
  const FamilyEntry& entry = entry_of(config.family);
  if (entry.check != nullptr) entry.check(config, sequence);
  if (sequence.causal && entry.not_causal != nullptr)
    fail<UsageError>("model",
                     "expected an attention.family for tokens that see earlier ones only, got {}, {}",
                     entry.info.name, entry.not_causal);
  if (!sequence.causal && entry.not_bidirectional != nullptr)
    fail<UsageError>("model", "expected an attention.family for tokens that see both sides, got {}, {}",
                     entry.info.name, entry.not_bidirectional);
  if (config.linear.decay != Decay::none && !entry.info.takes_decay)
    fail<UsageError>("model", "expected attention.decay = \"none\" with the family {}, got \"{}\"",
                     entry.info.name, name_of(config.linear.decay));
  if (config.linear.decay != Decay::none && !sequence.causal)
    fail<UsageError>(
        "model",
        "expected attention.decay = \"none\" for tokens that see both sides, since a decay needs "
        "a causal mask, got \"{}\"",
        name_of(config.linear.decay));
}

}  // namespace

void check(const AttentionConfig& config, const SequenceConfig& sequence, std::int64_t layers) {
  if (config.layers.empty()) return check_layer(config, sequence);
  const std::vector<Family> families = layer_families(config, layers);
  if (config.linear.decay != Decay::none &&
      std::ranges::none_of(families, [](Family family) { return info_of(family).takes_decay; }))
    fail<UsageError>("model",
                     "expected attention.decay = \"none\" with attention.layers = \"{}\", got \"{}\"",
                     shortened(config.layers), name_of(config.linear.decay));
  for (const Family family : families) check_layer(config_of_layer(config, family), sequence);
}

void check_packed(const AttentionConfig& config, std::int64_t layers) {
  for (const Family family : layer_families(config, layers)) {
    const FamilyEntry& entry = entry_of(family);
    if (entry.not_packed != nullptr)
      fail<UsageError>("model",
                       "expected an attention.family that takes several sequences in an example "
                       "(data.packing), got {}, {}",
                       entry.info.name, entry.not_packed);
  }
}

AttentionOptions attention_options(const AttentionConfig& config, const SequenceConfig& sequence,
                                   std::int64_t head_dim, std::shared_ptr<const FeatureMap> feature_map) {
  if (feature_map != nullptr && feature_map->name() != config.linear.feature_map)
    fail<UsageError>("model", "expected a feature map with the name attention.feature_map, {}, got {}",
                     config.linear.feature_map, feature_map->name());
  AttentionOptions options;
  options.family = config.family;
  const FamilyEntry& entry = entry_of(config.family);
  if (entry.configure != nullptr)
    entry.configure(options, config, {sequence, head_dim, std::move(feature_map)});
  return options;
}

}  // namespace linnet
