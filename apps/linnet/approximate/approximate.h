#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "study/approximation.h"

namespace linnet {

/// Where the queries, keys and values of `approximate` come from: a file, a layer of a model, or else random
/// numbers.
struct ApproximateSource {
  std::string qkv, model, data, data_kind, mask = "full";
  std::int64_t layer = 0, examples = 1, length = 256, dim = 64;
  double deviation = 0, norm = 0;
  std::uint64_t seed = 0;
};

struct ApproximateHeads {
  std::string description;
  std::vector<HeadRows> heads;
};

ApproximateHeads read_heads(Context& context, const ApproximateSource& source);

/// The directions of the first rows of `approximate` that has others than independent ones, or else
/// independent: those which names of maps leave out.
std::string plain_directions(const Json& rows);

/// For every map how many features keep the output's error below `wanted`, from the rows of `approximate`: a
/// JSON object each, with a sentence `text`. Independent directions are left out where there are others.
/// `norms` are those of the heads, which see earlier tokens alone where they are `causal`.
Json advice(const Json& rows, double wanted, const Json& norms, bool causal);

/// Draws the errors of weights and output, and where there are some those of low rank, into an SVG file.
void plot_approximation(const Json& result, const std::string& path);

}  // namespace linnet
