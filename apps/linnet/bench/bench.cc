#include "bench/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "kernels/dense.h"
#include "linnet/attention.h"
#include "linnet/instruction_set.h"
#include "lists.h"
#include "report.h"

namespace linnet {
namespace {
constexpr double long_call = 2;  // seconds
}

void BenchOptions::add_to(Command& command) {
  command.add_option("--threads", threads, "numbers of threads, 1,2; default: all")
      .delimiter(',')
      .check(whole(1, most_threads));
  command.add_option("--seconds", seconds, "measuring time per row, in seconds").check(number(0, 1e6, true));
  command.add_flag("--json", json, "print the rows as a JSON array");
}

Json BenchOptions::rows(const std::function<void(Context& context, Json& rows)>& measure) const {
  Json rows = Json::array();
  for (const int count : threads.empty() ? std::vector{0} : threads) {
    Context context(count);
    measure(context, rows);
  }
  return rows;
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
  fmt::print(stderr, "skipped: {}: {}\n", family, sentence);
}

Ceiling ceiling(Context& context, const std::string& dtype) {
  static std::map<std::pair<int, std::string>, Ceiling> measured;
  auto [place, added] = measured.try_emplace({context.threads(), dtype});
  if (added)
    place->second = {kernels::measure_gemm_gflops(context, kernels::find_weight_type(dtype)),
                     kernels::measure_copy_gbs(context)};
  return place->second;
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
  for (const Json& row : rows)
    gflops.emplace(
        fmt::format("{}, {} threads", row["ceiling"]["dtype"].get<std::string>(), row["threads"].get<int>()),
        row["ceiling"]["gemm_gflops"].get<double>());
  for (const auto& [kind, rate] : gflops) fmt::print("This machine: {:.0f} GFLOP/s dense {}\n", rate, kind);
  if (!rows.empty())
    fmt::print("This machine: {:.1f} GB/s copied, {}\n\n", rows.front()["ceiling"]["copy_gbs"].get<double>(),
               rows.front()["isa"].get<std::string>());
}

std::vector<double> time_calls(const std::function<void()>& call, double seconds, int least) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&] {
    const Clock::time_point start = Clock::now();
    call();
    return std::chrono::duration<double>(Clock::now() - start).count();
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
