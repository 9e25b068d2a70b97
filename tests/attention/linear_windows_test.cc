#include "attention/attention_tools.h"
#include "attention/mask_cases.h"
#include "support/numbers.h"

namespace linnet {
namespace {

using test::Bounds;
using test::Exact;
using test::expect_reference;
using test::MaskCase;
using test::Problem;
using test::Sizes;

// Masks that slide: what is no longer seen must leave without a trace.

void expect_exact(const Sizes& sizes, const MaskCase& mask, std::uint64_t seed) {
  Problem problem(sizes, mask.mask, seed);
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  expect_reference({}, problem, Exact({}, problem, true),
                   mask.visible_keys(sizes.batch, sizes.queries, sizes.keys));
}

TEST(LinearWindows, WidthsOfManyTilesMatchReference) {
  const std::int64_t n = 1300;
  const Bounds bounds = {0, 1, 130, 700, 1300};
  std::vector<MaskCase> masks = {test::window_case(1000, 0),
                                 test::window_case(128, 0),
                                 test::window_case(129, 65),
                                 test::window_case(0, 900),
                                 test::with_segments(test::window_case(300, 200), {bounds}),
                                 test::with_key_lengths(test::window_case(511, 3), {801})};
  for (const MaskCase& mask : masks) expect_exact({1, n, n, 1, 4, 5}, mask, 800);
}

TEST(LinearWindows, EveryWidthAroundTheTilesMatchesReference) {
  for (std::int64_t left = 0; left <= 70; ++left)
    for (const std::int64_t right : {std::int64_t{0}, left % 7, 70 - left})
      expect_exact({1, 171, 171, 1, 3, 4}, test::window_case(left, right), 810 + left);
}

TEST(LinearWindows, IntervalsThatWaitAndJumpMatchReference) {
  for (const auto& [queries, keys] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{900, 900}, {300, 2000}, {2000, 300}})
    for (const MaskCase& mask :
         {test::crossing_intervals(queries, keys, 820), test::jumping_intervals(queries, keys, 821),
          test::band_intervals(queries, keys, 822)})
      expect_exact({1, queries, keys, 1, 4, 5}, mask, 823);
}

TEST(LinearWindows, WideHeadsMatchReference) {
  for (const auto& [e, m] : {std::pair<std::int64_t, std::int64_t>{128, 128}, {300, 33}, {33, 300}})
    for (const MaskCase& mask : test::some_masks(1, 140, 830))
      expect_exact({1, 140, 140, 1, e, m}, mask, 831);
}

/// The largest error of a row of `found`, against that row's own norm, over the rows from `begin` to `end`.
double worst_row(const Tensor& found, const Tensor& wanted, std::int64_t begin, std::int64_t end) {
  const auto a = found.view<float>();
  const auto e = wanted.view<double>();
  double worst = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto width = std::size_t(a.extent(2) * a.extent(3));
    worst = larger(worst, test::relative_error(std::span(a.at(0, i), width), std::span(e.at(0, i), width)));
  }
  return worst;
}

/// Masks under which tokens from 130 on see nothing of the first 100, nor are seen by them.
std::vector<MaskCase> forgetting_masks(std::int64_t n) {
  Bounds begin, end;
  for (std::int64_t i = 0; i < n; ++i) {
    begin.push_back(i < 110 ? 0 : std::max<std::int64_t>(100, i - 40));
    end.push_back(i < 100 ? 100 : i + 1);
  }
  return {test::window_case(29, 0), test::window_case(10, 20),
          test::with_segments(test::causal_case(), {{0, 100, n}}),
          test::with_segments(test::full_case(), {{0, 50, 100, n}}),
          test::intervals_case("forgetting", begin, end)};
}

// Sums from which the past were subtracted would keep the rounding errors of what was there: 1e9 · 2⁻²⁴.
TEST(LinearWindows, LargeValuesThatLeftLeaveNoTrace) {
  const std::int64_t n = 300;
  for (const MaskCase& mask : forgetting_masks(n)) {
    SCOPED_TRACE(mask.what);
    Problem problem({1, n, n, 2, 8, 8}, mask.mask, 840);
    for (float& number : problem.v.span<float>().first(100 * 2 * 8)) number *= 1e9f;
    for (float& number : problem.k.span<float>().first(100 * 2 * 8)) number *= 1e5f;
    const auto attention = make_attention({});
    problem.forward(*attention);
    problem.backward(*attention);
    const Exact exact({}, problem, true);
    EXPECT_LT(worst_row(problem.out, exact.out, 130, n), 1e-5);
    EXPECT_LT(worst_row(problem.dq, exact.dq, 130, n), 1e-4);
    EXPECT_LT(worst_row(problem.dk, exact.dk, 170, n - 30), 1e-4);
    EXPECT_LT(worst_row(problem.dv, exact.dv, 170, n - 30), 1e-5);
  }
}

// The other way round: gradients come from the end.
TEST(LinearWindows, LargeGradientsThatLeftLeaveNoTrace) {
  const std::int64_t n = 300;
  for (const MaskCase& mask : forgetting_masks(n)) {
    SCOPED_TRACE(mask.what);
    Problem problem({1, n, n, 2, 8, 8}, mask.mask, 850);
    for (float& number : problem.grad.span<float>().last(170 * 2 * 8)) number *= 1e9f;
    const auto attention = make_attention({});
    problem.forward(*attention);
    problem.backward(*attention);
    const Exact exact({}, problem, true);
    EXPECT_LT(worst_row(problem.dk, exact.dk, 0, 98), 1e-4);
    EXPECT_LT(worst_row(problem.dv, exact.dv, 0, 98), 1e-5);
  }
}

}  // namespace
}  // namespace linnet
