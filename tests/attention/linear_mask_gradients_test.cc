#include "attention/attention_tools.h"
#include "attention/mask_cases.h"
#include "attention/user_maps.h"

namespace linnet {
namespace {

using test::all_masks;
using test::Exact;
using test::expect_reference;
using test::for_each_target;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::Sizes;
using test::some_masks;

void expect_exact(const AttentionOptions& options, const Sizes& sizes, const MaskCase& mask,
                  std::uint64_t seed, bool every_target = false) {
  Problem problem(sizes, mask.mask, seed);
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  // With one feature the weights hardly depend on queries and keys, as with one key.
  const double visible = sizes.head_dim == 1 ? 0 : mask.visible_keys(sizes.batch, sizes.queries, sizes.keys);
  const Exact exact(options, problem, true);
  if (!every_target) return expect_reference(options, problem, exact, visible);
  for_each_target([&] { expect_reference(options, problem, exact, visible); });
}

TEST(LinearMaskGradients, EveryMaskMatchesReferenceAtEveryLength) {
  for (const std::int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 97, 200})
    for (const MaskCase& mask : all_masks(2, n, n, 1000 + 10 * n))
      expect_exact({}, {2, n, n, 1, 5, 7}, mask, 1001 + 10 * n);
}

TEST(LinearMaskGradients, SomeMasksMatchReferenceAtAThousandTokens) {
  for (const MaskCase& mask : some_masks(1, 1000, 20)) expect_exact({}, {1, 1000, 1000, 1, 6, 9}, mask, 22);
}

TEST(LinearMaskGradients, QueriesAndKeysOfDifferentLengths) {
  for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {5, 0}, {1, 100}, {100, 1}, {33, 64}, {64, 31}, {200, 7}, {40, 300}})
    for (const MaskCase& mask : all_masks(2, queries, keys, 500 + queries))
      expect_exact({}, {2, queries, keys, 2, 9, 12}, mask, 30 + queries);
}

TEST(LinearMaskGradients, EveryInstructionSetMatchesReference) {
  for (const MaskCase& mask : all_masks(1, 97, 97, 40))
    expect_exact({}, {1, 97, 97, 1, 16, 16}, mask, 41, true);
  for (const auto& [e, m] : test::uneven_sizes)
    for (const MaskCase& mask : some_masks(1, 131, 42))
      expect_exact({}, {1, 131, 131, 1, e, m}, mask, 43, true);
}

TEST(LinearMaskGradients, EveryMapMatchesReference) {
  for (const FeatureMapInfo& info : feature_map_table()) {
    SCOPED_TRACE(info.name);
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(info.name);
    for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
      options.linear.normalise = normalise;
      if (normalise == Normalise::sum && !info.non_negative) continue;
      for (const MaskCase& mask : some_masks(2, 110, 50))
        expect_exact(options, {2, 110, 110, 2, 16, 9}, mask, 51);
    }
  }
}

TEST(LinearMaskGradients, UsersMapsLearnHeadAndPosition) {
  for (const std::shared_ptr<const FeatureMap>& map :
       {std::shared_ptr<const FeatureMap>(std::make_shared<test::TwoSided>()),
        std::shared_ptr<const FeatureMap>(std::make_shared<test::Positional>())}) {
    AttentionOptions options;
    options.linear.feature_map = map;
    for (const MaskCase& mask : some_masks(2, 110, 60))
      expect_exact(options, {2, 110, 110, 3, 7, 5}, mask, 61);
  }
}

/// 1 for every query that sees a key, and for every key that is seen.
std::pair<std::vector<int>, std::vector<int>> taking_part(const MaskCase& mask, std::int64_t b,
                                                          std::int64_t n) {
  std::vector<int> sees(n), seen(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      if (mask.sees(b, i, j)) sees[i] = seen[j] = 1;
  return {sees, seen};
}

// Whoever takes no part gets gradients of exactly zero, and what keys hold that nobody sees does not matter.
TEST(LinearMaskGradients, WhatNobodySeesGetsZerosAndDoesNotMatter) {
  for (const std::int64_t n : {33, 97, 200}) {
    for (const MaskCase& mask : all_masks(2, n, n, 70 + n)) {
      SCOPED_TRACE(mask.what);
      Problem problem({2, n, n, 2, 5, 7}, mask.mask, 81);
      const auto attention = make_attention({});
      problem.forward(*attention);
      problem.backward(*attention);
      const Tensor dq = problem.dq.clone(), dk = problem.dk.clone(), dv = problem.dv.clone();
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto [sees, seen] = taking_part(mask, b, n);
        for (std::int64_t j = 0; j < n; ++j) {
          for (int e = 0; e < 2 * 5; ++e) {
            if (!sees[j]) {
              ASSERT_EQ(dq.view<float>().at(b, j)[e], 0) << "query " << j;
            }
            if (!seen[j]) {
              ASSERT_EQ(dk.view<float>().at(b, j)[e], 0) << "key " << j;
            }
          }
          if (seen[j]) continue;
          for (int m = 0; m < 2 * 7; ++m) ASSERT_EQ(dv.view<float>().at(b, j)[m], 0) << "value " << j;
          std::fill_n(problem.k.view<float>().at(b, j), 2 * 5, NAN);
          std::fill_n(problem.v.view<float>().at(b, j), 2 * 7, NAN);
        }
      }
      problem.forward(*attention);
      problem.backward(*attention);
      EXPECT_LT(relative_error(problem.dq.span<float>(), dq.span<float>(), 0.1), 1e-5);
      // What the keys that hold NaN are told themselves does not matter either.
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t j = 0; j < n; ++j)
          if (std::isnan(problem.k.view<float>()(b, j, 0, 0)))
            std::fill_n(problem.dk.view<float>().at(b, j), 2 * 5, 0.0f);
      EXPECT_LT(relative_error(problem.dk.span<float>(), dk.span<float>(), 0.1), 1e-5);
      EXPECT_LT(relative_error(problem.dv.span<float>(), dv.span<float>(), 0.1), 1e-5);
    }
  }
}

TEST(LinearMaskGradients, SegmentsAreSeparateCalls) {
  const std::int64_t n = 200;
  const test::Bounds bounds = {0, 1, 40, 72, 136, 137, 200};
  for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::window(20, 0), Mask::window(3, 40)}) {
    SCOPED_TRACE(mask.name());
    Problem problem({2, n, n, 2, 12, 10}, mask.with_segments(bounds), 110);
    Problem pieces({2, n, n, 2, 12, 10}, mask, 110);
    const auto attention = make_attention({});
    problem.forward(*attention);
    problem.backward(*attention);
    for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
      const auto piece = [&](auto view) { return view.slice(1, bounds[s], bounds[s + 1]); };
      const AttentionInputs all = pieces.inputs();
      const AttentionInputs inputs = {piece(all.query), piece(all.key), piece(all.value), mask};
      const View<float> out = piece(pieces.out.view<float>()),
                        normaliser = piece(pieces.normaliser.view<float>());
      attention->forward(any_context(), {out, normaliser}, inputs);
      attention->backward(
          any_context(),
          {piece(pieces.dq.view<float>()), piece(pieces.dk.view<float>()), piece(pieces.dv.view<float>())},
          piece(std::as_const(pieces.grad).view<float>()), inputs, out, normaliser);
    }
    EXPECT_LT(relative_error(problem.dq.span<float>(), pieces.dq.span<float>()), 1e-5);
    EXPECT_LT(relative_error(problem.dk.span<float>(), pieces.dk.span<float>()), 1e-5);
    EXPECT_LT(relative_error(problem.dv.span<float>(), pieces.dv.span<float>()), 1e-6);
  }
}

// Inputs and gradients side by side in one tensor, as a fused projection makes and takes them.
void expect_same_from_fused_tensors(std::int64_t dim) {
  const std::int64_t batch = 2, n = 110, heads = 2, row = 3 * heads * dim + 5;
  for (const MaskCase& mask : some_masks(batch, n, 120)) {
    SCOPED_TRACE(mask.what);
    Problem problem({batch, n, n, heads, dim, dim}, mask.mask, 121);
    const auto attention = make_attention({});
    problem.forward(*attention);
    problem.backward(*attention);
    Tensor inputs = Tensor::of<float>({batch, n, row}), gradients = Tensor::of<float>({batch, n, row});
    for (float& number : gradients.span<float>()) number = 77;
    const auto part = [&](Tensor& tensor, std::int64_t which) {
      return View<float>(tensor.span<float>().data() + which * heads * dim, {batch, n, heads, dim},
                         {n * row, row, dim, 1});
    };
    const auto each_row = [&](Tensor& fused, int which, Tensor& dense, const auto& body) {
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < n; ++i) body(part(fused, which).at(b, i), dense.view<float>().at(b, i));
    };
    Tensor* dense[] = {&problem.q, &problem.k, &problem.v};
    for (int which = 0; which < 3; ++which)
      each_row(inputs, which, *dense[which],
               [&](float* to, float* from) { std::copy_n(from, heads * dim, to); });
    AttentionInputs views = {part(inputs, 0), part(inputs, 1), part(inputs, 2), mask.mask};
    const Tensor out = problem.out.clone();
    problem.out = test::unset_tensor(out.shape());
    attention->forward(any_context(), problem.outputs(), views);
    EXPECT_TRUE(test::equal(problem.out, out));
    attention->backward(any_context(), {part(gradients, 0), part(gradients, 1), part(gradients, 2)},
                        std::as_const(problem.grad).view<float>(), views, problem.out.view<float>(),
                        problem.normaliser.view<float>());
    Tensor* expected[] = {&problem.dq, &problem.dk, &problem.dv};
    for (int which = 0; which < 3; ++which)
      each_row(gradients, which, *expected[which], [&](float* found, float* wanted) {
        ASSERT_TRUE(std::equal(found, found + heads * dim, wanted));
        if (which == 2) {
          ASSERT_EQ(found[heads * dim], 77) << "written beyond a row";
        }
      });
  }
}
TEST(LinearMaskGradients, ViewsOfFusedTensorsGiveTheSame) {
  expect_same_from_fused_tensors(13);
  expect_same_from_fused_tensors(32);  // whole vectors where the rows are dense: products write them
}

}  // namespace
}  // namespace linnet
