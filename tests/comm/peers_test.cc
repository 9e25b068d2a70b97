#include "comm/mpi/peers.h"

#include <gtest/gtest.h>

#include <thread>

namespace linnet {
namespace {

using Ranks = std::vector<int>;

/// Processes of which each has a machine to itself.
std::vector<Process> apart(int count) {
  std::vector<Process> result(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank)
    result[static_cast<std::size_t>(rank)].namespace_[0] = static_cast<char>('a' + rank);
  return result;
}

TEST(Peers, WithoutSilenceEveryRankMayBeTheDeadOne) {
  const Peers peers(2, apart(4), false);
  EXPECT_EQ(peers.suspects({0, 1}), (Ranks{0, 1}));
  EXPECT_EQ(peers.suspects({3}), Ranks{3});
  EXPECT_EQ(peers.suspects({}), Ranks{});
}

TEST(Peers, ARankThatIsHeardIsNoSuspectBesideASilentOne) {
  Peers peers(2, apart(4), false);
  std::this_thread::sleep_for(8 * Peers::heartbeat_interval);
  EXPECT_EQ(peers.suspects({0, 1, 3}), (Ranks{0, 1, 3}));
  peers.heard(1);
  EXPECT_EQ(peers.suspects({0, 1, 3}), (Ranks{0, 3}));
  peers.heard(0);
  EXPECT_EQ(peers.suspects({0, 1, 3}), Ranks{3});
  EXPECT_EQ(peers.suspects({0, 1}), (Ranks{0, 1}));
}

TEST(Peers, ARankThatTheSystemWatchesIsNoSuspectBesideOthers) {
  std::vector<Process> processes = apart(3);
  processes[0] = processes[2] = Process::own();
  const Peers peers(2, processes, false);
  EXPECT_EQ(peers.suspects({0, 1}), Ranks{1});
  EXPECT_EQ(peers.suspects({0}), Ranks{0});
}

// Heartbeats go to neighbours alone where ranks are many: the silence of others says nothing.
TEST(Peers, TheSilenceOfARankWithoutHeartbeatsSaysNothing) {
  constexpr int size = 100, far = 50, near = 1;
  Peers peers(0, apart(size), false);
  std::this_thread::sleep_for(8 * Peers::heartbeat_interval);
  peers.heard(near);
  EXPECT_EQ(peers.suspects({near, far}), (Ranks{near, far}));
}

}  // namespace
}  // namespace linnet
