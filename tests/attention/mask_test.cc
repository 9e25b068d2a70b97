#include "linnet/mask.h"

#include <gtest/gtest.h>

#include <limits>

#include "attention/mask_cases.h"
#include "attention/mask_geometry.h"
#include "linnet/error.h"

namespace linnet {
namespace {

using test::all_masks;
using test::Bounds;
using test::MaskCase;

constexpr std::int64_t batch = 2;
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

/// Calls body for every mask at awkward sizes, as many queries as keys and not.
void for_each_mask(
    const std::function<void(const MaskCase&, std::int64_t queries, std::int64_t keys)>& body) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{0, 0},   {1, 1},   {2, 2},   {33, 33},
                                                                    {64, 64}, {97, 97}, {0, 5},   {5, 0},
                                                                    {1, 70},  {70, 1},  {40, 65}, {65, 40}};
  for (const auto& [queries, keys] : sizes) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      for (const MaskCase& mask : all_masks(batch, queries, keys, 1000 * seed)) {
        SCOPED_TRACE(fmt::format("{}, {} queries, {} keys, seed {}", mask.what, queries, keys, seed));
        ASSERT_NO_THROW(mask.mask.check("test", batch, queries, keys));
        body(mask, queries, keys);
      }
    }
  }
}

TEST(Mask, IntervalsNeverDecreaseAndStayInside) {
  for_each_mask([](const MaskCase& mask, std::int64_t queries, std::int64_t keys) {
    for (std::int64_t b = 0; b < batch; ++b) {
      Mask::Interval before;
      for (std::int64_t i = 0; i < queries; ++i) {
        const Mask::Interval seen = mask.mask.interval(b, i, keys);
        ASSERT_LE(before.begin, seen.begin) << i;
        ASSERT_LE(before.end, seen.end) << i;
        ASSERT_LE(seen.begin, seen.end) << i;
        ASSERT_LE(seen.end, keys) << i;
        before = seen;
      }
    }
  });
}

TEST(Mask, IntervalsMeanWhatTheyShould) {
  for_each_mask([](const MaskCase& mask, std::int64_t queries, std::int64_t keys) {
    const bool boolean = mask.mask.kind() == Mask::Kind::boolean;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t j = 0; j < keys; ++j) {
          const bool inside = mask.mask.interval(b, i, keys).contains(j);
          ASSERT_TRUE(boolean ? inside || !mask.sees(b, i, j) : inside == mask.sees(b, i, j))
              << i << ", " << j;
        }
  });
}

TEST(Mask, SeenByIsTheInverseOfInterval) {
  for_each_mask([](const MaskCase& mask, std::int64_t queries, std::int64_t keys) {
    for (std::int64_t b = 0; b < batch; ++b) {
      Mask::Interval before;
      for (std::int64_t j = 0; j < keys; ++j) {
        const Mask::Interval by = seen_by(mask.mask, b, j, queries, keys);
        ASSERT_LE(before.begin, by.begin) << j;
        ASSERT_LE(before.end, by.end) << j;
        ASSERT_LE(by.begin, by.end) << j;
        ASSERT_LE(by.end, queries) << j;
        before = by;
        for (std::int64_t i = 0; i < queries; ++i)
          ASSERT_EQ(by.contains(i), mask.mask.interval(b, i, keys).contains(j)) << i << ", " << j;
      }
    }
  });
}

// In tiles of any size, and in full.
TEST(Mask, FillSaysWhatIsSeen) {
  for_each_mask([](const MaskCase& mask, std::int64_t queries, std::int64_t keys) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{32, 32}, {7, 50}, {100, 100}}) {
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i0 = 0; i0 < queries; i0 += rows)
          for (std::int64_t j0 = 0; j0 < keys; j0 += columns) {
            const std::int64_t height = std::min(rows, queries - i0), width = std::min(columns, keys - j0);
            // Rows of the tile apart: what lies between them is not touched.
            std::vector<std::uint8_t> memory(height * (width + 3), 77);
            const View<std::uint8_t> tile(memory.data(), {height, width}, {width + 3, 1});
            mask.mask.fill(tile, b, i0, j0, keys);
            for (std::int64_t i = 0; i < height; ++i) {
              for (std::int64_t j = 0; j < width; ++j)
                ASSERT_EQ(tile(i, j), mask.sees(b, i0 + i, j0 + j) ? 1 : 0) << i0 + i << ", " << j0 + j;
              ASSERT_EQ(memory[i * (width + 3) + width], 77);
            }
          }
    }
  });
}

TEST(Mask, SegmentsHoldTheirTokens) {
  const Mask mask = Mask::causal().with_segments({{0, 4, 5, 9}, {0, 9}});
  EXPECT_TRUE(mask.has_segments());
  for (std::int64_t i = 0; i < 9; ++i) {
    const Mask::Interval first = i < 4   ? Mask::Interval{0, 4}
                                 : i < 5 ? Mask::Interval{4, 5}
                                         : Mask::Interval{5, 9};
    EXPECT_EQ(segment_of(mask, 0, i, 9), first);
    EXPECT_EQ(segment_of(mask, 1, i, 9), (Mask::Interval{0, 9}));
    EXPECT_EQ(segment_of(Mask::full(), 0, i, 9), (Mask::Interval{0, 9}));
  }
}

TEST(Mask, WidestWindowsDoNotOverflow) {
  for (std::int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(Mask::window(most, most).interval(0, i, 9), (Mask::Interval{0, 9}));
    EXPECT_EQ(Mask::window(most, 0).interval(0, i, 9), (Mask::Interval{0, i + 1}));
    EXPECT_EQ(Mask::window(0, most).interval(0, i, 9), (Mask::Interval{i, 9}));
  }
}

TEST(Mask, StatesGoWithCausalAndPrefix) {
  for (const MaskCase& mask : all_masks(batch, 9, 9, 5)) {
    const Mask::Kind kind = mask.mask.kind();
    EXPECT_EQ(mask.mask.takes_state(), kind == Mask::Kind::causal || kind == Mask::Kind::prefix) << mask.what;
  }
}

std::string refusal(const Mask& mask, std::int64_t queries = 7, std::int64_t keys = 7) {
  try {
    mask.check("test", batch, queries, keys);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Mask, AsManyQueriesAsKeysWhereTheyPairUp) {
  const auto sentence = [](const std::string& kind) {
    return "[test] expected as many queries as keys under a " + kind + " mask, got 5 and 7";
  };
  EXPECT_EQ(refusal(Mask::causal(), 5, 7), sentence("causal"));
  EXPECT_EQ(refusal(Mask::prefix({2}), 5, 7), sentence("prefix"));
  EXPECT_EQ(refusal(Mask::window(1, 1), 5, 7), sentence("window"));
  EXPECT_EQ(refusal(Mask::full().with_segments({0, 7}), 5, 7),
            "[test] expected as many queries as keys with segments, got 5 and 7");
  EXPECT_EQ(refusal(Mask::full(), 5, 7), "nothing was thrown");
}

TEST(Mask, LengthsOutOfRangeAreRefused) {
  EXPECT_EQ(refusal(Mask::full().with_key_lengths({1})),
            "[test] expected a key length for each of 2 batch entries, got 1");
  EXPECT_EQ(refusal(Mask::full().with_key_lengths({1, 2, 3})),
            "[test] expected a key length for each of 2 batch entries, got 3");
  EXPECT_EQ(refusal(Mask::full().with_key_lengths({})),
            "[test] expected a key length for each of 2 batch entries, got 0");
  EXPECT_EQ(refusal(Mask::full().with_key_lengths({1, 8})), "[test] expected key lengths from 0 to 7, got 8");
  EXPECT_EQ(refusal(Mask::full().with_key_lengths({-1, 7})),
            "[test] expected key lengths from 0 to 7, got -1");
  EXPECT_EQ(refusal(Mask::prefix({8})), "[test] expected prefix lengths from 0 to 7, got 8");
  EXPECT_EQ(refusal(Mask::prefix({3, -2})), "[test] expected prefix lengths from 0 to 7, got -2");
  EXPECT_EQ(refusal(Mask::prefix({1, 2, 3})),
            "[test] expected a prefix length for each of 2 batch entries, got 3");
  EXPECT_EQ(refusal(Mask::prefix({})), "[test] expected a prefix length for each of 2 batch entries, got 0");
}

TEST(Mask, NoSegmentsAtAllAreRefused) {
  const auto sentence_of = [](std::int64_t batch) {
    try {
      Mask::window(1, 0).with_segments(std::vector<Bounds>()).check("test", batch, 5, 5);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const std::int64_t batch : {0, 2})
    EXPECT_EQ(sentence_of(batch),
              fmt::format("[test] expected segment bounds for each of {} batch entries or for "
                          "all, got 0 lists",
                          batch));
}

TEST(Mask, NegativeWindowsAreRefused) {
  EXPECT_EQ(refusal(Mask::window(-1, 0)),
            "[test] expected a window of at least 0 keys to either side, got -1 and 0");
  EXPECT_EQ(refusal(Mask::window(3, -2)),
            "[test] expected a window of at least 0 keys to either side, got 3 and -2");
}

TEST(Mask, IntervalsOutOfRangeOrDecreasingAreRefused) {
  EXPECT_EQ(refusal(Mask::intervals({0, 0, 0}, {1, 2, 7}), 3, 7), "nothing was thrown");
  EXPECT_EQ(refusal(Mask::intervals({0, 3, 6}, {1, 2, 7}), 3, 7), "nothing was thrown");
  EXPECT_EQ(refusal(Mask::intervals({0, 0}, {1, 2, 7}), 3, 7),
            "[test] expected an interval's begin for each of 3 queries, got 2");
  EXPECT_EQ(refusal(Mask::intervals({0, 0, 0}, {1, 2, 7, 7}), 3, 7),
            "[test] expected an interval's end for each of 3 queries, got 4");
  EXPECT_EQ(refusal(Mask::intervals({0, 0, 0}, {1, 2, 8}), 3, 7),
            "[test] expected the interval of query 2 to end from 0 to 7, got 8");
  EXPECT_EQ(refusal(Mask::intervals({-1, 0, 0}, {1, 2, 3}), 3, 7),
            "[test] expected the interval of query 0 to begin from 0 to 7, got -1");
  const std::string decreasing = "[test] expected intervals that never decrease, got one that ";
  EXPECT_EQ(refusal(Mask::intervals({0, 3, 2}, {4, 4, 4}), 3, 7),
            decreasing + "begins at 2 for query 2 after 3; a boolean mask takes any");
  EXPECT_EQ(refusal(Mask::intervals({0, 0, 0}, {4, 3, 4}), 3, 7),
            decreasing + "ends at 3 for query 1 after 4; a boolean mask takes any");
}

TEST(Mask, SegmentsThatOverlapOrLeaveGapsAreRefused) {
  const auto with = [](Bounds bounds) { return refusal(Mask::causal().with_segments(std::move(bounds))); };
  EXPECT_EQ(with({0, 3, 7}), "nothing was thrown");
  EXPECT_EQ(with({0, 4, 3, 7}),
            "[test] expected segments that do not overlap, their bounds increasing, got 3 after 4");
  EXPECT_EQ(with({0, 4, 4, 7}),
            "[test] expected segments that do not overlap, their bounds increasing, got 4 after 4");
  EXPECT_EQ(with({1, 4, 7}), "[test] expected segment bounds from 0 to 7, got 1 … 7");
  EXPECT_EQ(with({0, 4, 6}), "[test] expected segment bounds from 0 to 7, got 0 … 6");
  EXPECT_EQ(with({0, 9, 7}),
            "[test] expected segments that do not overlap, their bounds increasing, got 7 after 9");
  EXPECT_EQ(with({0}), "[test] expected segment bounds from 0 to 7, got 0 … 0");
  EXPECT_EQ(with({}), "[test] expected segment bounds from 0 to 7, got none … none");
  const std::vector<Bounds> lists(3, Bounds{0, 7});
  EXPECT_EQ(refusal(Mask::causal().with_segments(lists)),
            "[test] expected segment bounds for each of 2 batch entries or for all, got 3 lists");
}

TEST(Mask, BooleanMatricesOfAnotherShapeAreRefused) {
  std::vector<std::uint8_t> ones(1000, 1);
  const auto of = [&](std::initializer_list<std::int64_t> shape) {
    return refusal(Mask::boolean(View<const std::uint8_t>(ones.data(), shape)), 5, 7);
  };
  const std::string sentence = "[test] expected a boolean mask [2 or 1, 5, 7], got ";
  EXPECT_EQ(of({1, 5, 7}), "nothing was thrown");
  EXPECT_EQ(of({2, 5, 7}), "nothing was thrown");
  EXPECT_EQ(of({3, 5, 7}), sentence + "[3, 5, 7]");
  EXPECT_EQ(of({2, 7, 5}), sentence + "[2, 7, 5]");
  EXPECT_EQ(of({2, 5, 8}), sentence + "[2, 5, 8]");
  EXPECT_EQ(of({5, 7}), sentence + "[5, 7]");
  EXPECT_EQ(of({2, 1, 5, 7}), sentence + "[2, 1, 5, 7]");
  EXPECT_EQ(refusal(Mask::boolean(View<const std::uint8_t>()), 5, 7), sentence + "[]");
  EXPECT_EQ(refusal(Mask::boolean(View<const std::uint8_t>(nullptr, {1, 5, 7})), 5, 7),
            "[test] expected memory for a boolean mask, got a null pointer");
  EXPECT_NE(refusal(Mask::boolean(Mask::BooleanTile()), 5, 7), "nothing was thrown");
}

TEST(Mask, SaysItsName) {
  EXPECT_EQ(Mask::full().name(), "full");
  EXPECT_EQ(Mask::causal().with_key_lengths({3}).name(), "causal, key lengths");
  EXPECT_EQ(Mask::window(1, 2).with_segments({0, 3}).with_key_lengths({3}).name(),
            "window, segments, key lengths");
  EXPECT_EQ(Mask::prefix({1}).name(), "prefix");
  EXPECT_EQ(Mask::intervals({}, {}).name(), "intervals");
  EXPECT_EQ(Mask::boolean(Mask::BooleanTile()).name(), "boolean");
}

TEST(Mask, IsAValue) {
  const Mask causal = Mask::causal();
  Mask copy = causal.with_key_lengths({2}).with_segments({0, 1, 4});
  EXPECT_EQ(causal.name(), "causal");
  EXPECT_EQ(copy.interval(0, 3, 4), (Mask::Interval{1, 2}));
  copy = copy.with_key_lengths({4});
  EXPECT_EQ(copy.interval(0, 3, 4), (Mask::Interval{1, 4}));
  EXPECT_EQ(visible_keys(copy, 0, 4), 4);
  EXPECT_EQ(visible_keys(causal, 0, 4), 4);
}

}  // namespace
}  // namespace linnet
