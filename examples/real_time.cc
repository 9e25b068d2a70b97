// A loop at a fixed rate on a thread of its own: every tick it draws a token in bounded time, and at the end
// it reports its worst step.
//   real_time MODEL TICKS RATE_IN_HZ
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include "linnet/error.h"
#include "linnet/generation.h"

int main(int count, char** arguments) try {
  if (count < 4) return std::fputs("usage: real_time MODEL TICKS RATE_IN_HZ\n", stderr), 2;
  const auto model = linnet::Model::load(arguments[1]);
  const long ticks = std::atol(arguments[2]);
  const auto period =
      std::chrono::nanoseconds(std::chrono::seconds(1)) / std::max(1L, std::atol(arguments[3]));
  linnet::Session session(model, /*streams=*/1, {.threads = 1});  // built here, stepped there

  // Learned positions end with the length that the model was trained with.
  const long length = static_cast<long>(std::min<std::int64_t>(256, model->config().length));
  double worst = 0;
  std::future<void> loop = std::async(std::launch::async, [&] {
    using Clock = std::chrono::steady_clock;
    Clock::time_point due = Clock::now();
    for (long tick = 0; tick < ticks; ++tick) {
      if (tick % length == 0) session.begin(0, model->config().classes > 0 ? 0 : -1, {.seed = 1});
      std::this_thread::sleep_until(due += period);
      const Clock::time_point start = Clock::now();
      std::int32_t token;
      session.step({&token, 1});  // allocates nothing, waits for nobody
      worst = std::max(worst, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  });
  loop.get();  // throws what the loop threw
  std::printf("%ld ticks, worst step %.1f microseconds of %.1f\n", ticks, worst,
              1e-3 * double(period.count()));
} catch (const linnet::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
