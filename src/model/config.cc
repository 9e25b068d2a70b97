#include "model/config.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"

namespace linnet {
namespace {

constexpr std::int64_t most_width = 1 << 16;
constexpr std::int64_t most_length = std::int64_t{1} << 32;

}  // namespace

bool has_recurrent_form(const ModelConfig& config) {
  const Family family = find_family(config.family);
  return !config.masked() && std::ranges::find(family_table(), family, &FamilyInfo::family)->recurrent;
}

void add_options(Options& options, ModelConfig& config) {
  options.add("model.objective", config.objective,
              "predict each token from those before it, or hidden tokens from all others (an encoder)",
              {"next-token", "masked"});
  options.add("model.layers", config.layers, "number of transformer layers", 1, 1000);
  options.add("model.heads", config.heads, "attention heads; must divide the width", 1, 1024);
  options.add("model.width", config.width, "width of the residual stream", 1, most_width);
  options.add("model.feed_forward", config.feed_forward, "hidden width of the feed-forward layers", 1,
              4 * most_width);
  options.add("model.norm", config.norm, "layer normalisation before or after attention and feed-forward",
              {"pre", "post"});
  options.add("model.activation", config.activation,
              "activation of the feed-forward layers; gelu is the exact form", {"gelu", "gelu-tanh", "relu"});
  options.add("model.dropout", config.dropout, "dropout probability of each branch's output, in training", 0,
              0.95);
  options.add("model.tied_output", config.tied_output, "use the embedding table as output weights");
  options.add("model.positions", config.positions,
              "position encoding: learned (up to model.length tokens), sinusoidal (any length), none",
              {"learned", "sinusoidal", "none"});
  options.add("model.length", config.length, "tokens per training example", 1, most_length);
  options.add("model.vocabulary", config.vocabulary, "number of tokens", 2, 1 << 20);
  options.add("model.classes", config.classes,
              "number of labels; if above 0, the first input is the token of the label", 0, 1 << 20);
  options.add("model.head", config.head, "output distribution of a token", {"categorical", "logistics"});
  options.add("model.mixtures", config.mixtures, "components of the mixture of logistics", 1, 1000);
  options.add("model.weights", config.weights,
              "type of the weights of dense layers; training needs f32, `linnet convert` makes the others",
              {"f32", "bf16", "int8"});
  options.add("attention.family", config.family, "attention family; `linnet families` lists them");
  options.add("attention.feature_map", config.feature_map, "feature map of the linear family");
  options.add("attention.alpha", config.alpha, "α of the elu feature map", 1e-6, 1);
  options.add("attention.epsilon", config.epsilon, "ε of the linear denominator", 0, 1);
  options.add("attention.normalise", config.normalise, "whether the linear family divides by its denominator",
              {"sum", "none"});
  options.add("attention.similarity", config.similarity, "similarity of the kernel family");
  options.add("attention.window", config.window,
              "local: keys before the query; an encoder sees the same number after it", 0, 1 << 30);
  options.add("attention.stride", config.stride,
              "strided: the stride; 0 is the root of model.length, rounded up to a multiple of 32", 0,
              1 << 30);
  options.add("attention.pattern", config.pattern,
              "strided: every key a multiple of the stride back, or a fixed summary of every block",
              {"strided", "fixed"});
  options.add("attention.decay", config.decay,
              "linear: decay γ per head, S = γ S + φ(k) vᵀ: none, fixed, or learned from the same "
              "initial values",
              {"none", "fixed", "learned"});
  options.add("attention.shortest_memory", config.shortest_memory,
              "decay: memory of the first head in tokens, 1/(1 − γ)", 1.01, 1e7);
  options.add("attention.longest_memory", config.longest_memory,
              "decay: memory of the last head; those between are spaced geometrically", 1.01, 1e7);
  options.add("attention.rank", config.rank, "linformer: rank of the projections, at most model.length", 1,
              most_width);
  options.add("attention.sharing", config.sharing,
              "linformer: a pair of projections per head (none), a pair for all heads, one matrix for keys "
              "and values of all heads, one matrix for all layers",
              {"none", "headwise", "key-value", "layerwise"});
  options.add("attention.buckets", config.buckets,
              "lsh: buckets of a hash, 1 or an even number; 0 is about model.length / attention.chunk", 0,
              1 << 16);
  options.add("attention.chunk", config.chunk,
              "lsh: tokens per chunk; a chunk attends to itself and to the one before", 1, most_width);
  options.add("attention.rounds", config.rounds, "lsh: rounds of hashing", 1, 64);
  options.add("attention.features", config.features,
              "number of features of a random map; 0 is E ln E, rounded up to a multiple of 16", 0,
              most_width);
  options.add("attention.directions", config.directions, "how a random map's directions are drawn",
              {"orthogonal", "independent"});
  options.add("attention.redraw", config.redraw,
              "training steps between new draws of random features; 0 keeps the first draw", 0, 1 << 30);
  options.add("attention.seed", config.seed, "seed of random features and of the rotations of lsh", 0,
              std::numeric_limits<std::int64_t>::max());
  options.add("image.height", config.image_height, "rows of a picture, if tokens are pixels", 0, 1 << 14);
  options.add("image.width", config.image_width, "columns of a picture, if tokens are pixels", 0, 1 << 14);
  options.add("image.channels", config.image_channels, "tokens per pixel: 1 (grey) or 3 (red, green, blue)",
              1, 3);
}

RandomFeatureOptions random_features_of(const ModelConfig& config) {
  return {.features = config.features,
          .orthogonal = config.directions == "orthogonal",
          .seed = static_cast<std::uint64_t>(config.seed)};
}

std::shared_ptr<const FeatureMap> feature_map_of(const ModelConfig& config) {
  return find_feature_map(config.feature_map, {.alpha = static_cast<float>(config.alpha),
                                               .head_dim = config.width / config.heads,
                                               .random = random_features_of(config)});
}

void ModelConfig::check() const {
  ModelConfig copy = *this;
  Options options;
  add_options(options, copy);
  options.load_json(options.to_json(), "model configuration");  // the ranges of the single values
  find_similarity(similarity);
  const Family known = find_family(family);
  if (known == Family::linformer && rank > length)
    fail<UsageError>("model", "expected attention.rank of at most model.length {}, got {}", length, rank);
  if (known == Family::linformer && !masked())
    fail<UsageError>("model",
                     "expected an attention.family for a model that predicts the next token, got linformer, "
                     "whose projections mix all positions: use linear or softmax, or model.objective = "
                     "\"masked\"");
  if (known == Family::strided && masked())
    fail<UsageError>("model",
                     "expected an attention.family that sees tokens on both sides with model.objective = "
                     "\"masked\", got strided, which sees earlier tokens only: use local, linear or softmax");
  if (known == Family::lsh && buckets > 1 && buckets % 2 != 0)
    fail<UsageError>("model", "expected attention.buckets of 1 or an even number, got {}", buckets);
  if (masked() && classes > 0)
    fail<UsageError>("model", "expected model.classes = 0 with model.objective = \"masked\", got {}",
                     classes);
  if (masked() && decay != "none")
    fail<UsageError>(
        "model",
        "expected attention.decay = \"none\" with model.objective = \"masked\", since a decay needs "
        "a causal mask, got \"{}\"",
        decay);
  if (decay != "none" && family != "linear")
    fail<UsageError>("model", "expected attention.decay = \"none\" with the family {}, got \"{}\"", family,
                     decay);
  if (width % heads != 0)
    fail<UsageError>("model", "expected model.heads to divide model.width, got {} heads and width {}", heads,
                     width);
  if (width / heads > 1024)
    fail<UsageError>("model", "expected heads of at most 1,024 numbers, got {} (width {} over {} heads)",
                     width / heads, width, heads);
  if (tied_output && head != "categorical")
    fail<UsageError>("model", "expected model.head = \"categorical\" with model.tied_output, got \"{}\"",
                     head);
  if ((image_height == 0) != (image_width == 0))
    fail<UsageError>("model", "expected image.height and image.width both or neither, got {} and {}",
                     image_height, image_width);
  if (image_channels != 1 && image_channels != 3)
    fail<UsageError>("model", "expected image.channels of 1 or 3, got {}", image_channels);
  if (image_height != 0 && image_height * image_width * image_channels != length)
    fail<UsageError>("model",
                     "expected image.height · image.width · image.channels to be model.length, got {} · {} · "
                     "{} and {}",
                     image_height, image_width, image_channels, length);
}

void ModelConfig::check_generates() const {
  if (masked())
    fail<UsageError>("generate",
                     "expected a model that predicts the next token, got an encoder (model.objective = "
                     "\"masked\"), which fills in masked tokens and does not generate");
}

std::int32_t ModelConfig::first_input(std::int64_t label) const {
  if (classes == 0 && label >= 0)
    fail("model", "expected no label for a model without classes, got {}", label);
  if (classes > 0 && (label < 0 || label >= classes))
    fail("model", "expected a label in 0 … {}, got {}", classes - 1, label);
  return static_cast<std::int32_t>(vocabulary + std::max<std::int64_t>(label, 0));
}

}  // namespace linnet
