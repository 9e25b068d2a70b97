#include "attention/family.h"

#include "attention/linformer/linformer_attention.h"
#include "base/fail.h"

namespace linnet {
namespace {

AttentionCost cost_of(const AttentionOptions&, const CostSizes& sizes, double) {
  const double products = static_cast<double>(sizes.length) * static_cast<double>(sizes.rank);
  const double e = static_cast<double>(sizes.head_dim), m = static_cast<double>(sizes.value_dim);
  return {4 * products * (e + m), products * (14 * e + 12 * m)};
}

void add_keys(Settings& settings, AttentionConfig& config) {
  settings.add("attention.rank", config.linformer.rank,
               "linformer: rank of the projections, at most model.length", 1, 1 << 16);
  settings.add("attention.sharing", config.linformer.sharing,
               "linformer: a pair of projections per head (none), a pair for all heads, one matrix for keys "
               "and values of all heads, one matrix for all layers",
               {"none", "headwise", "key-value", "layerwise"});
}

void check_config(const AttentionConfig& config, const SequenceConfig& sequence) {
  if (config.linformer.rank > sequence.length)
    fail<UsageError>("model", "expected attention.rank of at most model.length {}, got {}", sequence.length,
                     config.linformer.rank);
}

}  // namespace

const FamilyEntry linformer_family = {
    .info = {.family = Family::linformer,
             .name = "linformer",
             .masks = "full, with key lengths; at most the trained length",
             .recurrent = false,
             .cost = "4 k (E + M), k the rank",
             .training = "k (14 E + 12 M)",
             .state = "none",
             .takes_projections = true},
    .make = make_linformer_attention,
    .reference_forward = linformer_reference_forward,
    .reference_backward = linformer_reference_backward,
    .multiplied_pairs = no_pairs,
    .least_cost = cost_of,
    .step_keys = all_keys,
    .add_settings = add_keys,
    .check = check_config,
    .not_causal =
        "whose projections mix all positions: use linear or softmax, or let tokens see both sides "
        "(model.bidirectional = true with the objectives classify and same-step, or model.objective = "
        "\"masked\")",
    .not_packed = "whose projections belong to the places of an example: use linear, softmax or local",
};

}  // namespace linnet
