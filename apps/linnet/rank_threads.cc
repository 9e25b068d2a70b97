#include "rank_threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "checks.h"
#include "linnet/context.h"

namespace linnet {
namespace {

/// The machine and the processors of a process, equal byte by byte where they are the same.
struct Place {
  char machine[256];
  cpu_set_t processors;
};

}  // namespace

void add_threads_of_rank(Command& command, int& threads) {
  command
      .add_option("--threads", threads,
                  "number of threads of each process; default: all, divided among those that share them")
      .check(whole(1, most_threads));
}

int threads_of_rank(Communicator& ranks, int asked) {
  Place own;
  std::memset(&own, 0, sizeof own);
  gethostname(own.machine, sizeof own.machine - 1);
  sched_getaffinity(0, sizeof own.processors, &own.processors);
  std::vector<Place> all(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  const auto sharing = std::ranges::count_if(
      all, [&](const Place& place) { return std::memcmp(&place, &own, sizeof own) == 0; });
  return asked > 0 ? asked
                   : std::clamp(available_processors() / static_cast<int>(sharing), 1, Context::most_threads);
}

}  // namespace linnet
