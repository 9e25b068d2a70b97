#include "data/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace linnet {
namespace {

using testing::Each;
using testing::ElementsAre;

// {source, begin, counts from, end}
std::vector<std::array<std::int64_t, 4>> all_of(const Windows& windows) {
  std::vector<std::array<std::int64_t, 4>> result;
  for (std::int64_t i = 0; i < windows.size(); ++i) {
    const Window window = windows[i];
    result.push_back(
        {static_cast<std::int64_t>(window.source), window.begin, window.counts_from, window.end});
  }
  return result;
}

using Row = std::array<std::int64_t, 4>;

TEST(Windows, EveryOneOfTheStretches) {
  EXPECT_THAT(all_of(Windows::every({{0, 0, 5}, {1, 2, 5}, {1, 7, 11}}, 3)),
              ElementsAre(Row{0, 0, 0, 5}, Row{0, 1, 1, 5}, Row{0, 2, 2, 5}, Row{1, 2, 2, 5},
                          Row{1, 7, 7, 11}, Row{1, 8, 8, 11}));
  EXPECT_EQ(Windows().size(), 0);
  EXPECT_EQ(Windows::every({}, 3).size(), 0);
}

TEST(Windows, OverlappingOnesAsByHand) {
  // Steps 10 … 16 in windows of 4, each with 2 of context; the last one ends with the stretch.
  EXPECT_THAT(all_of(Windows::overlapping({{0, 10, 17}}, 4)),
              ElementsAre(Row{0, 8, 10, 17}, Row{0, 10, 12, 17}, Row{0, 12, 14, 17}, Row{0, 13, 16, 17}));
  // From the beginning of a source, and from its second step.
  EXPECT_THAT(all_of(Windows::overlapping({{3, 0, 7}}, 4)),
              ElementsAre(Row{3, 0, 0, 7}, Row{3, 2, 4, 7}, Row{3, 3, 6, 7}));
  EXPECT_THAT(all_of(Windows::overlapping({{0, 1, 5}}, 4)), ElementsAre(Row{0, 0, 1, 5}, Row{0, 1, 4, 5}));
  // A stretch of one step has a whole window before it, if there is one.
  EXPECT_THAT(all_of(Windows::overlapping({{0, 10, 11}}, 4)), ElementsAre(Row{0, 7, 10, 11}));
  EXPECT_THAT(all_of(Windows::overlapping({{0, 0, 1}, {1, 4, 6}}, 4)),
              ElementsAre(Row{0, 0, 0, 1}, Row{1, 2, 4, 6}));
  // Odd lengths: 3 of 5 steps are context.
  EXPECT_THAT(all_of(Windows::overlapping({{0, 10, 16}}, 5)),
              ElementsAre(Row{0, 7, 10, 16}, Row{0, 9, 12, 16}, Row{0, 11, 14, 16}));
}

TEST(Windows, OnesThatEndAtEachStepAsByHand) {
  // Patches of two steps, three of them in a window.
  EXPECT_THAT(all_of(Windows::ending_at_each({{0, 7, 9}, {2, 0, 4}}, 6, 2)),
              ElementsAre(Row{0, 3, 7, 8}, Row{0, 4, 8, 9}, Row{2, 0, 0, 1}, Row{2, 1, 1, 2}, Row{2, 0, 2, 3},
                          Row{2, 1, 3, 4}));
}

TEST(Windows, EveryStepCountsOnceWithContext) {
  for (const std::int64_t length : {1, 2, 3, 4, 7, 8, 64})
    for (const std::int64_t before : {0, 1, 2, 3, 31, 32, 33, 100})
      for (const std::int64_t steps : {1, 2, 3, 4, 8, 31, 32, 33, 100}) {
        const std::int64_t context = length == 1 ? 0 : (length + 1) / 2;
        const Windows windows =
            Windows::overlapping({{0, before, before + steps}, {1, before, before + steps}}, length);
        std::vector<int> counted(static_cast<std::size_t>(2 * steps));
        for (std::int64_t i = 0; i < windows.size(); ++i) {
          const Window window = windows[i];
          ASSERT_GE(window.begin, 0);
          // A window ends behind its stretch only where the source has no step before it.
          if (window.begin > 0) {
            ASSERT_LE(window.begin + length, before + steps);
          }
          const bool first = window.counts_from == before;
          if (!first || before >= context) {
            ASSERT_GE(window.counts_from - window.begin, context);
          }
          const std::int64_t end = std::min(window.begin + length, window.end);
          ASSERT_LT(window.counts_from, end);
          for (std::int64_t step = window.counts_from; step < end; ++step)
            ++counted[window.source * static_cast<std::size_t>(steps) +
                      static_cast<std::size_t>(step - before)];
        }
        ASSERT_THAT(counted, Each(1)) << length << ' ' << before << ' ' << steps;
      }
}

}  // namespace
}  // namespace linnet
