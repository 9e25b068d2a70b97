#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "attention/family.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/quantile.h"
#include "bench/bench.h"
#include "bench/generation.h"
#include "checks.h"
#include "config.h"
#include "kernels/dense.h"
#include "linnet/generation.h"
#include "lists.h"
#include "model/access.h"
#include "model/cost.h"
#include "model/network.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string config = "paper-mnist", family = "linear,softmax", streams, weights = "f32", position, prompt,
              plot;
  std::vector<std::string> settings;
  bool no_cache = false, real_time = false;
  std::int64_t steps = 1'000'000;
  BenchOptions bench;
};

/// Images a second on a GPU that the paper reports for its own models, 0 where it reports none (Katharopoulos
/// et al. 2020, tables 1, 2 and 4).
double published_images_per_second(const GenerationRow& row) {
  const std::string name = std::filesystem::path(row.config).stem();
  const bool mnist = name == "paper-mnist", cifar = name == "paper-cifar10";
  if (!mnist && !cifar) return 0;
  if (row.family == "linear") return mnist ? 142.8 : 17.85;
  if (row.family != "softmax") return 0;
  if (row.cache) return mnist ? 7.56 : 0.32;
  return mnist ? 0.45 : 0.004;
}

/// Bytes of a stream's state: what a step of the linear layers reads and writes, and what one of the others
/// reads on average.
struct StateBytes {
  std::size_t written = 0, read = 0;
};

/// The share of a layer's keys and values that is there on average while a sequence is written: a cache fills
/// up to its end, and the ring of `local` as soon as the window is full.
double mean_share(const ModelConfig& config, Family family) {
  const double length = static_cast<double>(config.length);
  const double room =
      family == Family::local ? static_cast<double>(config.attention.local.window + 1) : length;
  const double kept = std::min(length, room);
  return (kept * (kept + 1) / 2 + (length - kept) * kept) / length / room;
}

StateBytes state_bytes_of(const ModelConfig& config, std::size_t all) {
  const std::int64_t dim = config.width / config.heads;
  double linear = 0, others = 0, seen = 0;  // floats
  for (const Family family : layer_families(config.attention, config.layers)) {
    const auto attention = make_attention(attention_of(config, family));
    const auto floats = static_cast<double>(attention->state_floats({config.heads, dim, dim}, config.length));
    (family == Family::linear ? linear : others) += floats;
    if (family != Family::linear) seen += mean_share(config, family) * floats;
  }
  StateBytes bytes;
  bytes.written = static_cast<std::size_t>(linear) * sizeof(float);
  // Caches may be narrower than floats.
  if (others > 0)
    bytes.read = static_cast<std::size_t>(static_cast<double>(all - bytes.written) * seen / others);
  return bytes;
}

double time_step(Session& session, std::span<std::int32_t> tokens) {
  const auto start = std::chrono::steady_clock::now();
  session.step(tokens);
  return seconds_since(start);
}

/// Steps of whole examples, drawn again and again until `seconds` are over; the result is the median over the
/// examples of the mean step, which a pause of the machine does not move.
double time_examples(Session& session, const ModelConfig& config, double seconds,
                     std::vector<double>& times) {
  std::vector<std::int32_t> tokens = step_tokens(session, config);
  begin_all(session, config);
  session.step(tokens);  // takes the memory that steps need
  std::vector<double> examples;
  double total = 0;
  while (examples.empty() || total < seconds) {
    begin_all(session, config);
    double example = 0;
    for (std::int64_t position = 0; position < config.length; ++position) {
      times.push_back(time_step(session, tokens));
      example += times.back();
    }
    examples.push_back(example / static_cast<double>(config.length));
    total += example;
  }
  return median_of(examples);
}

/// Steps without a cache at evenly spaced positions, and their mean.
double time_positions(Session& session, const ModelConfig& config, std::vector<double>& times) {
  constexpr std::int64_t measured = 12;
  std::vector<std::int32_t> tokens = step_tokens(session, config);
  double total = 0;
  for (std::int64_t i = 0; i < measured; ++i) {
    const std::vector<std::int32_t> prompt =
        random_prompt(config, (2 * i + 1) * config.length / (2 * measured));
    begin_all(session, config);
    for (std::int64_t stream = 0; stream < session.streams(); ++stream) session.prefill(stream, prompt);
    times.push_back(time_step(session, tokens));
    total += times.back();
  }
  return total / measured;
}

Json measure(Context& context, const std::shared_ptr<const Model>& model, const GenerationRow& row,
             double seconds) {
  const ModelConfig& config = model->config();
  begin_row(context, row.weights);
  Session::Options options;
  options.cache = row.cache;
  options.capacity = config.length;
  options.threads = context.threads();
  Session session(model, row.streams, options);
  std::vector<double> times;
  const double mean =
      row.cache ? time_examples(session, config, seconds, times) : time_positions(session, config, times);
  std::sort(times.begin(), times.end());
  Json json = generation_row(context, row);

  const double streams = static_cast<double>(row.streams), length = static_cast<double>(config.length);
  const std::size_t state_bytes = session.state_bytes(0);
  const double visible = row.cache ? (length + 1) / 2 : 1;
  const double flops = streams * generation_cost(config, visible).forward();
  const double products_ms = 1e3 * flops / (1e9 * ceiling(context, row.weights).gemm_gflops);
  const StateBytes state = row.cache ? state_bytes_of(config, state_bytes) : StateBytes{};
  const auto all_streams = static_cast<std::size_t>(row.streams);
  const double memory_ms = 1e3 * memory_seconds(context, step_weight_bytes(network_of(*model)),
                                                all_streams * state.read, all_streams * state.written);

  json["tokens_per_second"] = streams / mean;
  json["images_per_second"] = config.image_height > 0 ? Json(streams / (mean * length)) : Json(nullptr);
  const double published = published_images_per_second(row);
  json["paper_images_per_second"] = published > 0 ? Json(published) : Json(nullptr);
  json["step_ms"] = percentiles(times, 1e3);
  json["time_ms"] = time_summary(times);
  json["floor_ms"] = std::max(products_ms, memory_ms);
  json["times_floor"] = json["step_ms"]["p50"].get<double>() / json["floor_ms"].get<double>();
  json["fraction_of_ceiling"] = products_ms / (1e3 * mean);
  json["state_bytes_per_stream"] = state_bytes;
  json["weight_bytes"] = model->weight_bytes();
  return json;
}

/// Median step of one stream whose past is `position` tokens long.
Json measure_at(Context& context, const std::shared_ptr<const Model>& model, const GenerationRow& row,
                std::int64_t position) {
  begin_row(context, row.weights);
  Session::Options options;
  options.capacity = position + 64;
  options.threads = context.threads();
  Session session(model, 1, options);
  begin_all(session, model->config());
  session.prefill(0, random_prompt(model->config(), position));
  const std::size_t state_bytes = session.state_bytes(0);  // the steps below let a cache grow
  std::vector<double> times;
  std::vector<std::int32_t> tokens = step_tokens(session, model->config());
  for (int i = 0; i < 42; ++i) times.push_back(time_step(session, tokens));
  times.erase(times.begin(), times.begin() + 2);
  const double median = median_of(times);
  Json json = generation_row(context, row);
  json["position"] = position;
  json["tokens_per_second"] = 1 / median;
  json["step_ms"] = {{"p50", 1e3 * median}};
  json["time_ms"] = time_summary(times);
  json["state_bytes_per_stream"] = state_bytes;
  json["weight_bytes"] = model->weight_bytes();
  return json;
}

std::vector<std::pair<std::string, std::string>> pairs(const std::vector<std::string>& first,
                                                       const std::vector<std::string>& second) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& a : first)
    for (const std::string& b : second) all.emplace_back(a, b);
  return all;
}

void plot(const Json& rows, const std::string& path) {
  Chart time, memory;
  time.title = "One stream, one token";
  time.y_label = "time per token";
  time.unit = Chart::Unit::milliseconds;
  memory.title = "Memory of one stream";
  memory.y_label = "state or cache";
  memory.unit = Chart::Unit::bytes;
  time.x_label = memory.x_label = "tokens seen";
  for (const Json& row : rows) {
    const std::string name =
        row["family"] == "linear" ? "linear attention" : row["family"].get<std::string>() + " with cache";
    time.line(name).points.emplace_back(row["position"], row["step_ms"]["p50"]);
    memory.line(name).points.emplace_back(row["position"], row["state_bytes_per_stream"]);
  }
  write_chart(path, {time, memory});
}

void check_options(const Arguments& arguments) {
  if (!arguments.plot.empty() && arguments.position.empty())
    fail<UsageError>("bench", "expected --position with --plot, got none");
  if (arguments.real_time && !arguments.position.empty())
    fail<UsageError>("bench", "expected --real-time or --position, got both");
  if (arguments.real_time && arguments.bench.threads.size() > 1)
    fail<UsageError>("bench", "expected one number of --threads with --real-time, which steps on one, got {}",
                     arguments.bench.threads.size());
  if (!arguments.plot.empty()) require_chart_path(arguments.plot);
  std::vector<NamedPath> configs;
  for (const std::string& config : name_list("--config", arguments.config, "bench"))
    configs.push_back({"--config", config});
  check_outputs("bench", {{"--plot", arguments.plot}}, configs);
}

/// In --family: the families that the configuration has.
const std::string configured = "configured";

/// The lists that the options name.
struct Lists {
  explicit Lists(const Arguments& arguments)
      : configs(name_list("--config", arguments.config, "bench")),
        families(name_list("--family", arguments.family, "bench")),
        weights(name_list("--weights", arguments.weights, "bench")),
        streams(number_list("--streams",
                            !arguments.streams.empty() ? arguments.streams
                            : arguments.prompt.empty() ? "1,64"
                                                       : "1",
                            "bench")) {
    for (const std::string& name : families)
      if (name != configured) find_family(name);
    for (const std::string& name : weights) kernels::find_weight_type(name);
    if (!arguments.position.empty()) positions = number_list("--position", arguments.position, "bench");
    if (!arguments.prompt.empty()) prompts = number_list("--prompt", arguments.prompt, "bench");
  }

  std::vector<std::string> configs, families, weights;
  std::vector<std::int64_t> streams, positions, prompts;
};

/// A line of the plot is a family alone.
void check_plot(const Arguments& arguments, const Lists& lists) {
  const auto one = [](const char* option, std::size_t count) {
    if (count > 1) fail<UsageError>("bench", "expected one value of {} with --plot, got {}", option, count);
  };
  one("--config", lists.configs.size());
  one("--weights", lists.weights.size());
  one("--threads", arguments.bench.threads.size());
}

/// The configuration under another family in all layers, unless it is `configured`, and other weights.
std::shared_ptr<const Model> model_of(RunConfig config, const std::string& family, const std::string& weights,
                                      const Arguments& arguments) {
  if (family != configured) config.model = with_family(config.model, find_family(family));
  config.model.weights = kernels::find_weight_type(weights);
  config.check_memory(false);
  const bool endless = !arguments.position.empty() || !arguments.prompt.empty() || arguments.real_time;
  if (endless && config.model.positions == Positions::learned)
    config.model.positions = Positions::sinusoidal;  // goes on beyond the trained length
  return Model::random(config.model, 1);
}

/// Throws for a model whose rows cannot be measured.
void check_model(const std::shared_ptr<const Model>& model, const GenerationRow& row,
                 const Arguments& arguments) {
  if (model->config().columns > 0 && !arguments.real_time)
    fail<UsageError>("bench", "expected --real-time for {}, a model of real numbers, got none", row.config);
  if (model->config().columns > 0)
    NumberSession(model, 1, {.threads = 1});
  else
    Session(model, 1, {.threads = 1});
  if (arguments.no_cache && row.family == "softmax") Session(model, 1, {.cache = false, .threads = 1});
}

/// All rows of one model, which `row` names.
void add_rows(Json& rows, Context& context, const std::shared_ptr<const Model>& model, GenerationRow row,
              const Lists& lists, const Arguments& arguments) {
  if (arguments.real_time) {
    print_note(fmt::format("{} {} {} in real time", row.config, row.family, row.weights));
    rows.push_back(measure_real_time(context, model, row, arguments.steps));
    return;
  }
  for (const std::int64_t position : lists.positions) {
    print_note(fmt::format("{} {} at position {}", row.config, row.family, position));
    rows.push_back(measure_at(context, model, row, position));
  }
  if (!lists.positions.empty()) return;
  for (const std::int64_t streams : lists.streams) {
    row.streams = streams;
    for (const std::int64_t length : lists.prompts) {
      print_note(fmt::format("{} {} {} {} prompts of {} tokens", row.config, row.family, row.weights, streams,
                             length));
      rows.push_back(measure_prompts(context, model, row, length, arguments.bench.seconds));
    }
    if (!lists.prompts.empty()) continue;
    print_note(fmt::format("{} {} {} {} streams", row.config, row.family, row.weights, streams));
    row.cache = true;
    rows.push_back(measure(context, model, row, arguments.bench.seconds));
    if (!arguments.no_cache || row.family != "softmax") continue;
    row.cache = false;
    rows.push_back(measure(context, model, row, arguments.bench.seconds));
  }
}

/// use(model, row) for every configuration, family and type of weights, of which one model is held at a time.
template <class Use>
void for_every_model(const Arguments& arguments, const Lists& lists, const Use& use) {
  for (const std::string& name : lists.configs) {
    RunConfig config;
    load_without_data(config, name, arguments.settings);
    for (const auto& [family, weights] : pairs(lists.families, lists.weights))
      use(model_of(config, family, weights, arguments),
          GenerationRow{name, family == configured ? families_text(config.model.attention) : family,
                        weights});
  }
}

void print_rows(const Json& rows, const Arguments& arguments) {
  if (arguments.real_time) {
    print_table(rows, columns_with_spread(rows,
                                          {"config", "family", "dtype", "parameters", "steps", "step_us.p50",
                                           "step_us.p99", "step_us.p999", "step_us.max", "wait_us.p999",
                                           "p999_beyond_wait", "state_bytes_per_stream"},
                                          "step_us.p50"));
    return;
  }
  if (!arguments.position.empty()) {
    print_table(
        rows, columns_with_spread(
                  rows, {"threads", "config", "family", "position", "step_ms.p50", "state_bytes_per_stream"},
                  "step_ms.p50"));
    return;
  }
  print_ceilings(rows);
  if (!arguments.prompt.empty()) {
    print_table(rows,
                columns_with_spread(rows,
                                    {"threads", "config", "family", "dtype", "streams", "prompt",
                                     "tokens_per_second", "time_ms.median", "first_token_ms", "floor_ms",
                                     "times_floor", "fraction_of_ceiling", "state_bytes_per_stream"},
                                    "times_floor"));
    return;
  }
  print_table(rows, columns_with_spread(rows,
                                        {"threads", "config", "family", "cache", "dtype", "streams",
                                         "tokens_per_second", "images_per_second", "paper_images_per_second",
                                         "step_ms.p50", "step_ms.p99", "step_ms.p999", "floor_ms",
                                         "times_floor", "fraction_of_ceiling", "state_bytes_per_stream"},
                                        "times_floor"));
}

void run(const Arguments& arguments) {
  check_options(arguments);
  const Lists lists(arguments);
  if (!arguments.plot.empty()) check_plot(arguments, lists);
  // What cannot be measured is refused before anything is.
  bool any_softmax = false;
  for_every_model(arguments, lists, [&](const std::shared_ptr<const Model>& model, const GenerationRow& row) {
    check_model(model, row, arguments);
    any_softmax = any_softmax || row.family == "softmax";
  });
  if (arguments.no_cache && !any_softmax)
    fail<UsageError>("bench", "expected --family softmax with --no-cache, got {}", arguments.family);
  const Json rows = arguments.bench.rows([&](Context& context, Json& rows) {
    for_every_model(arguments, lists,
                    [&](const std::shared_ptr<const Model>& model, const GenerationRow& row) {
                      add_rows(rows, context, model, row, lists, arguments);
                    });
  });
  if (arguments.bench.json)
    print_json(rows);
  else
    print_rows(rows, arguments);
  end_where_stopped();
  if (!arguments.plot.empty()) plot(rows, arguments.plot);
}

}  // namespace

void add_bench_generate(Command& bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      bench.add_subcommand("generate", "Rate of generation, relative to the ceilings and to softmax");
  command.footer(
      "Example: linnet bench generate --config paper-mnist --streams 1,64 --weights f32,bf16,int8 "
      "--no-cache\n"
      "         linnet bench generate --position 64:65536 --plot generation.svg\n"
      "         linnet bench generate --prompt 16,128,1024 --streams 1,8\n"
      "         linnet bench generate --config stream --family linear --real-time");
  command.add_option("--config", arguments->config, "configurations: files, or names of shipped ones")
      .capture_default_str();
  command
      .add_option("--family", arguments->family,
                  "attention families of all layers; configured: those of the configuration")
      .offers({configured})
      .capture_default_str();
  Option streams =
      command.add_option("--streams", arguments->streams,
                         "number of streams: a list or a doubling range; default: 1,64, with --prompt 1");
  command.add_option("--weights", arguments->weights, "types of the weights: f32, bf16, int8")
      .offers({"f32", "bf16", "int8"})
      .capture_default_str();
  const Option position = command.add_option(
      "--position", arguments->position,
      "measure a step of one stream after this number of tokens: a list or a doubling range");
  Option prompt = command.add_option(
      "--prompt", arguments->prompt,
      "measure how long --streams streams take to read a prompt of this number of tokens each: a list or a "
      "doubling range");
  command.add_option("--plot", arguments->plot,
                     "draw time and memory against --position into an SVG or PNG file");
  const Option real_time =
      command.add_flag("--real-time", arguments->real_time,
                       "step one stream on one thread; prints the slowest of --steps steps in microseconds");
  command.add_option("--steps", arguments->steps, "number of steps of --real-time")
      .capture_default_str()
      .check(whole(1, std::int64_t{1} << 32))
      .needs(real_time);
  Option no_cache = command.add_flag("--no-cache", arguments->no_cache,
                                     "also measure softmax without a cache, the baseline of the paper");
  command.add_option("--set", arguments->settings, "replace a value of the configuration, key=value");
  Option seconds = arguments->bench.add_to(command);
  for (Option* of_many_calls : {&streams, &no_cache, &seconds, &prompt})
    of_many_calls->excludes(position).excludes(real_time);
  no_cache.excludes(prompt);
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
