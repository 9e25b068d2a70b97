#include "approximate/approximate.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "attention/feature_maps/random_draws.h"
#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "given_data.h"
#include "lists.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  ApproximateSource source;
  std::string maps = "favor-sincos,favor,favor-hyperbolic", features = "8:1024",
              directions = "auto,independent", plot;
  std::int64_t draws = 8;
  double error = 0.1;
  bool linformer = false, json = false;
  int threads = 0;
};

/// JSON knows no infinity: errors beyond all numbers are null.
Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Root of the mean square over the heads.
class MeanOfHeads {
 public:
  void add(double value, std::size_t heads) { sum_ += value * value / static_cast<double>(heads); }
  Json json() const { return number_or_null(std::sqrt(sum_)); }

 private:
  double sum_ = 0;
};

Json measure(Context& context, const std::vector<HeadRows>& heads, const std::string& map,
             const RandomFeatureOptions& options, std::int64_t draws) {
  using Member = EstimateError RandomFeatureError::*;
  constexpr std::pair<const char*, Member> parts[] = {{"weights", &RandomFeatureError::weights},
                                                      {"attention", &RandomFeatureError::attention},
                                                      {"output", &RandomFeatureError::output}};
  MeanOfHeads means[3][3], predicted;
  double non_positive = 0;
  for (const HeadRows& head : heads) {
    const RandomFeatureError error = random_feature_error(context, head, map, options, draws);
    for (int p = 0; p < 3; ++p) {
      const EstimateError& part = error.*parts[p].second;
      means[p][0].add(part.error, heads.size());
      means[p][1].add(part.bias, heads.size());
      means[p][2].add(part.deviation, heads.size());
    }
    predicted.add(error.predicted, heads.size());
    non_positive += error.non_positive / static_cast<double>(heads.size());
  }
  Json row = {{"map", map},
              {"directions", name_of(options.directions)},
              {"features", options.features},
              {"predicted", predicted.json()}};
  for (int p = 0; p < 3; ++p)
    row[parts[p].first] = {
        {"error", means[p][0].json()}, {"bias", means[p][1].json()}, {"deviation", means[p][2].json()}};
  row["non_positive"] = non_positive;
  return row;
}

Json norms_of(Context& context, const std::vector<HeadRows>& heads) {
  HeadNorms mean;
  mean.largest_logit = -std::numeric_limits<double>::infinity();
  for (const HeadRows& head : heads) {
    const HeadNorms norms = head_norms(context, head);
    const double share = 1 / static_cast<double>(heads.size());
    mean.query += share * norms.query;
    mean.key += share * norms.key;
    mean.effective_keys += share * norms.effective_keys;
    mean.largest_logit = std::max(mean.largest_logit, norms.largest_logit);
  }
  return {{"query", mean.query},
          {"key", mean.key},
          {"largest_logit", mean.largest_logit},
          {"effective_keys", mean.effective_keys}};
}

/// Errors at those ranks that the heads' lengths allow, root mean squares over the heads.
Json measure_ranks(Context& context, const std::vector<HeadRows>& heads,
                   const std::vector<std::int64_t>& ranks) {
  std::vector<std::vector<double>> spectra;
  std::int64_t most = 0;
  for (const HeadRows& head : heads) {
    spectra.push_back(singular_values(attention_matrix(context, head), head.length));
    most = std::max(most, head.length);
  }
  Json rows = Json::array();
  for (const std::int64_t rank : ranks) {
    if (rank > most) continue;
    MeanOfHeads error, value;
    for (const std::vector<double>& spectrum : spectra) {
      error.add(rank_error(spectrum, rank), spectra.size());
      if (rank <= std::ssize(spectrum))
        value.add(spectrum[static_cast<std::size_t>(rank - 1)] / spectrum.front(), spectra.size());
    }
    rows.push_back({{"rank", rank}, {"error", error.json()}, {"singular_value", value.json()}});
  }
  return rows;
}

void check(const Arguments& arguments) {
  const ApproximateSource& source = arguments.source;
  if (!source.model.empty() && !source.qkv.empty())
    fail<UsageError>("approximate", "expected --model or --qkv, got both");
  if (!arguments.plot.empty()) require_chart_path(arguments.plot);
  check_outputs("approximate", {{"--plot", arguments.plot}},
                {{"--qkv", source.qkv}, {"the model's", source.model}, {"--data", source.data}});
}

void print(const Json& result) {
  const Json& norms = result["norms"];
  fmt::print(
      "{}\nmean norms {:.3g} of queries, {:.3g} of keys; logits up to {:.3g}; softmax attends to {:.3g} "
      "keys\n\n",
      result["inputs"].get<std::string>(), norms["query"].get<double>(), norms["key"].get<double>(),
      norms["largest_logit"].get<double>(), norms["effective_keys"].get<double>());
  print_table(result["rows"],
              {"map", "directions", "features", "predicted", "weights.error", "weights.bias",
               "attention.error", "attention.bias", "output.error", "output.bias", "non_positive"});
  if (result.contains("ranks")) {
    fmt::print("\n");
    print_table(result["ranks"], {"rank", "error", "singular_value"});
  }
  fmt::print("\n");
  for (const Json& one : result["advice"]) fmt::print("{}\n", one["text"].get<std::string>());
}

void run(const Arguments& arguments) {
  Context context(arguments.threads);
  check(arguments);
  const std::vector<std::int64_t> features = number_list("--features", arguments.features, "approximate");
  std::vector<std::pair<std::string, RandomFeatureOptions>> wanted;
  for (const std::string& map : name_list("--maps", arguments.maps, "approximate")) {
    if (!estimates_softmax(map))
      fail<UsageError>("approximate",
                       "expected --maps of favor, favor-trig, favor-sincos and favor-hyperbolic, got {}",
                       map);
    for (const std::string& directions : name_list("--directions", arguments.directions, "approximate")) {
      for (const std::int64_t count : features) {
        wanted.push_back(
            {map,
             {.features = count, .directions = find_directions(directions), .seed = arguments.source.seed}});
        directions_of(find_random_map(map), 8,
                      wanted.back().second);  // refuses odd numbers before anything is read
      }
    }
  }
  const ApproximateHeads inputs = read_heads(context, arguments.source);
  // And heads of another size than Hadamard directions have, before anything is measured.
  const std::int64_t head_dim = inputs.heads.front().head_dim;
  for (auto& [map, options] : wanted) {
    options.directions = directions_drawn(options.directions, head_dim);
    directions_of(find_random_map(map), head_dim, options);
  }
  Json result = {
      {"inputs", inputs.description}, {"draws", arguments.draws}, {"norms", norms_of(context, inputs.heads)}};
  Progress progress;
  Json rows = Json::array();
  for (const auto& [map, options] : wanted) {
    progress.hint(fmt::format("{} with {} features", map, options.features));
    rows.push_back(measure(context, inputs.heads, map, options, arguments.draws));
  }
  result["advice"] = advice(rows, arguments.error, result["norms"], inputs.heads.front().causal);
  result["rows"] = std::move(rows);
  if (arguments.linformer) {
    progress.hint("singular values");
    result["ranks"] = measure_ranks(context, inputs.heads, features);
  }
  progress.hint("");
  if (!arguments.plot.empty()) plot_approximation(result, arguments.plot);
  if (arguments.json)
    print_json(result);
  else
    print(result);
}

}  // namespace

void add_approximate(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  ApproximateSource& source = arguments->source;
  source.deviation = 0.5;
  Command command = program.add_subcommand(
      "approximate", "How well random features and low ranks approximate softmax attention");
  command.footer(
      "Errors are relative to the norm of the exact result. The column predicted is the closed form of\n"
      "weights.error for independent directions. Inputs are random, or q, k and v of a file, or a layer of "
      "a\n"
      "model.\n"
      "Example: linnet approximate --features 8:1024 --norm 4 --plot approximation.svg\n"
      "         linnet approximate --qkv qkv.safetensors --maps favor --error 0.05\n"
      "         linnet approximate --model runs/text --layer 3 --data book.txt --linformer");
  command
      .add_option("--features", arguments->features,
                  "numbers of features, and ranks: a list or a doubling range")
      .capture_default_str();
  command.add_option("--maps", arguments->maps, "favor, favor-trig, favor-sincos, favor-hyperbolic")
      .offers({"favor", "favor-trig", "favor-sincos", "favor-hyperbolic"})
      .capture_default_str();
  command.add_option("--directions", arguments->directions, "auto, orthogonal, independent, hadamard")
      .offers({"auto", "orthogonal", "independent", "hadamard"})
      .capture_default_str();
  command.add_option("--draws", arguments->draws, "number of draws to average over")
      .check(whole(2, 100000))
      .capture_default_str();
  command.add_flag("--linformer", arguments->linformer,
                   "also the spectrum of the attention matrix and its errors at low rank");
  command
      .add_option("--error", arguments->error,
                  "error of the output for which to recommend a number of features")
      .check(number(0, 1, true))
      .capture_default_str();
  const Option qkv =
      command.add_option("--qkv", source.qkv, "safetensors file with q, k, v [batch, length, heads, dim]");
  const Option model = command.add_option("--model", source.model, "folder of a model or of a run");
  command.add_option("--layer", source.layer, "layer of the model; 0 is the first")
      .check(whole(0, most_count))
      .capture_default_str()
      .needs(model);
  command
      .add_option("--data", source.data,
                  "data for --model, as for linnet train: digits, copy, reverse, or a folder or files; "
                  "default: those of the run")
      .needs(model);
  add_data_kind(command, source.data_kind).needs(model);
  command.add_option("--examples", source.examples, "number of validation examples, evenly spaced")
      .check(whole(1, 1024))
      .capture_default_str()
      .needs(model);
  command.add_option("--length", source.length, "tokens; longer inputs are cut")
      .check(whole(1, most_count))
      .capture_default_str();
  command.add_option("--dim", source.dim, "head size E of random inputs")
      .check(whole(1, 4096))
      .capture_default_str()
      .excludes(model)
      .excludes(qkv);
  Option norm = command.add_option("--norm", source.norm, "norm of every random query and key")
                    .check(number(0, 1e6, true))
                    .excludes(model)
                    .excludes(qkv);
  command
      .add_option("--deviation", source.deviation,
                  "standard deviation of the numbers of random queries and keys")
      .check(number(0, 1e6, true))
      .excludes(norm)
      .excludes(model)
      .excludes(qkv)
      .capture_default_str();
  command.add_option("--mask", source.mask, "full or causal; --model uses the mask of the model")
      .check(one_of({"full", "causal"}))
      .capture_default_str()
      .excludes(model);
  command.add_option("--seed", source.seed, "seed of random inputs and of directions")
      .check(whole(0))
      .capture_default_str();
  command.add_option("--plot", arguments->plot, "draw the errors into an SVG or PNG file");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
