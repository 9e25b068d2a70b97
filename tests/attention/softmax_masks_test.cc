// Softmax attention under every mask, in f32 and bf16, against the double-precision reference.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "attention/arguments.h"
#include "attention/softmax_cases.h"
#include "kernels/targets.h"
#include "linnet/error.h"

namespace linnet::testing {
namespace {

constexpr std::uint64_t kSeed = 40;

/// The same pairs however they are cut into tiles: no key of some blocks, every one of others, and in the
/// rest one of three.
bool visible_pair(std::int64_t b, std::int64_t i, std::int64_t j) {
  const std::int64_t block = (i / 60 + 2 * (j / 70) + b) % 3;
  if (block == 0) return false;
  return block == 1 || (i * 7 + j * 11 + i * j) % 3 == 0;
}

void fill_pairs(View<std::uint8_t> tile, std::int64_t b, std::int64_t first_query, std::int64_t first_key) {
  for (std::int64_t i = 0; i < tile.extent(0); ++i)
    for (std::int64_t j = 0; j < tile.extent(1); ++j)
      tile(i, j) = visible_pair(b, first_query + i, first_key + j) ? 1 : 0;
}

/// Intervals with queries that see nothing at the beginning, the end and, where begin meets end, between.
Mask steps(std::int64_t queries, std::int64_t keys) {
  std::vector<std::int64_t> begin, end;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t place = i * keys / std::max<std::int64_t>(queries, 1);
    begin.push_back(std::min(keys, place / 10 * 10));
    end.push_back(std::min(keys, i % 20 < 5 ? begin.back() : begin.back() + 10 + (i / 20) % 30));
    if (i > 0) end.back() = std::max(end.back(), end[static_cast<std::size_t>(i) - 1]);
  }
  return Mask::intervals(std::move(begin), std::move(end));
}

std::vector<std::int64_t> bounds(std::int64_t length, std::int64_t step) {
  std::vector<std::int64_t> result = {0};
  while (result.back() < length) {
    result.push_back(std::min(length, result.back() + step));
    step += 17;
  }
  return result;
}

/// Masks for two batch entries of `length` queries and keys.
std::vector<Mask> masks_of(std::int64_t length) {
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> lengths = {length - length / 4, length / 3};
  const std::vector<std::vector<std::int64_t>> packed = {bounds(length, 9), bounds(length, 50)};
  const Mask boolean = Mask::boolean(fill_pairs);
  return {Mask::full(),
          Mask::causal(),
          Mask::prefix({length / 3}),
          Mask::prefix({length, length / 5}),
          Mask::window(0, 0),
          Mask::window(5, 0),
          Mask::window(0, 3),
          Mask::window(49, 2),
          Mask::window(far, 10),
          Mask::window(90, far),
          steps(length, length),
          boolean,
          Mask::full().with_segments(packed),
          Mask::full().with_segments(packed).with_key_lengths(lengths),
          Mask::causal().with_segments(bounds(length, 30)).with_key_lengths(lengths),
          Mask::prefix({length / 2}).with_segments(packed),
          Mask::prefix({length / 2}).with_key_lengths(lengths),
          Mask::window(20, 7).with_segments(packed).with_key_lengths(lengths),
          steps(length, length).with_segments(packed).with_key_lengths(lengths),
          boolean.with_segments(packed).with_key_lengths(lengths)};
}

void expect_agreement(const Sizes& sizes, const Mask& mask, std::uint64_t seed = kSeed) {
  Case c(sizes, mask, seed);
  SCOPED_TRACE(c.describe(seed));
  c.run();
  c.expect_reference();
}

TEST(SoftmaxMasks, MatchReferenceAtEveryLength) {
  for (const std::int64_t length : {0, 1, 2, 47, 48, 49, 95, 96, 97, 200})
    for (const Mask& mask : masks_of(length)) expect_agreement({2, length, length, 1, 7, 5}, mask);
}

TEST(SoftmaxMasks, MatchReferenceOnEveryInstructionSet) {
  kernels::for_every_target([] {
    for (const Mask& mask : masks_of(115)) expect_agreement({2, 115, 115, 1, 17, 3}, mask);
  });
}

TEST(SoftmaxMasks, MatchReferenceAcrossChunks) {
  // Several blocks and chunks of either side, few of which meet: 384 rows in narrow heads, 96 in wide ones,
  // 192 in the widest.
  for (const Mask& mask :
       {Mask::window(30, 0), Mask::window(400, 3), Mask::causal().with_segments({0, 384, 400, 1000}),
        steps(1000, 1000), Mask::boolean(fill_pairs)})
    expect_agreement({1, 1000, 1000, 1, 4, 3}, mask);
  for (const Mask& mask : {Mask::window(100, 20), Mask::prefix({150}).with_segments({0, 180, 290})})
    expect_agreement({1, 290, 290, 1, 256, 257}, mask);
  expect_agreement({1, 290, 290, 1, 520, 511}, Mask::window(40, 20));
}

TEST(SoftmaxMasks, MatchReferenceAcrossLengths) {
  for (const auto& [queries, keys] :
       {std::pair{1, 300}, {300, 1}, {0, 10}, {10, 0}, {49, 97}, {200, 64}, {1000, 90}, {90, 1000}}) {
    for (const Mask& mask :
         {steps(queries, keys), steps(queries, keys).with_key_lengths({keys, keys / 2}),
          Mask::boolean(fill_pairs), Mask::boolean(fill_pairs).with_key_lengths({keys / 3, keys})})
      expect_agreement({2, queries, keys, 1, 9, 6}, mask);
  }
}

TEST(SoftmaxMasks, QueriesWithoutKeysGiveZeros) {
  for (const Mask& mask : masks_of(150)) {
    Case c({2, 150, 150, 2, 8, 6}, mask, kSeed);
    SCOPED_TRACE(c.describe(kSeed));
    c.run();
    for (std::int64_t row = 0; row < 300; ++row) {
      const auto seen = seen_keys(mask, row / 150, row % 150, 150);
      if (std::count(seen.begin(), seen.end(), 1) != 0) continue;
      for (std::int64_t x = 0; x < 16; ++x) EXPECT_EQ(c.grad_query[row * 16 + x], 0);
      for (std::int64_t x = 0; x < 12; ++x) EXPECT_EQ(c.out[row * 12 + x], 0);
      for (std::int64_t h = 0; h < 2; ++h) EXPECT_EQ(c.normaliser[row * 2 + h], -INFINITY);
    }
  }
}

TEST(SoftmaxMasks, NanStaysWhereItIsSeen) {
  const std::int64_t length = 110, heads = 2, dim = 6;
  for (const Mask& mask : masks_of(length)) {
    Case untouched({2, length, length, heads, dim, dim}, mask, kSeed);
    untouched.run();
    std::vector<std::vector<std::uint8_t>> sees;
    for (std::int64_t i = 0; i < length; ++i) sees.push_back(seen_keys(mask, 1, i, length));
    for (const std::int64_t bad : {0, 50, 96}) {
      for (int which = 0; which < 5; ++which) {
        Case c({2, length, length, heads, dim, dim}, mask, kSeed);
        std::vector<float>* inputs[] = {&c.query, &c.grad_out, &c.key, &c.value, &c.value};
        (*inputs[which])[((length + bad) * heads + 1) * dim + 2] = which == 4 ? INFINITY : NAN;
        c.run();
        SCOPED_TRACE(fmt::format("{}, input {} at {}", c.describe(kSeed), which, bad));
        // The queries that it reaches, and what these reach.
        std::vector<bool> reached(length), passed_on(length);
        for (std::int64_t i = 0; i < length; ++i) {
          reached[i] = which < 2 ? i == bad : sees[i][bad] != 0;
          for (std::int64_t j = 0; reached[i] && j < length; ++j)
            if (sees[i][j] != 0) passed_on[j] = true;
        }
        const auto expect_rows = [&](const std::vector<float>& x, const std::vector<float>& before,
                                     const char* name, const auto& may) {
          for (std::size_t at = 0; at < x.size(); ++at) {
            const std::int64_t row = static_cast<std::int64_t>(at) / dim, i = row / heads % length;
            if (row >= length * heads && row % heads == 1 && may(i)) continue;
            ASSERT_NEAR(x[at], before[at], 1e-5) << name << " row " << i;
          }
        };
        const auto is_reached = [&](std::int64_t i) { return reached[i]; };
        const auto is_passed_on = [&](std::int64_t j) { return passed_on[j]; };
        expect_rows(c.out, untouched.out, "out", [&](std::int64_t i) { return which != 1 && reached[i]; });
        expect_rows(c.grad_query, untouched.grad_query, "gradient of query", is_reached);
        expect_rows(c.grad_key, untouched.grad_key, "gradient of key", is_passed_on);
        expect_rows(c.grad_value, untouched.grad_value, "gradient of value", is_passed_on);
        for (std::int64_t i = 0; which != 1 && i < length; ++i) {
          if (!reached[i] || std::count(sees[i].begin(), sees[i].end(), 1) == 0) continue;
          EXPECT_FALSE(std::isfinite(c.out[((length + i) * heads + 1) * dim + 2])) << "row " << i;
        }
      }
    }
  }
}

TEST(SoftmaxMasks, BitsDoNotDependOnTheThreads) {
  const std::int64_t length = 430;
  for (const Mask& mask : {Mask::window(60, 5), Mask::prefix({100}).with_segments({0, 120, 400, 430}),
                           steps(length, length).with_key_lengths({400, 77}), Mask::boolean(fill_pairs)}) {
    Case one({2, length, length, 3, 128, 70}, mask, kSeed);
    SCOPED_TRACE(one.describe(kSeed));
    Context single(1);
    one.run(true, single);
    for (const int threads : {2, 3, 8}) {
      Case more({2, length, length, 3, 128, 70}, mask, kSeed);
      Context context(threads);
      more.run(true, context);
      EXPECT_EQ(more.out, one.out);
      EXPECT_EQ(more.normaliser, one.normaliser);
      EXPECT_EQ(more.grad_query, one.grad_query);
      EXPECT_EQ(more.grad_key, one.grad_key);
      EXPECT_EQ(more.grad_value, one.grad_value);
    }
  }
}

TEST(SoftmaxMasks, ExtremeInputsStayFinite) {
  for (const float size : {0.0f, 1e-40f, 1e4f}) {
    for (const Mask& mask : masks_of(100)) {
      Case c({2, 100, 100, 1, 8, 8}, mask, kSeed, size);
      SCOPED_TRACE(fmt::format("{}, size {}", c.describe(kSeed), size));
      c.run();
      // Scores of 1e8 are rounded by 8: near ties are decided by that, the largest wins all the same.
      c.expect_reference(size > 1 ? 1e-3 : 1e-5, false);
      for (const auto* x : {&c.out, &c.grad_query, &c.grad_key, &c.grad_value})
        for (const float element : *x) ASSERT_TRUE(std::isfinite(element));
    }
  }
}

TEST(SoftmaxMasks, BooleanMatrixAndFunctionAreOne) {
  for (const std::int64_t entries : {1, 2}) {
    std::vector<std::uint8_t> pairs(entries * 90 * 210);
    for (std::int64_t b = 0; b < entries; ++b) fill_pairs({pairs.data() + b * 90 * 210, {90, 210}}, b, 0, 0);
    const auto same = [entries](View<std::uint8_t> tile, std::int64_t b, std::int64_t i, std::int64_t j) {
      fill_pairs(tile, entries == 1 ? 0 : b, i, j);
    };
    Case stored({2, 90, 210, 2, 8, 8},
                Mask::boolean(View<const std::uint8_t>(pairs.data(), {entries, 90, 210})), kSeed);
    Case computed({2, 90, 210, 2, 8, 8}, Mask::boolean(same), kSeed);
    stored.run();
    stored.expect_reference();
    computed.run();
    EXPECT_EQ(stored.out, computed.out);
    EXPECT_EQ(stored.grad_query, computed.grad_query);
    EXPECT_EQ(stored.grad_key, computed.grad_key);
    EXPECT_EQ(stored.grad_value, computed.grad_value);
  }
}

TEST(SoftmaxMasks, TilesOutsideEveryIntervalAreSkipped) {
  // Ten segments of the size of a tile: the pairs that a call looks at are those of 20 panels with one tile.
  std::atomic<std::int64_t> asked = 0;
  const Mask everything =
      Mask::boolean([&](View<std::uint8_t> tile, std::int64_t, std::int64_t, std::int64_t) {
        std::fill_n(tile.data(), tile.size(), std::uint8_t{1});
        asked += tile.size();
      });
  std::vector<std::int64_t> tiles;
  for (std::int64_t at = 0; at <= 960; at += 96) tiles.push_back(at);
  Case c({1, 960, 960, 1, 8, 8}, everything.with_segments(tiles), kSeed);
  c.run(false);
  EXPECT_EQ(asked, 10 * 96 * 96);
  c.run();
  EXPECT_EQ(asked, 3 * 10 * 96 * 96);
}

TEST(SoftmaxMasks, StatesAndDecayAreRefusedWhereTheyAreNotTaken) {
  Case c({2, 12, 12, 2, 8, 8}, Mask::window(3, 0), kSeed);
  const auto attention = make_softmax_attention({});
  const auto state = attention->make_state(2, {2, 8, 8});
  const auto message = [&](const AttentionInputs& in, const AttentionOutputs& out) {
    try {
      attention->forward(any_context(), out, in);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  AttentionInputs in = c.inputs();
  in.initial = state.get();
  EXPECT_EQ(
      message(in, c.outputs()),
      "[softmax attention] expected a causal or prefix mask with an initial state, got the mask window");
  AttentionOutputs out = c.outputs();
  out.final = state.get();
  EXPECT_EQ(message(c.inputs(), out),
            "[softmax attention] expected a causal or prefix mask with a final state, got the mask window");
  const std::vector<float> decay = {0.5f, 0.9f};
  in = c.inputs();
  in.mask = Mask::causal();
  in.decay = View<const float>(decay.data(), {2});
  EXPECT_EQ(message(in, c.outputs()),
            "[softmax attention] expected no decay, which the linear family alone has, got one");
  in = c.inputs();
  in.mask = Mask::intervals(std::vector<std::int64_t>(12, 3), std::vector<std::int64_t>(12, 13));
  EXPECT_NE(message(in, c.outputs()), "nothing");
  for (const float x : c.out) EXPECT_TRUE(std::isnan(x)) << "written before the check";
}

}  // namespace
}  // namespace linnet::testing
