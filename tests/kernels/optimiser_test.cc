#include "kernels/optimiser.h"

#include <gtest/gtest.h>

#include "kernels/samples.h"
#include "kernels/targets.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

// One parameter of AdamW or RAdam, as their papers' algorithms 2 are printed, with decoupled decay for both.
// ε stands where PyTorch has it: beside √v̂ in AdamW, beside √v in RAdam.
struct Reference {
  double p, m = 0, v = 0;

  void update(double g, const AdamStep& step, bool rectified) {
    const double b1 = step.beta1, b2 = step.beta2, t = static_cast<double>(step.step),
                 rate = step.learning_rate;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, t)), v_hat = v / (1 - std::pow(b2, t));
    double move = m_hat / (std::sqrt(v_hat) + step.epsilon);
    if (rectified) {
      const double limit = 2 / (1 - b2) - 1;
      const double rho = limit - 2 * t * std::pow(b2, t) / (1 - std::pow(b2, t));
      if (rho > 5) {
        move = m_hat * std::sqrt(1 - std::pow(b2, t)) / (std::sqrt(v) + step.epsilon);
        move *= std::sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho));
      } else {
        move = m_hat;
      }
    }
    p -= rate * (move + step.weight_decay * p);
  }
};

template <class Update>
void expect_update_right(Update update, bool rectified, std::int64_t size, float epsilon = 1e-8f) {
  Tensor p = normal({size}, 1), m = Tensor::of<float>({size}), v = Tensor::of<float>({size});
  std::vector<Reference> expected;
  for (const float x : p.template span<float>()) expected.push_back({x});
  AdamStep step;
  step.epsilon = epsilon;
  for (step.step = 1; step.step <= 50; ++step.step) {
    step.learning_rate = 1e-2f / static_cast<float>(step.step);
    Tensor g = normal({size}, static_cast<std::uint32_t>(step.step + 1), 0.1f);
    update(any_context(), p.span<float>(), m.span<float>(), v.span<float>(), g.span<float>(), step);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i].update(g.span<float>()[i], step, rectified);
    std::vector<double> parameters;
    for (const Reference& reference : expected) parameters.push_back(reference.p);
    ASSERT_LT(relative_error(p.span<float>(), parameters), 2e-6) << "step " << step.step;
  }
}

TEST(AdamW, FollowsItsPaperOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t size : {0, 1, 63, 64, 65, 257}) expect_update_right(adamw_update, false, size);
  });
}

TEST(RAdam, FollowsItsPaperOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t size : {0, 1, 63, 64, 65, 257}) expect_update_right(radam_update, true, size);
  });
}

// As large as the root of the second moment.
TEST(Optimisers, EpsilonStandsWherePyTorchHasIt) {
  expect_update_right(adamw_update, false, 65, 0.02f);
  expect_update_right(radam_update, true, 65, 0.02f);
}

TEST(Optimisers, TakeTheFactorOfTheGradients) {
  for (const auto update : {adamw_update, radam_update}) {
    const Tensor p = normal({70}, 1), g = normal({70}, 2);
    Tensor scaled = g.clone(), one = p.clone(), other = p.clone(), m = Tensor::of<float>({70}), v = m.clone(),
           other_m = m.clone(), other_v = m.clone();
    for (float& x : scaled.span<float>()) x *= 0.3f;
    update(any_context(), one.span<float>(), m.span<float>(), v.span<float>(), scaled.span<float>(), {});
    update(any_context(), other.span<float>(), other_m.span<float>(), other_v.span<float>(), g.span<float>(),
           {.factor = 0.3f});
    EXPECT_TRUE(same_bits(one.span<float>(), other.span<float>()));
    EXPECT_TRUE(same_bits(v.span<float>(), other_v.span<float>()));
  }
}

TEST(Optimisers, MoveManyParametersAlikeOnAnyThreads) {
  std::vector<float> first;
  for (const int threads : {1, 3}) {
    Context context(threads);
    Tensor p = normal({100003}, 1), m = normal({100003}, 2), v = Tensor::of<float>({100003}),
           g = normal({100003}, 3);
    radam_update(context, p.span<float>(), m.span<float>(), v.span<float>(), g.span<float>(), {.step = 20});
    std::vector<float> all(p.span<float>().begin(), p.span<float>().end());
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first));
  }
}

}  // namespace
}  // namespace linnet::kernels
