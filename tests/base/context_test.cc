#include "linnet/context.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/context_impl.h"
#include "base/float_mode.h"
#include "base/parallel.h"
#include "base/sanitizers.h"
#include "base/workspace.h"
#include "linnet/error.h"

namespace linnet {
namespace {

TEST(Context, CallsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Context context(threads);
    EXPECT_EQ(context.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
        parallel_for(context, count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
        for (const auto& call : calls) ASSERT_EQ(call, 1) << threads << " threads, " << count << " indices";
      }
    }
  }
}

TEST(Context, UsesAllItsThreads) {
  Context context(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> arrived{0};
  parallel_for(context, 3, [&](std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
    ++arrived;
    mutex.unlock();
    while (arrived < 3) std::this_thread::yield();  // so that no thread can take two
    mutex.lock();
  });
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_TRUE(seen.contains(std::this_thread::get_id()));
}

TEST(Context, NestedLoopsStayOnTheirThread) {
  Context context(3);
  parallel_for(context, 8, [&](Context& own, std::int64_t) {
    EXPECT_EQ(own.threads(), 1);
    const auto here = std::this_thread::get_id();
    parallel_for(own, 5, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
  });
}

TEST(Context, ALoopOfOneIndexGetsTheWholeContext) {
  Context context(2);
  parallel_for(context, 1, [&](Context& own, std::int64_t) { EXPECT_EQ(&own, &context); });
}

TEST(Context, ThrowsTheFirstExceptionAgain) {
  Context context(2);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> calls{0};
    EXPECT_THROW(parallel_for(context, 10,
                              [&](std::int64_t i) {
                                ++calls;
                                if (i == 3) throw std::runtime_error("3");
                              }),
                 std::runtime_error);
    EXPECT_EQ(calls, 10);
  }
}

TEST(Context, TheExceptionOfTheLowestIndexIsThrownWhicheverThreadIsFirst) {
  Context context(2);
  std::atomic<int> late{0};
  for (int round = 0; round < 50; ++round)
    EXPECT_THROW(parallel_for(context, 6,
                              [&](std::int64_t i) {
                                if (i == 2) {
                                  for (int k = 0; k < 2000; ++k) ++late;
                                  throw std::out_of_range("2");
                                }
                                if (i > 2) throw std::runtime_error("later");
                              }),
                 std::out_of_range);
}

TEST(Context, ALoopEndsWithTheThreadThatIsCancelledInIt) {
#if defined(LINNET_ADDRESS_SANITIZER)
  GTEST_SKIP() << "the sanitizer does not follow the stacks of cancelled threads";
#endif
  struct Work {
    Context context{2};
    std::atomic<int> done{0};
    std::atomic<bool> begun{false}, ended{false};
  } work;
  const auto loop = [](void* of) -> void* {
    Work& work = *static_cast<Work*>(of);
    const std::thread::id caller = std::this_thread::get_id();
    parallel_for(work.context, 4, [&](std::int64_t) {
      if (std::this_thread::get_id() == caller) {
        work.begun = true;
        for (;;) usleep(1000);  // where a thread may be cancelled
      }
      while (!work.begun) usleep(100);
      usleep(2000);
      ++work.done;
      throw std::runtime_error("of the loop that has ended");
    });
    work.ended = true;
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, loop, &work), 0);
  while (!work.begun) usleep(100);
  pthread_cancel(thread);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_FALSE(work.ended);
  // The other thread is through with what it had begun, and the context is free.
  const int done = work.done;
  int sum = 0;
  std::mutex mutex;
  parallel_for(work.context, 3, [&](std::int64_t i) {
    const std::lock_guard lock(mutex);
    sum += static_cast<int>(i);
  });
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(work.done, done);
}

TEST(Context, BlocksCoverTheRange) {
  Context context(2);
  std::vector<std::atomic<int>> calls(103);
  parallel_blocks(context, 103, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    EXPECT_LE(end - begin, 10);
    for (std::int64_t i = begin; i < end; ++i) ++calls[static_cast<std::size_t>(i)];
  });
  for (const auto& call : calls) EXPECT_EQ(call, 1);
}

TEST(Context, RunsCoverTheRangeAndSayWhatFollows) {
  Context context(2);
  for (const std::int64_t count : {0, 1, 63, 64, 129, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
    std::atomic<int> announced{0};
    parallel_runs(context, count, [&](Context&, std::int64_t i, std::int64_t next) {
      ++calls[static_cast<std::size_t>(i)];
      if (next < 0) return;
      EXPECT_EQ(next, i + 1);
      ++announced;
    });
    for (const auto& call : calls) EXPECT_EQ(call, 1);
    EXPECT_EQ(announced > 0, count > 128);
  }
}

TEST(Context, WorksAfterItsThreadsFellAsleep) {
  Context context(4);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> calls{0};
    parallel_for(context, 16, [&](std::int64_t) { ++calls; });
    EXPECT_EQ(calls, 16);
  }
}

TEST(Context, SeveralWorkAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> sum{0};
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      Context context(3);
      for (int loop = 0; loop < 200; ++loop) parallel_for(context, 10, [&](std::int64_t k) { sum += k; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 45);
}

TEST(Context, RefusesASecondCallAtOnce) {
  Context context(2);
  EXPECT_THROW(parallel_for(context, 2, [&](std::int64_t) { parallel_for(context, 2, [](std::int64_t) {}); }),
               Error);
  std::atomic<int> calls{0};
  parallel_for(context, 2, [&](std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(Context, RefusesNumbersOfThreadsThatCannotBe) {
  EXPECT_THROW(Context(-1), UsageError);
  EXPECT_THROW(Context(Context::most_threads + 1), UsageError);
  EXPECT_EQ(Context(0).threads(), available_processors());
}

TEST(Context, ThreadsTakeOverTheFloatMode) {
  Context context(4);
  const auto product = [&](std::vector<float>& results) {
    std::atomic<int> arrived{0};
    parallel_for(context, 4, [&](std::int64_t i) {
      ++arrived;
      while (arrived < 4) std::this_thread::yield();
      volatile float tiny = 1e-38f;
      results[static_cast<std::size_t>(i)] = tiny * 0.1f;
    });
  };
  std::vector<float> plain(4), flushed(4);
  product(plain);
  {
    const FlushSubnormals flush;
    product(flushed);
  }
  std::vector<float> again(4);
  product(again);
  for (int i = 0; i < 4; ++i) {
    EXPECT_GT(plain[i], 0) << i;
    EXPECT_EQ(again[i], plain[i]) << i;
#if defined(__SSE__)
    EXPECT_EQ(flushed[i], 0) << i;
#endif
  }
}

TEST(Workspace, IsAlignedApartAndGivenBack) {
  Context context(1);
  float* first;
  {
    Workspace outer(context);
    first = outer.take(3);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
    float* second = outer.take(1 << 20);
    EXPECT_GE(second, first + 16);
    first[2] = 1;
    {
      Workspace inner(context);
      inner.take_zeroed(100)[99] = 2;
    }
    EXPECT_EQ(first[2], 1);
    EXPECT_EQ(outer.take(2, 3).shape()[1], 3);
    EXPECT_EQ(outer.array<std::int64_t>(7).size(), 7u);
  }
}

TEST(Workspace, ASecondUseOfTheSameSizeTakesNoMoreMemory) {
  Context context(1);
  const auto use = [&] {
    Workspace outer(context);
    outer.take(100000);
    Workspace inner(context);
    for (int i = 1; i < 20; ++i) inner.take(static_cast<std::size_t>(i) * 10000);
  };
  use();
  const std::size_t bytes = context.workspace_bytes();
  EXPECT_GE(bytes, (100000u + 190u * 10000u) * sizeof(float));
  EXPECT_LE(bytes, (100000u + 190u * 10000u) * sizeof(float) * 21 / 20);
  use();
  EXPECT_EQ(context.workspace_bytes(), bytes);
}

TEST(Workspace, RefusesSizesThatOverflow) {
  Context context(1);
  Workspace workspace(context);
  EXPECT_THROW(workspace.take(std::int64_t{1} << 40, std::int64_t{1} << 40), Error);
  EXPECT_THROW(workspace.array<double>(std::int64_t{1} << 61), Error);
}

}  // namespace
}  // namespace linnet
