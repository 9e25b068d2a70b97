#include "bench/bench.h"

#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <string_view>

#include "base/fail.h"
#include "base/quantile.h"
#include "checks.h"
#include "commands.h"
#include "kernels/dense.h"
#include "linnet/attention.h"
#include "linnet/context.h"
#include "linnet/instruction_set.h"
#include "lists.h"
#include "report.h"

namespace linnet {
namespace {
constexpr double long_call = 2;  // seconds

/// The first signal that asks to stop; 0 for none.
volatile std::sig_atomic_t stopped_by = 0;

/// Thrown between two rows.
struct Stopped {};

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void on_stop(int signal) {
  if (stopped_by != 0) return end_by(signal);
  stopped_by = signal;
  const int before = errno;
  constexpr std::string_view note = "\nstopping after this row; the next signal ends at once\n";
  // Should standard error be closed, the note is lost.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, note.data(), note.size());
  errno = before;
}

/// A program that a script starts in the background ignores SIGINT, and goes on doing so.
void stop_on_signals() {
  for (const int signal : {SIGINT, SIGTERM})
    if (std::signal(signal, on_stop) == SIG_IGN) std::signal(signal, SIG_IGN);
}

using Ceilings = std::map<std::pair<int, std::string>, Ceiling>;
Ceilings& measured_ceilings() {
  static Ceilings measured;
  return measured;
}

/// What was measured in one place of all repetitions: its median, and its spread if it is a real number.
struct Merged {
  Json median, spread;
};

Merged merge(const std::vector<Json>& values) {
  const Json& first = values.front();
  Merged merged{first, nullptr};
  if (first.is_object()) {
    merged.spread = Json::object();
    for (const auto& [key, value] : first.items()) {
      std::vector<Json> parts;
      for (const Json& object : values) parts.push_back(object.at(key));
      Merged part = merge(parts);
      merged.median[key] = std::move(part.median);
      if (!part.spread.empty()) merged.spread[key] = std::move(part.spread);
    }
  } else if (first.is_number()) {
    std::vector<double> sorted;
    for (const Json& value : values) sorted.push_back(value.get<double>());
    const double median = median_of(sorted);
    if (first.is_number_float()) {
      merged.median = median;
      merged.spread = median == 0 ? 0 : (sorted.back() - sorted.front()) / std::abs(median);
    } else {
      merged.median = static_cast<std::int64_t>(std::llround(median));
    }
  }
  return merged;
}
}  // namespace

Option BenchOptions::add_to(Command& command) {
  command.add_option("--threads", threads, "numbers of threads, 1,2; default: all")
      .delimiter(',')
      .check(whole(1, most_threads));
  const Option time = command.add_option("--seconds", seconds, "measuring time per row, in seconds")
                          .check(number(0, 1e6, true))
                          .capture_default_str();
  command
      .add_option("--repeat", repeat,
                  "measure all rows that many times in turn; prints the medians and their spread")
      .check(whole(1, 1000));
  command.add_flag("--json", json, "print the rows as a JSON array");
  return time;
}

Json BenchOptions::rows(const std::function<void(Context& context, Json& rows)>& measure) const {
  Json rows = Json::array();
  stop_on_signals();
  for (const int count : threads.empty() ? std::vector{0} : threads) {
    if (count > available_processors())
      print_note(fmt::format("warning: {} threads share {} processors", count, available_processors()));
    Context context(count);
    std::vector<Json> repetitions;
    try {
      for (std::int64_t i = 0; i < repeat; ++i) {
        if (repeat > 1) print_note(fmt::format("repetition {} of {}", i + 1, repeat));
        measured_ceilings().clear();
        measure(context, repetitions.emplace_back(Json::array()));
      }
    } catch (const Stopped&) {
      // Rows of a repetition that is not whole count where there is no other.
      if (repetitions.size() > 1) repetitions.pop_back();
    }
    const Json measured = repetitions.size() > 1 ? medians_of(repetitions) : repetitions.front();
    rows.insert(rows.end(), measured.begin(), measured.end());
    if (stopped_by != 0) break;
  }
  return rows;
}

void end_where_stopped() {
  if (stopped_by == 0) return;
  flush_output();
  end_by(stopped_by);
}

Json medians_of(const std::vector<Json>& repetitions) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < repetitions.front().size(); ++i) {
    std::vector<Json> values;
    for (const Json& repetition : repetitions) values.push_back(repetition.at(i));
    Merged merged = merge(values);
    merged.median["repeats"] = repetitions.size();
    merged.median["spread"] = std::move(merged.spread);
    rows.push_back(std::move(merged.median));
  }
  return rows;
}

std::vector<std::string> columns_with_spread(const Json& rows, std::vector<std::string> columns,
                                             const std::string& column) {
  if (!rows.empty() && rows.front().contains("spread"))
    columns.insert(std::ranges::find(columns, column) + 1, "spread." + column);
  return columns;
}

Families families_of(const std::string& option, const std::string& text) {
  if (text != "all") {
    Families families{name_list(option, text, "bench")};
    for (const std::string& name : families.names) find_family(name);
    return families;
  }
  Families families{{}, true};
  for (const FamilyInfo& info : family_table()) families.names.push_back(info.name);
  return families;
}

void Families::refuse(const std::string& family, const std::string& sentence) const {
  if (!all) throw UsageError(sentence);
  print_note(fmt::format("skipped: {}: {}", family, sentence));
}

Ceiling ceiling(Context& context, const std::string& dtype) {
  auto [place, added] = measured_ceilings().try_emplace({context.threads(), dtype});
  if (added)
    place->second = {kernels::measure_gemm_gflops(context, kernels::find_weight_type(dtype)),
                     kernels::measure_copy_gbs(context)};
  return place->second;
}

void leave_where_stopped() {
  if (stopped_by != 0) throw Stopped{};
}

void begin_row(Context& context, const std::string& dtype) {
  leave_where_stopped();
  ceiling(context, dtype);
  // What the rows before have left, in the context and in the heap, is none of this row's.
  context = Context(context.threads());
  malloc_trim(0);
  reset_peak_memory();
}

Json bench_row(Context& context, const std::string& bench, const std::string& dtype) {
  const Ceiling limits = ceiling(context, dtype);
  return {
      {"bench", bench},
      {"threads", context.threads()},
      {"isa", instruction_set()},
      {"dtype", dtype},
      {"peak_memory_bytes", peak_memory()},
      {"ceiling", {{"dtype", dtype}, {"gemm_gflops", limits.gemm_gflops}, {"copy_gbs", limits.copy_gbs}}}};
}

void print_ceilings(const Json& rows) {
  std::map<std::string, double> gflops;
  std::map<int, double> copied;  // GB/s by threads
  for (const Json& row : rows) {
    const int threads = row["threads"].get<int>();
    gflops.emplace(fmt::format("{}, {} threads", row["ceiling"]["dtype"].get<std::string>(), threads),
                   row["ceiling"]["gemm_gflops"].get<double>());
    copied.emplace(threads, row["ceiling"]["copy_gbs"].get<double>());
  }
  for (const auto& [kind, rate] : gflops) fmt::print("This machine: {:.0f} GFLOP/s dense {}\n", rate, kind);
  for (const auto& [threads, rate] : copied)
    fmt::print("This machine: {:.1f} GB/s copied, {} threads, {}\n", rate, threads,
               rows.front()["isa"].get<std::string>());
  if (!rows.empty()) fmt::print("\n");
}

std::vector<double> time_calls(const std::function<void()>& call, double seconds, int least) {
  const auto time = [&] {
    const auto start = std::chrono::steady_clock::now();
    call();
    return seconds_since(start);
  };
  // A call of seconds has no use for one that warms up: the first counts, and one more will do.
  std::vector<double> times = {time()};
  const bool is_long = times[0] > long_call && times[0] > seconds;
  if (!is_long) times.clear();
  double total = is_long ? times[0] : 0;
  while (static_cast<int>(times.size()) < (is_long ? 2 : least) || total < seconds) {
    times.push_back(time());
    total += times.back();
    if (total > 20 * seconds && times.size() >= 3) break;
  }
  return times;
}

void add_bench(Command& program) {
  Command bench =
      program.add_subcommand("bench", "Measure the ceilings of this machine, and the work relative to them");
  bench.require_subcommand();
  add_bench_attention(bench);
  add_bench_train(bench);
  add_bench_generate(bench);
}

}  // namespace linnet
