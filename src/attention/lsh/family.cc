#include "attention/family.h"

#include <algorithm>

#include "attention/lsh/hash.h"
#include "attention/lsh/lsh_attention.h"
#include "base/fail.h"

namespace linnet {
namespace {

/// Tokens sorted by bucket, cut into chunks: each sees those of its bucket in its chunk and the one before.
double pairs_of(const AttentionOptions& options, const Mask& mask, std::int64_t length) {
  const LshOptions& lsh = options.lsh;
  const bool causal = mask.kind() == Mask::Kind::causal;
  const std::int64_t buckets = lsh::bucket_count(lsh, length), chunk = std::min(lsh.chunk, length);
  const auto first_of = [&](std::int64_t bucket) { return (bucket * length + buckets - 1) / buckets; };
  double pairs = 0;
  for (std::int64_t s = 0; s < length; ++s) {
    const std::int64_t bucket = s * buckets / length, own = s / chunk * chunk;
    pairs += static_cast<double>(s - std::max({std::int64_t{0}, first_of(bucket), own - chunk}));
    if (!causal) pairs += static_cast<double>(std::min({length, first_of(bucket + 1), own + chunk}) - s - 1);
  }
  return pairs * static_cast<double>(lsh.rounds);
}

AttentionCost cost_of(const AttentionOptions& options, const CostSizes& sizes, double pairs) {
  AttentionCost cost = cost_of_pairs(options, sizes, pairs);
  const std::int64_t columns = lsh::rotation_columns(lsh::bucket_count(options.lsh, sizes.length));
  const double hashes = 2 * static_cast<double>(sizes.length * sizes.head_dim) *
                        static_cast<double>(options.lsh.rounds * columns);
  cost.forward += hashes;
  cost.training += hashes;
  return cost;
}

void add_keys(Settings& settings, AttentionConfig& config) {
  settings.add("attention.buckets", config.lsh.buckets,
               "lsh: buckets of a hash, 1 or an even number; 0 is about model.length / attention.chunk", 0,
               lsh::kMostBuckets);
  settings.add("attention.chunk", config.lsh.chunk,
               "lsh: tokens per chunk; a chunk attends to itself and to the one before", 1, 1 << 16);
  settings.add("attention.rounds", config.lsh.rounds, "lsh: rounds of hashing", 1, 64);
}

bool uses(const AttentionConfig& config, std::string_view key) {
  // One bucket holds every token in every round.
  if (config.lsh.buckets == 1) return key == "attention.buckets" || key == "attention.chunk";
  return key == "attention.buckets" || key == "attention.chunk" || key == "attention.rounds" ||
         key == "attention.seed";
}

void check_config(const AttentionConfig& config, const SequenceConfig&) {
  if (config.lsh.buckets > 1 && config.lsh.buckets % 2 != 0)
    fail<UsageError>("model", "expected attention.buckets of 1 or an even number, got {}",
                     config.lsh.buckets);
}

void configure(AttentionOptions& options, const AttentionConfig& config, const LayerConfig& layer) {
  options.lsh = config.lsh;
  options.lsh.seed = static_cast<std::uint64_t>(config.seed);
  // A sequence keeps its hashes however long the batch around it is.
  options.lsh.buckets = std::min(lsh::bucket_count(options.lsh, layer.sequence.length), lsh::kMostBuckets);
}

}  // namespace

const FamilyEntry lsh_family = {
    .info = {.family = Family::lsh,
             .name = "lsh",
             .masks = "full and causal, with key lengths; keys are the queries",
             .recurrent = false,
             .cost = "2 R c (E + M) + R E b, c keys per query and round, b buckets of the hashes",
             .training = "R c (8 E + 6 M) + R E b",
             .state = "none",
             .keys_are_queries = true},
    .make = make_lsh_attention,
    .reference_forward = lsh_reference_forward,
    .reference_backward = lsh_reference_backward,
    .multiplied_pairs = pairs_of,
    .least_cost = cost_of,
    .step_keys = all_keys,
    .add_settings = add_keys,
    .uses = uses,
    .check = check_config,
    .configure = configure,
    .not_packed = "which sorts the tokens of a whole example: use linear, softmax or local",
};

}  // namespace linnet
