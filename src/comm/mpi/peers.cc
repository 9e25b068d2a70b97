#include "comm/mpi/peers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace linnet {
namespace {

/// A rank sends heartbeats to all others up to this number, beyond it to so many neighbours. Notices of a
/// death go to all.
constexpr int most_heartbeats = 64;

int open_process(int id) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, id, 0));
#else
  (void)id;
  errno = ENOSYS;
  return -1;
#endif
}

}  // namespace

Process Process::own() {
  Process result;
  gethostname(result.machine.data(), result.machine.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat ids {};
  const bool known = stat("/proc/self/ns/pid", &ids) == 0;
  const std::string name = fmt::format("{} {}", boot, known ? ids.st_ino : 0);
  std::copy_n(name.begin(), std::min(name.size(), result.namespace_.size() - 1), result.namespace_.begin());
  result.id = static_cast<int>(getpid());
  return result;
}

Peers::Peers(int rank, std::vector<Process> processes, bool by_silence)
    : processes_(std::move(processes)),
      watches_(processes_.size(), -1),
      gone_(processes_.size()),
      heard_(processes_.size(), Clock::now()) {
  const int size = static_cast<int>(processes_.size());
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const Process &its = processes_[static_cast<std::size_t>(other)],
                  &own = processes_[static_cast<std::size_t>(rank)];
    int& watch = watches_[static_cast<std::size_t>(other)];
    if (!by_silence && its.namespace_ == own.namespace_) watch = open_process(its.id);
    const int away = std::min((other - rank + size) % size, (rank - other + size) % size);
    if (watch < 0 && (size <= most_heartbeats || away <= most_heartbeats / 2)) heartbeats_.push_back(other);
  }
}

Peers::~Peers() {
  for (const int watch : watches_)
    if (watch >= 0) close(watch);
}

std::vector<int> Peers::dead(bool stop_requested) {
  const Clock::time_point now = Clock::now();
  // A process that was stopped, or had no processor, has heard nothing of anybody.
  if (now - checked_ > silence_after_stop / 2) std::ranges::fill(heard_, now);
  checked_ = now;
  std::vector<int> result;
  for (std::size_t other = 0; other < watches_.size(); ++other) {
    if (watches_[other] < 0 || gone_[other]) continue;
    pollfd ended = {watches_[other], POLLIN, 0};
    if (poll(&ended, 1, 0) == 1) result.push_back(static_cast<int>(other));
  }
  const auto limit = stop_requested ? silence_after_stop : silence;
  for (const int other : heartbeats_)
    if (!has_left(other) && now - heard_[static_cast<std::size_t>(other)] > limit) result.push_back(other);
  std::ranges::sort(result);
  return result;
}

std::vector<int> Peers::suspects(const std::vector<int>& ranks) const {
  const Clock::time_point now = Clock::now();
  const auto sends_heartbeats = [&](int rank) { return std::ranges::count(heartbeats_, rank) > 0; };
  const auto silent_for = [&](int rank) { return now - heard_[static_cast<std::size_t>(rank)]; };
  Clock::duration longest{};
  for (const int rank : ranks)
    if (sends_heartbeats(rank)) longest = std::max(longest, silent_for(rank));
  // The last heartbeat of a rank that lives may be one interval old, and be late.
  const Clock::duration lately = std::max<Clock::duration>(2 * heartbeat_interval, longest / 2);
  std::vector<int> result;
  for (const int rank : ranks) {
    const bool watched = watches_[static_cast<std::size_t>(rank)] >= 0;
    const bool heard = sends_heartbeats(rank) && longest > lately && silent_for(rank) <= lately;
    if (!watched && !heard) result.push_back(rank);
  }
  return result.empty() ? ranks : result;
}

std::string Peers::text(int rank) const {
  const Process& its = processes_[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} of {} (process {} on {})", rank, processes_.size(), its.id, its.machine.data());
}

}  // namespace linnet
