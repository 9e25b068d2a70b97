// Softmax over so many keys, or scores so large, that plain f32 sums and log-sum-exps would lose digits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/attention_tools.h"

namespace linnet {
namespace {

using test::Problem;
using test::relative_error;

AttentionOptions softmax_options() {
  AttentionOptions options;
  options.family = Family::softmax;
  return options;
}

/// Row i of the one head of x [1, N, 1, D].
std::span<const float> row_of(const Tensor& x, std::int64_t i) {
  return x.span<float>().subspan(static_cast<std::size_t>(i * x.shape()[3]),
                                 static_cast<std::size_t>(x.shape()[3]));
}

double dot(std::span<const float> x, std::span<const float> y) {
  double sum = 0;
  for (std::size_t e = 0; e < x.size(); ++e) sum += double(x[e]) * double(y[e]);
  return sum;
}

/// What one query gives over all keys, in double precision.
struct Row {
  std::vector<double> out, dq;
  double log_sum = 0;

  Row(const Problem& problem, std::int64_t i)
      : out(static_cast<std::size_t>(problem.v.shape()[3])),
        dq(static_cast<std::size_t>(problem.q.shape()[3])) {
    const std::int64_t keys = problem.k.shape()[1];
    const std::span<const float> query = row_of(problem.q, i), grad = row_of(problem.grad, i);
    const double scale = 1 / std::sqrt(double(query.size()));
    std::vector<double> p(static_cast<std::size_t>(keys));
    for (std::int64_t j = 0; j < keys; ++j) p[j] = scale * dot(query, row_of(problem.k, j));
    const double top = *std::ranges::max_element(p);
    double sum = 0;
    for (double& weight : p) sum += weight = std::exp(weight - top);
    log_sum = top + std::log(sum);
    double correction = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      p[j] /= sum;
      const std::span<const float> value = row_of(problem.v, j);
      for (std::size_t m = 0; m < out.size(); ++m) out[m] += p[j] * value[m];
      correction += p[j] * dot(grad, value);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      const double grad_score = scale * p[j] * (dot(grad, row_of(problem.v, j)) - correction);
      const std::span<const float> key = row_of(problem.k, j);
      for (std::size_t e = 0; e < dq.size(); ++e) dq[e] += grad_score * key[e];
    }
  }
};

/// Scores of unit variance, and values around 3, whose mean is what an error in a sum shows in.
Problem long_problem(const test::Sizes& sizes, Mask mask, std::uint64_t seed) {
  Problem problem(sizes, std::move(mask), seed, 1.7f);
  for (float& value : problem.v.span<float>()) value += 3;
  return problem;
}

TEST(SoftmaxLong, AMillionKeysDoNotDrift) {
  const std::uint64_t seed = 900;
  const std::int64_t queries = 4;
  Problem problem = long_problem({1, queries, 1'000'000, 1, 16, 16}, Mask::full(), seed);
  SCOPED_TRACE(problem.describe(seed));
  const auto attention = make_attention(softmax_options());
  problem.forward(*attention);
  problem.backward(*attention);
  for (std::int64_t i = 0; i < queries; ++i) {
    const Row exact(problem, i);
    EXPECT_LT(relative_error(row_of(problem.out, i), exact.out), 5e-7) << "out of query " << i;
    EXPECT_LT(relative_error(row_of(problem.dq, i), exact.dq), 1e-3) << "gradient of query " << i;
    EXPECT_NEAR(problem.normaliser.span<float>()[i], exact.log_sum, 1e-6) << "log-sum-exp of query " << i;
  }
}

// The last queries of a causal sequence, whose first keys an initial state holds.
TEST(SoftmaxLong, KeysOfAStateDoNotDrift) {
  const std::uint64_t seed = 910;
  const std::int64_t held = 300'000, own = 60;
  Problem all = long_problem({1, held + own, held + own, 1, 16, 16}, Mask::causal(), seed);
  SCOPED_TRACE(all.describe(seed));
  const auto attention = make_attention(softmax_options());
  const auto state = attention->make_state(1, {1, 16, 16}, held);
  std::vector<float> numbers(static_cast<std::size_t>(held * 32));
  const auto values = std::copy_n(all.k.span<float>().begin(), held * 16, numbers.begin());
  std::copy_n(all.v.span<float>().begin(), held * 16, values);
  state->restore(0, numbers, held);

  const auto rest = [&](Tensor& x) {
    return View<float>(x.view<float>().at(0, held), {1, own, 1, x.shape()[3]});
  };
  AttentionInputs inputs{rest(all.q), rest(all.k), rest(all.v), Mask::causal(), state.get()};
  Tensor normaliser = Tensor::of<float>({1, own, 1});
  attention->forward(any_context(), {rest(all.out), normaliser.view<float>()}, inputs);
  attention->backward(any_context(), {rest(all.dq), rest(all.dk), rest(all.dv)}, rest(all.grad), inputs,
                      rest(all.out), normaliser.view<float>());
  const Row exact(all, held + own - 1);
  EXPECT_LT(relative_error(row_of(all.out, held + own - 1), exact.out), 5e-7);
  EXPECT_LT(relative_error(row_of(all.dq, held + own - 1), exact.dq), 1e-3);
}

/// The relative error of a step behind a cache of `held` tokens.
double error_of_step(std::int64_t held, std::uint64_t seed) {
  Problem all = long_problem({1, held + 1, held + 1, 1, 16, 16}, Mask::causal(), seed);
  const auto attention = make_attention(softmax_options());
  const auto state = attention->make_state(1, {1, 16, 16}, held + 1);
  std::vector<float> numbers(static_cast<std::size_t>(held * 32));
  const auto values = std::copy_n(all.k.span<float>().begin(), held * 16, numbers.begin());
  std::copy_n(all.v.span<float>().begin(), held * 16, values);
  state->restore(0, numbers, held);
  test::run_steps(*attention, all, *state, held, held + 1);
  return relative_error(row_of(all.out, held), Row(all, held).out);
}

TEST(SoftmaxLong, StepsOverALongCacheDoNotDrift) { EXPECT_LT(error_of_step(400'000, 920), 1e-6); }

// A step sums keys in slices, and these in groups.
TEST(SoftmaxLong, StepsAreExactAtTheEdgesOfGroups) {
  constexpr std::int64_t slice = 256, group = 24 * slice;
  for (const std::int64_t edge : {slice, group - slice, group, 2 * group - slice, 2 * group})
    for (const std::int64_t keys : {edge - 1, edge, edge + 1, edge + slice / 2})
      EXPECT_LT(error_of_step(keys - 1, 925), 2e-6) << keys << " keys";
}

// Every key has many queries: the sums of keys and values.
TEST(SoftmaxLong, AMillionQueriesDoNotDrift) {
  const std::uint64_t seed = 930;
  const std::int64_t queries = 1'000'000;
  Problem problem = long_problem({1, queries, 3, 1, 4, 4}, Mask::full(), seed);
  for (float& gradient : problem.grad.span<float>()) gradient += 3;
  SCOPED_TRACE(problem.describe(seed));
  test::expect_reference(softmax_options(), problem, test::Exact(softmax_options(), problem, true), 3);
}

// Keys in pairs: their scores, in the thousands, agree to the last bit and share the probability, and the
// log-sum-exp, score + log 2, cannot be told in f32. The gradients must not know.
TEST(SoftmaxLong, ScoresInTheThousandsKeepTheirGradients) {
  const std::uint64_t seed = 940;
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    Problem problem({1, 120, 120, 2, 16, 8}, mask, seed, 60);
    SCOPED_TRACE(problem.describe(seed));
    const View<float> keys = problem.k.view<float>();
    for (std::int64_t j = 0; j < 120; j += 2)
      for (std::int64_t h = 0; h < 2; ++h) std::copy_n(keys.at(0, j, h), 16, keys.at(0, j + 1, h));
    const test::Exact exact(softmax_options(), problem, true);
    const auto attention = make_attention(softmax_options());
    problem.forward(*attention);
    problem.backward(*attention);
    EXPECT_LT(test::error_of(problem.out, exact.out), 2e-6);
    EXPECT_LT(test::error_of(problem.dv, exact.dv), 2e-6);
  }
}

}  // namespace
}  // namespace linnet
