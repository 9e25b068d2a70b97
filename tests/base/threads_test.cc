#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(Threads, RefusesNone) { EXPECT_THROW(set_thread_count(0), UsageError); }

}  // namespace
}  // namespace linnet
