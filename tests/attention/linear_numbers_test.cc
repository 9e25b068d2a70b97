#include "attention/attention_tools.h"
#include "attention/mask_cases.h"
#include "linnet/reference.h"

namespace linnet {
namespace {

using test::Bounds;
using test::Exact;
using test::for_each_target;
using test::MaskCase;
using test::Problem;
using test::relative_error;

std::vector<MaskCase> masks(std::int64_t n) {
  const Bounds bounds = {0, 1, n / 3, n / 3 + 1, n};
  return {test::causal_case(),
          test::full_case(),
          test::prefix_case({n / 4}),
          test::window_case(9, 4),
          test::window_case(40, 0),
          test::with_segments(test::causal_case(), {bounds}),
          test::with_segments(test::full_case(), {bounds}),
          test::with_key_lengths(test::causal_case(), {n / 2, n}),
          test::jumping_intervals(n, n, 500),
          test::boolean_cases(2, n, n, 501)[1]};
}

/// Replaces numbers of the inputs by extreme ones: size apart, denormal or zero.
void make_extreme(Tensor& tensor, float size, std::uint64_t seed) {
  const Random random(seed, Draw::test, 3);
  const auto numbers = tensor.span<float>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t kind = random.below(5, i);
    if (kind < 2) numbers[i] = kind == 0 ? size : -size;
    if (kind == 2) numbers[i] = (i % 2 == 0 ? 1e-40f : -1e-42f);
    if (kind == 3) numbers[i] = 0;
  }
}

/// The norms of what the gradients of queries and keys are made of: Σ (g·v_j) / d · φ, from which (g·o) / d
/// is then subtracted. With one visible key little more than rounding is left. They are the gradients of the
/// attention that does not divide, for g/d.
std::pair<double, double> gradient_terms(AttentionOptions options, const Problem& problem,
                                         const Exact& exact) {
  const auto norm = [](const Tensor& tensor) {
    return relative_error(tensor.span<double>(), std::vector<double>(tensor.size()), 1);
  };
  if (options.linear.normalise == Normalise::none) return {norm(exact.dq), norm(exact.dk)};
  options.linear.normalise = Normalise::none;
  Tensor ones = exact.v.clone(), sums = exact.grad.clone(), dq = exact.q.clone(), dk = exact.k.clone(),
         dv = exact.v.clone();
  for (double& number : ones.span<double>()) number = 1;
  ReferenceInputs inputs = exact.inputs(problem.mask);
  inputs.value = ones.view<double>();
  reference_forward(options, sums.view<double>(), inputs);
  for (std::int64_t i = 0; i < sums.size(); ++i)
    sums.span<double>()[i] = exact.grad.span<double>()[i] / (sums.span<double>()[i] + options.linear.epsilon);
  reference_backward(options, {dq.view<double>(), dk.view<double>(), dv.view<double>()},
                     std::as_const(sums).view<double>(), exact.inputs(problem.mask));
  return {norm(dq), norm(dk)};
}

/// Expects all results to be finite and near the reference's, with every instruction set.
void expect_near_reference(const AttentionOptions& options, Problem& problem) {
  const Exact exact(options, problem, true);
  const auto expect = [](const char* what, const Tensor& found, const Tensor& wanted, double terms) {
    for (const float number : found.span<float>()) ASSERT_TRUE(std::isfinite(number)) << what;
    // What is below the smallest normal number may be zero.
    const double least = 1e-36 * std::sqrt(1.0 + double(found.size()));
    EXPECT_LT(test::error_of(found, wanted, std::max(terms, least)), 1e-5) << what;
  };
  const std::pair<double, double> terms = gradient_terms(options, problem, exact);
  for_each_target([&] {
    const auto attention = make_attention(options);
    problem.forward(*attention);
    problem.backward(*attention);
    expect("out", problem.out, exact.out, 0);
    expect("gradient of query", problem.dq, exact.dq, terms.first);
    expect("gradient of key", problem.dk, exact.dk, terms.second);
    expect("gradient of value", problem.dv, exact.dv, 0);
  });
}

// Inputs of exp that are far beyond its limit, as those of a query and a key together.
TEST(LinearNumbers, ExtremeInputsStayFinite) {
  for (const FeatureMapInfo& info : feature_map_table()) {
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(info.name);
    options.linear.normalise = info.non_negative ? Normalise::sum : Normalise::none;
    for (const MaskCase& mask : masks(70)) {
      for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(info.name + ", " + mask.what + ", extreme input " + std::to_string(which));
        Problem problem({2, 70, 70, 1, 12, 9}, mask.mask, 510);
        const float size = info.name == "exp" ? 80.0f : 1e4f;
        if (which == 0 || which == 3) make_extreme(problem.q, size, 511);
        if (which == 1 || which == 3) make_extreme(problem.k, size, 512);
        if (which == 2 || which == 3) make_extreme(problem.v, 1e4f, 513);
        expect_near_reference(options, problem);
      }
    }
  }
}

// Every feature is zero, or nearly: the denominator is ε, and nothing is seen.
TEST(LinearNumbers, FeaturesThatVanishGiveZeros) {
  for (const char* name : {"elu", "relu", "squared-relu"}) {
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(name);
    for (const MaskCase& mask : masks(70)) {
      SCOPED_TRACE(name + (", " + mask.what));
      Problem problem({2, 70, 70, 2, 12, 9}, mask.mask, 520);
      for (float& number : problem.k.span<float>()) number = -1e4f;
      problem.forward(*make_attention(options));
      problem.backward(*make_attention(options));
      for (const float number : problem.out.span<float>()) ASSERT_NEAR(number, 0, 1e-25);
      for (const Tensor* gradient : {&problem.dq, &problem.dk, &problem.dv})
        for (const float number : gradient->span<float>()) ASSERT_TRUE(std::isfinite(number));
    }
  }
}

// Without ε: queries without features, and queries that see only keys without features.
TEST(LinearNumbers, DenominatorsOfZeroGiveZeros) {
  for (const char* name : {"relu", "squared-relu"}) {
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(name);
    options.linear.epsilon = 0;
    const auto attention = make_attention(options);
    for (const MaskCase& mask : masks(70)) {
      SCOPED_TRACE(name + (", " + mask.what));
      Problem problem({2, 70, 70, 2, 12, 9}, mask.mask, 530);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (const std::int64_t i : {5, 40}) std::fill_n(problem.q.view<float>().at(b, i), 24, -1.0f);
        for (std::int64_t j = 0; j < 10; ++j) std::fill_n(problem.k.view<float>().at(b, j), 24, -1.0f);
      }
      const Exact exact(options, problem, true);
      for_each_target([&] {
        std::int64_t non_positive = 0, vanished = 0;
        AttentionOutputs outputs = problem.outputs();
        outputs.non_positive = &non_positive;
        outputs.vanished = &vanished;
        attention->forward(any_context(), outputs, problem.inputs());
        problem.backward(*attention);
        EXPECT_GE(vanished, 4);
        EXPECT_EQ(non_positive, vanished);
        for (std::int64_t b = 0; b < 2; ++b)
          for (const std::int64_t i : {5, 40})
            for (std::int64_t m = 0; m < 18; ++m)
              ASSERT_EQ(problem.out.view<float>().at(b, i)[m], 0) << "query " << i;
        EXPECT_LT(test::error_of(problem.out, exact.out), 1e-5);
        EXPECT_LT(test::error_of(problem.dq, exact.dq), 1e-5);
        EXPECT_LT(test::error_of(problem.dk, exact.dk), 1e-5);
        EXPECT_LT(test::error_of(problem.dv, exact.dv), 1e-5);
        if (mask.mask.kind() != Mask::Kind::causal || mask.mask.has_segments() ||
            !mask.mask.key_lengths().empty())
          return;
        const auto state = attention->make_state(2, {2, 12, 9});
        test::run_steps(*attention, problem, *state, 0, 70);
        EXPECT_LT(test::error_of(problem.out, exact.out), 1e-5);
      });
    }
  }
}

/// Which rows of queries and of keys a NaN may reach, of the entry and head that holds it.
struct Reach {
  Reach(const MaskCase& mask, std::int64_t n, std::int64_t b, std::int64_t at, int which)
      : query(n), key(n), out(n) {
    const bool of_query = which == 0 || which == 3;
    for (std::int64_t i = 0; i < n; ++i) {
      const bool touched = of_query ? i == at : mask.sees(b, i, at);
      query[i] = touched;
      out[i] = touched && which != 3;
      for (std::int64_t j = 0; j < n && touched; ++j) key[j] = key[j] || mask.sees(b, i, j);
    }
    if (!of_query) key[at] = true;
  }

  std::vector<bool> query, key, out;
};

/// Expects the rows of `found` that NaN may not reach to be as `clean`.
void expect_clean(const char* what, const Tensor& found, const Tensor& clean,
                  const std::vector<bool>& reached) {
  const auto all = found.view<float>(), wanted = clean.view<float>();
  for (std::int64_t b = 0; b < all.extent(0); ++b)
    for (std::int64_t i = 0; i < all.extent(1); ++i)
      for (std::int64_t h = 0; h < all.extent(2); ++h) {
        if (b == 1 && h == 1 && reached[i]) continue;
        const auto width = std::size_t(all.extent(3));
        ASSERT_LT(
            relative_error(std::span(all.at(b, i, h), width), std::span(wanted.at(b, i, h), width), 0.03),
            1e-5)
            << what << " of row " << i << ", entry " << b << ", head " << h;
      }
}

TEST(LinearNumbers, NanStaysInItsHeadAndInRowsThatSeeIt) {
  for_each_target([] {
    const std::int64_t n = 101;
    const auto attention = make_attention({});
    for (const MaskCase& mask : masks(n)) {
      Problem problem({2, n, n, 3, 16, 16}, mask.mask, 530);
      problem.forward(*attention);
      problem.backward(*attention);
      const Tensor out = problem.out.clone(), dq = problem.dq.clone(), dk = problem.dk.clone(),
                   dv = problem.dv.clone();
      for (const std::int64_t at : {0, 5, 31, 32, 60, 96, 100}) {
        for (int which = 0; which < 4; ++which) {
          SCOPED_TRACE(mask.what + ", NaN in input " + std::to_string(which) + " at " + std::to_string(at));
          Tensor* inputs[] = {&problem.q, &problem.k, &problem.v, &problem.grad};
          float& number = inputs[which]->view<float>()(1, at, 1, 3);
          const float before = number;
          number = NAN;
          problem.forward(*attention);
          problem.backward(*attention);
          number = before;
          const Reach reach(mask, n, 1, at, which);
          expect_clean("out", problem.out, out, reach.out);
          expect_clean("gradient of query", problem.dq, dq, reach.query);
          expect_clean("gradient of key", problem.dk, dk, reach.key);
          expect_clean("gradient of value", problem.dv, dv, reach.key);
          for (std::int64_t i = 0; i < n; ++i) {
            bool sees = false;
            for (std::int64_t j = 0; j < n; ++j) sees = sees || mask.sees(1, i, j);
            if (reach.out[i] && sees) {
              ASSERT_TRUE(std::isnan(problem.out.view<float>()(1, i, 1, 3))) << i;
            }
          }
        }
      }
    }
  });
}

TEST(LinearNumbers, NanStaysInItsHeadAndInLaterRowsWithDecay) {
  const std::int64_t n = 101;
  const auto attention = make_attention({});
  for (const MaskCase& mask :
       {test::causal_case(), test::with_segments(test::causal_case(), {{0, 40, 101}})}) {
    Problem problem({2, n, n, 3, 16, 16}, mask.mask, 540);
    problem.decaying({0.9f, 0.5f, 1.0f});
    problem.forward(*attention);
    problem.backward(*attention);
    const Tensor out = problem.out.clone(), dq = problem.dq.clone(), dk = problem.dk.clone(),
                 dv = problem.dv.clone(), d_decay = problem.d_decay.clone();
    for (const std::int64_t at : {0, 31, 40, 100}) {
      for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(mask.what + ", NaN in input " + std::to_string(which) + " at " + std::to_string(at));
        Tensor* inputs[] = {&problem.q, &problem.k, &problem.v, &problem.grad};
        float& number = inputs[which]->view<float>()(1, at, 1, 3);
        const float before = number;
        number = NAN;
        problem.forward(*attention);
        problem.backward(*attention);
        number = before;
        const Reach reach(mask, n, 1, at, which);
        expect_clean("out", problem.out, out, reach.out);
        expect_clean("gradient of query", problem.dq, dq, reach.query);
        expect_clean("gradient of key", problem.dk, dk, reach.key);
        expect_clean("gradient of value", problem.dv, dv, reach.key);
        for (const std::int64_t h : {0, 2})
          EXPECT_EQ(problem.d_decay.view<float>()(h), d_decay.view<float>()(h));
      }
    }
  }
}

}  // namespace
}  // namespace linnet
