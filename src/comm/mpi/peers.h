#pragma once

#include <array>
#include <chrono>
#include <string>
#include <vector>

namespace linnet {

/// What a rank tells all others about its process at the beginning.
struct Process {
  std::array<char, 64> machine{};      ///< its name, for people
  std::array<char, 128> namespace_{};  ///< processes with the same one see each other's ids
  int id = 0;

  static Process own();
};

/// Says which ranks are dead. For a process of the same machine the system says so at once (a pidfd). Others
/// count as dead when nothing has come from them for some time.
class Peers {
 public:
  using Clock = std::chrono::steady_clock;

  /// `processes` of all ranks; `by_silence`: do without the system's word.
  Peers(int rank, std::vector<Process> processes, bool by_silence);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  static constexpr std::chrono::milliseconds heartbeat_interval{100}, silence{5000}, silence_after_stop{500};

  /// Ranks that wait for this rank's heartbeats, and it for theirs.
  const std::vector<int>& heartbeats() const { return heartbeats_; }

  void heard(int rank) { heard_[static_cast<std::size_t>(rank)] = Clock::now(); }
  /// A rank that leaves in order is dead no more.
  void left(int rank) { gone_[static_cast<std::size_t>(rank)] = true; }
  bool has_left(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }

  /// The ranks that are dead and have not left.
  std::vector<int> dead(bool stop_requested);

  /// Of ranks one of which must be dead, the likely ones: not those that the system watches, nor those that
  /// have been heard lately while others were silent. All of them where that leaves none.
  std::vector<int> suspects(const std::vector<int>& ranks) const;

  std::string text(int rank) const;  ///< "rank 2 of 4 (process 4711 on machine)"

 private:
  std::vector<Process> processes_;
  std::vector<int> watches_;  ///< pidfds; −1 for those of other machines, and for this rank
  std::vector<bool> gone_;
  std::vector<int> heartbeats_;
  std::vector<Clock::time_point> heard_;
  Clock::time_point checked_ = Clock::now();
};

}  // namespace linnet
