#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "comm/gather.h"
#include "comm/properties.h"
#include "linnet/communicator.h"
#include "support/ranks.h"

namespace linnet {
namespace {

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

TEST(LocalRanks, SharesAreContiguousAndEven) {
  for (const int size : {1, 2, 3, 5})
    for (const std::int64_t count : {0, 1, 2, 7, 64}) {
      std::vector<Share> shares(static_cast<std::size_t>(size));
      with_ranks(size, [&](Communicator& ranks) {
        shares[static_cast<std::size_t>(ranks.rank())] = share_of(ranks, count);
      });
      std::int64_t next = 0;
      for (const Share& share : shares) {
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.size(), count / size);
        EXPECT_LE(share.size(), shares[0].size());
        next = share.end;
      }
      EXPECT_EQ(next, count);
      EXPECT_EQ(shares[0].size(), (count + size - 1) / size);
    }
}

TEST(LocalRanks, GatherGivesRankZeroTheListsOfAll) {
  for (const int size : {1, 2, 4})
    with_ranks(size, [&](Communicator& ranks) {
      // Rank r has r lists, of r, r + 1, … numbers.
      const auto lists_of = [](int rank) {
        std::vector<std::vector<std::int32_t>> lists;
        for (int i = 0; i < rank; ++i) lists.emplace_back(static_cast<std::size_t>(rank + i), 10 * rank + i);
        return lists;
      };
      std::vector<std::vector<std::int32_t>> expected;
      for (int rank = 0; rank < size && ranks.rank() == 0; ++rank)
        for (const auto& list : lists_of(rank)) expected.push_back(list);
      EXPECT_EQ(gather_lists(ranks, lists_of(ranks.rank())), expected);
    });
}

}  // namespace
}  // namespace linnet
