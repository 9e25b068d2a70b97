#include <fmt/core.h>

#include <chrono>

#include "attention/family.h"
#include "base/fail.h"
#include "bench/bench.h"
#include "bench/random_training.h"
#include "config.h"
#include "lists.h"
#include "model/config.h"
#include "model/cost.h"
#include "model/segments.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string config = "paper-mnist", family, batch, length, precision;
  std::vector<std::string> settings;
  BenchOptions bench;
};

const std::vector<std::string> precision_names = {"f32", "bf16"};

/// What a row measures, and how it is named.
struct Row {
  std::string name, family;
  RunConfig config;
};

/// Whole updates.
Json measure(Context& context, const RunConfig& config, double seconds) {
  begin_row(context, name_of(config.training.precision));
  RandomTraining training("bench", context, config);
  std::vector<double> outside;  // seconds of what follows the gradients
  const auto update = [&] {
    training.pass();
    const auto start = std::chrono::steady_clock::now();
    training.update();
    outside.push_back(seconds_since(start));
  };
  const std::vector<double> times = time_calls(update, seconds, 3);
  outside.erase(outside.begin(),
                outside.end() - std::ssize(times));  // that of the first update, which warms up

  const ModelConfig& model = config.model;
  const char* const precision = name_of(config.training.precision);
  Json json = bench_row(context, "train", precision);
  json["time_ms"] = time_summary(times);
  json["update_ms"] = time_summary(outside);
  const double rate =
      static_cast<double>(training.tokens()) / (1e-3 * json["time_ms"]["median"].get<double>());
  json["family"] = families_text(model.attention);
  json["batch"] = config.training.batch;
  json["length"] = model.length;
  json["tokens_per_second"] = rate;
  json["model_flops_per_token"] = training_flops(model);
  json["gflops"] = rate * training_flops(model) / 1e9;
  json["fraction_of_ceiling"] =
      rate * training_flops(model) / (1e9 * ceiling(context, precision).gemm_gflops);
  return json;
}

/// Sequences of so many steps, which are those of a picture no longer where it has another number of them.
void set_length(ModelConfig& config, std::int64_t length) {
  if (length != config.length) config.image_height = config.image_width = 0;
  config.length = length;
}

/// Why there is no such model, or none that is trained so; empty where there is.
std::string refusal_of(const RunConfig& config) {
  try {
    config.model.check();
    check_one_token("bench", config.model);
    if (config.training.segment > 0) check_segments(config.model);
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

void run(const Arguments& arguments) {
  const auto configs = name_list("--config", arguments.config, "bench");
  const Families families = arguments.family.empty() ? Families() : families_of("--family", arguments.family);
  const auto batches = arguments.batch.empty() ? std::vector<std::int64_t>()
                                               : number_list("--batch", arguments.batch, "bench");
  const auto lengths = arguments.length.empty() ? std::vector<std::int64_t>()
                                                : number_list("--length", arguments.length, "bench");
  const auto precisions = arguments.precision.empty()
                              ? std::vector<std::string>()
                              : known_list("--precision", arguments.precision, precision_names, "bench");
  // What cannot be measured is refused before anything is.
  std::vector<Row> wanted;
  for (const std::string& name : configs) {
    RunConfig config;
    load_without_data(config, name, arguments.settings);
    const ModelConfig own = config.model;
    const std::vector<std::string> own_precision = {name_of(config.training.precision)};
    for (const std::string& family :
         families.names.empty() ? std::vector{families_text(own.attention)} : families.names) {
      config.model = families.names.empty() ? own : with_family(own, find_family(family));
      if (const std::string sentence = refusal_of(config); !sentence.empty()) {
        families.refuse(family, sentence);
        continue;
      }
      for (const std::int64_t batch : batches.empty() ? std::vector{config.training.batch} : batches)
        for (const std::int64_t length : lengths.empty() ? std::vector{own.length} : lengths)
          for (const std::string& precision : precisions.empty() ? own_precision : precisions) {
            Row& row = wanted.emplace_back(Row{name, family, config});
            row.config.training.batch = batch;
            set_length(row.config.model, length);
            row.config.set("training.precision=" + precision);
            row.config.check_memory(true);
          }
    }
  }
  const Json rows = arguments.bench.rows([&](Context& context, Json& rows) {
    for (const Row& row : wanted) {
      const auto& [name, family, config] = row;
      print_note(fmt::format("{} {} batch {} length {} {}", name, family, config.training.batch,
                             config.model.length, name_of(config.training.precision)));
      rows.push_back(measure(context, config, arguments.bench.seconds));
      rows.back()["config"] = name;
    }
  });
  if (arguments.bench.json) {
    print_json(rows);
  } else {
    print_ceilings(rows);
    print_table(rows, columns_with_spread(rows,
                                          {"threads", "config", "family", "batch", "length", "dtype",
                                           "time_ms.median", "update_ms.median", "peak_memory_bytes",
                                           "tokens_per_second", "gflops", "fraction_of_ceiling"},
                                          "fraction_of_ceiling"));
  }
  end_where_stopped();
}

}  // namespace

void add_bench_train(Command& bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.add_subcommand("train", "Rate of training steps, relative to the dense ceiling");
  command.footer(
      "Example: linnet bench train --config paper-mnist --family linear,softmax\n"
      "         linnet bench train --config text --family all");
  command.add_option("--config", arguments->config, "configurations: files, or names of shipped ones")
      .capture_default_str();
  command
      .add_option("--family", arguments->family,
                  "attention families of all layers, or all; default: those of the configuration")
      .offers({"all"});
  command.add_option("--batch", arguments->batch, "examples per step; default: that of the configuration");
  command.add_option("--length", arguments->length,
                     "steps per example: a list or a doubling range; default: those of the configuration");
  command
      .add_option("--precision", arguments->precision,
                  "of the dense products, f32 or bf16; default: that of the configuration")
      .offers(precision_names);
  command.add_option("--set", arguments->settings, "replace a value of the configuration, key=value");
  arguments->bench.seconds = 5;
  arguments->bench.add_to(command);
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
