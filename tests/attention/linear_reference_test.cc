#include "attention/attention_tools.h"
#include "attention/mask_cases.h"

namespace linnet {
namespace {

using test::Exact;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::some_masks;

// The oracle of the other tests, against the definition written out once more and against differences.

/// out_i = Σ_j γ^(i−j) (φ(q_i)·φ(k_j)) v_j / (Σ_j γ^(i−j) φ(q_i)·φ(k_j) + ε) with elu features.
std::vector<double> by_definition(const Problem& problem, const MaskCase& mask, bool normalise,
                                  double epsilon) {
  const auto phi = [](long double x) { return x > 0 ? x + 1 : std::exp(x); };
  const auto q = problem.q.view<float>(), k = problem.k.view<float>(), v = problem.v.view<float>();
  std::vector<double> out;
  for (std::int64_t b = 0; b < q.extent(0); ++b)
    for (std::int64_t i = 0; i < q.extent(1); ++i)
      for (std::int64_t h = 0; h < q.extent(2); ++h)
        for (std::int64_t m = 0; m < v.extent(3); ++m) {
          long double above = 0, below = epsilon;
          bool any = false;
          for (std::int64_t j = 0; j < k.extent(1); ++j) {
            if (!mask.sees(b, i, j)) continue;
            any = true;
            long double weight = 0;
            for (std::int64_t e = 0; e < q.extent(3); ++e) weight += phi(q(b, i, h, e)) * phi(k(b, j, h, e));
            if (problem.decay.size() != 0)
              for (std::int64_t step = j; step < i; ++step) weight *= problem.decay.view<float>()(h);
            above += weight * v(b, j, h, m);
            below += weight;
          }
          out.push_back(double(!any ? 0 : normalise ? above / below : above));
        }
  return out;
}

TEST(LinearReference, MatchesTheDefinition) {
  for (const auto& [queries, keys] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {12, 12}, {9, 14}, {14, 9}}) {
    for (const MaskCase& mask : test::all_masks(2, queries, keys, 40)) {
      for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
        SCOPED_TRACE(mask.what);
        AttentionOptions options;
        options.linear.normalise = normalise;
        options.linear.epsilon = 0.25f;
        Problem problem({2, queries, keys, 2, 3, 4}, mask.mask, 41);
        if (mask.mask.kind() == Mask::Kind::causal) problem.decaying({0.5f, 0.9f});
        const Exact exact(options, problem, false);
        EXPECT_LT(relative_error(exact.out.span<double>(),
                                 by_definition(problem, mask, normalise == Normalise::sum, 0.25)),
                  1e-14);
      }
    }
  }
}

/// Central differences of Σ out · grad in every number of `input`.
std::vector<double> differences(const AttentionOptions& options, const Exact& exact, const Mask& mask,
                                Tensor& input) {
  const auto loss = [&] {
    Tensor out = Tensor::of<double>(exact.grad.shape());
    reference_forward(options, out.view<double>(), exact.inputs(mask));
    double sum = 0;
    for (std::size_t i = 0; i < out.span<double>().size(); ++i)
      sum += out.span<double>()[i] * exact.grad.span<double>()[i];
    return sum;
  };
  std::vector<double> result;
  for (double& number : input.span<double>()) {
    const double at = number, step = 1e-6;
    number = at + step;
    const double above = loss();
    number = at - step;
    result.push_back((above - loss()) / (2 * step));
    number = at;
  }
  return result;
}

void expect_differences(const AttentionOptions& options, const Problem& problem) {
  Exact exact(options, problem, true);
  for (const auto& [input, gradient] : {std::pair{&exact.q, &exact.dq},
                                        {&exact.k, &exact.dk},
                                        {&exact.v, &exact.dv},
                                        {&exact.decay, &exact.d_decay}})
    EXPECT_LT(
        relative_error(gradient->span<double>(), differences(options, exact, problem.mask, *input), 1e-3),
        1e-6);
}

TEST(LinearReference, GradientMatchesDifferenceForEveryMap) {
  for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
    for (const FeatureMapInfo& info : feature_map_table()) {
      for (const Mask& mask :
           {Mask::causal().with_key_lengths({6, 9}), Mask::full().with_key_lengths({0, 5})}) {
        if (!info.non_negative && normalise == Normalise::sum) continue;
        SCOPED_TRACE(info.name + ", " + mask.name());
        AttentionOptions options;
        options.linear.feature_map = find_feature_map(info.name);
        options.linear.normalise = normalise;
        expect_differences(options, Problem({2, 9, 9, 2, 4, 3}, mask, 11));
      }
    }
  }
}

TEST(LinearReference, GradientMatchesDifferenceForEveryMask) {
  for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
    for (const MaskCase& mask : some_masks(2, 9, 12)) {
      SCOPED_TRACE(mask.what);
      AttentionOptions options;
      options.linear.normalise = normalise;
      expect_differences(options, Problem({2, 9, 9, 2, 3, 2}, mask.mask, 13));
    }
  }
}

TEST(LinearReference, GradientOfDecayMatchesDifference) {
  for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
    for (const Mask& mask :
         {Mask::causal(), Mask::causal().with_key_lengths({6, 9}), Mask::causal().with_segments({0, 4, 9})}) {
      SCOPED_TRACE(mask.name());
      AttentionOptions options;
      options.linear.normalise = normalise;
      Problem problem({2, 9, 9, 3, 3, 2}, mask, 14);
      problem.decaying({0.5f, 0.9f, 0.99f});
      expect_differences(options, problem);
    }
  }
}

}  // namespace
}  // namespace linnet
