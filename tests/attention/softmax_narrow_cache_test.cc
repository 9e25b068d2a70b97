// Caches of bf16: what f32 caches make of the same keys and values rounded, in half the memory.
#include <gtest/gtest.h>

#include "attention/softmax_parts.h"
#include "kernels/targets.h"
#include "linnet/error.h"

namespace linnet::testing {
namespace {

constexpr std::uint64_t kSeed = 83;

std::unique_ptr<Attention> with_cache(DType type) {
  AttentionOptions options;
  options.family = Family::softmax;
  options.softmax.cache = type;
  return make_attention(options);
}

std::vector<float> rounded(std::vector<float> x) {
  for (float& number : x) number = to_float(to_bf16(number));
  return x;
}

/// The case, and the same with keys and values that are bf16 numbers.
struct Pair {
  Case exact, narrow;
  std::unique_ptr<Attention> wide_cache = with_cache(DType::f32), narrow_cache = with_cache(DType::bf16);

  explicit Pair(const Sizes& sizes) : exact(sizes, Mask::causal(), kSeed), narrow(exact) {
    narrow.key = rounded(narrow.key);
    narrow.value = rounded(narrow.value);
  }
};

std::vector<float> saved(const State& state, std::int64_t slot) {
  std::vector<float> numbers(static_cast<std::size_t>(state.saved_floats(state.position(slot))));
  state.save(slot, numbers);
  return numbers;
}

TEST(SoftmaxNarrowCache, StepsAreThoseOfRoundedKeysAndValues) {
  kernels::for_every_target([] {
    for (const auto& [head_dim, value_dim] :
         {std::pair{1, 1}, {3, 17}, {17, 3}, {64, 64}, {65, 130}, {32, 80}}) {
      Pair pair({2, 300, 300, 2, head_dim, value_dim});
      SCOPED_TRACE(pair.exact.describe(kSeed));
      const auto narrow = pair.narrow_cache->make_state(2, shape_of(pair.exact)),
                 wide = pair.wide_cache->make_state(2, shape_of(pair.exact), 300);
      step_through(pair.exact, *pair.narrow_cache, *narrow, 0, 300);
      step_through(pair.narrow, *pair.wide_cache, *wide, 0, 300);
      EXPECT_EQ(pair.exact.out, pair.narrow.out);
      EXPECT_EQ(saved(*narrow, 1), saved(*wide, 1));
    }
  });
}

TEST(SoftmaxNarrowCache, TakesHalfTheMemory) {
  Pair pair({1, 60, 60, 3, 5, 9});
  const auto narrow = pair.narrow_cache->make_state(1, shape_of(pair.exact)),
             wide = pair.wide_cache->make_state(1, shape_of(pair.exact));
  step_through(pair.exact, *pair.narrow_cache, *narrow, 0, 60);
  step_through(pair.narrow, *pair.wide_cache, *wide, 0, 60);
  EXPECT_EQ(2 * narrow->bytes(0), wide->bytes(0));
  EXPECT_EQ(narrow->saved_floats(60), wide->saved_floats(60));
  EXPECT_EQ(narrow->gradient_floats(0), wide->gradient_floats(0));
  // 61 tokens of 3 heads are an odd number of bf16.
  EXPECT_EQ(pair.narrow_cache->state_floats({3, 5, 10}, 61) - 16, (61 * 3 * 15 + 1) / 2);
}

TEST(SoftmaxNarrowCache, ACallBehindIsThatBehindRoundedKeysAndValues) {
  for (const std::int64_t split : {1, 48, 130, 199}) {
    SCOPED_TRACE(split);
    Pair pair({2, 200, 200, 2, 16, 9});
    const auto narrow = pair.narrow_cache->make_state(2, shape_of(pair.exact)),
               wide = pair.wide_cache->make_state(2, shape_of(pair.exact));
    const Part head(pair.exact, 0, split, nullptr, narrow.get());
    pair.narrow_cache->forward(any_context(), head.out, head.in);
    Case without_cache = pair.exact;
    without_cache.run(false);
    EXPECT_EQ(std::vector(pair.exact.out.begin(), pair.exact.out.begin() + split * 2 * 9),
              std::vector(without_cache.out.begin(), without_cache.out.begin() + split * 2 * 9))
        << "the call's own keys and values are not rounded";
    const Part narrow_head(pair.narrow, 0, split, nullptr, wide.get());
    pair.wide_cache->forward(any_context(), narrow_head.out, narrow_head.in);
    // Then the same tokens for both, and what both leave behind them.
    const Part tail(pair.exact, split, 200, narrow.get(), narrow.get()),
        narrow_tail(pair.narrow, split, 200, wide.get(), wide.get());
    AttentionOutputs out = narrow_tail.out;
    AttentionInputs in = tail.in;
    in.initial = wide.get();
    pair.narrow_cache->forward(any_context(), tail.out, tail.in);
    pair.wide_cache->forward(any_context(), out, in);
    for (std::int64_t b = 0; b < 2; ++b) {
      const auto behind = [&](const std::vector<float>& x) {
        const auto entry = x.begin() + b * 200 * 2 * 9;
        return std::vector<float>(entry + split * 2 * 9, entry + 200 * 2 * 9);
      };
      EXPECT_EQ(behind(pair.exact.out), behind(pair.narrow.out));
      EXPECT_EQ(saved(*narrow, b), rounded(saved(*wide, b)));
    }
  }
}

TEST(SoftmaxNarrowCache, SavedAndCopiedSlotsContinueAlike) {
  Pair pair({1, 90, 90, 3, 5, 9});
  const auto state = pair.narrow_cache->make_state(2, shape_of(pair.exact));
  step_through(pair.exact, *pair.narrow_cache, *state, 0, 60);
  const std::vector<float> numbers = saved(*state, 0);
  EXPECT_EQ(numbers, rounded(numbers));
  const auto restored = pair.narrow_cache->make_state(1, shape_of(pair.exact));
  restored->restore(0, numbers, 60);
  state->copy(1, *state, 0);
  const auto copied = pair.narrow_cache->make_state(1, shape_of(pair.exact));
  copied->copy(0, *state, 1);
  Case first = pair.exact, second = pair.exact;
  step_through(pair.exact, *pair.narrow_cache, *state, 60, 90);
  step_through(first, *pair.narrow_cache, *restored, 60, 90);
  step_through(second, *pair.narrow_cache, *copied, 60, 90);
  EXPECT_EQ(first.out, pair.exact.out);
  EXPECT_EQ(second.out, pair.exact.out);
}

TEST(SoftmaxNarrowCache, LiesInTheCallersMemory) {
  Pair pair({1, 40, 40, 3, 5, 9});
  const std::int64_t floats = pair.narrow_cache->state_floats(shape_of(pair.exact), 40);
  std::vector<float> memory(static_cast<std::size_t>(floats), NAN);
  const auto theirs = pair.narrow_cache->make_state(1, shape_of(pair.exact), 40, memory),
             own = pair.narrow_cache->make_state(1, shape_of(pair.exact));
  Case again = pair.exact;
  step_through(pair.exact, *pair.narrow_cache, *theirs, 0, 39);
  step_through(again, *pair.narrow_cache, *own, 0, 39);
  EXPECT_EQ(std::vector(again.out.begin(), again.out.begin() + 39 * 27),
            std::vector(pair.exact.out.begin(), pair.exact.out.begin() + 39 * 27));
  const auto* numbers = reinterpret_cast<const bf16*>(memory.data());
  // Keys [H, capacity, E], then values [H, capacity, M].
  EXPECT_EQ(to_float(numbers[(2 * 40 + 38) * 5 + 4]), pair.narrow.key[(38 * 3 + 2) * 5 + 4]);
  EXPECT_EQ(to_float(numbers[3 * 40 * 5 + (1 * 40 + 7) * 9 + 3]), pair.narrow.value[(7 * 3 + 1) * 9 + 3]);
  step_through(pair.exact, *pair.narrow_cache, *theirs, 39, 40);
  EXPECT_THROW(step_through(pair.exact, *pair.narrow_cache, *theirs, 0, 1), Error) << "it is full";
}

TEST(SoftmaxNarrowCache, OtherTypesAreRefused) {
  EXPECT_THROW(with_cache(DType::i8), Error);
  Pair pair({1, 4, 4, 1, 8, 8});
  const auto narrow = pair.narrow_cache->make_state(1, shape_of(pair.exact)),
             wide = pair.wide_cache->make_state(1, shape_of(pair.exact));
  EXPECT_THROW(narrow->copy(0, *wide, 0), Error);
  EXPECT_THROW(wide->copy(0, *narrow, 0), Error);
}

}  // namespace
}  // namespace linnet::testing
