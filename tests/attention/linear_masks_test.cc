#include "attention/attention_tools.h"
#include "attention/mask_cases.h"
#include "attention/user_maps.h"

namespace linnet {
namespace {

using test::all_masks;
using test::Bounds;
using test::error_of;
using test::Exact;
using test::for_each_target;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::Sizes;
using test::some_masks;

constexpr double tolerance = 1e-5;

void expect_exact_forward(const AttentionOptions& options, const Sizes& sizes, const MaskCase& mask,
                          std::uint64_t seed, bool every_target = false) {
  Problem problem(sizes, mask.mask, seed);
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  const Exact exact(options, problem, false);
  const auto expect = [&] {
    problem.forward(*make_attention(options));
    EXPECT_LT(error_of(problem.out, exact.out), tolerance);
  };
  if (every_target)
    for_each_target(expect);
  else
    expect();
}

TEST(LinearMasks, EveryMaskMatchesReferenceAtEveryLength) {
  for (const std::int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 97, 200})
    for (const MaskCase& mask : all_masks(2, n, n, 10 * n))
      expect_exact_forward({}, {2, n, n, 1, 5, 7}, mask, 10 * n + 1);
}

TEST(LinearMasks, SomeMasksMatchReferenceAtAThousandTokens) {
  for (const MaskCase& mask : some_masks(1, 1000, 20))
    expect_exact_forward({}, {1, 1000, 1000, 1, 6, 9}, mask, 21);
}

TEST(LinearMasks, QueriesAndKeysOfDifferentLengths) {
  for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {5, 0}, {1, 100}, {100, 1}, {33, 64}, {64, 31}, {200, 7}, {40, 300}})
    for (const MaskCase& mask : all_masks(2, queries, keys, queries))
      expect_exact_forward({}, {2, queries, keys, 2, 9, 12}, mask, 30 + queries);
}

TEST(LinearMasks, EveryInstructionSetMatchesReference) {
  for (const MaskCase& mask : all_masks(2, 97, 97, 40))
    expect_exact_forward({}, {2, 97, 97, 1, 16, 16}, mask, 41, true);
  for (const auto& [e, m] : test::uneven_sizes)
    for (const MaskCase& mask : some_masks(2, 131, 42))
      expect_exact_forward({}, {2, 131, 131, 2, e, m}, mask, 43, true);
}

TEST(LinearMasks, EveryMapMatchesReference) {
  for (const FeatureMapInfo& info : feature_map_table()) {
    SCOPED_TRACE(info.name);
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(info.name);
    for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
      options.linear.normalise = normalise;
      if (normalise == Normalise::sum && !info.non_negative) continue;
      for (const MaskCase& mask : some_masks(2, 150, 50))
        expect_exact_forward(options, {2, 150, 150, 2, 16, 9}, mask, 51);
    }
  }
}

TEST(LinearMasks, UsersMapsLearnHeadAndPosition) {
  for (const std::shared_ptr<const FeatureMap>& map :
       {std::shared_ptr<const FeatureMap>(std::make_shared<test::TwoSided>()),
        std::shared_ptr<const FeatureMap>(std::make_shared<test::Positional>())}) {
    AttentionOptions options;
    options.linear.feature_map = map;
    options.layer = 2;
    for (const MaskCase& mask : some_masks(2, 150, 60))
      expect_exact_forward(options, {2, 150, 150, 3, 7, 5}, mask, 61);
  }
}

// With epsilon 0 too, where 0 / 0 would be NaN.
TEST(LinearMasks, QueriesWithoutAVisibleKeyGiveZeros) {
  for (const float epsilon : {0.0f, 1e-6f}) {
    AttentionOptions options;
    options.linear.epsilon = epsilon;
    for (const std::int64_t n : {1, 33, 97, 200}) {
      for (const MaskCase& mask : all_masks(2, n, n, 70 + n)) {
        SCOPED_TRACE(mask.what);
        Problem problem({2, n, n, 2, 5, 7}, mask.mask, 71);
        problem.forward(*make_attention(options));
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t i = 0; i < n; ++i) {
            bool sees = false;
            for (std::int64_t j = 0; j < n && !sees; ++j) sees = mask.sees(b, i, j);
            if (sees) continue;
            for (const float number : std::span(problem.out.view<float>().at(b, i), 2 * 7))
              ASSERT_EQ(number, 0) << "query " << i << " of entry " << b;
          }
        EXPECT_LT(error_of(problem.out, Exact(options, problem, false).out), tolerance);
      }
    }
  }
}

TEST(LinearMasks, WhatNobodySeesDoesNotMatter) {
  for (const std::int64_t n : {33, 97, 200}) {
    for (const MaskCase& mask : all_masks(2, n, n, 80 + n)) {
      SCOPED_TRACE(mask.what);
      Problem problem({2, n, n, 2, 5, 7}, mask.mask, 81);
      problem.forward(*make_attention({}));
      const Tensor clean = problem.out.clone();
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t j = 0; j < n; ++j) {
          bool seen = false;
          for (std::int64_t i = 0; i < n && !seen; ++i) seen = mask.sees(b, i, j);
          if (seen) continue;
          std::fill_n(problem.k.view<float>().at(b, j), 2 * 5, NAN);
          std::fill_n(problem.v.view<float>().at(b, j), 2 * 7, NAN);
        }
      problem.forward(*make_attention({}));
      EXPECT_LT(relative_error(problem.out.span<float>(), clean.span<float>()), 1e-6);
    }
  }
}

/// How far apart the outputs under two masks are.
double apart(const Mask& a, const Mask& b, std::int64_t n, std::uint64_t seed) {
  Problem problem({1, n, n, 2, 12, 10}, a, seed), again({1, n, n, 2, 12, 10}, b, seed);
  problem.forward(*make_attention({}));
  again.forward(*make_attention({}));
  return relative_error(problem.out.span<float>(), again.out.span<float>());
}

TEST(LinearMasks, OneMaskWrittenInSeveralWays) {
  for (const std::int64_t n : {1, 32, 65, 200, 500}) {
    SCOPED_TRACE(n);
    EXPECT_LT(apart(Mask::window(n, 0), Mask::causal(), n, 90), 1e-6);
    EXPECT_LT(apart(Mask::window(1'000'000'000, 0), Mask::causal(), n, 91), 1e-6);
    EXPECT_LT(apart(Mask::window(n, n), Mask::full(), n, 92), 1e-6);
    EXPECT_LT(apart(Mask::prefix({0}), Mask::causal(), n, 93), 1e-6);
    EXPECT_LT(apart(Mask::prefix({n}), Mask::full(), n, 94), 1e-6);
    EXPECT_LT(apart(Mask::causal().with_segments({0, n}), Mask::causal(), n, 95), 1e-6);
    EXPECT_LT(apart(Mask::full().with_key_lengths({n}), Mask::full(), n, 96), 1e-6);
  }
}

TEST(LinearMasks, IntervalsAndBooleansOfAMaskAreThatMask) {
  for (const std::int64_t n : {33, 200}) {
    for (const MaskCase& mask : all_masks(1, n, n, 100)) {
      SCOPED_TRACE(mask.what);
      std::vector<std::uint8_t> visible(n * n);
      mask.mask.fill({visible.data(), {n, n}}, 0, 0, 0, n);
      EXPECT_LT(apart(Mask::boolean(View<const std::uint8_t>(visible.data(), {1, n, n})), mask.mask, n, 101),
                1e-6);
      if (mask.mask.kind() == Mask::Kind::boolean) continue;
      Bounds begin, end;
      for (std::int64_t i = 0; i < n; ++i) {
        const Mask::Interval seen = mask.mask.interval(0, i, n);
        begin.push_back(seen.begin);
        end.push_back(seen.end);
      }
      EXPECT_LT(apart(Mask::intervals(begin, end), mask.mask, n, 102), 1e-6);
    }
  }
}

TEST(LinearMasks, SegmentsAreSeparateCalls) {
  const std::int64_t n = 200;
  const Bounds bounds = {0, 1, 40, 72, 136, 137, 200};
  for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::window(20, 0), Mask::window(3, 40)}) {
    SCOPED_TRACE(mask.name());
    Problem problem({2, n, n, 2, 12, 10}, mask.with_segments(bounds), 110);
    const auto attention = make_attention({});
    problem.forward(*attention);
    Tensor pieces = Tensor::of<float>(problem.out.shape());
    const AttentionInputs all = problem.inputs();
    for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
      const auto piece = [&](auto view) { return view.slice(1, bounds[s], bounds[s + 1]); };
      attention->forward(any_context(), {piece(pieces.view<float>())},
                         {piece(all.query), piece(all.key), piece(all.value), mask});
    }
    EXPECT_LT(relative_error(problem.out.span<float>(), pieces.span<float>()), 1e-6);
  }
}

// Tiles are asked for inside the mask alone, and one that says yes everywhere is the full mask.
TEST(LinearMasks, TilesOfABooleanFunctionLieInside) {
  for (const auto& [queries, keys] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {97, 97}, {40, 133}, {133, 40}}) {
    const auto inside = [queries = queries, keys = keys](View<std::uint8_t> tile, std::int64_t b,
                                                         std::int64_t i0, std::int64_t j0) {
      EXPECT_TRUE(b >= 0 && b < 2 && i0 >= 0 && j0 >= 0);
      EXPECT_LE(i0 + tile.extent(0), queries);
      EXPECT_LE(j0 + tile.extent(1), keys);
      for (std::int64_t i = 0; i < tile.extent(0); ++i)
        std::fill_n(tile.at(i), tile.extent(1), std::uint8_t{255});
    };
    for (const Bounds& lengths : {Bounds{keys, keys}, Bounds{0, keys / 2}}) {
      Problem problem({2, queries, keys, 2, 5, 7}, Mask::boolean(inside).with_key_lengths(lengths), 120);
      problem.forward(*make_attention({}));
      problem.backward(*make_attention({}));
      Problem full({2, queries, keys, 2, 5, 7}, Mask::full().with_key_lengths(lengths), 120);
      full.forward(*make_attention({}));
      EXPECT_LT(relative_error(problem.out.span<float>(), full.out.span<float>()), 1e-6);
    }
  }
}

}  // namespace
}  // namespace linnet
