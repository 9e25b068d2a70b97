// The strided family: both patterns against softmax's reference under the boolean mask of the pattern.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/family_cases.h"

namespace linnet::test {
namespace {

constexpr std::uint64_t kSeed = 91;

AttentionOptions strided_options(std::int64_t stride, std::int64_t summary = 0) {
  AttentionOptions options;
  options.family = Family::strided;
  options.strided.stride = stride;
  options.strided.pattern = summary == 0 ? SparsePattern::strided : SparsePattern::fixed;
  if (summary != 0) options.strided.summary = summary;
  return options;
}

const std::vector<std::pair<std::int64_t, std::int64_t>> kPatterns = {
    {0, 0}, {1, 0}, {7, 0}, {32, 0}, {500, 0}, {0, 8}, {1, 1}, {7, 2}, {7, 7}, {32, 8}, {500, 8}};

TEST(Strided, MatchesTheReferenceAtAwkwardSizes) {
  for (const auto& [stride, summary] : kPatterns) {
    for (const std::int64_t n : {0, 1, 63, 64, 65, 200}) {
      const auto options = strided_options(stride, summary);
      Problem problem({1, n, n, 1, 17, 9}, Mask::causal(), kSeed);
      SCOPED_TRACE(fmt::format("stride {}, summary {}, {}", stride, summary, problem.describe(kSeed)));
      expect_reference(options, problem, Exact(options, problem, true), std::min<double>(n, 30));
    }
  }
}

// Blocks are larger where there are many heads, and sums are taken in groups of keys: where a group ends may
// not depend on the block.
TEST(Strided, AHeadBehindAStateDoesNotDependOnTheOthers) {
  const std::int64_t before = 6100, length = before + 300, many = 16, dim = 4;
  const auto attention = make_attention(strided_options(6200, 8));
  const auto out_of = [&](Problem& problem, std::int64_t heads) {
    const auto state = attention->make_state(1, {heads, dim, dim});
    const Part first(problem, 0, before, nullptr, state.get());
    attention->forward(any_context(), first.out, first.in);
    const Part second(problem, before, length, state.get(), nullptr);
    attention->forward(any_context(), second.out, second.in);
  };
  Problem all({1, length, length, many, dim, dim}, Mask::causal(), kSeed);
  Problem one({1, length, length, 1, dim, dim}, Mask::causal(), kSeed);
  for (std::int64_t i = 0; i < length; ++i) {
    std::copy_n(all.q.view<float>().at(0, i, 0), dim, one.q.view<float>().at(0, i, 0));
    std::copy_n(all.k.view<float>().at(0, i, 0), dim, one.k.view<float>().at(0, i, 0));
    std::copy_n(all.v.view<float>().at(0, i, 0), dim, one.v.view<float>().at(0, i, 0));
  }
  out_of(all, many);
  out_of(one, 1);
  for (std::int64_t i = before; i < length; ++i)
    for (std::int64_t e = 0; e < dim; ++e)
      ASSERT_EQ(all.out.view<float>()(0, i, 0, e), one.out.view<float>()(0, i, 0, e)) << i;
}

TEST(Strided, ManyChunksMatchTheReferenceWithAnyThreads) {
  for (const auto& [stride, summary] : kPatterns) {
    const auto options = strided_options(stride, summary);
    const Sizes sizes = {2, 1000, 1000, 1, 9, 5};
    Problem problem(sizes, Mask::causal().with_key_lengths({1000, 700}), kSeed);
    SCOPED_TRACE(fmt::format("stride {}, summary {}", stride, summary));
    expect_reference(options, problem, Exact(options, problem, true), 60);
    expect_bits_of_any_thread_count(options, sizes, problem.mask);
  }
}

TEST(Strided, KeyLengthsMatchTheReference) {
  for (const auto& [stride, summary] : kPatterns) {
    if (stride == 1 || stride == 500) continue;
    for (const std::int64_t length : {0, 31, 100}) {
      const auto options = strided_options(stride, summary);
      Problem problem({2, 130, 130, 1, 8, 5}, Mask::causal().with_key_lengths({length, 130}), kSeed);
      SCOPED_TRACE(fmt::format("stride {}, summary {}, length {}", stride, summary, length));
      expect_reference(options, problem, Exact(options, problem, true), 20);
    }
  }
}

// Where log-sum-exps are large probabilities are divided by their sum: over the near and the far keys
// together.
TEST(Strided, ScoresFarFromZeroKeepTheirGradients) {
  for (const auto& [stride, summary] : kPatterns) {
    for (const float common : {-24.0f, 24.0f}) {
      const auto options = strided_options(stride, summary);
      Problem problem({2, 130, 130, 2, 16, 8}, Mask::causal(), kSeed);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t i = 0; i < 130; ++i) {
          for (std::int64_t h = 0; h < 2; ++h) {
            *problem.q.view<float>().at(b, i, h) = 24;
            *problem.k.view<float>().at(b, i, h) = common;  // a score of ±144 with every key
          }
        }
      }
      SCOPED_TRACE(fmt::format("stride {}, summary {}, {}", stride, summary, common));
      const Exact exact(options, problem, true);
      const auto attention = make_attention(options);
      problem.forward(*attention);
      problem.backward(*attention);
      EXPECT_LT(error_of(problem.out, exact.out), 1e-4);
      EXPECT_LT(error_of(problem.dq, exact.dq, least_gradient(exact.dq, 30)), 1e-4);
      EXPECT_LT(error_of(problem.dk, exact.dk, least_gradient(exact.dk, 30)), 1e-4);
      EXPECT_LT(error_of(problem.dv, exact.dv), 1e-4);
    }
  }
}

// Scores that f32 holds exactly, and log-sum-exps that it does not: near and far keys are weighed by their
// sums. The gradient of a query cancels in its first element, which meets keys of `common` / 64.
TEST(Strided, LargeExactScoresCostNoDigits) {
  constexpr std::int64_t length = 200;
  for (const auto& [stride, summary] : kPatterns) {
    for (const float common : {-144.0f, 144.0f, 8192.0f}) {
      AttentionOptions options = strided_options(stride, summary);
      options.scale = 1;
      Problem problem({1, length, length, 1, 4, 8}, Mask::causal(), kSeed);
      for (Tensor* rows : {&problem.q, &problem.k})
        for (float& x : rows->span<float>()) x = std::round(4 * x) / 4;
      for (std::int64_t i = 0; i < length; ++i) {
        *problem.q.view<float>().at(0, i) = 64;
        *problem.k.view<float>().at(0, i) = common / 64;
      }
      SCOPED_TRACE(fmt::format("stride {}, summary {}, {}", stride, summary, common));
      const Exact exact(options, problem, true);
      const auto attention = make_attention(options);
      problem.forward(*attention);
      problem.backward(*attention);
      EXPECT_LT(error_of(problem.out, exact.out), 1e-6);
      EXPECT_LT(error_of(problem.dq, exact.dq, least_gradient(exact.dq, 30)), common > 1000 ? 1e-4 : 2e-6);
      EXPECT_LT(error_of(problem.dk, exact.dk, least_gradient(exact.dk, 30)), 2e-6);
      EXPECT_LT(error_of(problem.dv, exact.dv), 2e-6);
    }
  }
}

/// For patterns that leave out no key.
void expect_softmax(const AttentionOptions& options, const Sizes& sizes) {
  AttentionOptions softmax;
  softmax.family = Family::softmax;
  Problem a(sizes, Mask::causal(), kSeed), b(sizes, Mask::causal(), kSeed);
  a.forward(*make_attention(options));
  a.backward(*make_attention(options));
  b.forward(*make_attention(softmax));
  b.backward(*make_attention(softmax));
  EXPECT_LT(relative_error(a.out.span<float>(), b.out.span<float>()), 2e-6);
  EXPECT_LT(relative_error(a.normaliser.span<float>(), b.normaliser.span<float>()), 2e-6);
  EXPECT_LT(relative_error(a.dq.span<float>(), b.dq.span<float>()), 5e-6);
  EXPECT_LT(relative_error(a.dk.span<float>(), b.dk.span<float>()), 5e-6);
  EXPECT_LT(relative_error(a.dv.span<float>(), b.dv.span<float>()), 5e-6);
}

TEST(Strided, DenseStridesAreSoftmax) {
  for (const auto& options : {strided_options(1), strided_options(9, 9), strided_options(400)})
    expect_softmax(options, {1, 150, 150, 2, 16, 8});
}

// More keys than one plain sum takes, near and far.
TEST(Strided, ManyKeysMatchSoftmax) {
  for (const auto& options : {strided_options(1), strided_options(7000, 7000), strided_options(7000)})
    expect_softmax(options, {1, 7000, 7000, 1, 4, 4});
}

TEST(Strided, RecurrentFormIsTheParallelOne) {
  for (const auto& [stride, summary] : kPatterns) {
    if (stride == 0) continue;
    SCOPED_TRACE(fmt::format("stride {}, summary {}", stride, summary));
    expect_recurrent_is_parallel(strided_options(stride, summary), 150);
  }
}

TEST(Strided, GradientsBehindAStateMatchTheReference) {
  for (const auto& [stride, summary] : kPatterns) {
    if (stride == 0) continue;
    SCOPED_TRACE(fmt::format("stride {}, summary {}", stride, summary));
    expect_gradients_behind_a_state(strided_options(stride, summary), 120, 50);
    expect_gradients_behind_a_state(strided_options(stride, summary), 120, 64);
  }
}

TEST(Strided, FixedStatesHoldSummariesOnly) {
  const auto attention = make_attention(strided_options(16, 3));
  Problem problem({1, 100, 100, 2, 4, 6}, Mask::causal(), kSeed);
  const auto state = attention->make_state(1, {2, 4, 6});
  for (const std::int64_t end : {15, 16, 31, 32, 100}) {
    run_steps(*attention, problem, *state, state->position(0), end);
    EXPECT_EQ(state->bytes(0), std::size_t(end / 16 * 3 + end % 16) * 2 * 10 * sizeof(float)) << end;
  }
}

// Before its first block is full a stream holds no more than its tokens.
TEST(Strided, FixedStatesReserveNoMoreThanTheTokens) {
  constexpr HeadShape shape = {1, 4, 4};
  const auto wide = make_attention(strided_options(std::int64_t{1} << 40, 1)),
             narrow = make_attention(strided_options(8, 3));
  EXPECT_EQ(wide->state_floats(shape, 20), 20 * 8 + 16);
  EXPECT_EQ(narrow->state_floats(shape, 5), 5 * 8 + 16);
  EXPECT_EQ(narrow->state_floats(shape, 50), (6 * 3 + 8) * 8 + 16);
  for (const std::int64_t capacity : {5, 12, 13, 17}) {
    Problem problem({1, capacity, capacity, 1, 4, 4}, Mask::causal(), kSeed);
    std::vector<float> memory(static_cast<std::size_t>(narrow->state_floats(shape, capacity)));
    const auto own = narrow->make_state(1, shape, capacity, memory);
    run_steps(*narrow, problem, *own, 0, capacity);
    expect_out(strided_options(8, 3), problem);
    const auto state = wide->make_state(1, shape, capacity);
    run_steps(*wide, problem, *state, 0, capacity);
    expect_out(strided_options(std::int64_t{1} << 40, 1), problem);
  }
}

TEST(Strided, MoreTokensThanThereIsMemoryForAreRefused) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& options : {strided_options(8), strided_options(1, 1), strided_options(8, 2)}) {
    const auto attention = make_attention(options);
    EXPECT_THROW(attention->state_floats({1, 4, 4}, most), Error);
    const auto state = attention->make_state(1, {1, 4, 4});
    EXPECT_THROW(state->reserve(0, most), Error);
    Problem problem({1, 20, 20, 1, 4, 4}, Mask::causal(), kSeed);
    run_steps(*attention, problem, *state, 0, 20);
    expect_out(options, problem);
  }
}

TEST(Strided, WidensBrainFloats) {
  expect_brain_floats_widened(strided_options(11), {2, 140, 140, 2, 12, 9}, Mask::causal());
  expect_brain_floats_widened(strided_options(11, 4), {2, 140, 140, 2, 12, 9}, Mask::causal());
}

TEST(Strided, BitsDoNotDependOnThreads) {
  expect_bits_of_any_thread_count(strided_options(20), {2, 300, 300, 2, 16, 8}, Mask::causal());
  expect_bits_of_any_thread_count(strided_options(20, 5), {2, 300, 300, 2, 16, 8}, Mask::causal());
}

TEST(Strided, SaysWhatItCannotDo) {
  const auto attention = make_attention(strided_options(0));
  EXPECT_THAT(message_of([&] {
                attention->make_state(1, {1, 4, 4});
              }),
              testing::HasSubstr("[strided attention] expected a stride for a recurrent form"));
  for (const Mask& mask : {Mask::full(), Mask::window(2, 0), Mask::causal().with_segments({0, 2, 5})}) {
    Problem problem({1, 5, 5, 1, 4, 4}, mask, kSeed);
    EXPECT_THAT(message_of([&] { problem.forward(*attention); }),
                testing::HasSubstr("expected a causal mask without segments, got the mask " + mask.name() +
                                   "; use local, or softmax with a boolean mask of the pattern"));
  }
  EXPECT_THAT(message_of([] { make_attention(strided_options(-3)); }), testing::HasSubstr("got -3"));
  EXPECT_THAT(message_of([] { make_attention(strided_options(8, 9)); }),
              testing::HasSubstr("expected a summary of at least 1 key and at most the stride 8, got 9"));
  Problem problem({1, 5, 5, 1, 4, 4}, Mask::causal(), kSeed);
  EXPECT_THAT(message_of([&] { problem.forward(*make_attention(strided_options(0, 33))); }),
              testing::HasSubstr("expected a summary of at most the stride 32, got 33"));
  EXPECT_EQ(find_family("strided"), Family::strided);
}

}  // namespace
}  // namespace linnet::test
