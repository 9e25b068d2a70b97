#include "attention/family.h"

#include "attention/softmax/softmax_attention.h"

namespace linnet {
namespace {

void add_keys(Settings& settings, AttentionConfig& config) {
  settings.add("attention.cache", config.softmax.cache,
               "softmax: type of the keys and values that generation keeps; bf16 takes half the memory",
               {"f32", "bf16"});
}

void configure(AttentionOptions& options, const AttentionConfig& config, const LayerConfig&) {
  options.softmax.cache = config.softmax.cache;
}

}  // namespace

const FamilyEntry softmax_family = {
    .info = {.family = Family::softmax,
             .name = "softmax",
             .masks = "every mask",
             .recurrent = true,
             .cost = "2 (E + M) per visible key",
             .training = "8 E + 6 M per visible key",
             .state = "E + M per token"},
    .make = make_softmax_attention,
    .reference_forward = softmax_reference_forward,
    .reference_backward = softmax_reference_backward,
    .multiplied_pairs = all_pairs,
    .least_cost = cost_of_pairs,
    .step_keys = all_keys,
    .add_settings = add_keys,
    .configure = configure,
};

}  // namespace linnet
