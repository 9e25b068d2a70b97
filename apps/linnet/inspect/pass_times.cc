#include "inspect/pass_times.h"

#include <chrono>
#include <functional>
#include <vector>

#include "base/memory.h"
#include "base/quantile.h"
#include "bench/bench.h"
#include "bench/random_training.h"
#include "linnet/error.h"
#include "model/config.h"
#include "model/cost.h"
#include "report.h"
#include "training/run_config.h"

namespace linnet {
namespace {

/// Of one example: what takes longer than some ten seconds on a small machine is not measured.
constexpr double most_flops = 2e12;
/// Share of the dense ceiling that the passes of wide models reach (docs/performance.md).
constexpr double usual_share = 0.7;
/// Of a measured pass, where it can be chosen.
constexpr double pass_seconds = 1;
constexpr int repetitions = 2;

double tokens_of_pass(const RunConfig& config) {
  return static_cast<double>(config.training.batch) * static_cast<double>(config.model.length);
}

/// A pass of so many seconds: the backward pass has twice the products of the forward pass.
PassTimes divided(double seconds) { return {seconds / 3, 2 * seconds / 3, 0}; }

bool can_be_measured(const RunConfig& one_example) {
  try {
    check_one_token("inspect", one_example.model);
  } catch (const UsageError&) {
    return false;
  }
  const double flops = training_flops(one_example.model) * static_cast<double>(one_example.model.length);
  return flops <= most_flops && memory_needs(one_example, true).total() <= available_memory();
}

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return seconds_since(start);
}

/// Medians, after a pass that warms up.
PassTimes measured(Context& context, const RunConfig& config, int count) {
  RandomTraining training("inspect", context, config);
  std::vector<double> pass, update;
  for (int i = 0; i <= count; ++i) {
    const double seconds[] = {seconds_of([&] { training.pass(); }), seconds_of([&] { training.update(); })};
    if (i == 0) continue;
    pass.push_back(seconds[0]);
    update.push_back(seconds[1]);
  }
  PassTimes times = divided(median_of(pass));
  times.update = median_of(update);
  return times;
}

}  // namespace

RankTimes times_of_rate(const RunConfig& config, double tokens_per_second) {
  return {divided(tokens_of_pass(config) / tokens_per_second), "given", 0};
}

RankTimes times_of_machine(Context& context, const RunConfig& config) {
  RunConfig smaller = config;
  smaller.training.batch = smaller.training.accumulate = 1;
  if (!can_be_measured(smaller)) {
    const double gflops = ceiling(context, name_of(config.training.precision)).gemm_gflops;
    const double flops = training_flops(config.model) * tokens_of_pass(config);
    return {divided(flops / (usual_share * gflops * 1e9)), "estimated", 0};
  }
  PassTimes times = measured(context, smaller, 1);
  const double fitting = pass_seconds / (times.forward + times.backward);
  smaller.training.batch =
      static_cast<std::int64_t>(std::clamp(fitting, 1.0, static_cast<double>(config.training.batch)));
  if (memory_needs(smaller, true).total() > available_memory()) smaller.training.batch = 1;
  const std::int64_t examples = smaller.training.batch;
  if (examples > 1) times = measured(context, smaller, repetitions);
  const double scale = static_cast<double>(config.training.batch) / static_cast<double>(examples);
  times.forward *= scale;
  times.backward *= scale;
  return {times, "measured", examples};
}

}  // namespace linnet
