// The order of quadratic backward passes: chunks of queries with all of their keys at once, or with chunks of
// keys.
#include "attention/rounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "attention/family_cases.h"

namespace linnet::test {
namespace {

constexpr std::uint64_t kSeed = 95;

/// Windows, segments of several lengths, few chunks and masks that no chunk is free of.
std::vector<Mask> masks_of(std::int64_t length) {
  std::vector<std::int64_t> bounds = {0};
  while (bounds.back() < length) bounds.push_back(std::min(length, bounds.back() + 90 + bounds.back() / 3));
  return {Mask::full(),
          Mask::causal(),
          Mask::window(128, 0),
          Mask::window(700, 20),
          Mask::window(0, 0).with_key_lengths({length / 2, length}),
          Mask::causal().with_segments(bounds),
          Mask::full().with_segments(bounds).with_key_lengths({length - 7, length / 3}),
          Mask::prefix({length / 4})};
}

TEST(Rounds, EveryKeyMeetsEveryChunkThatSeesItOnce) {
  std::size_t announcements = 0;
  for (const std::int64_t length : {1, 100, 385, 1000, 2000}) {
    for (const Mask& mask : masks_of(length)) {
      for (const std::int64_t heads : {1, 8}) {
        for (const bool whole : {false, true}) {
          SCOPED_TRACE(fmt::format("{}, {} tokens, {} heads, whole {}", mask.name(), length, heads, whole));
          const AttentionSizes sizes = {2, length, length, heads, 4, 4};
          const Sights sights(any_context(), mask, sizes);
          const std::int64_t chunk = 96, keys = 64;
          std::map<std::array<std::int64_t, 3>, std::vector<int>> met;
          std::vector<std::array<std::int64_t, 3>> announced;
          std::mutex mutex;
          Rounds(sights, sizes, chunk, keys, whole)
              .run(any_context(), [&](Context&, const Rounds::Meeting& meeting, const Rounds::Meeting* next) {
                const auto& [b, h, first, range] = meeting;
                const std::lock_guard lock(mutex);
                if (next != nullptr && next->keys.begin < next->keys.end)
                  announced.push_back({next->b, next->h, next->first_query});
                std::vector<int>& counts = met[{b, h, first}];
                counts.resize(static_cast<std::size_t>(length));
                for (std::int64_t j = range.begin; j < range.end; ++j) ++counts[static_cast<std::size_t>(j)];
              });
          for (const auto& next : announced) ASSERT_TRUE(met.contains(next));
          announcements += announced.size();
          for (std::int64_t b = 0; b < 2; ++b) {
            for (std::int64_t h = 0; h < heads; ++h) {
              for (std::int64_t first = 0; first < length; first += chunk) {
                const Mask::Interval seen = sights.reach(b, first, std::min(chunk, length - first));
                const std::vector<int>& counts = met[{b, h, first}];
                for (std::int64_t j = seen.begin; j < seen.end; ++j)
                  ASSERT_EQ(counts.empty() ? 0 : counts[static_cast<std::size_t>(j)], 1)
                      << "key " << j << " and the queries from " << first;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(announcements, 0u);
}

/// Under which several chunks meet all of their keys in one round.
std::vector<Mask> short_masks() { return {masks_of(1300)[2], masks_of(1300)[5]}; }

TEST(Rounds, GradientsMatchTheReferenceOverManyChunks) {
  AttentionOptions options;
  options.family = Family::softmax;
  for (const Mask& mask : short_masks()) {
    SCOPED_TRACE(mask.name());
    Problem problem({2, 1300, 1300, 4, 4, 4}, mask, kSeed);
    expect_reference(options, problem, Exact(options, problem, true), 100);
  }
}

TEST(Rounds, BitsDoNotDependOnThreads) {
  AttentionOptions options;
  options.family = Family::softmax;
  for (const Mask& mask : short_masks()) {
    SCOPED_TRACE(mask.name());
    expect_bits_of_any_thread_count(options, {2, 1300, 1300, 4, 4, 4}, mask);
  }
}

}  // namespace
}  // namespace linnet::test
