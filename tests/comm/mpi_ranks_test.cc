// Runs on every rank that mpirun starts. LINNET_RANKS says how many these are.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "comm/mpi/start_ranks.h"
#include "comm/properties.h"

namespace linnet {
namespace {

Communicator* world = nullptr;

TEST(MpiRanks, AreThoseThatTheLauncherStarted) {
  const char* expected = std::getenv("LINNET_RANKS");
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(world->size(), std::atoi(expected));
}

TEST(MpiRanks, Broadcast) { expect_broadcast_from_every_root(*world); }
TEST(MpiRanks, GatherInOrder) { expect_gathered_in_order(*world); }
TEST(MpiRanks, SumInOrder) { expect_sums_in_order(*world); }
TEST(MpiRanks, ScanInOrder) { expect_scans_in_order(*world); }
TEST(MpiRanks, SplitIntoGroups) { expect_groups_apart(*world); }
TEST(MpiRanks, SendMessagesOfAllSizes) { expect_messages_of_all_sizes(*world); }
TEST(MpiRanks, SendManyMessages) { expect_many_messages_in_order(*world); }
TEST(MpiRanks, Refuse) { expect_refusals(*world); }

/// The calling thread makes no call of the communicator but done(), until the transfers are.
TEST(MpiRanks, TransferWhileTheCallerComputes) {
  const std::size_t size = std::size_t{32} << 20;
  const int next = (world->rank() + 1) % world->size(),
            previous = (world->rank() + world->size() - 1) % world->size();
  const std::vector<std::byte> mine(size, static_cast<std::byte>(world->rank() + 1));
  std::vector<std::byte> received(size);
  const Transfer receive = world->receive(received, previous, 0), send = world->send(mine, next, 0);
  volatile double sum = 0;  // so that the compiler keeps the loop
  while (!receive.done() || !send.done())
    for (int i = 1; i < 100000; ++i) sum = sum + 1.0 / i;
  EXPECT_EQ(received.front(), static_cast<std::byte>(previous + 1));
  EXPECT_EQ(received.back(), static_cast<std::byte>(previous + 1));
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::unique_ptr<linnet::Communicator> ranks = linnet::start_ranks();
  linnet::world = ranks.get();
  return RUN_ALL_TESTS();
}
