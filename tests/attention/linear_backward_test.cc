#include "attention/attention_tools.h"
#include "attention/user_maps.h"

namespace linnet {
namespace {

using test::error_of;
using test::Exact;
using test::for_each_target;
using test::Positional;
using test::Problem;
using test::relative_error;
using test::Sizes;
using test::TwoSided;

constexpr double tolerance = 1e-5;

void expect_exact_gradients(const AttentionOptions& options, const Sizes& sizes, const Mask& mask,
                            std::uint64_t seed) {
  Problem problem(sizes, mask, seed);
  const auto attention = make_attention(options);
  problem.forward(*attention);
  problem.backward(*attention);
  const Exact exact(options, problem, true);
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + mask.name() + ", query " +
               to_string(problem.q.shape()) + ", key " + to_string(problem.k.shape()) + ", value " +
               to_string(problem.v.shape()));
  // With one feature, or one key, the weights hardly depend on queries and keys: their gradients cancel to
  // nearly 0, and what is left is measured against the terms that cancelled.
  const double term = sizes.head_dim == 1 || sizes.keys == 1 ? 1e-2 : 1e-3;
  const double least = term * std::sqrt(1.0 + double(problem.grad.size()));
  EXPECT_LT(error_of(problem.dq, exact.dq, least), tolerance);
  EXPECT_LT(error_of(problem.dk, exact.dk, least), tolerance);
  EXPECT_LT(error_of(problem.dv, exact.dv, least), tolerance);
}

TEST(LinearBackward, MatchesReferenceAtManyLengths) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 0; n <= 70; ++n) lengths.push_back(n);
  for (const std::int64_t n : {95, 96, 97, 128, 129, 256, 300, 1000}) lengths.push_back(n);
  for (const std::int64_t n : lengths) {
    expect_exact_gradients({}, {1, n, n, 2, 8, 5}, Mask::causal(), 100 + n);
    expect_exact_gradients({}, {1, n, n, 2, 8, 5}, Mask::full(), 200 + n);
  }
}

TEST(LinearBackward, MatchesReferenceAtEverySize) {
  const auto expect_sizes = [](std::int64_t e, std::int64_t m) {
    expect_exact_gradients({}, {1, 77, 77, 1, e, m}, Mask::causal(), 1000 * e + m);
    expect_exact_gradients({}, {1, 40, 51, 1, e, m}, Mask::full(), 1000 * e + m);
  };
  for (const std::int64_t e : {1, 3, 17, 32, 64, 65, 128})
    for (const std::int64_t m : {1, 3, 17, 32, 64, 65, 128}) expect_sizes(e, m);
  for_each_target([&] {
    for (const auto& [e, m] : test::uneven_sizes) expect_sizes(e, m);
  });
  expect_exact_gradients({}, {1, 40, 40, 1, 1024, 33}, Mask::causal(), 5000);
  expect_exact_gradients({}, {1, 40, 40, 1, 33, 1024}, Mask::full(), 5001);
}

TEST(LinearBackward, MatchesReferenceForEveryMap) {
  for_each_target([] {
    for (const FeatureMapInfo& info : feature_map_table()) {
      SCOPED_TRACE(info.name);
      for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
        AttentionOptions options;
        options.linear.feature_map = find_feature_map(info.name);
        options.linear.normalise = normalise;
        if (!info.non_negative && normalise == Normalise::sum) continue;
        for (const Mask& mask : {Mask::causal(), Mask::full()})
          expect_exact_gradients(options, {2, 100, 100, 3, 16, 24}, mask, 42);
      }
    }
  });
}

TEST(LinearBackward, QueriesAndKeysOfDifferentLengths) {
  for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {5, 0}, {1, 100}, {100, 1}, {33, 64}, {64, 31}, {200, 7}})
    expect_exact_gradients({}, {2, queries, keys, 2, 9, 12}, Mask::full(), 60 + queries);
}

TEST(LinearBackward, PaddedKeysGetZeros) {
  for (const Mask& mask : {Mask::causal(), Mask::full()}) {
    const Mask padded = mask.with_key_lengths({0, 1, 31, 32, 50, 90});
    expect_exact_gradients({}, {6, 90, 90, 2, 9, 12}, padded, 70);
    Problem problem({6, 90, 90, 2, 9, 12}, padded, 70);
    for (std::int64_t b = 0; b < 6; ++b) {
      for (std::int64_t j = padded.key_lengths()[b]; j < 90; ++j) {
        std::fill_n(problem.k.view<float>().at(b, j), 2 * 9, NAN);
        std::fill_n(problem.v.view<float>().at(b, j), 2 * 12, NAN);
      }
    }
    const auto attention = make_attention({});
    problem.forward(*attention);
    problem.backward(*attention);
    for (const Tensor* gradient : {&problem.dq, &problem.dk, &problem.dv})
      for (const float number : gradient->span<float>()) ASSERT_TRUE(std::isfinite(number));
    for (const float number : problem.dq.span<float>().first(90 * 2 * 9)) ASSERT_EQ(number, 0);
    for (std::int64_t b = 0; b < 6; ++b)
      for (std::int64_t j = padded.key_lengths()[b]; j < 90; ++j)
        for (std::int64_t h = 0; h < 2; ++h) ASSERT_EQ(problem.dk.view<float>()(b, j, h, 0), 0);
  }
}

// Only rows on its side of the diagonal can see a NaN: queries after a key, keys before a query.
TEST(LinearBackward, NanStaysInItsHeadAndInRowsThatSeeIt) {
  for_each_target([] {
    for (const std::int64_t at : {0, 5, 31, 32, 60}) {
      for (int which = 0; which < 4; ++which) {
        Problem problem({2, 70, 70, 3, 16, 16}, Mask::causal(), 90);
        const auto attention = make_attention({});
        problem.forward(*attention);
        problem.backward(*attention);
        const Tensor dq = problem.dq.clone(), dk = problem.dk.clone(), dv = problem.dv.clone();
        Tensor* inputs[] = {&problem.q, &problem.k, &problem.v, &problem.grad};
        inputs[which]->view<float>()(1, at, 1, 3) = NAN;
        problem.forward(*attention);
        problem.backward(*attention);
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t i = 0; i < 70; ++i)
            for (std::int64_t h = 0; h < 3; ++h) {
              const bool own = b == 1 && h == 1;
              // A poisoned key or value reaches later outputs, and through them every earlier key.
              const bool query_clean = !own || (which == 0 || which == 3 ? i != at : i < at);
              const bool key_clean = !own || ((which == 0 || which == 3) && i > at);
              for (std::int64_t e = 0; e < 16; ++e) {
                if (query_clean) {
                  ASSERT_EQ(problem.dq.view<float>()(b, i, h, e), dq.view<float>()(b, i, h, e))
                      << i << " at " << at;
                }
                if (key_clean) {
                  ASSERT_EQ(problem.dk.view<float>()(b, i, h, e), dk.view<float>()(b, i, h, e))
                      << i << " at " << at;
                  ASSERT_EQ(problem.dv.view<float>()(b, i, h, e), dv.view<float>()(b, i, h, e))
                      << i << " at " << at;
                }
              }
            }
      }
    }
  });
}

TEST(LinearBackward, BitsDoNotDependOnThreads) {
  for (const Sizes& sizes : {Sizes{1, 200, 200, 1, 64, 64}, Sizes{2, 100, 100, 3, 33, 47}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      Problem problem(sizes, mask, 110);
      const auto attention = make_attention({});
      problem.forward(*attention);
      Tensor dq, dk, dv;
      for (const int threads : {1, 2, 3, 8}) {
        Context context(threads);
        problem.backward(*attention, context);
        if (threads == 1) {
          dq = problem.dq.clone();
          dk = problem.dk.clone();
          dv = problem.dv.clone();
        }
        EXPECT_TRUE(std::ranges::equal(problem.dq.span<float>(), dq.span<float>())) << threads << " threads";
        EXPECT_TRUE(std::ranges::equal(problem.dk.span<float>(), dk.span<float>())) << threads << " threads";
        EXPECT_TRUE(std::ranges::equal(problem.dv.span<float>(), dv.span<float>())) << threads << " threads";
      }
    }
  }
}

TEST(UsersFeatureMap, ValuesAndGradientsMatchReference) {
  AttentionOptions options;
  options.linear.feature_map = std::make_shared<TwoSided>();
  for (const Mask& mask : {Mask::causal(), Mask::full()}) {
    Problem problem({2, 80, 80, 2, 13, 10}, mask, 130);
    problem.forward(*make_attention(options));
    EXPECT_LT(error_of(problem.out, Exact(options, problem, false).out), tolerance);
    expect_exact_gradients(options, {2, 80, 80, 2, 13, 10}, mask, 131);
  }
}

TEST(UsersFeatureMap, LearnsLayerHeadAndPosition) {
  AttentionOptions options;
  options.linear.feature_map = std::make_shared<Positional>();
  options.layer = 3;
  expect_exact_gradients(options, {1, 100, 100, 3, 8, 8}, Mask::causal(), 140);
  Problem problem({1, 100, 100, 3, 8, 8}, Mask::causal(), 141);
  const auto attention = make_attention(options);
  problem.forward(*attention);
  EXPECT_LT(error_of(problem.out, Exact(options, problem, false).out), tolerance);
  // The recurrent form says the same positions.
  const auto state = attention->make_state(1, {3, 8, 8});
  const Tensor out = problem.out.clone();
  test::run_steps(*attention, problem, *state, 0, 100);
  EXPECT_LT(relative_error(out.span<float>(), problem.out.span<float>()), tolerance);
}

}  // namespace
}  // namespace linnet
