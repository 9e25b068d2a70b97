#include "attention/attention_tools.h"

namespace linnet {
namespace {

using test::error_of;
using test::Exact;
using test::for_each_target;
using test::Problem;
using test::random_tensor;
using test::relative_error;
using test::Sizes;

constexpr double tolerance = 1e-5;

AttentionOptions with_map(std::shared_ptr<const FeatureMap> map, Normalise normalise = Normalise::sum) {
  AttentionOptions options;
  options.linear.feature_map = std::move(map);
  options.linear.normalise = normalise;
  return options;
}

/// 0 … 70, then a selection: around chunk bounds, 300 and 1,000.
std::vector<std::int64_t> lengths() {
  std::vector<std::int64_t> result;
  for (std::int64_t n = 0; n <= 70; ++n) result.push_back(n);
  for (const std::int64_t n : {95, 96, 97, 127, 128, 129, 191, 255, 256, 257, 299, 300, 1000})
    result.push_back(n);
  return result;
}

void expect_exact_forward(const AttentionOptions& options, const Sizes& sizes, const Mask& mask,
                          std::uint64_t seed) {
  Problem problem(sizes, mask, seed);
  problem.forward(*make_attention(options));
  const Exact exact(options, problem, false);
  EXPECT_LT(error_of(problem.out, exact.out), tolerance)
      << "seed " << seed << ", " << mask.name() << ", query " << to_string(problem.q.shape()) << ", key "
      << to_string(problem.k.shape()) << ", value " << to_string(problem.v.shape());
}

TEST(LinearForward, ParallelMatchesReferenceAtEveryLength) {
  for (const std::int64_t n : lengths()) {
    expect_exact_forward({}, {1, n, n, 2, 8, 5}, Mask::causal(), 100 + n);
    expect_exact_forward({}, {1, n, n, 2, 8, 5}, Mask::full(), 200 + n);
  }
}

TEST(LinearForward, RecurrentMatchesReferenceAtEveryLength) {
  const auto attention = make_attention({});
  for (const std::int64_t n : lengths()) {
    Problem problem({2, n, n, 2, 8, 5}, Mask::causal(), 300 + n);
    const auto state = attention->make_state(2, {2, 8, 5});
    const std::vector<std::int64_t> slots = {1, 0};
    for (std::int64_t i = 0; i < n; ++i) {
      const auto token = [&](auto view) {
        return decltype(view)(view.at(0, i), {2, view.extent(2), view.extent(3)},
                              {view.stride(0), view.stride(2), 1});
      };
      attention->step(any_context(), token(problem.out.view<float>()),
                      token(std::as_const(problem.q).view<float>()),
                      token(std::as_const(problem.k).view<float>()),
                      token(std::as_const(problem.v).view<float>()), *state, slots);
    }
    EXPECT_EQ(state->position(0), n);
    const Exact exact({}, problem, false);
    EXPECT_LT(error_of(problem.out, exact.out), tolerance) << "length " << n;
  }
}

TEST(LinearForward, EverySizeMatchesReference) {
  const auto expect_sizes = [](std::int64_t e, std::int64_t m) {
    expect_exact_forward({}, {1, 77, 77, 1, e, m}, Mask::causal(), 1000 * e + m);
    expect_exact_forward({}, {1, 40, 51, 1, e, m}, Mask::full(), 1000 * e + m);
  };
  for (const std::int64_t e : {1, 3, 17, 32, 64, 65, 128})
    for (const std::int64_t m : {1, 3, 17, 32, 64, 65, 128}) expect_sizes(e, m);
  for_each_target([&] {
    for (const auto& [e, m] : test::uneven_sizes) expect_sizes(e, m);
  });
  expect_exact_forward({}, {1, 40, 40, 1, 1024, 33}, Mask::causal(), 5000);
  expect_exact_forward({}, {1, 40, 40, 1, 33, 1024}, Mask::full(), 5001);
  expect_exact_forward({}, {1, 70, 70, 1, 1024, 1024}, Mask::causal(), 5002);
}

TEST(LinearForward, EveryMapMatchesReference) {
  for_each_target([] {
    for (const FeatureMapInfo& info : feature_map_table()) {
      SCOPED_TRACE(info.name);
      const auto map = find_feature_map(info.name);
      for (const Mask& mask : {Mask::causal(), Mask::full()}) {
        expect_exact_forward(with_map(map, Normalise::none), {2, 100, 100, 3, 16, 24}, mask, 42);
        if (map->traits().non_negative)
          expect_exact_forward(with_map(map), {2, 100, 100, 3, 16, 24}, mask, 43);
      }
    }
  });
  expect_exact_forward(with_map(elu_map(0.1f)), {1, 100, 100, 2, 16, 24}, Mask::causal(), 44);
}

TEST(LinearForward, QueriesAndKeysOfDifferentLengths) {
  for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {5, 0}, {1, 100}, {100, 1}, {33, 64}, {64, 31}, {200, 7}})
    expect_exact_forward({}, {2, queries, keys, 2, 9, 12}, Mask::full(), 60 + queries);
}

TEST(LinearForward, PaddedKeysAreNotSeen) {
  for (const Mask& mask : {Mask::causal(), Mask::full()}) {
    const Mask padded = mask.with_key_lengths({0, 1, 31, 32, 50, 90});
    Problem problem({6, 90, 90, 2, 9, 12}, padded, 70);
    const Exact exact({}, problem, false);
    // What is in the padding does not matter, be it NaN.
    for (std::int64_t b = 0; b < 6; ++b) {
      for (std::int64_t j = padded.key_lengths()[b]; j < 90; ++j) {
        std::fill_n(problem.k.view<float>().at(b, j), 2 * 9, NAN);
        std::fill_n(problem.v.view<float>().at(b, j), 2 * 12, NAN);
      }
    }
    problem.forward(*make_attention({}));
    EXPECT_LT(error_of(problem.out, exact.out), tolerance) << padded.name();
    for (const float number : problem.out.span<float>().first(90 * 2 * 12)) EXPECT_EQ(number, 0);
  }
}

void expect_same_from_a_fused_tensor(std::int64_t dim) {
  const std::int64_t batch = 2, n = 75, heads = 3;
  const Tensor fused = random_tensor({batch, n, 3 * heads, dim}, 80);
  const auto part = [&](std::int64_t i) {
    return View<const float>(fused.view<float>().at(0, 0, i * heads), {batch, n, heads, dim},
                             {n * 3 * heads * dim, 3 * heads * dim, dim, 1});
  };
  for (const Mask& mask : {Mask::causal(), Mask::full()}) {
    Problem problem({batch, n, n, heads, dim, dim}, mask, 81);
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < n; ++i) {
        std::copy_n(part(0).at(b, i), heads * dim, problem.q.view<float>().at(b, i));
        std::copy_n(part(1).at(b, i), heads * dim, problem.k.view<float>().at(b, i));
        std::copy_n(part(2).at(b, i), heads * dim, problem.v.view<float>().at(b, i));
      }
    }
    problem.forward(*make_attention({}));
    // Rows of the output apart as well.
    Tensor wide = Tensor::of<float>({batch, n, heads, dim + 5});
    const View<float> out(wide.span<float>().data(), {batch, n, heads, dim},
                          {n * heads * (dim + 5), heads * (dim + 5), dim + 5, 1});
    make_attention({})->forward(any_context(), {out, {}}, {part(0), part(1), part(2), mask});
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t m = 0; m < dim; ++m) {
            ASSERT_EQ(out(b, i, h, m), problem.out.view<float>()(b, i, h, m));
            ASSERT_EQ(wide.view<float>()(b, i, h, dim), 0) << "written beyond a row";
          }
  }
}

TEST(LinearForward, ViewsOfAFusedTensor) {
  expect_same_from_a_fused_tensor(20);
  expect_same_from_a_fused_tensor(64);  // whole vectors where the rows are dense: products write them
}

TEST(LinearForward, NanStaysInItsHeadAndInRowsThatSeeIt) {
  for_each_target([] {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      for (const std::int64_t at : {0, 5, 31, 32, 60}) {
        for (int which = 0; which < 3; ++which) {
          Problem problem({2, 70, 70, 3, 16, 16}, mask, 90);
          problem.forward(*make_attention({}));
          const Tensor clean = problem.out.clone();
          Tensor& poisoned = which == 0 ? problem.q : which == 1 ? problem.k : problem.v;
          poisoned.view<float>()(1, at, 1, 3) = NAN;
          problem.forward(*make_attention({}));
          for (std::int64_t b = 0; b < 2; ++b)
            for (std::int64_t i = 0; i < 70; ++i)
              for (std::int64_t h = 0; h < 3; ++h) {
                const bool sees = which == 0 ? i == at : mask.kind() == Mask::Kind::full || i >= at;
                if (b == 1 && h == 1 && sees) {
                  EXPECT_TRUE(std::isnan(problem.out.view<float>()(b, i, h, 3)));
                  continue;
                }
                for (std::int64_t m = 0; m < 16; ++m)
                  ASSERT_EQ(problem.out.view<float>()(b, i, h, m), clean.view<float>()(b, i, h, m))
                      << "NaN at " << at << " of input " << which << " reached row " << i;
              }
        }
      }
    }
  });
}

TEST(LinearForward, BitsDoNotDependOnThreads) {
  for (const Sizes& sizes : {Sizes{1, 200, 200, 1, 64, 64}, Sizes{2, 100, 100, 3, 33, 47}}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      Problem problem(sizes, mask, 110);
      const auto attention = make_attention({});
      Tensor first;
      for (const int threads : {1, 2, 3, 8}) {
        Context context(threads);
        problem.forward(*attention, context);
        if (threads == 1) first = problem.out.clone();
        EXPECT_TRUE(std::ranges::equal(problem.out.span<float>(), first.span<float>()))
            << threads << " threads";
      }
    }
  }
}

TEST(LinearForward, LargeOutputsStoredPastTheCachesAreTheSame) {
  // 2^20 numbers of output take streaming stores; one batch entry alone does not.
  Problem large({9, 1000, 1000, 2, 16, 64}, Mask::causal(), 120);
  large.forward(*make_attention({}));
  Tensor alone = Tensor::of<float>({1, 1000, 2, 64});
  const AttentionInputs all = large.inputs();
  make_attention({})->forward(
      any_context(), {alone.view<float>(), {}},
      {all.query.slice(0, 8, 9), all.key.slice(0, 8, 9), all.value.slice(0, 8, 9), Mask::causal()});
  EXPECT_TRUE(std::ranges::equal(large.out.span<float>().last(1000 * 2 * 64), alone.span<float>()));
}

}  // namespace
}  // namespace linnet
