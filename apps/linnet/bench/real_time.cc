#include <algorithm>
#include <chrono>
#include <functional>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/random.h"
#include "bench/generation.h"

namespace linnet {
namespace {

/// Seconds, sorted, of each of so many steps, and of as many waits that do nothing but read the clock for as
/// long as a step takes: what they take longer is the system's doing, and no step's.
struct StreamTimes {
  std::vector<double> steps, waits;
};

/// Steps of a stream before those that count.
constexpr std::int64_t uncounted_steps = 1000;

/// In turn, after so many steps that do not count.
StreamTimes time_stream(std::int64_t steps, const std::function<void()>& step) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_of = [](const auto& call) {
    const Clock::time_point start = Clock::now();
    call(start);
    return seconds_since(start);
  };
  const auto timed_step = [&] { return seconds_of([&](Clock::time_point) { step(); }); };
  std::vector<double> first(uncounted_steps);
  for (double& time : first) time = timed_step();
  const auto usual =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(median_of(first)));
  StreamTimes times;
  for (std::vector<double>* all : {&times.steps, &times.waits}) all->resize(static_cast<std::size_t>(steps));
  for (std::size_t i = 0; i < times.steps.size(); ++i) {
    times.steps[i] = timed_step();
    times.waits[i] = seconds_of([&](Clock::time_point start) {
      while (Clock::now() - start < usual) {
      }
    });
  }
  for (std::vector<double>* all : {&times.steps, &times.waits}) std::ranges::sort(*all);
  return times;
}

/// Of sorted seconds, in microseconds.
Json slowest(const std::vector<double>& times) {
  Json json = percentiles(times, 1e6);
  json["max"] = 1e6 * times.back();
  return json;
}

}  // namespace

Json measure_real_time(Context& context, const std::shared_ptr<const Model>& model, const GenerationRow& row,
                       std::int64_t steps) {
  const ModelConfig& config = model->config();
  begin_row(context, row.weights);
  StreamTimes times;
  std::size_t state_bytes = 0;
  if (config.columns > 0) {
    NumberSession session(model, 1, {.capacity = steps + uncounted_steps, .threads = 1});
    std::vector<float> in(static_cast<std::size_t>(config.columns)),
        out(static_cast<std::size_t>(session.targets()));
    std::uint64_t given = 0;
    const Random random(1, Draw::test);
    times = time_stream(steps, [&] {
      for (float& number : in) number = 2 * random.uniform(given++) - 1;
      session.step(in, out);
    });
    state_bytes = session.state_bytes(0);
  } else {
    Session session(model, 1, {.capacity = steps + uncounted_steps, .threads = 1});
    begin_all(session, config);
    std::vector<std::int32_t> tokens = step_tokens(session, config);
    times = time_stream(steps, [&] { session.step(tokens); });
    state_bytes = session.state_bytes(0);
  }
  Json json = generation_row(context, row);
  json["threads"] = 1;
  json["steps"] = steps;
  json["parameters"] = model->parameter_count();
  json["step_us"] = slowest(times.steps);
  json["wait_us"] = slowest(times.waits);
  json["p999_beyond_wait"] =
      (quantile(times.steps, 0.999) - quantile(times.waits, 0.999)) / quantile(times.steps, 0.5);
  json["state_bytes_per_stream"] = state_bytes;
  json["weight_bytes"] = model->weight_bytes();
  return json;
}

}  // namespace linnet
