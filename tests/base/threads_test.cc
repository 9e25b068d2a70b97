#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "linnet/error.h"

namespace linnet {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      parallel_for(count, [&](std::int64_t i) { ++calls[i]; });
      for (const auto& call : calls) EXPECT_EQ(call, 1);
    }
  }
}

TEST(ParallelFor, NestsOnTheCallingThread) {
  set_thread_count(2);
  std::atomic<int> calls = 0;
  parallel_for(4, [&](std::int64_t) {
    const int outside = thread_index();
    parallel_for(5, [&](std::int64_t) {
      EXPECT_EQ(thread_index(), outside);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 20);
}

TEST(ParallelFor, PassesOnExceptions) {
  set_thread_count(2);
  EXPECT_THROW(parallel_for(10,
                            [](std::int64_t i) {
                              if (i == 5) throw Error("five");
                            }),
               Error);
}

TEST(ParallelBlocks, CoversTheRangeInFixedBlocks) {
  set_thread_count(2);
  std::vector<int> hits(103);
  parallel_blocks(103, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    EXPECT_LE(end - begin, 10);
    for (std::int64_t i = begin; i < end; ++i) ++hits[i];
  });
  for (const int hit : hits) EXPECT_EQ(hit, 1);
}

TEST(RunOnTeam, CallsEveryIndexOfManyShortLoopsOnce) {
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    std::vector<std::atomic<int>> calls(7);
    std::int64_t loops = 0;
    run_on_team([&] {
      EXPECT_FALSE(in_parallel());
      for (; loops < 20000; ++loops)
        parallel_for(1 + loops % 7, [&](std::int64_t i) {
          EXPECT_EQ(in_parallel(), threads > 1 && loops % 7 > 0);
          EXPECT_LT(thread_index(), threads);
          ++calls[static_cast<std::size_t>(i)];
        });
    });
    for (std::int64_t i = 0; i < 7; ++i) {
      int expected = 0;
      for (std::int64_t loop = 0; loop < loops; ++loop) expected += loop % 7 >= i;
      EXPECT_EQ(calls[static_cast<std::size_t>(i)], expected);
    }
  }
  set_thread_count(2);
}

TEST(RunOnTeam, SharesALoopAmongItsThreads) {
  set_thread_count(2);
  // Each index waits for the other: one thread alone would never end.
  std::atomic<int> arrived = 0;
  run_on_team([&] {
    parallel_for(2, [&](std::int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
  });
  EXPECT_EQ(arrived, 2);
}

TEST(RunOnTeam, PassesOnExceptionsAndGoesOn) {
  set_thread_count(2);
  int after = 0;
  EXPECT_THROW(run_on_team([&] {
                 EXPECT_THROW(parallel_for(10,
                                           [](std::int64_t i) {
                                             if (i == 5) throw Error("five");
                                           }),
                              Error);
                 parallel_for(10, [](std::int64_t) {});
                 ++after;
                 throw Error("body");
               }),
               Error);
  EXPECT_EQ(after, 1);
  EXPECT_FALSE(in_parallel());
  std::atomic<int> calls = 0;
  parallel_for(5, [&](std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 5);
}

TEST(RunOnTeam, NestsOnTheCallingThread) {
  set_thread_count(2);
  std::atomic<int> calls = 0;
  parallel_for(3,
               [&](std::int64_t) { run_on_team([&] { parallel_for(5, [&](std::int64_t) { ++calls; }); }); });
  run_on_team([&] { run_on_team([&] { parallel_for(5, [&](std::int64_t) { ++calls; }); }); });
  EXPECT_EQ(calls, 20);
}

TEST(Threads, RefusesNone) { EXPECT_THROW(set_thread_count(0), UsageError); }

}  // namespace
}  // namespace linnet
