#include "attention_options.h"

#include <algorithm>
#include <cmath>

#include "attention/feature_maps/random_draws.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/random.h"
#include "checks.h"

namespace linnet {
namespace {

Tensor draw_projection(Context& context, std::uint64_t seed, std::uint32_t stream, const Shape& shape) {
  Tensor projection = Tensor::of<float>(shape);
  const Random random(seed, Draw::initial_weights, stream);
  const double deviation = 1 / std::sqrt(static_cast<double>(shape.back()));
  parallel_blocks(context, projection.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      projection.span<float>()[static_cast<std::size_t>(i)] =
          static_cast<float>(deviation * random.normal(static_cast<std::uint64_t>(i)));
  });
  return projection;
}

/// Whether sums over its features are divided without an ε.
bool is_divided_exactly(const std::string& map) {
  return is_random_feature_map(map) && is_log_scaled(find_random_map(map));
}

}  // namespace

void check_owned(const char* operation, const char* selector, const std::vector<OwnedOption>& options,
                 const std::vector<std::string>& chosen) {
  for (const auto& [option, owners] : options) {
    const bool owned = std::ranges::any_of(
        owners, [&](const std::string& owner) { return std::ranges::find(chosen, owner) != chosen.end(); });
    if (option.count() > 0 && !owned)
      fail<UsageError>(operation, "expected {} {} with {}, got {}", selector, fmt::join(owners, " or "),
                       option.name(), fmt::join(chosen, ","));
  }
}

void FamilyOptions::add_to(Command& command) {
  constexpr std::int64_t most_tokens = std::int64_t{1} << 40;
  const auto add = [&](const char* name, auto& value, const char* text, std::vector<std::string> families) {
    Option option = command.add_option(name, value, text).capture_default_str();
    add_owned(option, std::move(families));
    return option;
  };
  add("--alpha", alpha, "α of the map elu", {"linear"}).check(number(0, 1, true));
  add("--features", features,
      "number of features of random maps; 0 is E ln E, rounded up to a multiple of 16", {"linear"})
      .check(whole(0, most_count));
  add("--directions", directions,
      "directions of random maps: orthogonal, independent, hadamard, or auto: hadamard where the head size "
      "is 16, 32, 64, 128 or 256, orthogonal elsewhere",
      {"linear"})
      .check(one_of({"auto", "orthogonal", "independent", "hadamard"}));
  add("--epsilon", epsilon, "ε in the denominator of linear and kernel", {"linear", "kernel"})
      .check(number(0, 1));
  add("--normalise", normalise, "normalisation of linear and kernel: sum or none", {"linear", "kernel"})
      .check(one_of({"sum", "none"}));
  add("--scale", scale, "scale of the softmax families; 0 is 1/√E",
      {"softmax", "linformer", "lsh", "local", "strided"})
      .check(number(0));
  add("--similarity", similarity, "similarity of kernel: exponential, polynomial or gaussian", {"kernel"});
  add("--offset", similarity_parameters.offset, "c of the polynomial similarity (q·k/√E + c)^p", {"kernel"})
      .check(number(0));
  add("--power", similarity_parameters.power, "p of the polynomial similarity, even", {"kernel"})
      .check(whole(2, 64));
  add("--sigma", similarity_parameters.sigma, "σ of the gaussian similarity; 0 is E^¼", {"kernel"})
      .check(number(0));
  add("--local-window", window, "window of local: keys to the left and to the right, 128,0", {"local"})
      .delimiter(',')
      .allow_extra_args(false)
      .check(whole(0, most_tokens));
  add("--pattern", pattern, "pattern of strided: strided or fixed", {"strided"})
      .check(one_of({"strided", "fixed"}));
  add("--stride", stride, "stride of strided; 0 is √N, rounded up to a multiple of 32", {"strided"})
      .check(whole(0, most_tokens));
  add("--summary", summary, "tokens that --pattern fixed keeps per block", {"strided"})
      .check(whole(1, most_tokens));
  add("--rank", rank, "rank of the projections of linformer", {"linformer"}).check(whole(1, most_count));
  add("--buckets", lsh.buckets, "buckets of a hash in lsh; 0 is about one per --chunk tokens", {"lsh"})
      .check(whole(0));
  add("--chunk", lsh.chunk, "tokens per chunk of lsh", {"lsh"}).check(whole(1, most_tokens));
  add("--rounds", lsh.rounds, "rounds of hashing in lsh", {"lsh"}).check(whole(1));
  add("--seed", seed, "seed of random maps, of the rotations of lsh and of drawn projections of linformer",
      {"linear", "linformer", "lsh"})
      .check(whole(0));
}

bool FamilyOptions::given(const std::string& option) const {
  return std::ranges::any_of(owned_, [&](const OwnedOption& owned) {
    return owned.option.name() == option && owned.option.count() > 0;
  });
}

void FamilyOptions::add_owned(const Option& option, std::vector<std::string> families) {
  owned_.push_back({option, std::move(families)});
}

void FamilyOptions::check(const char* operation, const std::vector<std::string>& families,
                          const std::vector<std::string>& maps) const {
  for (const std::string& family : families) find_family(family);
  check_owned(operation, "--family", owned_, families);
  const auto has = [&](const char* family) { return std::ranges::find(families, family) != families.end(); };
  const auto of_random_maps = [&](const char* option) {
    if (given(option) && std::ranges::none_of(maps, is_random_feature_map))
      fail<UsageError>(operation, "expected a random feature map with {}, got {}", option,
                       fmt::join(maps, ","));
  };
  of_random_maps("--features");
  of_random_maps("--directions");
  if (!has("linformer") && !has("lsh")) of_random_maps("--seed");
  if (given("--epsilon") && !has("kernel") && std::ranges::all_of(maps, is_divided_exactly))
    fail<UsageError>(operation, "expected a feature map without log-scales with --epsilon, got {}",
                     fmt::join(maps, ","));
  if (given("--alpha") && std::ranges::find(maps, "elu") == maps.end())
    fail<UsageError>(operation, "expected --feature-map elu with --alpha, got {}", fmt::join(maps, ","));
  const auto needs = [&](const char* option, const char* other, const std::string& value,
                         const char* wanted) {
    if (given(option) && value != wanted)
      fail<UsageError>(operation, "expected {} {} with {}, got {}", other, wanted, option, value);
  };
  needs("--offset", "--similarity", similarity, "polynomial");
  needs("--power", "--similarity", similarity, "polynomial");
  needs("--sigma", "--similarity", similarity, "gaussian");
  needs("--summary", "--pattern", pattern, "fixed");
  needs("--epsilon", "--normalise", normalise, "sum");
  if (window.size() > 2)
    fail<UsageError>(operation, "expected --local-window with one or two numbers, left and right, got {}",
                     window.size());
  if (stride != 0 && pattern == "fixed" && summary > stride)
    fail<UsageError>(operation, "expected --summary of at most --stride {}, got {}", stride, summary);
  // The library's own sentences; feature maps may have to know the size of a head first.
  for (const std::string& family : families) make_attention(of(family, "elu", 1));
}

AttentionOptions FamilyOptions::of(const std::string& family, const std::string& feature_map,
                                   std::int64_t head_dim) const {
  AttentionOptions options;
  options.family = find_family(family);
  const Normalise divides = normalise == "none" ? Normalise::none : Normalise::sum;
  options.linear.feature_map = find_feature_map(
      feature_map,
      {.alpha = static_cast<float>(alpha),
       .head_dim = head_dim,
       .random = {.features = features, .directions = find_directions(directions), .seed = seed}});
  options.linear.normalise = options.kernel.normalise = divides;
  options.linear.epsilon = options.kernel.epsilon = static_cast<float>(epsilon);
  options.scale = static_cast<float>(scale);
  options.kernel.similarity = find_similarity(similarity, similarity_parameters);
  options.lsh = lsh;
  options.lsh.seed = seed;
  options.local = {.left = window.front(), .right = window.size() > 1 ? window[1] : 0};
  options.strided = {.pattern = pattern == "fixed" ? SparsePattern::fixed : SparsePattern::strided,
                     .stride = stride,
                     .summary = summary};
  return options;
}

Projections draw_projections(Context& context, const char* operation, const FamilyOptions& options,
                             std::int64_t heads, std::int64_t length) {
  if (options.rank > length)
    fail<UsageError>(operation, "expected --rank of at most the {} keys of the input, got {}", length,
                     options.rank);
  const Shape shape = {heads, options.rank, length};
  return {draw_projection(context, options.seed, 0, shape), draw_projection(context, options.seed, 1, shape)};
}

}  // namespace linnet
