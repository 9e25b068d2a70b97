// The local family: softmax over a window, against softmax's reference under the boolean mask of the window.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/family_cases.h"
#include "attention/mask_cases.h"

namespace linnet::test {
namespace {

constexpr std::uint64_t kSeed = 81;

AttentionOptions local_options(std::int64_t left, std::int64_t right = 0) {
  AttentionOptions options;
  options.family = Family::local;
  options.local.left = left;
  options.local.right = right;
  return options;
}

TEST(Local, MatchesTheReferenceAtAwkwardSizes) {
  for (const auto& [left, right] : {std::pair{0, 0}, {5, 0}, {63, 7}, {128, 0}, {1000, 1000}}) {
    for (const std::int64_t n : {0, 1, 63, 64, 65, 200}) {
      const auto options = local_options(left, right);
      for (const Mask& mask : {Mask::causal(), Mask::full()}) {
        Problem problem({1, n, n, 2, 17, 9}, mask, kSeed);
        SCOPED_TRACE(fmt::format("{} to {}, {}", left, right, problem.describe(kSeed)));
        expect_reference(options, problem, Exact(options, problem, true), std::min<double>(n, left + 1));
      }
    }
  }
}

TEST(Local, EveryMaskOfIntervalsMatchesTheReference) {
  const auto options = local_options(20, 6);
  for (const MaskCase& mask : some_masks(2, 150, kSeed)) {
    if (mask.mask.kind() == Mask::Kind::boolean) continue;
    Problem problem({2, 150, 150, 1, 8, 5}, mask.mask, kSeed);
    SCOPED_TRACE(mask.what + ", " + problem.describe(kSeed));
    const MaskCase seen = {mask.what, mask.mask, [&](std::int64_t b, std::int64_t i, std::int64_t j) {
                             return mask.sees(b, i, j) && i - j <= 20 && j - i <= 6;
                           }};
    expect_reference(options, problem, Exact(options, problem, true), seen.visible_keys(2, 150, 150));
  }
}

TEST(Local, RecurrentFormIsTheParallelOne) {
  for (const std::int64_t left : {0, 1, 13, 64, 300}) {
    SCOPED_TRACE(left);
    expect_recurrent_is_parallel(local_options(left), 150);
  }
}

TEST(Local, GradientsBehindAStateMatchTheReference) {
  expect_gradients_behind_a_state(local_options(20), 120, 50);
  expect_gradients_behind_a_state(local_options(200), 120, 50);
}

TEST(Local, StatesFollowKeyLengthsAndSegments) {
  const auto options = local_options(10);
  const auto attention = make_attention(options);
  Problem problem({2, 60, 60, 1, 4, 4}, Mask::causal().with_segments({0, 40, 60}).with_key_lengths({60, 30}),
                  kSeed);
  const auto state = attention->make_state(2, {1, 4, 4});
  AttentionOutputs outputs = problem.outputs();
  outputs.final = state.get();
  attention->forward(any_context(), outputs, problem.inputs());
  expect_out(options, problem);
  EXPECT_EQ(state->position(0), 20);
  EXPECT_EQ(state->bytes(0), 11u * 8 * sizeof(float));
  EXPECT_EQ(state->position(1), 0);
  // The first segment continues what a state holds, the second one does not.
  Problem whole({1, 90, 90, 1, 4, 4}, Mask::causal().with_segments({0, 70, 90}), kSeed);
  const auto before = attention->make_state(1, {1, 4, 4});
  const Part head(whole, 0, 30, nullptr, before.get());
  AttentionInputs in = head.in;
  in.mask = Mask::causal();
  attention->forward(any_context(), head.out, in);
  Part tail(whole, 30, 90, before.get(), nullptr);
  tail.in.mask = Mask::causal().with_segments({0, 40, 60});
  attention->forward(any_context(), tail.out, tail.in);
  expect_out(options, whole);
}

TEST(Local, MemoryOfAStreamIsConstant) {
  const auto attention = make_attention(local_options(15));
  Problem problem({1, 100, 100, 2, 4, 6}, Mask::causal(), kSeed);
  const auto state = attention->make_state(1, {2, 4, 6});
  run_steps(*attention, problem, *state, 0, 8);
  EXPECT_EQ(state->bytes(0), 8u * 2 * 10 * sizeof(float));
  run_steps(*attention, problem, *state, 8, 100);
  EXPECT_EQ(state->bytes(0), 16u * 2 * 10 * sizeof(float));
  state->reset(0);
  EXPECT_EQ(state->bytes(0), 0u);
}

TEST(Local, WidensBrainFloats) {
  expect_brain_floats_widened(local_options(30), {2, 140, 140, 2, 12, 9}, Mask::causal());
  expect_brain_floats_widened(local_options(30, 3), {2, 140, 140, 2, 12, 9}, Mask::prefix({9, 50}));
}

TEST(Local, BitsDoNotDependOnThreads) {
  expect_bits_of_any_thread_count(local_options(70, 5), {2, 300, 300, 2, 16, 8}, Mask::full());
}

TEST(Local, SaysWhatItCannotDo) {
  const auto attention = make_attention(local_options(10, 3));
  EXPECT_THAT(message_of([&] {
                attention->make_state(1, {1, 4, 4});
              }),
              testing::HasSubstr("[local attention] expected a window that ends at the query (right 0) for a "
                                 "recurrent form, got right 3"));
  EXPECT_THAT(message_of([] { make_attention(local_options(-1)); }),
              testing::HasSubstr("expected a window of 0 to 2^40 keys to either side, got -1"));
  Problem rectangle({1, 5, 6, 1, 4, 4}, Mask::full(), kSeed);
  EXPECT_THAT(message_of([&] { rectangle.forward(*attention); }),
              testing::HasSubstr("expected as many queries as keys, got 5 and 6"));
  Problem boolean({1, 5, 5, 1, 4, 4}, Mask::boolean([](auto, auto, auto, auto) {}), kSeed);
  EXPECT_THAT(message_of([&] { boolean.forward(*attention); }),
              testing::HasSubstr("use softmax with a boolean mask that is 0 outside the window"));
  const auto causal = make_attention(local_options(10)), other = make_attention(local_options(11));
  Problem problem({1, 5, 5, 1, 4, 4}, Mask::causal(), kSeed);
  const auto state = other->make_state(1, {1, 4, 4});
  const Part part(problem, 0, 5, state.get(), nullptr);
  EXPECT_THAT(message_of([&] { causal->forward(any_context(), part.out, part.in); }),
              testing::HasSubstr("expected the initial state of 11 tokens, got one of 12"));
  EXPECT_THAT(message_of([&] { state->saved_floats(-1); }), testing::HasSubstr("extents of at least 0"));
  EXPECT_EQ(find_family("local"), Family::local);
}

}  // namespace
}  // namespace linnet::test
