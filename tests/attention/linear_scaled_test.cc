// The linear family with log-scaled maps: features that no float holds.
#include <gmock/gmock.h>

#include "attention/attention_tools.h"
#include "attention/log_scaled_maps.h"
#include "attention/mask_cases.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::all_masks;
using test::Exact;
using test::expect_reference;
using test::for_each_target;
using test::LoudMap;
using test::MaskCase;
using test::Problem;
using test::run_steps;
using test::saved;
using test::Sizes;
using test::some_masks;

AttentionOptions loud(bool signs = false) {
  AttentionOptions options;
  options.linear.feature_map = std::make_shared<LoudMap>(signs);
  return options;
}

/// 1e-5 times the size of the log-scales, about ‖x‖²/2.
double tolerance(const Sizes& sizes, float scale) {
  return 1e-5 * std::max(1.0, double(scale) * scale * double(sizes.head_dim) / 6);
}

void expect_exact(const AttentionOptions& options, const Sizes& sizes, const MaskCase& mask,
                  std::uint64_t seed, float scale = 1.0f) {
  Problem problem(sizes, mask.mask, seed, scale);
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  const Exact exact(options, problem, true);
  expect_reference(options, problem, exact, mask.visible_keys(sizes.batch, sizes.queries, sizes.keys),
                   tolerance(sizes, scale));
}

TEST(LinearScaled, EveryMaskMatchesReferenceAtEveryLength) {
  for (const std::int64_t n : {0, 1, 31, 32, 33, 65, 97, 200})
    for (const MaskCase& mask : all_masks(2, n, n, 10 * n)) expect_exact(loud(), {2, n, n, 1, 5, 7}, mask, n);
}

TEST(LinearScaled, LargeInputsMatchReference) {
  for (const float scale : {3.0f, 10.0f})
    for (const MaskCase& mask : some_masks(2, 131, 30))
      expect_exact(loud(), {2, 131, 131, 2, 6, 9}, mask, 31, scale);
}

TEST(LinearScaled, QueriesAndKeysOfDifferentLengths) {
  for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {5, 0}, {1, 100}, {100, 1}, {200, 7}, {40, 300}})
    for (const MaskCase& mask : all_masks(2, queries, keys, queries))
      expect_exact(loud(), {2, queries, keys, 2, 9, 12}, mask, 30 + queries);
}

// Half the square of a key's length is its log-scale: one that no float holds counts as 0, in both forms.
TEST(LinearScaled, AKeyBeyondAllScalesCountsAsNothing) {
  AttentionOptions options;
  options.linear.feature_map = random_feature_map("favor", 8, {.features = 16, .seed = 3});
  const auto attention = make_attention(options);
  Problem problem({1, 5, 5, 1, 8, 4}, Mask::causal(), 77);
  for (std::int64_t e = 0; e < 8; ++e) *problem.k.view<float>().at(0, 0, 0, e) = 1e20f;
  problem.forward(*attention);
  const std::vector<float> expected(problem.out.span<float>().begin(), problem.out.span<float>().end());
  const auto state = attention->make_state(1, {1, 8, 4});
  run_steps(*attention, problem, *state, 0, 5);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(std::isfinite(expected[i])) << i;
    EXPECT_NEAR(problem.out.span<float>()[i], expected[i], 1e-5) << i;
  }
}

TEST(LinearScaled, EveryInstructionSetMatchesReference) {
  for_each_target([] {
    for (const auto& [e, m] : test::uneven_sizes)
      for (const MaskCase& mask : {test::causal_case(), test::full_case(), test::window_case(40, 0)})
        expect_exact(loud(), {1, 131, 131, 1, e, m}, mask, 43);
  });
}

TEST(LinearScaled, WithoutNormaliserMatchesReference) {
  AttentionOptions options = loud();
  options.linear.normalise = Normalise::none;
  for (const MaskCase& mask : some_masks(2, 110, 50))
    expect_exact(options, {2, 110, 110, 2, 16, 9}, mask, 51);
}

TEST(LinearScaled, WithoutNormaliserWeightsReachTheLargestFloats) {
  AttentionOptions options;
  options.linear.normalise = Normalise::none;
  options.linear.feature_map = std::make_shared<LoudMap>(false, 39.0);  // weights of about e^78
  const Sizes sizes = {2, 110, 110, 2, 6, 9};
  for (const MaskCase& mask : some_masks(2, 110, 50)) expect_exact(options, sizes, mask, 53);
  Problem problem(sizes, Mask::causal(), 54);
  const Exact exact(options, problem, false);
  const auto attention = make_attention(options);
  const auto state = attention->make_state(2, {2, 6, 9});
  run_steps(*attention, problem, *state, 0, 110);
  EXPECT_LT(test::error_of(problem.out, exact.out), tolerance(sizes, 1));
}

/// Keys whose log-scales climb and fall by hundreds within a chunk and from chunk to chunk.
void make_steep(Problem& problem) {
  const View<float> k = problem.k.view<float>();
  for (std::int64_t b = 0; b < k.extent(0); ++b)
    for (std::int64_t j = 0; j < k.extent(1); ++j)
      for (std::int64_t h = 0; h < k.extent(2); ++h)
        for (std::int64_t e = 0; e < k.extent(3); ++e) k(b, j, h, e) *= float((j * 7 + h) % 41) / 2;
}

TEST(LinearScaled, ScalesFarApartMatchReference) {
  for (const MaskCase& mask : some_masks(2, 200, 60)) {
    const Sizes sizes = {2, 200, 200, 2, 5, 7};
    Problem problem(sizes, mask.mask, 61);
    make_steep(problem);
    SCOPED_TRACE(mask.what);
    const Exact exact(loud(), problem, true);
    expect_reference(loud(), problem, exact, mask.visible_keys(2, 200, 200), 1e-3);
  }
}

TEST(LinearScaled, CausalOutputDoesNotDependOnTheFuture) {
  for (const std::int64_t cut : {1, 31, 32, 40, 95, 96}) {
    Problem problem({1, 130, 130, 2, 6, 5}, Mask::causal(), 70);
    const auto attention = make_attention(loud());
    problem.forward(*attention);
    const Tensor before = problem.out.clone();
    for (std::int64_t j = cut; j < 130; ++j)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t e = 0; e < 6; ++e) problem.k.view<float>()(0, j, h, e) *= j == cut + 3 ? NAN : 25;
    problem.forward(*attention);
    for (std::int64_t i = 0; i < cut * 2 * 5; ++i)
      ASSERT_EQ(problem.out.span<float>()[i], before.span<float>()[i]) << cut << " " << i;
  }
}

TEST(LinearScaled, StepsAndStatesMatchReference) {
  for (const StateSums sums : {StateSums::plain, StateSums::compensated}) {
    for (const float scale : {1.0f, 8.0f}) {
      AttentionOptions options = loud();
      options.linear.sums = sums;
      const Sizes sizes = {2, 150, 150, 3, 6, 9};
      Problem problem(sizes, Mask::causal(), 80, scale);
      const Exact exact(options, problem, false);
      const auto attention = make_attention(options);
      const auto state = attention->make_state(2, {3, 6, 9});
      run_steps(*attention, problem, *state, 0, 70);
      // A saved state goes on like the one it was.
      const auto other = attention->make_state(2, {3, 6, 9});
      for (std::int64_t slot = 0; slot < 2; ++slot) {
        EXPECT_EQ(state->bytes(slot), sizeof(float) * 3 * ((sums == StateSums::plain ? 1 : 2) * 9 * 10 + 2));
        other->restore(slot, saved(*state, slot), 70);
      }
      run_steps(*attention, problem, *other, 70, 150);
      EXPECT_LT(test::error_of(problem.out, exact.out), tolerance(sizes, scale));
    }
  }
}

TEST(LinearScaled, ParallelFormContinuesAState) {
  Problem whole({1, 150, 150, 2, 6, 9}, Mask::causal(), 90, 4.0f);
  const auto attention = make_attention(loud());
  whole.forward(*attention);
  const auto state = attention->make_state(1, {2, 6, 9});
  std::vector<float> out;
  for (const auto& [begin, end] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {1, 71}, {71, 150}}) {
    Tensor part = test::unset_tensor({1, end - begin, 2, 9});
    AttentionInputs inputs = whole.inputs();
    inputs.query = std::as_const(whole.q).view<float>().slice(1, begin, end);
    inputs.key = std::as_const(whole.k).view<float>().slice(1, begin, end);
    inputs.value = std::as_const(whole.v).view<float>().slice(1, begin, end);
    inputs.initial = state.get();
    inputs.position = begin;
    attention->forward(any_context(), {part.view<float>(), {}, state.get()}, inputs);
    out.insert(out.end(), part.span<float>().begin(), part.span<float>().end());
  }
  EXPECT_LT(test::relative_error(out, whole.out.span<float>()), 1e-4);
}

TEST(LinearScaled, BitsDoNotDependOnThreads) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3, 8}) {
    Context context(threads);
    Problem problem({1, 300, 300, 3, 16, 40}, Mask::causal(), 95, 3.0f);
    const auto attention = make_attention(loud());
    problem.forward(*attention, context);
    problem.backward(*attention, context);
    std::vector<float> all;
    for (const Tensor* tensor : {&problem.out, &problem.dq, &problem.dk, &problem.dv})
      all.insert(all.end(), tensor->span<float>().begin(), tensor->span<float>().end());
    results.push_back(all);
  }
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results[0]);
}

TEST(LinearScaled, DenominatorsThatAreNotPositiveAreCountedAndGiveZeros) {
  Problem problem({2, 90, 90, 2, 4, 5}, Mask::causal(), 100, 2.0f);
  const Exact exact(loud(true), problem, true);
  const auto attention = make_attention(loud(true));
  std::int64_t count = 0;
  AttentionOutputs outputs = problem.outputs();
  outputs.non_positive = &count;
  attention->forward(any_context(), outputs, problem.inputs());
  problem.backward(*attention);
  std::int64_t zeros = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 90; ++i)
      for (std::int64_t h = 0; h < 2; ++h)
        if (problem.out.view<float>()(b, i, h, 0) == 0) {
          ++zeros;
          EXPECT_EQ(problem.normaliser.view<float>()(b, i, h), INFINITY);
          for (std::int64_t e = 0; e < 4; ++e) EXPECT_EQ(problem.dq.view<float>()(b, i, h, e), 0);
        }
  EXPECT_GT(count, 0);
  EXPECT_EQ(count, zeros);
  EXPECT_LT(test::error_of(problem.out, exact.out), 1e-2);
}

/// Gives all queries and keys the same norm.
void scale_to_norm(Problem& problem, double norm) {
  const std::int64_t dim = problem.q.shape().back();
  for (Tensor* x : {&problem.q, &problem.k}) {
    for (float* row = x->span<float>().data(); row != x->span<float>().data() + x->size(); row += dim) {
      double square = 0;
      for (std::int64_t e = 0; e < dim; ++e) square += double(row[e]) * row[e];
      for (std::int64_t e = 0; e < dim; ++e) row[e] *= static_cast<float>(norm / std::sqrt(square));
    }
  }
}

/// Queries and keys of one norm, with 256 features: how many rows are zeros, and what `outputs` counts.
struct Counts {
  std::int64_t zeros = 0, non_positive = 0, vanished = 0;

  Counts(const std::string& map, float norm, bool compare) {
    AttentionOptions options;
    options.linear.feature_map =
        random_feature_map(map, 64, {.features = 256, .directions = Directions::orthogonal, .seed = 3});
    Problem problem({1, 256, 256, 1, 64, 5}, Mask::full(), 105);
    scale_to_norm(problem, norm);
    AttentionOutputs outputs = problem.outputs();
    outputs.non_positive = &non_positive;
    outputs.vanished = &vanished;
    make_attention(options)->forward(any_context(), outputs, problem.inputs());
    for (std::int64_t i = 0; i < 256; ++i) zeros += problem.out.view<float>()(0, i, 0, 0) == 0;
    if (!compare) return;
    // Log-scales of a thousand, whose rounding is that of the weights.
    EXPECT_LT(test::error_of(problem.out, Exact(options, problem, false).out), 1e-2);
  }
};

// The largest feature of a query and that of a key belong to different directions: the products of their rows
// are e^-75 of the largest that there could be, and less.
TEST(LinearScaled, NoPositiveRowVanishesAtANormOf150) {
  for (const char* map : {"favor", "favor-hyperbolic"}) {
    SCOPED_TRACE(map);
    const Counts counts(map, 150, true);
    EXPECT_EQ(counts.zeros, 0);
    EXPECT_EQ(counts.non_positive, 0);
    EXPECT_EQ(counts.vanished, 0);
  }
}

// Weights of pairs are as large as their products are small, and meet features of up to e^28.
TEST(LinearScaled, GradientsOfLargeNormsStayFinite) {
  for (const char* map : {"favor", "favor-hyperbolic"})
    for (const std::int64_t dim : {8, 32, 64})
      for (const float norm : {60.0f, 85.0f, 100.0f, 120.0f, 200.0f})
        for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::window(40, 3)}) {
          SCOPED_TRACE(testing::Message() << map << ", size " << dim << ", norm " << norm);
          AttentionOptions options;
          options.linear.feature_map = random_feature_map(map, dim, {.features = 4 * dim, .seed = 3});
          Problem problem({1, 150, 150, 2, dim, dim}, mask, 320);
          scale_to_norm(problem, norm);
          const auto attention = make_attention(options);
          problem.forward(*attention);
          problem.backward(*attention);
          for (const Tensor* gradient : {&problem.dq, &problem.dk, &problem.dv})
            for (const float x : gradient->span<float>()) ASSERT_TRUE(std::isfinite(x));
        }
}

TEST(LinearScaled, DenominatorsThatVanishAreCountedApart) {
  const Counts vanished("favor", 1000, false);
  EXPECT_GT(vanished.vanished, 0);
  EXPECT_EQ(vanished.vanished, vanished.non_positive);
  EXPECT_EQ(vanished.vanished, vanished.zeros);
  // Negative denominators do not vanish.
  const Counts negative("favor-sincos", 20, false);
  EXPECT_GT(negative.non_positive, negative.vanished);
  EXPECT_EQ(negative.non_positive, negative.zeros);
}

TEST(LinearScaled, OtherMapsCountToo) {
  AttentionOptions options;
  options.linear.feature_map = identity_map();
  Problem problem({1, 40, 40, 1, 4, 5}, Mask::causal(), 110);
  std::int64_t count = 7;
  AttentionOutputs outputs = problem.outputs();
  outputs.non_positive = &count;
  make_attention(options)->forward(any_context(), outputs, problem.inputs());
  std::int64_t negative = 0;
  for (const float denominator : problem.normaliser.span<float>()) negative += denominator <= 0;
  EXPECT_GT(negative, 0);
  EXPECT_EQ(count, 7 + negative);
}

/// Causal masks with all that goes along.
std::vector<MaskCase> causal_masks(std::int64_t n, std::uint64_t seed) {
  const MaskCase causal = test::causal_case();
  const MaskCase packed = test::with_segments(causal, {test::random_bounds(n, seed)});
  return {causal, test::with_key_lengths(causal, test::random_lengths(2, n, seed)), packed,
          test::with_key_lengths(packed, test::random_lengths(2, n, seed + 1))};
}

const std::vector<float> gammas = {0.3f, 0.9f, 0.999f, 1.0f};

/// The gradient of γ of every head for itself, so that a large one does not hide another's. It is a
/// difference of sums that grow with the position, and that are 0 up to rounding where rows are normalised.
void expect_decay_reference(const AttentionOptions& options, const Sizes& sizes, const MaskCase& mask,
                            std::uint64_t seed, float scale = 1.0f) {
  Problem problem(sizes, mask.mask, seed, scale);
  problem.decaying(gammas);
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  const Exact exact(options, problem, true);
  expect_reference(options, problem, exact, 1, 2 * tolerance(sizes, scale));
  const double relative = (options.linear.normalise == Normalise::sum ? 4 : 50) * tolerance(sizes, scale);
  for (std::int64_t h = 0; h < sizes.heads; ++h) {
    const double wanted = exact.d_decay.view<double>()(h), found = problem.d_decay.view<float>()(h);
    EXPECT_LE(std::abs(found - wanted), relative * std::max(std::abs(wanted), double(sizes.queries)))
        << "gradient " << found << ", not " << wanted << ", of gamma " << gammas[h];
  }
}

TEST(LinearScaled, DecayMatchesReference) {
  for (const bool signs : {false, true})
    for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
      AttentionOptions options = loud(signs);
      options.linear.normalise = normalise;
      if (signs && normalise == Normalise::sum) continue;
      for (const std::int64_t n : {0, 1, 2, 31, 32, 33, 63, 64, 65, 97, 200})
        for (const MaskCase& mask : causal_masks(n, 300 + n))
          expect_decay_reference(options, {2, n, n, 4, 5, 7}, mask, 301 + n);
    }
  expect_decay_reference(loud(), {1, 1000, 1000, 4, 6, 5}, test::causal_case(), 302);
  for (const float scale : {3.0f, 10.0f})
    expect_decay_reference(loud(), {2, 131, 131, 4, 6, 9}, test::causal_case(), 303, scale);
}

TEST(LinearScaled, DecayOnEveryInstructionSet) {
  AttentionOptions options;
  options.linear.feature_map = random_feature_map("favor", 16, {.features = 24});
  for_each_target([&] {
    for (const MaskCase& mask : causal_masks(100, 310))
      expect_decay_reference(options, {2, 100, 100, 4, 16, 9}, mask, 311);
  });
}

TEST(LinearScaled, DecayInStepsAndPieces) {
  for_each_target([] {
    for (const StateSums sums : {StateSums::plain, StateSums::compensated}) {
      AttentionOptions options = loud();
      options.linear.sums = sums;
      const auto attention = make_attention(options);
      Problem problem({2, 130, 130, 4, 5, 7}, Mask::causal(), 320);
      problem.decaying(gammas);
      const Exact exact(options, problem, false);
      const auto state = attention->make_state(2, {4, 5, 7}), whole = attention->make_state(2, {4, 5, 7});
      run_steps(*attention, problem, *state, 0, 130);
      EXPECT_LT(test::error_of(problem.out, exact.out), 1e-5);
      // What both forms leave behind is the same state.
      AttentionOutputs outputs = problem.outputs();
      outputs.final = whole.get();
      attention->forward(any_context(), outputs, problem.inputs());
      EXPECT_LT(test::relative_error(saved(*whole, 1), saved(*state, 1)), 1e-5);
    }
  });
}

// A hundred thousand tokens: scales that count from the first row would leave f32 no digits.
TEST(LinearScaled, DecayOverAHundredThousandTokens) {
  constexpr std::int64_t length = 100'000, tail = 300;
  AttentionOptions options;
  options.linear.feature_map = random_feature_map("favor", 4, {.features = 8});
  const auto attention = make_attention(options);
  Problem problem({1, length, length, 2, 4, 3}, Mask::causal(), 330),
      last({1, tail, tail, 2, 4, 3}, Mask::causal(), 331);
  problem.decaying({0.5f, 0.9f});
  last.decaying({0.5f, 0.9f});
  // Of what is longer ago than 300 tokens less than 1e-13 is left.
  for (const auto& [to, from] : {std::pair{&last.q, &problem.q},
                                 {&last.k, &problem.k},
                                 {&last.v, &problem.v},
                                 {&last.grad, &problem.grad}}) {
    const auto rows = from->span<float>().last(to->span<float>().size());
    std::ranges::copy(rows, to->span<float>().begin());
  }
  std::fill_n(problem.grad.span<float>().begin(), (length - tail / 3) * 6, 0.0f);
  std::fill_n(last.grad.span<float>().begin(), (tail - tail / 3) * 6, 0.0f);
  for (Problem* each : {&problem, &last}) {
    each->forward(*attention);
    each->backward(*attention);
  }
  const auto end_of = [](const Tensor& tensor) {
    const auto all = tensor.span<float>();
    return std::vector<float>(all.end() - 100 * 6, all.end());
  };
  EXPECT_LT(test::relative_error(end_of(problem.out), end_of(last.out)), 1e-5);
  EXPECT_LT(test::relative_error(end_of(problem.dk), end_of(last.dk)), 2e-5);
  EXPECT_LT(test::relative_error(problem.d_decay.span<float>(), last.d_decay.span<float>()), 1e-2);
}

// With equal keys a state falls by the same factor in every chunk, which f32 would round to another γ.
TEST(LinearScaled, DecayKeepsAMemoryOfAHundredThousandTokens) {
  constexpr std::int64_t length = 200'000;
  AttentionOptions options;
  options.linear.feature_map = random_feature_map("favor", 4, {.features = 8});
  options.linear.sums = StateSums::compensated;
  const auto attention = make_attention(options);
  for (const float gamma : {0.99999f, 0.999987f}) {
    Problem problem({1, length, length, 1, 4, 3}, Mask::causal(), 340, 0.1f);
    problem.decaying({gamma});
    const View<float> k = problem.k.view<float>();
    for (std::int64_t j = 0; j < length; ++j)
      for (std::int64_t e = 0; e < 4; ++e) k(0, j, 0, e) = 0.1f;
    const auto whole = attention->make_state(1, {1, 4, 3}), stepped = attention->make_state(1, {1, 4, 3});
    AttentionOutputs outputs = problem.outputs();
    outputs.final = whole.get();
    attention->forward(any_context(), outputs, problem.inputs());
    run_steps(*attention, problem, *stepped, 0, length);
    // z is that of one key times Σ γ^i.
    const auto one = attention->make_state(1, {1, 4, 3});
    run_steps(*attention, problem, *one, 0, 1);
    const double g = gamma, sum = (1 - std::pow(g, double(length))) / (1 - g);
    const auto key_sum = [](const State& state, std::size_t f) {
      const std::vector<float> numbers = saved(state, 0);
      const std::size_t at = 8 * 3 + f, part = 8 * 4, scale = numbers.size() - 2;
      return (double(numbers[at]) - numbers[at + part]) *
             std::exp(double(numbers[scale]) + numbers[scale + 1]);
    };
    for (std::size_t f = 0; f < 8; ++f) {
      EXPECT_NEAR(key_sum(*whole, f) / key_sum(*one, f) / sum, 1, 3e-6) << gamma;
      // A step rounds γ z once.
      EXPECT_NEAR(key_sum(*stepped, f) / key_sum(*one, f) / sum, 1, 1e-4) << gamma;
    }
  }
}

TEST(LinearScaled, RefusesStatesOfOtherMaps) {
  const auto attention = make_attention(loud());
  AttentionOptions plain;
  plain.linear.feature_map = relu_map();
  const auto state = make_attention(plain)->make_state(1, {1, 7, 4});
  Problem other({1, 5, 5, 1, 4, 4}, Mask::causal(), 1);
  AttentionOutputs outputs = other.outputs();
  outputs.final = state.get();
  EXPECT_THROW(attention->forward(any_context(), outputs, other.inputs()), Error);
}

}  // namespace
}  // namespace linnet
