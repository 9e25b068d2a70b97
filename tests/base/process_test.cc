// Contexts in child processes, and where the system refuses threads.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "linnet/context.h"
#include "linnet/error.h"
#include "support/child.h"

namespace linnet {
namespace {

/// Whether the context computes what it should, a few times.
bool works(Context& context) {
  for (int loop = 0; loop < 20; ++loop) {
    std::vector<int> calls(100);
    parallel_for(context, 100, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    if (calls != std::vector<int>(100, 1)) return false;
  }
  return true;
}

TEST(ChildProcess, UsesAContextOfItsParent) {
  if (!children_work) GTEST_SKIP();
  Context context(4);
  ASSERT_TRUE(works(context));
  EXPECT_EQ(in_child([&] { return works(context); }), 0);
  // Also where the threads sleep.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(in_child([&] { return works(context); }), 0);
  EXPECT_TRUE(works(context)) << "in the parent, after its children";
}

TEST(ChildProcess, MakesContextsOfItsOwn) {
  if (!children_work) GTEST_SKIP();
  Context context(4);
  ASSERT_TRUE(works(context));
  EXPECT_EQ(in_child([] {
              Context own(4);
              Context moved = std::move(own);
              return works(moved) && works(moved);
            }),
            0);
}

// The system gives the memory of threads that a child does not have, and with it their names, to threads that
// the child starts.
TEST(ChildProcess, DestroysItsParentsContextWhileItsOwnWork) {
  if (!children_work) GTEST_SKIP();
  auto context = std::make_unique<Context>(8);
  ASSERT_TRUE(works(*context));
  EXPECT_EQ(in_child([&] {
              auto own = std::make_unique<Context>(8);
              const bool before = works(*own) && works(*context);
              context.reset();
              const bool after = works(*own);
              own.reset();
              return before && after;
            }),
            0);
}

TEST(ChildProcess, OfAChild) {
  if (!children_work) GTEST_SKIP();
  Context context(3);
  EXPECT_EQ(in_child([&] {
              Context own(3);
              return works(context) && works(own) &&
                     in_child([&] { return works(context) && works(own); }) == 0 && works(own);
            }),
            0);
}

std::int64_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

/// Whether only the calling thread is left; those that have ended may be listed for another moment.
bool alone() {
  for (int tries = 0; tries < 5000 && threads_of_this_process() > 1; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_of_this_process() == 1;
}

TEST(TooManyThreads, AreAnErrorAndLeaveNoneBehind) {
  if (!children_work) GTEST_SKIP();
  // Each thread's stack takes megabytes of addresses.
  EXPECT_EQ(in_child([] {
              if (!limit_addresses(std::size_t{100} << 20)) return false;
              for (int tries = 0; tries < 3; ++tries) {
                try {
                  Context context(Context::most_threads);
                  return false;
                } catch (const Error& error) {
                  if (!std::string(error.what()).starts_with("[context] expected 1024 threads, got "))
                    return false;
                }
                if (!alone()) return false;
              }
              Context few(2);
              return works(few);
            }),
            0);
}

TEST(TooManyThreads, NorDoesAnyLackOfMemoryEndTheProgram) {
  if (!children_work) GTEST_SKIP();
  for (std::size_t more = 0; more < std::size_t{32} << 20; more += std::size_t{1} << 20)
    EXPECT_EQ(in_child([more] {
                if (!limit_addresses(more)) return false;
                try {
                  Context context(Context::most_threads);
                } catch (const Error&) {
                  return alone();
                } catch (const std::bad_alloc&) {
                  return alone();
                }
                return false;
              }),
              0)
        << more << " bytes";
}

}  // namespace
}  // namespace linnet
