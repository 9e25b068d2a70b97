#include "attention/attention_tools.h"
#include "attention/mask_cases.h"

namespace linnet {
namespace {

using test::error_of;
using test::Exact;
using test::for_each_target;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::Sizes;

constexpr double tolerance = 1e-5;

const std::vector<float> gammas = {1e-3f, 0.5f, 0.9f, 0.99f, 0.9999f, 1.0f};
constexpr std::int64_t heads = 6;

/// Causal masks with all that goes along.
std::vector<MaskCase> causal_masks(std::int64_t batch, std::int64_t n, std::uint64_t seed) {
  const MaskCase causal = test::causal_case();
  const MaskCase packed = test::with_segments(causal, {test::random_bounds(n, seed)});
  return {causal, test::with_key_lengths(causal, test::random_lengths(batch, n, seed)), packed,
          test::with_key_lengths(packed, test::random_lengths(batch, n, seed + 1))};
}

/// For each head the root of the sum of the squares of the terms that γ's gradient is made of,
/// γ^(i−j) φ(q_i)·φ(k_j) / d_i · (g_i·v_j, g_i·o_i) · (i − j) / γ with elu features: what is left of it where
/// they cancel, as with one visible key, is measured against a term that does not.
std::vector<double> decay_terms(const Problem& problem, const MaskCase& mask, const Exact& exact) {
  const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  const auto q = exact.q.view<double>(), k = exact.k.view<double>(), v = exact.v.view<double>(),
             g = exact.grad.view<double>(), o = exact.out.view<double>();
  std::vector<double> squares(heads);
  for (std::int64_t b = 0; b < q.extent(0); ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < q.extent(1); ++i) {
        const double gamma = problem.decay.view<float>()(h);
        double denominator = 1e-6, square = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          if (!mask.sees(b, i, j)) continue;
          double weight = 0, of_value = 0, of_out = 0;
          for (std::int64_t e = 0; e < q.extent(3); ++e) weight += phi(q(b, i, h, e)) * phi(k(b, j, h, e));
          weight *= std::pow(gamma, double(i - j));
          for (std::int64_t m = 0; m < v.extent(3); ++m) {
            of_value += g(b, i, h, m) * v(b, j, h, m);
            of_out += g(b, i, h, m) * o(b, i, h, m);
          }
          denominator += weight;
          square += (of_value * of_value + of_out * of_out) * std::pow(weight * double(i - j) / gamma, 2);
        }
        squares[h] += square / (denominator * denominator);
      }
  for (double& square : squares) square = std::sqrt(square);
  return squares;
}

void expect_exact(const AttentionOptions& options, const Sizes& sizes, const MaskCase& mask,
                  std::uint64_t seed, bool every_target = false) {
  Problem problem(sizes, mask.mask, seed);
  problem.decaying(gammas);
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  const Exact exact(options, problem, true);
  const std::vector<double> terms = decay_terms(problem, mask, exact);
  const auto expect = [&] {
    // The heads that forget at once see one key.
    test::expect_reference(options, problem, exact, 1, tolerance);
    // Every head for itself, so that the large gradient of one does not hide another's.
    for (std::int64_t h = 0; h < heads; ++h) {
      const double wanted = exact.d_decay.view<double>()(h), found = problem.d_decay.view<float>()(h);
      EXPECT_LE(std::abs(found - wanted), tolerance * std::max(std::abs(wanted), terms[h]))
          << "gradient " << found << ", not " << wanted << ", of gamma " << gammas[h];
    }
  };
  if (every_target)
    for_each_target(expect);
  else
    expect();
}

TEST(LinearDecay, ParallelMatchesReferenceAtEveryLength) {
  for (const std::int64_t n : {0, 1, 2, 31, 32, 33, 63, 64, 65, 97, 200})
    for (const MaskCase& mask : causal_masks(2, n, 10 + n))
      expect_exact({}, {2, n, n, heads, 5, 7}, mask, 11 + n);
  expect_exact({}, {1, 1000, 1000, heads, 6, 5}, test::causal_case(), 12);
}

TEST(LinearDecay, EveryInstructionSetMatchesReference) {
  for (const auto& [e, m] : test::uneven_sizes)
    for (const MaskCase& mask : causal_masks(1, 100, 20))
      expect_exact({}, {1, 100, 100, heads, e, m}, mask, 21, true);
}

TEST(LinearDecay, EveryMapMatchesReference) {
  for (const FeatureMapInfo& info : feature_map_table()) {
    SCOPED_TRACE(info.name);
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(info.name);
    for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
      options.linear.normalise = normalise;
      if (normalise == Normalise::sum && !info.non_negative) continue;
      expect_exact(options, {1, 100, 100, heads, 16, 9}, test::causal_case(), 31);
    }
  }
}

TEST(LinearDecay, OneIsNoDecay) {
  Problem fixed({2, 150, 150, 2, 12, 10}, Mask::causal(), 40),
      none({2, 150, 150, 2, 12, 10}, Mask::causal(), 40);
  fixed.decaying({1, 1});
  for (Problem* problem : {&fixed, &none}) {
    problem->forward(*make_attention({}));
    problem->backward(*make_attention({}));
  }
  EXPECT_LT(relative_error(fixed.out.span<float>(), none.out.span<float>()), 1e-6);
  EXPECT_LT(relative_error(fixed.dq.span<float>(), none.dq.span<float>()), tolerance);
  EXPECT_LT(relative_error(fixed.dk.span<float>(), none.dk.span<float>()), tolerance);
  EXPECT_LT(relative_error(fixed.dv.span<float>(), none.dv.span<float>()), 1e-6);
}

TEST(LinearDecay, GradientOfDecayMayBeLeftOut) {
  Problem problem({1, 70, 70, heads, 8, 8}, Mask::causal(), 41);
  problem.decaying(gammas);
  const auto attention = make_attention({});
  problem.forward(*attention);
  problem.backward(*attention);
  const Tensor dq = problem.dq.clone(), dk = problem.dk.clone(), dv = problem.dv.clone();
  AttentionGradients gradients = problem.gradients();
  gradients.decay = {};
  attention->backward(any_context(), gradients, std::as_const(problem.grad).view<float>(), problem.inputs(),
                      problem.out.view<float>(), problem.normaliser.view<float>());
  EXPECT_TRUE(test::equal(problem.dq, dq));
  EXPECT_TRUE(test::equal(problem.dk, dk));
  EXPECT_TRUE(test::equal(problem.dv, dv));
}

TEST(LinearDecay, RecurrentMatchesReference) {
  for_each_target([] {
    for (const StateSums sums : {StateSums::plain, StateSums::compensated}) {
      AttentionOptions options;
      options.linear.sums = sums;
      for (const auto& [e, m] : {std::pair<std::int64_t, std::int64_t>{5, 7}, {17, 33}, {64, 64}}) {
        const auto attention = make_attention(options);
        Problem problem({2, 130, 130, heads, e, m}, Mask::causal(), 50);
        problem.decaying(gammas);
        const auto state = attention->make_state(2, {heads, e, m});
        test::run_steps(*attention, problem, *state, 0, 130);
        EXPECT_LT(error_of(problem.out, Exact(options, problem, false).out), tolerance);
      }
    }
  });
}

/// Runs [0, split) and [split, n) one after the other.
void forward_in_two(const Attention& attention, Problem& problem, std::int64_t split, State& state) {
  const std::int64_t n = problem.q.shape()[1];
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, split}, {split, n}}) {
    AttentionInputs inputs = problem.inputs();
    inputs.query = inputs.query.slice(1, begin, end);
    inputs.key = inputs.key.slice(1, begin, end);
    inputs.value = inputs.value.slice(1, begin, end);
    inputs.initial = begin == 0 ? nullptr : &state;
    attention.forward(any_context(),
                      {problem.out.view<float>().slice(1, begin, end),
                       problem.normaliser.view<float>().slice(1, begin, end), &state},
                      inputs);
  }
}

TEST(LinearDecay, TwoCallsAndStepsMakeAWhole) {
  for (const StateSums sums : {StateSums::plain, StateSums::compensated}) {
    AttentionOptions options;
    options.linear.sums = sums;
    const auto attention = make_attention(options);
    for (const std::int64_t split : {1, 31, 32, 33, 64, 100, 149}) {
      Problem problem({2, 150, 150, heads, 9, 6}, Mask::causal(), 60);
      problem.decaying(gammas);
      const auto state = attention->make_state(2, {heads, 9, 6});
      forward_in_two(*attention, problem, split, *state);
      EXPECT_LT(error_of(problem.out, Exact(options, problem, false).out), tolerance) << "split at " << split;
      // Stepping from there is stepping all the way.
      const auto stepped = attention->make_state(2, {heads, 9, 6});
      test::run_steps(*attention, problem, *stepped, 0, 150);
      test::run_steps(*attention, problem, *state, 0, 20);
      const Tensor continued = problem.out.clone();
      test::run_steps(*attention, problem, *stepped, 0, 20);
      EXPECT_LT(relative_error(continued.span<float>(), problem.out.span<float>()), tolerance);
    }
  }
}

TEST(LinearDecay, PaddingDoesNotFadeTheState) {
  const auto attention = make_attention({});
  Problem padded({2, 90, 90, heads, 9, 6}, Mask::causal().with_key_lengths({37, 64}), 70);
  padded.decaying(gammas);
  const auto state = attention->make_state(2, {heads, 9, 6});
  AttentionOutputs outputs = padded.outputs();
  outputs.final = state.get();
  attention->forward(any_context(), outputs, padded.inputs());
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t n = padded.mask.key_lengths()[b];
    const auto alone = attention->make_state(1, {heads, 9, 6});
    AttentionInputs inputs = padded.inputs();
    inputs.mask = Mask::causal();
    inputs.query = inputs.query.slice(0, b, b + 1).slice(1, 0, n);
    inputs.key = inputs.key.slice(0, b, b + 1).slice(1, 0, n);
    inputs.value = inputs.value.slice(0, b, b + 1).slice(1, 0, n);
    attention->forward(any_context(),
                       {padded.out.view<float>().slice(0, b, b + 1).slice(1, 0, n), {}, alone.get()}, inputs);
    const auto continued = [&](State& from, std::int64_t slot) {
      Problem next({1, 10, 10, heads, 9, 6}, Mask::causal(), 71);
      next.decaying(gammas);
      const auto own = attention->make_state(1, {heads, 9, 6});
      own->copy(0, from, slot);
      test::run_steps(*attention, next, *own, 0, 10);
      return next.out.clone();
    };
    const Tensor found = continued(*state, b), wanted = continued(*alone, 0);
    EXPECT_LT(relative_error(found.span<float>(), wanted.span<float>()), 1e-6);
  }
}

/// Σ out · grad over the tokens from `split` on of head h, token by token in double precision: γ is `first`
/// before `split` and `second` from there.
double loss_after(const Problem& problem, std::int64_t split, std::int64_t h, double first, double second) {
  const auto q = problem.q.view<float>(), k = problem.k.view<float>(), v = problem.v.view<float>(),
             grad = problem.grad.view<float>();
  const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  const std::int64_t width = v.extent(3);
  double loss = 0;
  for (std::int64_t b = 0; b < q.extent(0); ++b) {
    std::vector<double> sums(q.extent(3) * (width + 1));  // S and z beside it
    for (std::int64_t i = 0; i < q.extent(1); ++i) {
      std::vector<double> above(width + 1);
      for (std::int64_t e = 0; e < q.extent(3); ++e)
        for (std::int64_t m = 0; m <= width; ++m) {
          double& sum = sums[e * (width + 1) + m];
          sum = (i < split ? first : second) * sum + phi(k(b, i, h, e)) * (m < width ? v(b, i, h, m) : 1.0);
          above[m] += phi(q(b, i, h, e)) * sum;
        }
      for (std::int64_t m = 0; m < width && i >= split; ++m)
        loss += grad(b, i, h, m) * above[m] / (above[width] + 1e-6);
    }
  }
  return loss;
}

TEST(LinearDecay, GradientsContinueAnInitialState) {
  for (const std::int64_t split : {1, 32, 45, 100}) {
    const std::int64_t n = 120;
    const auto attention = make_attention({});
    Problem problem({2, n, n, heads, 9, 6}, Mask::causal(), 80);
    problem.decaying(gammas);
    for (std::int64_t b = 0; b < 2; ++b)
      std::fill_n(problem.grad.view<float>().at(b), split * heads * 6, 0.0f);
    const Exact exact({}, problem, true);
    const auto state = attention->make_state(2, {heads, 9, 6}),
               last = attention->make_state(2, {heads, 9, 6});
    AttentionInputs first = problem.inputs(), second = problem.inputs();
    const auto rest = [&](auto view) { return view.slice(1, split, n); };
    first.query = first.query.slice(1, 0, split);
    first.key = first.key.slice(1, 0, split);
    first.value = first.value.slice(1, 0, split);
    attention->forward(any_context(), {problem.out.view<float>().slice(1, 0, split), {}, state.get()}, first);
    second.query = rest(second.query);
    second.key = rest(second.key);
    second.value = rest(second.value);
    second.initial = state.get();
    const View<float> out = rest(problem.out.view<float>()),
                      normaliser = rest(problem.normaliser.view<float>());
    attention->forward(any_context(), {out, normaliser, last.get()}, second);
    attention->backward(any_context(),
                        {rest(problem.dq.view<float>()), rest(problem.dk.view<float>()),
                         rest(problem.dv.view<float>()), problem.d_decay.view<float>()},
                        rest(std::as_const(problem.grad).view<float>()), second, out, normaliser);
    // The state is a constant, but what of it is left after some tokens is not.
    std::vector<double> differences;
    for (const double gamma : gammas) {
      const std::int64_t h = std::int64_t(differences.size());
      const double step = 1e-6 * gamma;
      differences.push_back((loss_after(problem, split, h, gamma, gamma + step) -
                             loss_after(problem, split, h, gamma, gamma - step)) /
                            (2 * step));
    }
    EXPECT_LT(relative_error(problem.d_decay.span<float>(), differences), tolerance) << "split at " << split;
    for (const auto& [found, wanted] :
         {std::pair{&problem.dq, &exact.dq}, {&problem.dk, &exact.dk}, {&problem.dv, &exact.dv}}) {
      std::vector<float> a;
      std::vector<double> e;
      const std::int64_t width = heads * found->shape()[3];
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t i = split; i < n; ++i) {
          a.insert(a.end(), found->view<float>().at(b, i), found->view<float>().at(b, i) + width);
          e.insert(e.end(), wanted->view<double>().at(b, i), wanted->view<double>().at(b, i) + width);
        }
      EXPECT_LT(relative_error(a, e, 0.02 * std::sqrt(double(e.size()))), tolerance) << "split at " << split;
    }
  }
}

// A state is multiplied by γ^32 once a chunk: rounded to f32, thousands of them make another memory of it.
TEST(LinearDecay, AMemoryOfAHundredThousandTokensIsExact) {
  constexpr std::int64_t length = 400'000, dim = 4;
  for (const float gamma : {0.99999f, 0.999987f, 0.99998f}) {
    const std::uint64_t seed = 960;
    AttentionOptions options;
    options.linear.normalise = Normalise::none;
    Problem problem({1, length, length, 1, dim, dim}, Mask::causal(), seed);
    problem.decaying({gamma});
    for (float& value : problem.v.span<float>()) value += 3;
    SCOPED_TRACE("gamma " + std::to_string(gamma) + ", " + problem.describe(seed));
    problem.forward(*make_attention(options));
    const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
    double sums[dim][dim] = {};
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t f = 0; f < dim; ++f)
        for (std::int64_t m = 0; m < dim; ++m)
          sums[f][m] = double(gamma) * sums[f][m] +
                       phi(problem.k.view<float>()(0, i, 0, f)) * problem.v.view<float>()(0, i, 0, m);
    std::vector<double> wanted(dim);
    for (std::int64_t f = 0; f < dim; ++f)
      for (std::int64_t m = 0; m < dim; ++m)
        wanted[m] += phi(problem.q.view<float>()(0, length - 1, 0, f)) * sums[f][m];
    const float* found = problem.out.view<float>().at(0, length - 1, 0);
    EXPECT_LT(relative_error(std::vector<float>(found, found + dim), wanted), 3e-6);
  }
}

}  // namespace
}  // namespace linnet
