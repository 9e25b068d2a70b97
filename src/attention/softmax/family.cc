#include "attention/family.h"

#include "attention/softmax/softmax_attention.h"

namespace linnet {

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
};

}  // namespace linnet
