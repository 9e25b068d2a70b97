#include "bench/attention.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/fail.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "checks.h"
#include "linnet/attention.h"
#include "lists.h"
#include "outputs.h"
#include "plot/plot.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string family = "linear,softmax", feature_map = "elu", mask = "causal", dtype = "f32",
              length = "1024:4096", batch = "1", dim = "64", pass = "forward,training", streams = "4096",
              plot;
  std::vector<std::int64_t> window = {1023, 0};
  std::int64_t heads = 8, value_dim = 0, prefix = 1024, segments = 1024;
  double decay = 0, longest = 60;
  FamilyOptions family_options;
  std::vector<OwnedOption> of_masks, of_passes;
  BenchOptions bench;
};

bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string description(const AttentionRow& row) {
  const std::string start =
      fmt::format("{}{} d {} {}", row.family, row.family == "linear" ? " " + row.feature_map : "",
                  row.head_dim, row.pass);
  if (row.is_step()) return fmt::format("{}: {} streams", start, row.streams);
  return fmt::format("{}: {} {} batch {} length {}", start, row.mask, name_of(row.dtype), row.batch,
                     row.length);
}

const std::vector<std::string> pass_names = {"forward", "training", "step"}, dtype_names = {"f32", "bf16"};

/// The lists that the options name.
struct Lists {
  explicit Lists(const Arguments& arguments)
      : families(families_of("--family", arguments.family)),
        maps(name_list("--feature-map", arguments.feature_map, "bench")),
        passes(known_list("--pass", arguments.pass, pass_names, "bench")),
        masks(known_list("--mask", arguments.mask, bench_mask_names(), "bench")),
        dtypes(known_list("--dtype", arguments.dtype, dtype_names, "bench")),
        dims(number_list("--dim", arguments.dim, "bench")),
        batches(number_list("--batch", arguments.batch, "bench")),
        lengths(number_list("--length", arguments.length, "bench")),
        streams(number_list("--streams", arguments.streams, "bench")) {}

  Families families;
  std::vector<std::string> maps, passes, masks, dtypes;
  std::vector<std::int64_t> dims, batches, lengths, streams;
};

void check_options(const Arguments& arguments, const Lists& lists) {
  arguments.family_options.check("bench", lists.families.names, lists.maps);
  if (arguments.window.size() != 2)
    fail<UsageError>("bench", "expected --window with two numbers, left and right, got {}",
                     arguments.window.size());
  check_owned("bench", "--mask", arguments.of_masks, lists.masks);
  check_owned("bench", "--pass", arguments.of_passes, lists.passes);
  const bool parallel = has(lists.passes, "forward") || has(lists.passes, "training");
  if (arguments.decay != 0 && parallel && lists.masks != std::vector<std::string>{"causal"})
    fail<UsageError>("bench", "expected --mask causal with --decay, got {}", arguments.mask);
  if (!parallel && !has(lists.families.names, "linear"))
    fail<UsageError>("bench", "expected --family linear with --pass step, got {}", arguments.family);
}

/// Every family with every feature map and head size that it takes, without the sizes of a call.
std::vector<AttentionRow> attentions_of(const Arguments& arguments, const Lists& lists) {
  std::vector<AttentionRow> rows;
  AttentionRow row;
  row.heads = arguments.heads;
  row.family_options = arguments.family_options;
  row.mask_sizes = {arguments.window[0], arguments.window[1], arguments.prefix, arguments.segments};
  for (const std::string& family : lists.families.names) {
    row.family = family;
    row.decay = family == "linear" ? arguments.decay : 0;
    for (const std::string& map : family == "linear" ? lists.maps : std::vector<std::string>{"elu"}) {
      row.feature_map = map;
      for (const std::int64_t dim : lists.dims) {
        row.head_dim = dim;
        row.value_dim = arguments.value_dim == 0 ? dim : arguments.value_dim;
        make_attention(attention_of(row));  // throws for options that cannot be
        rows.push_back(row);
      }
    }
  }
  return rows;
}

/// One attention's forward and training passes over every mask, type, batch and length.
void add_parallel_rows(std::vector<AttentionRow>& rows, AttentionRow row, const Lists& lists) {
  for (const std::string& mask : lists.masks)
    for (const std::string& dtype : lists.dtypes)
      for (const std::int64_t batch : lists.batches)
        for (const std::int64_t length : lists.lengths)
          for (const std::string& pass : lists.passes) {
            if (pass == "step") continue;
            row.mask = mask;
            row.dtype = dtype == "bf16" ? DType::bf16 : DType::f32;
            row.batch = batch;
            row.length = length;
            row.pass = pass;
            rows.push_back(row);
          }
}

/// One attention's steps of every number of streams; of the linear family alone.
void add_step_rows(std::vector<AttentionRow>& rows, AttentionRow row, const Lists& lists) {
  if (!has(lists.passes, "step") || row.family != "linear") return;
  row.pass = "step";
  for (const std::int64_t streams : lists.streams) {
    row.streams = streams;
    rows.push_back(row);
  }
}

/// Leaves out what a family refuses, such as a mask. A sentence is said once, not once a row.
void erase_refused(std::vector<AttentionRow>& rows, const Families& families) {
  std::set<std::pair<std::string, std::string>> refused;
  std::erase_if(rows, [&](const AttentionRow& row) {
    const std::string sentence = refusal_of(row);
    if (!sentence.empty() && refused.emplace(row.family, sentence).second)
      families.refuse(row.family, sentence);
    return !sentence.empty();
  });
}

/// Every combination that the options ask for.
std::vector<AttentionRow> rows_of(const Arguments& arguments) {
  const Lists lists(arguments);
  check_options(arguments, lists);
  std::vector<AttentionRow> rows;
  for (const AttentionRow& row : attentions_of(arguments, lists)) {
    add_parallel_rows(rows, row, lists);
    add_step_rows(rows, row, lists);
  }
  if (has(lists.passes, "step") && has(lists.families.names, "softmax"))
    print_note("softmax has no step of fixed cost: linnet bench generate measures its cache");
  erase_refused(rows, lists.families);
  if (rows.empty()) fail<UsageError>("bench", "expected a row that can be measured, got none");
  return rows;
}

/// By which formulas the FLOPs of these families are counted.
void print_costs(const Json& rows) {
  Json costs = Json::array();
  for (const FamilyInfo& info : family_table()) {
    const auto measured = [&](const Json& row) { return row["family"] == info.name; };
    if (std::any_of(rows.begin(), rows.end(), measured))
      costs.push_back({{"family", info.name}, {"forward", info.cost}, {"training", info.training}});
  }
  fmt::print("\nFLOPs per query and head\n\n");
  print_table(costs, {"family", "forward", "training"});
}

/// Leaves out rows of which one call would take longer than wanted, by what shorter ones of their kind took.
class Patience {
 public:
  explicit Patience(double longest) : longest_(longest) {}

  bool allows(const AttentionRow& row) {
    const auto known = measured_.find(kind(row));
    if (row.is_step() || known == measured_.end()) return true;
    const double seconds = known->second.first * time_units(row) / known->second.second;
    if (seconds <= longest_) return true;
    print_note(fmt::format("skipped: {}: a call would take {:.2g} s, --longest allows {:.3g} s",
                           description(row), seconds, longest_));
    return false;
  }

  void learn(const AttentionRow& row, double seconds) {
    if (!row.is_step()) measured_[kind(row)] = {seconds, time_units(row)};
  }

 private:
  static std::string kind(AttentionRow row) {
    row.length = 0;
    return description(row);
  }

  double longest_;
  std::map<std::string, std::pair<double, double>> measured_;  // seconds and units of the last length
};

void print_rows(const Json& rows) {
  print_ceilings(rows);
  Json parallel = Json::array(), steps = Json::array();
  for (const Json& row : rows) (row["pass"] == "step" ? steps : parallel).push_back(row);
  for (Json& row : parallel) row["working_memory"] = bytes_text(row["working_memory_bytes"].get<double>());
  if (std::any_of(rows.begin(), rows.end(), [](const Json& row) { return row["dtype"] == "bf16"; }))
    fmt::print("Products of bf16 rows sum in f32, and are compared with the f32 ceiling.\n\n");
  if (!parallel.empty()) {
    print_table(parallel,
                columns_with_spread(parallel,
                                    {"threads", "family", "feature_map", "mask", "dtype", "pass", "batch",
                                     "length", "heads", "head_dim", "time_ms.median", "tokens_per_second",
                                     "gflops", "floor_ms", "times_floor", "working_memory"},
                                    "times_floor"));
    print_costs(parallel);
  }
  if (!steps.empty()) {
    if (!parallel.empty()) fmt::print("\n");
    print_table(steps, columns_with_spread(steps,
                                           {"threads", "family", "feature_map", "pass", "streams", "heads",
                                            "head_dim", "state_bytes_per_stream", "time_ms.median",
                                            "floor_ms", "times_floor", "fraction"},
                                           "times_floor"));
  }
}

/// A plot holds a line for each family and pass: everything else has to be one.
void check_plot(const Arguments& arguments, const std::vector<AttentionRow>& rows) {
  require_chart_path(arguments.plot);
  check_outputs("bench", {{"--plot", arguments.plot}});
  const auto same = [](const AttentionRow& a, const AttentionRow& b) {
    return a.mask == b.mask && a.dtype == b.dtype && a.batch == b.batch && a.head_dim == b.head_dim &&
           (a.family != b.family || a.feature_map == b.feature_map);
  };
  for (const AttentionRow& row : rows) {
    if (row.is_step())
      fail<UsageError>("bench", "expected --pass forward or training with --plot, got {}", arguments.pass);
    if (!std::all_of(rows.begin(), rows.end(), [&](const AttentionRow& other) { return same(row, other); }))
      fail<UsageError>(
          "bench",
          "expected one of --mask, --dtype, --batch, --dim and --feature-map with --plot, got several");
  }
  if (arguments.bench.threads.size() > 1)
    fail<UsageError>("bench", "expected one number of --threads with --plot, got {}",
                     arguments.bench.threads.size());
}

void run(const Arguments& arguments) {
  const std::vector<AttentionRow> wanted = rows_of(arguments);
  if (!arguments.plot.empty()) check_plot(arguments, wanted);
  for (const AttentionRow& row : wanted) require_memory(description(row), tensor_bytes(row));
  // One arena, which gives back what is free when asked: working memory is then counted in full by every row.
  mallopt(M_ARENA_MAX, 1);
  std::map<int, std::vector<AttentionRow>> chosen;  // by the number of threads
  const Json rows = arguments.bench.rows([&](Context& context, Json& rows) {
    ceiling(context);
    Patience patience(arguments.longest);
    const auto measure = [&](const AttentionRow& row) {
      leave_where_stopped();
      print_note(description(row));
      rows.push_back(measure_attention(context, row, arguments.bench.seconds));
      patience.learn(row, 1e-3 * rows.back()["time_ms"]["median"].get<double>());
    };
    const auto [place, first] = chosen.try_emplace(context.threads());
    if (!first) {
      for (const AttentionRow& row : place->second) measure(row);
      return;
    }
    for (const AttentionRow& row : wanted) {
      if (!patience.allows(row)) continue;
      place->second.push_back(row);
      measure(row);
    }
  });
  if (arguments.bench.json)
    print_json(rows);
  else
    print_rows(rows);
  end_where_stopped();
  if (arguments.plot.empty()) return;
  if (!arguments.bench.json) fmt::print("\n");
  for (const std::string& sentence : plot_scaling(rows, arguments.plot))
    arguments.bench.json ? print_note(sentence) : fmt::print("{}\n", sentence);
}

}  // namespace

void add_bench_attention(Command& bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      bench.add_subcommand("attention", "Time of one attention, relative to the ceilings of the machine");
  command.footer(
      "floor_ms is the larger of two times: the least FLOPs at the dense ceiling, and the least bytes at "
      "the\n"
      "copy ceiling. For a step it is the time to read and write the states.\n"
      "Example: linnet bench attention --family linear,softmax --length 512:16384 --pass forward\n"
      "         linnet bench attention --family linear,softmax --length 512:65536 --plot scaling.svg\n"
      "         linnet bench attention --family linear --mask causal,window,boolean --window 255,0 --dtype "
      "f32,bf16\n"
      "         linnet bench attention --family all --mask causal,full --length 512:65536 --longest 20\n"
      "         linnet bench attention --family linear --pass step --streams 4096 --dim 32");
  const auto list = [&](const char* name, std::string& value, const char* text) {
    return command.add_option(name, value, text).capture_default_str();
  };
  list("--family", arguments->family, "families: linear,softmax, or all").offers({"all"});
  arguments->family_options.add_owned(list("--feature-map", arguments->feature_map,
                                           "feature maps of linear (linnet families lists them); user is elu "
                                           "written with the exported tile mathematics"),
                                      {"linear"});
  const auto of_parallel_passes = [&](const Option& option) {
    arguments->of_passes.push_back({option, {"forward", "training"}});
  };
  of_parallel_passes(
      list("--mask", arguments->mask, "full, causal, prefix, window, segments (causal), intervals, boolean")
          .offers(bench_mask_names()));
  const auto of_masks = [&](const Option& option, std::vector<std::string> masks) {
    arguments->of_masks.push_back({option, std::move(masks)});
  };
  of_masks(
      command.add_option("--window", arguments->window, "keys to the left and right of window and intervals")
          .delimiter(',')
          .allow_extra_args(false)
          .check(whole(0))
          .capture_default_str(),
      {"window", "intervals"});
  of_masks(command.add_option("--prefix", arguments->prefix, "keys of the prefix")
               .check(whole(0))
               .capture_default_str(),
           {"prefix"});
  of_masks(command.add_option("--segments", arguments->segments, "length of the segments")
               .check(whole(1))
               .capture_default_str(),
           {"segments"});
  of_parallel_passes(
      list("--dtype", arguments->dtype, "type of inputs and outputs: f32, bf16").offers(dtype_names));
  arguments->family_options.add_owned(
      command.add_option("--decay", arguments->decay, "γ of the causal linear family")
          .check(number(0, 1, true)),
      {"linear"});
  list("--pass", arguments->pass, "forward, training (forward and backward), step (recurrent, linear)")
      .offers(pass_names);
  of_parallel_passes(list("--length", arguments->length, "tokens: a list or a doubling range"));
  of_parallel_passes(list("--batch", arguments->batch, "sequences per call"));
  arguments->of_passes.push_back({list("--streams", arguments->streams, "streams per step"), {"step"}});
  command.add_option("--heads", arguments->heads, "heads").check(whole(1, most_count)).capture_default_str();
  list("--dim", arguments->dim, "head sizes");
  command.add_option("--value-dim", arguments->value_dim, "head size of values; default: --dim")
      .check(whole(1, most_count));
  of_parallel_passes(
      command
          .add_option("--longest", arguments->longest,
                      "longest time of a call in seconds; rows above it, by estimate, are skipped")
          .check(number(0, 1e9, true))
          .capture_default_str());
  command.add_option("--plot", arguments->plot,
                     "draw time and memory against --length into an SVG or PNG file");
  arguments->family_options.add_to(command);
  arguments->bench.add_to(command);
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
