#include "attention/family.h"

#include "attention/kernel/kernel_attention.h"

namespace linnet {
namespace {

void add_keys(Settings& settings, AttentionConfig& config) {
  std::vector<std::string> names;
  for (const SimilarityInfo& row : similarity_table()) names.push_back(row.name);
  settings.add("attention.similarity", config.kernel.similarity, "similarity of the kernel family",
               std::move(names));
}

bool uses(const AttentionConfig& config, std::string_view key) {
  if (key == "attention.epsilon") return config.normalise == Normalise::sum;
  return key == "attention.similarity" || key == "attention.normalise";
}

void configure(AttentionOptions& options, const AttentionConfig& config, const LayerConfig&) {
  options.kernel = {.similarity = find_similarity(config.kernel.similarity),
                    .normalise = config.normalise,
                    .epsilon = static_cast<float>(config.epsilon)};
}

}  // namespace

const FamilyEntry kernel_family = {
    .info = {.family = Family::kernel,
             .name = "kernel",
             .masks = "every mask",
             .recurrent = false,
             .cost = "2 (E + M) per visible key",
             .training = "8 E + 6 M per visible key",
             .state = "none"},
    .make = make_kernel_attention,
    .reference_forward = kernel_reference_forward,
    .reference_backward = kernel_reference_backward,
    .multiplied_pairs = all_pairs,
    .least_cost = cost_of_pairs,
    .step_keys = all_keys,
    .add_settings = add_keys,
    .uses = uses,
    .configure = configure,
};

}  // namespace linnet
