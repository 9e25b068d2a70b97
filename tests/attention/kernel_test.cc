// The kernel family: any similarity, against its double-precision reference and against softmax.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/family_cases.h"
#include "attention/mask_cases.h"
#include "linnet/reference.h"
#include "linnet/similarity.h"

namespace linnet::test {
namespace {

constexpr std::uint64_t kSeed = 71;

AttentionOptions kernel_options(std::shared_ptr<const Similarity> similarity = exponential_similarity()) {
  AttentionOptions options;
  options.family = Family::kernel;
  options.kernel.similarity = std::move(similarity);
  return options;
}

std::vector<std::shared_ptr<const Similarity>> built_in() {
  return {exponential_similarity(), polynomial_similarity(), polynomial_similarity(0.5, 6),
          gaussian_similarity(), gaussian_similarity(1.3)};
}

/// 1 / (1 + ‖q − k‖²), made of plain loops; or what a test wants to be refused.
class Cauchy final : public Similarity {
 public:
  explicit Cauchy(float sign = 1) : sign_(sign) {}
  std::string name() const override { return "cauchy"; }

  void forward(Context&, View<float> s, View<const float> q, View<const float> k) const override {
    for (std::int64_t i = 0; i < s.extent(0); ++i)
      for (std::int64_t j = 0; j < s.extent(1); ++j) {
        float distance = 0;
        for (std::int64_t e = 0; e < q.extent(1); ++e) distance += (q(i, e) - k(j, e)) * (q(i, e) - k(j, e));
        s(i, j) = sign_ / (1 + distance);
      }
  }

  void backward(Context&, View<float> dq, View<float> dk, View<const float> ds, View<const float> s,
                View<const float> q, View<const float> k) const override {
    for (std::int64_t i = 0; i < s.extent(0); ++i)
      for (std::int64_t j = 0; j < s.extent(1); ++j)
        for (std::int64_t e = 0; e < q.extent(1); ++e) {
          const float slope = 2 * ds(i, j) * s(i, j) * s(i, j) * (k(j, e) - q(i, e));
          dq(i, e) += slope;
          dk(j, e) -= slope;
        }
  }

 private:
  float sign_;
};

TEST(Kernel, MatchesTheReferenceForEverySimilarity) {
  for_each_target([] {
    for (const auto& similarity : built_in()) {
      for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
        AttentionOptions options = kernel_options(similarity);
        options.kernel.normalise = normalise;
        Problem problem({1, 70, 70, 2, 20, 7}, Mask::causal(), kSeed);
        SCOPED_TRACE(similarity->name() + ", " + problem.describe(kSeed));
        expect_reference(options, problem, Exact(options, problem, true), 35);
      }
    }
  });
}

TEST(Kernel, MatchesTheReferenceAtAwkwardSizes) {
  const auto options = kernel_options(gaussian_similarity());
  for (const std::int64_t n : {0, 1, 63, 64, 65, 127, 128, 129, 200}) {
    Problem problem({2, n, n, 1, 5, 3}, Mask::causal(), kSeed + n);
    SCOPED_TRACE(problem.describe(kSeed + n));
    expect_reference(options, problem, Exact(options, problem, true), double(n) / 2);
  }
  for (const auto& [queries, keys] : {std::pair{0, 5}, {5, 0}, {1, 200}, {200, 1}, {65, 130}}) {
    Problem problem({1, queries, keys, 2, 17, 33}, Mask::full(), kSeed);
    SCOPED_TRACE(problem.describe(kSeed));
    expect_reference(options, problem, Exact(options, problem, true), keys);
  }
  for (const auto& [head_dim, value_dim] : uneven_sizes) {
    Problem problem({1, 33, 33, 1, head_dim, value_dim}, Mask::full(), kSeed);
    SCOPED_TRACE(problem.describe(kSeed));
    expect_reference(options, problem, Exact(options, problem, true), 33);
  }
}

TEST(Kernel, EveryMaskMatchesTheReference) {
  const auto options = kernel_options(polynomial_similarity());
  for (const MaskCase& mask : some_masks(2, 150, kSeed)) {
    Problem problem({2, 150, 150, 1, 8, 5}, mask.mask, kSeed);
    SCOPED_TRACE(mask.what + ", " + problem.describe(kSeed));
    expect_reference(options, problem, Exact(options, problem, true), mask.visible_keys(2, 150, 150));
  }
}

TEST(Kernel, ReferenceGradientsMatchDifferences) {
  for (const auto& similarity : built_in()) {
    for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
      AttentionOptions options = kernel_options(similarity);
      options.kernel.normalise = normalise;
      const Problem problem({1, 6, 6, 1, 4, 3}, Mask::causal(), kSeed);
      Exact exact(options, problem, true);
      const auto loss = [&] {
        Tensor out = exact.grad.clone();
        reference_forward(options, out.view<double>(), exact.inputs(problem.mask));
        double sum = 0;
        for (std::size_t i = 0; i < out.span<double>().size(); ++i)
          sum += out.span<double>()[i] * exact.grad.span<double>()[i];
        return sum;
      };
      for (const auto& [input, gradient] :
           {std::pair(&exact.q, &exact.dq), std::pair(&exact.k, &exact.dk), std::pair(&exact.v, &exact.dv)}) {
        std::vector<double> differences;
        for (double& x : input->span<double>()) {
          const double step = 1e-5, old = x;
          x = old + step;
          const double above = loss();
          x = old - step;
          differences.push_back((above - loss()) / (2 * step));
          x = old;
        }
        EXPECT_LT(relative_error(gradient->span<double>(), differences), 1e-7) << similarity->name();
      }
    }
  }
}

TEST(Kernel, ExponentialIsSoftmax) {
  AttentionOptions kernel = kernel_options(), softmax;
  kernel.kernel.epsilon = 0;
  softmax.family = Family::softmax;
  Problem a({2, 200, 200, 2, 32, 16}, Mask::causal(), kSeed, 3.0f),
      b({2, 200, 200, 2, 32, 16}, Mask::causal(), kSeed, 3.0f);
  a.forward(*make_attention(kernel));
  a.backward(*make_attention(kernel));
  b.forward(*make_attention(softmax));
  b.backward(*make_attention(softmax));
  EXPECT_LT(relative_error(a.out.span<float>(), b.out.span<float>()), 2e-6);
  EXPECT_LT(relative_error(a.dq.span<float>(), b.dq.span<float>()), 5e-6);
  EXPECT_LT(relative_error(a.dk.span<float>(), b.dk.span<float>()), 5e-6);
  EXPECT_LT(relative_error(a.dv.span<float>(), b.dv.span<float>()), 2e-6);
}

TEST(Kernel, LimitedArgumentsMatchTheReference) {
  const auto options = kernel_options();
  Problem problem({1, 40, 40, 1, 4, 4}, Mask::full(), kSeed, 12.0f);
  for (float& x : problem.q.span<float>()) x = std::abs(x);
  for (float& x : problem.k.span<float>()) x = std::abs(x);
  expect_reference(options, problem, Exact(options, problem, true), 40, 2e-4);
}

TEST(Kernel, SimilarityOfAUserMatchesTheReference) {
  const auto options = kernel_options(std::make_shared<Cauchy>());
  Problem problem({2, 150, 150, 2, 6, 5}, Mask::window(40, 3), kSeed);
  expect_reference(options, problem, Exact(options, problem, true), 43);
}

// Padding may hold what was never meant for a product: finite, but without a finite similarity.
TEST(Kernel, HiddenPairsThatOverflowHaveNoGradients) {
  for (const auto& [power, large] : {std::pair(2, 3e38f), std::pair(8, 1e8f), std::pair(64, 10.0f)}) {
    for (const Mask& mask : {Mask::full().with_key_lengths({20}), Mask::causal().with_key_lengths({20})}) {
      const auto options = kernel_options(polynomial_similarity(0.5, power));
      Problem problem({1, 40, 40, 1, 5, 4}, mask, kSeed);
      for (float& x : problem.q.span<float>()) x = std::abs(x);
      std::fill_n(problem.k.view<float>().at(0, 20), 20 * 5, large);
      SCOPED_TRACE(fmt::format("power {}, {}, {}", power, large, mask.name()));
      expect_reference(options, problem, Exact(options, problem, true), 20, 1e-4);
    }
  }
}

// The last key belongs to the last query alone.
TEST(Kernel, FuturePairsThatOverflowHaveNoGradients) {
  const auto options = kernel_options(polynomial_similarity(1, 16));
  Problem problem({1, 8, 8, 1, 4, 3}, Mask::causal(), kSeed, 0.3f);
  std::fill_n(problem.q.view<float>().at(0, 0), 4, 1.0f);
  std::fill_n(problem.q.view<float>().at(0, 7), 4, 1e-4f);
  std::fill_n(problem.k.view<float>().at(0, 7), 4, 1000.0f);
  expect_reference(options, problem, Exact(options, problem, true), 8);
}

TEST(Kernel, RefusesSimilaritiesThatAreNegativeOrNotFinite) {
  Problem problem({1, 150, 150, 2, 4, 4}, Mask::causal(), kSeed);
  const auto negative = make_attention(kernel_options(std::make_shared<Cauchy>(-1.0f)));
  EXPECT_THAT(message_of([&] { problem.forward(*negative); }),
              testing::AllOf(testing::HasSubstr("[kernel attention] expected the similarity cauchy to be at "
                                                "least 0 and finite, got -"),
                             testing::HasSubstr("of query "), testing::HasSubstr("and key ")));
  const auto nan = make_attention(kernel_options(std::make_shared<Cauchy>(NAN)));
  EXPECT_THAT(message_of([&] { problem.forward(*nan); }), testing::HasSubstr("got nan"));
  const auto steep = make_attention(kernel_options(polynomial_similarity(1, 64)));
  std::ranges::fill(problem.q.span<float>(), 1.5f);
  std::ranges::fill(problem.k.span<float>(), 1.5f);
  EXPECT_THAT(message_of([&] { problem.forward(*steep); }),
              testing::HasSubstr("polynomial to be at least 0"));
  EXPECT_THAT(message_of([&] { problem.forward(*steep); }), testing::HasSubstr("got inf of query "));
  // Nobody asks for what the mask hides.
  problem.mask = Mask::full().with_key_lengths({0});
  problem.forward(*negative);
  EXPECT_EQ(relative_error(problem.out.span<float>(), std::vector<float>(problem.out.size())), 0);
}

TEST(Kernel, QueriesWithoutKeysGiveZeros) {
  for (const float epsilon : {1e-6f, 0.0f}) {
    AttentionOptions options = kernel_options();
    options.kernel.epsilon = epsilon;
    Problem problem({2, 70, 70, 1, 4, 4}, Mask::causal().with_key_lengths({0, 70}), kSeed);
    problem.forward(*make_attention(options));
    problem.backward(*make_attention(options));
    for (std::int64_t i = 0; i < 70 * 4; ++i) {
      EXPECT_EQ(problem.out.span<float>()[i], 0);
      EXPECT_EQ(problem.dq.span<float>()[i], 0);
      EXPECT_EQ(problem.dk.span<float>()[i], 0);
    }
  }
}

TEST(Kernel, NonFiniteRowsReachOnlyWhoSeesThem) {
  for (const auto& similarity : {exponential_similarity(), gaussian_similarity()}) {
    const auto attention = make_attention(kernel_options(similarity));
    Problem clean({1, 150, 150, 1, 4, 4}, Mask::causal(), kSeed),
        hurt({1, 150, 150, 1, 4, 4}, Mask::causal(), kSeed);
    clean.forward(*attention);
    hurt.v.view<float>()(0, 100, 0, 1) = INFINITY;
    hurt.k.view<float>()(0, 120, 0, 1) = NAN;
    hurt.forward(*attention);
    hurt.backward(*attention);
    for (std::int64_t i = 0; i < 150; ++i) {
      for (std::int64_t m = 0; m < 4; ++m) {
        const float found = hurt.out.view<float>()(0, i, 0, m);
        if (i < 100) {
          EXPECT_NEAR(found, clean.out.view<float>()(0, i, 0, m), 1e-5) << i;
          EXPECT_TRUE(std::isfinite(hurt.dq.view<float>()(0, i, 0, m))) << i;
        } else if (i < 120) {
          EXPECT_EQ(std::isfinite(found), m != 1) << i;
        } else {
          EXPECT_TRUE(std::isnan(found)) << i;
        }
      }
    }
  }
}

TEST(Kernel, WidensBrainFloats) {
  expect_brain_floats_widened(kernel_options(gaussian_similarity()), {2, 140, 140, 2, 12, 9}, Mask::causal());
}

TEST(Kernel, BitsDoNotDependOnThreads) {
  expect_bits_of_any_thread_count(kernel_options(), {2, 300, 300, 2, 16, 8}, Mask::window(150, 20));
}

TEST(Kernel, SaysWhatItCannotDo) {
  const auto attention = make_attention(kernel_options());
  EXPECT_THAT(message_of([&] {
                attention->make_state(1, {1, 4, 4});
              }),
              testing::HasSubstr("[kernel attention] expected a family with a recurrent form (linear with a "
                                 "feature map of the similarity, or softmax with its cache), got kernel"));
  EXPECT_THAT(message_of([] { make_attention(kernel_options(nullptr)); }),
              testing::HasSubstr("expected a similarity, got none"));
  EXPECT_THAT(message_of([] { polynomial_similarity(-1, 2); }),
              testing::HasSubstr("expected an offset of at least 0, got -1"));
  EXPECT_THAT(message_of([] { polynomial_similarity(1, 3); }),
              testing::HasSubstr("expected an even power from 2 to 64, got 3"));
  EXPECT_THAT(message_of([] { gaussian_similarity(-2); }),
              testing::HasSubstr("expected a finite sigma of at least 0, got -2"));
  EXPECT_NO_THROW(gaussian_similarity(1e-19));
  EXPECT_THAT(message_of([] { gaussian_similarity(9e-20); }),
              testing::HasSubstr("expected sigma of at least 1e-19, or 0 for E^(1/4), got 9e-20"));
  EXPECT_THAT(message_of([] { find_similarity("gausian"); }), testing::HasSubstr("did you mean gaussian?"));
  EXPECT_EQ(find_similarity("polynomial", {0.0, 4})->name(), "polynomial");
  EXPECT_EQ(find_family("kernel"), Family::kernel);
}

}  // namespace
}  // namespace linnet::test
