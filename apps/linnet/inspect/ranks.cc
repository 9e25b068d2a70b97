#include "inspect/ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "base/lists.h"
#include "base/memory.h"
#include "checks.h"
#include "inspect/pass_times.h"
#include "lists.h"
#include "report.h"
#include "training/cluster_cost.h"

namespace linnet {
namespace {

constexpr double gigabit = 1e9 / 8;
constexpr std::int64_t most_ranks = 1 << 20;

std::vector<std::int64_t> ranks_of(const std::string& text) {
  std::vector<std::int64_t> ranks = number_list("--ranks", text, "inspect");
  for (const std::int64_t count : ranks)
    if (count > most_ranks)
      fail<UsageError>("inspect", "expected --ranks up to {}, got {}", most_ranks, count);
  return ranks;
}

std::vector<double> bandwidths_of(const std::string& text) {
  constexpr double least = 1e-3, most = 1e6;
  const auto list = numbers(text, least, most);
  if (!list || list->empty())
    fail<UsageError>("inspect", "expected --bandwidth to list Gbit/s in {} … {}, got {}", least, most, text);
  return *list;
}

Json row_of(const ClusterCost& cost, std::int64_t ranks, std::int64_t sequence_ranks, double bandwidth) {
  return {{"ranks", ranks},
          {"sequence_ranks", sequence_ranks},
          {"bandwidth_gbits", bandwidth},
          {"passes", cost.passes},
          {"passes_per_rank", cost.passes_per_rank},
          {"tokens_per_update", cost.tokens},
          {"bytes_sent", cost.bytes_sent},
          {"work_seconds", cost.work},
          {"exchange_seconds", cost.exchange},
          {"hidden_seconds", cost.hidden},
          {"update_seconds", cost.seconds()},
          {"tokens_per_second", cost.tokens_per_second()},
          {"efficiency", cost.efficiency},
          {"memory_bytes", cost.memory}};
}

std::string origin_of(const RankTimes& times, const RunConfig& config, int threads) {
  if (times.source == "given") return times.source;
  std::string text = fmt::format("{} on this machine, {} threads", times.source, threads);
  if (times.source == "measured" && times.examples < config.training.batch)
    text += fmt::format(", with {} of {} examples", times.examples, config.training.batch);
  return text;
}

void print_as_table(const Json& rows) {
  Json readable = Json::array();
  for (const Json& row : rows)
    readable.push_back({{"ranks", row["ranks"]},
                        {"Gbit/s", row["bandwidth_gbits"]},
                        {"passes", row["passes"]},
                        {"sent", bytes_text(row["bytes_sent"])},
                        {"work s", row["work_seconds"]},
                        {"exchange s", row["exchange_seconds"]},
                        {"hidden s", row["hidden_seconds"]},
                        {"update s", row["update_seconds"]},
                        {"tokens/s", row["tokens_per_second"]},
                        {"efficiency", row["efficiency"]},
                        {"memory", bytes_text(row["memory_bytes"])}});
  print_table(readable, {"ranks", "Gbit/s", "passes", "sent", "work s", "exchange s", "hidden s", "update s",
                         "tokens/s", "efficiency", "memory"});
}

}  // namespace

void RanksOptions::add_to(Command& command) {
  const Option numbers = command.add_option(
      "--ranks", ranks, "numbers of MPI processes, 2:1024: what training on several machines would take");
  command.add_option("--bandwidth", bandwidth, "Gbit/s of the network, of a rank in each direction")
      .capture_default_str()
      .needs(numbers);
  command.add_option("--latency", latency, "microseconds of a message")
      .capture_default_str()
      .check(number(0, 1e9))
      .needs(numbers);
  command
      .add_option("--sequence-ranks", given_sequence_ranks,
                  "ranks that divide each sequence among them; default: training.sequence_ranks")
      .check(whole(1, most_ranks))
      .needs(numbers);
  const Option given_rate =
      command
          .add_option("--rate", rate,
                      "tokens per second of training on one rank; default: measured on this machine")
          .check(number(0, 1e15, true))
          .needs(numbers);
  command.add_option("--threads", threads, "number of threads of a rank, for the measurement; default: all")
      .check(whole(1, most_threads))
      .needs(numbers)
      .excludes(given_rate);
}

void RanksOptions::print(const std::string& name, const RunConfig& config, bool json) const {
  const std::int64_t sequence_ranks =
      given_sequence_ranks > 0 ? given_sequence_ranks : config.training.sequence_ranks;
  const std::vector<std::int64_t> counts = ranks_of(ranks);
  const std::vector<double> bandwidths = bandwidths_of(bandwidth);
  const ExchangeSizes sizes = exchange_sizes(config, sequence_ranks);
  const auto cost_of = [&](std::int64_t count, double gigabits, const PassTimes& times) {
    return cluster_cost(config, sizes, times,
                        {.ranks = count,
                         .sequence_ranks = sequence_ranks,
                         .bandwidth = gigabits * gigabit,
                         .latency = 1e-6 * latency});
  };
  // What is refused is refused before anything is measured.
  for (const std::int64_t count : counts) cost_of(count, bandwidths.front(), {});

  Context context(threads);
  const RankTimes times = rate > 0 ? times_of_rate(config, rate) : times_of_machine(context, config);
  const ClusterCost alone = cluster_cost(config, sizes, times.pass, {.bandwidth = gigabit});
  Json rows = Json::array();
  std::int64_t most_passes = config.training.accumulate;
  for (const std::int64_t count : counts) {
    for (const double gigabits : bandwidths) {
      const ClusterCost cost = cost_of(count, gigabits, times.pass);
      most_passes = std::max(most_passes, cost.passes);
      Json row = row_of(cost, count, sequence_ranks, gigabits);
      row["config"] = name;
      row["latency_microseconds"] = latency;
      row["threads"] = context.threads();
      row["times"] = {{"source", times.source},
                      {"examples", times.examples},
                      {"forward_seconds", times.pass.forward},
                      {"backward_seconds", times.pass.backward},
                      {"update_seconds", times.pass.update}};
      row["tokens_per_second_of_one"] = alone.tokens_per_second();
      row["weak_scaling"] = cost.passes > config.training.accumulate;
      rows.push_back(row);
    }
  }
  if (json) {
    print_json(rows);
    return;
  }
  fmt::print("{}: gradient of {}, {} pass{} of {} × {} tokens an update\n", name, bytes_text(sizes.gradient),
             config.training.accumulate, config.training.accumulate == 1 ? "" : "es", config.training.batch,
             config.model.length);
  if (sequence_ranks > 1)
    fmt::print("sequences divided among {} ranks: states of {}, their gradients {}\n", sequence_ranks,
               bytes_text(sizes.states), bytes_text(sizes.state_gradients));
  fmt::print(
      "one rank: {:.0f} tokens/s, {}; a pass {:.3g} s forward, {:.3g} s backward; optimiser {:.3g} s\n",
      alone.tokens_per_second(), origin_of(times, config, context.threads()), times.pass.forward,
      times.pass.backward, times.pass.update);
  fmt::print("What training would take, computed and not measured, with {:.4g} µs a message:\n\n", latency);
  print_as_table(rows);
  if (most_passes > config.training.accumulate)
    fmt::print(
        "\ntraining.accumulate = {} is fewer passes than these ranks share: rows of more passes are of "
        "larger updates, one pass for every {} (weak scaling).\n",
        config.training.accumulate, sequence_ranks == 1 ? "rank" : fmt::format("{} ranks", sequence_ranks));
}

}  // namespace linnet
