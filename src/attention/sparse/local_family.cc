#include <algorithm>

#include "attention/family.h"
#include "attention/sparse/local_attention.h"

namespace linnet {
namespace {

double pairs_of(const AttentionOptions& options, const Mask& mask, std::int64_t length) {
  return pairs_within(mask, length, options.local.left, options.local.right);
}

double keys_of_step(const AttentionOptions& options, double visible) {
  return std::min(visible, static_cast<double>(options.local.left + 1));
}

void add_keys(Settings& settings, AttentionConfig& config) {
  settings.add("attention.window", config.local.window,
               "local: keys before the query; an encoder sees the same number after it", 0, 1 << 30);
}

void configure(AttentionOptions& options, const AttentionConfig& config, const LayerConfig& layer) {
  options.local = {.left = config.local.window, .right = layer.sequence.causal ? 0 : config.local.window};
}

}  // namespace

const FamilyEntry local_family = {
    .info = {.family = Family::local,
             .name = "local",
             .masks = "every mask except boolean masks, for as many queries as keys",
             .recurrent = true,
             .cost = "2 (E + M) per key in the window",
             .training = "8 E + 6 M per key in the window",
             .state = "(left + 1) (E + M)"},
    .make = make_local_attention,
    .reference_forward = local_reference_forward,
    .reference_backward = local_reference_backward,
    .multiplied_pairs = pairs_of,
    .least_cost = cost_of_pairs,
    .step_keys = keys_of_step,
    .add_settings = add_keys,
    .configure = configure,
    .fixed_state = true,
};

}  // namespace linnet
