#include <algorithm>

#include "attention/family.h"
#include "attention/sparse/strided_attention.h"

namespace linnet {
namespace {

/// Keys up to the query: its own last s, or its block of s, and the far ones of the pattern.
double pairs_of(const AttentionOptions& options, const Mask&, std::int64_t length) {
  const std::int64_t stride = options.strided.stride != 0 ? options.strided.stride : default_stride(length);
  const bool fixed = options.strided.pattern == SparsePattern::fixed;
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t near = fixed ? i % stride + 1 : std::min(i + 1, stride);
    const std::int64_t far = i / stride * (fixed ? options.strided.summary : 1);
    pairs += static_cast<double>(near + far);
  }
  return pairs;
}

double keys_of_step(const AttentionOptions& options, double visible) {
  const double stride = static_cast<double>(options.strided.stride), far = (visible - 1) / stride;
  if (options.strided.pattern == SparsePattern::strided) return std::min(visible, stride) + far;
  return std::min(visible, (stride + 1) / 2) + far * static_cast<double>(options.strided.summary);
}

void add_keys(Settings& settings, AttentionConfig& config) {
  settings.add("attention.stride", config.strided.stride,
               "strided: the stride; 0 is the root of model.length, rounded up to a multiple of 32", 0,
               1 << 30);
  settings.add("attention.pattern", config.strided.pattern,
               "strided: every key a multiple of the stride back, or a fixed summary of every block",
               {"strided", "fixed"});
  settings.add("attention.summary", config.strided.summary,
               "strided: keys of every earlier block that the fixed pattern sees, at most the stride", 1,
               1 << 30);
}

bool uses(const AttentionConfig& config, std::string_view key) {
  if (key == "attention.summary") return config.strided.pattern == SparsePattern::fixed;
  return key == "attention.stride" || key == "attention.pattern";
}

void configure(AttentionOptions& options, const AttentionConfig& config, const LayerConfig& layer) {
  options.strided = config.strided;
  // Streams have no length of their own: the stride is that of the examples.
  if (options.strided.stride == 0) options.strided.stride = default_stride(layer.sequence.length);
  options.strided.summary = std::min(options.strided.summary, options.strided.stride);
}

}  // namespace

const FamilyEntry strided_family = {
    .info = {.family = Family::strided,
             .name = "strided",
             .masks = "causal, with key lengths",
             .recurrent = true,
             .cost = "2 (E + M) (s + N/2s), s about N^(1/2)",
             .training = "(8 E + 6 M) (s + N/2s)",
             .state = "E + M per token; fixed: (s + c N/s) (E + M)"},
    .make = make_strided_attention,
    .reference_forward = strided_reference_forward,
    .reference_backward = strided_reference_backward,
    .multiplied_pairs = pairs_of,
    .least_cost = cost_of_pairs,
    .step_keys = keys_of_step,
    .add_settings = add_keys,
    .uses = uses,
    .configure = configure,
    .not_bidirectional = "which sees earlier tokens only: use local, linear or softmax",
    .not_packed = "whose pattern belongs to the places of an example: use linear, softmax or local",
};

}  // namespace linnet
