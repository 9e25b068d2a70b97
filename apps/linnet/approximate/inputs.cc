#include "attend/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "approximate/approximate.h"
#include "base/fail.h"
#include "base/random.h"
#include "given_data.h"
#include "io/safetensors.h"
#include "model/access.h"
#include "model/transformer.h"
#include "run_record.h"
#include "training/examples.h"

namespace linnet {
namespace {

/// Quadratic work in double precision: longer sequences are cut.
constexpr std::int64_t most_length = 1024;

ApproximateHeads random_heads(const ApproximateSource& source) {
  HeadRows head{.length = source.length,
                .head_dim = source.dim,
                .value_dim = source.dim,
                .causal = source.mask == "causal"};
  const auto normals = [&](std::uint32_t stream) {
    const Random random(source.seed, Draw::test, stream);
    std::vector<double> numbers(static_cast<std::size_t>(source.length * source.dim));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = random.normal(i);
    return numbers;
  };
  const auto scaled = [&](std::vector<double> rows) {
    for (std::int64_t r = 0; r < source.length; ++r) {
      const auto row = std::span(rows).subspan(static_cast<std::size_t>(r * source.dim),
                                               static_cast<std::size_t>(source.dim));
      double squares = 0;
      for (const double number : row) squares += number * number;
      const double factor = source.norm > 0 ? source.norm / std::sqrt(squares) : source.deviation;
      for (double& number : row) number *= factor;
    }
    return rows;
  };
  head.q = scaled(normals(0));
  head.k = scaled(normals(1));
  head.v = normals(2);
  const std::string size = source.norm > 0 ? fmt::format("of norm {:g}", source.norm)
                                           : fmt::format("N(0, {:g}²)", source.deviation);
  return {fmt::format("random queries and keys {}, E = {}, {} tokens, {}", size, source.dim, source.length,
                      source.mask),
          {std::move(head)}};
}

ApproximateHeads file_heads(const ApproximateSource& source) {
  const Safetensors file = Safetensors::read(source.qkv);
  const auto read = [&](const char* name) { return read_input("approximate", file, source.qkv, name); };
  const Tensor q = read("q"), k = read("k"), v = read("v");
  if (q.shape() != k.shape() ||
      !std::ranges::equal(std::span(q.shape()).first(3), std::span(v.shape()).first(3)))
    fail("approximate",
         "expected q and k of one shape in {}, and v of their batch, length and heads, got {}, {} and {}",
         source.qkv, to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  if (q.size() == 0)
    fail("approximate", "expected numbers in {}, got q {}", source.qkv, to_string(q.shape()));
  const std::int64_t length = std::min(q.shape()[1], source.length);
  ApproximateHeads result;
  for (std::int64_t b = 0; b < q.shape()[0]; ++b) {
    for (std::int64_t h = 0; h < q.shape()[2]; ++h) {
      const auto rows = [&](const Tensor& tensor) {
        std::vector<double> numbers;
        const std::int64_t heads = tensor.shape()[2], width = tensor.shape()[3];
        for (std::int64_t i = 0; i < length; ++i)
          for (std::int64_t e = 0; e < width; ++e) {
            const auto at = static_cast<std::size_t>(((b * tensor.shape()[1] + i) * heads + h) * width + e);
            numbers.push_back(tensor.dtype() == DType::bf16 ? to_float(tensor.span<bf16>()[at])
                                                            : tensor.span<float>()[at]);
          }
        return numbers;
      };
      result.heads.push_back({.length = length,
                              .head_dim = q.shape()[3],
                              .value_dim = v.shape()[3],
                              .causal = source.mask == "causal",
                              .q = rows(q),
                              .k = rows(k),
                              .v = rows(v)});
    }
  }
  result.description = fmt::format("{}: {} heads of {}, {} tokens, {}", source.qkv, result.heads.size(),
                                   q.shape()[3], length, source.mask);
  return result;
}

ApproximateHeads model_heads(Context& context, const ApproximateSource& source) {
  const std::shared_ptr<const Model> model = Model::load(source.model);
  const ModelConfig& config = model->config();
  if (source.layer >= config.layers)
    fail<UsageError>("approximate", "expected --layer in 0 … {}, got {}", config.layers - 1, source.layer);
  const DataOptions given =
      data_of("approximate", config, {source.model, source.data, source.data_kind, "validation"});
  const std::unique_ptr<const Dataset> data = open_dataset(given, Split::validation);
  const Dataset& dataset = *data;
  if (source.data.empty()) warn_of_changed_data(source.model);
  check_fit(config, dataset);
  check_assets(model->assets(), dataset);
  const std::int64_t count = std::min(source.examples, dataset.size());
  const auto index = [&](std::int64_t i) { return i * dataset.size() / count; };
  Examples examples;
  const Batch batch = examples.read(context, dataset, config, count, index,
                                    {Random(0, Draw::masking, evaluation_masks), index});
  Transformer transformer(network_of(*model));
  const View<const float> qkv = transformer.queries_keys_values(context, batch.inputs, count, config.length,
                                                                source.layer, batch.key_lengths);

  ApproximateHeads result;
  const std::int64_t head_dim = config.width / config.heads;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t own =
        batch.key_lengths.empty() ? config.length : batch.key_lengths[static_cast<std::size_t>(b)];
    const std::int64_t length = std::min(own, source.length);
    longest = std::max(longest, length);
    for (std::int64_t h = 0; h < config.heads; ++h) {
      const auto rows = [&](std::int64_t part) {
        std::vector<double> numbers;
        for (std::int64_t i = 0; i < length; ++i) {
          const float* row = qkv.at(b, i, part * config.width + h * head_dim);
          numbers.insert(numbers.end(), row, row + head_dim);
        }
        return numbers;
      };
      result.heads.push_back({.length = length,
                              .head_dim = head_dim,
                              .value_dim = head_dim,
                              .causal = config.causal(),
                              .q = rows(0),
                              .k = rows(1),
                              .v = rows(2)});
    }
  }
  result.description =
      fmt::format("layer {} of {} on {} example{} of {}: {} heads of {}, {} tokens, {}", source.layer,
                  source.model, count, count == 1 ? "" : "s", source.data.empty() ? "its run" : source.data,
                  config.heads, head_dim, longest, config.causal() ? "causal" : "full");
  return result;
}

}  // namespace

ApproximateHeads read_heads(Context& context, const ApproximateSource& source) {
  if (source.length > most_length)
    fail<UsageError>("approximate", "expected --length of at most {}, got {}", most_length, source.length);
  if (!source.model.empty()) return model_heads(context, source);
  return source.qkv.empty() ? random_heads(source) : file_heads(source);
}

}  // namespace linnet
