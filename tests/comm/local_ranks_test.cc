#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "comm/local.h"
#include "comm/properties.h"
#include "linnet/communicator.h"

namespace linnet {
namespace {

/// Runs `body` on a thread for each of `size` ranks.
void with_ranks(int size, const std::function<void(Communicator&)>& body) {
  const std::vector<std::unique_ptr<Communicator>> ranks = local_ranks(size);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(LocalRanks, AloneHasOneRank) {
  const std::unique_ptr<Communicator> alone = Communicator::alone();
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  expect_all(*alone);
}

TEST(LocalRanks, DoWhatRanksDo) {
  for (const int size : {2, 3, 4, 5}) with_ranks(size, expect_all);
}

TEST(LocalRanks, LeaveTheirWaitsWhenOneFails) {
  std::atomic<int> told = 0, speakers = 0;
  with_ranks(3, [&](Communicator& ranks) {
    try {
      if (ranks.rank() == 1) throw Error("a full disk");
      ranks.barrier();
      ADD_FAILURE() << "expected the barrier to fail";
    } catch (const RankFailure& failure) {
      EXPECT_NE(std::string(failure.what()).find("rank 1 has failed: a full disk"), std::string::npos)
          << failure.what();
      ++told;
      speakers += ranks.fail(failure.what());
    } catch (const Error& error) {
      speakers += ranks.fail(error.what());
    }
    EXPECT_THROW(ranks.barrier(), RankFailure);
  });
  EXPECT_EQ(told, 2);
  EXPECT_EQ(speakers, 1);
}

TEST(LocalRanks, ExceptionsLeaveUnfinishedTransfers) {
  const std::unique_ptr<Communicator> alone = Communicator::alone();
  std::byte byte{};
  try {
    const Transfer never = alone->receive(std::span(&byte, 1), 0, 0);
    EXPECT_FALSE(never.done());
    throw Error("something else");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "something else");
    EXPECT_TRUE(alone->fail(error.what()));
  }
}

}  // namespace
}  // namespace linnet
