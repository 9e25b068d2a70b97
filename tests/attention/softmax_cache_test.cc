// The key-value cache: steps against the parallel form, and states that are split, copied, saved and grown.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/softmax_parts.h"
#include "kernels/targets.h"
#include "linnet/error.h"

namespace linnet::testing {
namespace {

constexpr std::uint64_t kSeed = 31;

TEST(SoftmaxCache, StepsMatchTheReference) {
  kernels::for_every_target([] {
    for (const auto& [head_dim, value_dim] :
         {std::pair{1, 1}, {3, 17}, {17, 3}, {64, 64}, {65, 130}, {32, 80}}) {
      Case c({2, 300, 300, 2, head_dim, value_dim}, Mask::causal(), kSeed);
      SCOPED_TRACE(c.describe(kSeed));
      const auto attention = make_softmax_attention(c.options());
      const auto state = attention->make_state(2, shape_of(c));
      step_through(c, *attention, *state, 0, 300);
      c.expect_reference(1e-5, false);
    }
  });
}

TEST(SoftmaxCache, StepsMatchTheReferenceAtThousandTokens) {
  Case c({1, 1000, 1000, 1, 32, 32}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(1, shape_of(c), 1000);
  step_through(c, *attention, *state, 0, 1000);
  c.expect_reference(1e-5, false);
}

TEST(SoftmaxCache, SequencesSplitAnywhereMatchTheReference) {
  for (const auto& [first, second] :
       {std::pair{0, 0}, {1, 2}, {37, 90}, {48, 96}, {100, 100}, {149, 150}, {97, 150}}) {
    Case c({2, 150, 150, 2, 16, 9}, Mask::causal(), kSeed);
    SCOPED_TRACE(fmt::format("split at {} and {}", first, second));
    const auto attention = make_softmax_attention(c.options());
    const auto state = attention->make_state(2, shape_of(c));
    const auto other = attention->make_state(2, shape_of(c));
    const Part head(c, 0, first, nullptr, state.get());
    attention->forward(any_context(), head.out, head.in);
    const Part middle(c, first, second, state.get(), state.get());
    attention->forward(any_context(), middle.out, middle.in);
    const Part tail(c, second, 150, state.get(), other.get());
    attention->forward(any_context(), tail.out, tail.in);
    c.expect_reference(1e-5, false);
    EXPECT_EQ(state->position(1), second);
    EXPECT_EQ(other->position(1), 150);
  }
}

TEST(SoftmaxCache, StepsContinueAPrefill) {
  Case c({2, 200, 200, 2, 16, 16}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(2, shape_of(c), 10);
  const Part prompt(c, 0, 130, nullptr, state.get());
  attention->forward(any_context(), prompt.out, prompt.in);
  step_through(c, *attention, *state, 130, 200);
  c.expect_reference(1e-5, false);
}

TEST(SoftmaxCache, PaddingIsNotStored) {
  Case c({2, 40, 40, 1, 8, 8}, Mask::causal().with_key_lengths({25, 0}), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(2, shape_of(c));
  const Part all(c, 0, 40, nullptr, state.get());
  attention->forward(any_context(), all.out, all.in);
  EXPECT_EQ(state->position(0), 25);
  EXPECT_EQ(state->position(1), 0);
  EXPECT_EQ(state->bytes(0), 25u * 16 * 4);
}

TEST(SoftmaxCache, GradientsBehindACacheAreThoseOfTheWhole) {
  // A gradient that is zero for the first part's outputs: the whole then has the second part's gradients
  // there.
  const std::int64_t length = 230;
  for (const std::int64_t split : {1, 50, 120, 229}) {
    SCOPED_TRACE(fmt::format("split at {}", split));
    Case whole({1, length, length, 2, 20, 12}, Mask::causal(), kSeed);
    std::fill_n(whole.grad_out.begin(), split * 2 * 12, 0.0f);
    whole.run();
    Case c({1, length, length, 2, 20, 12}, Mask::causal(), kSeed);
    c.grad_out = whole.grad_out;
    const auto attention = make_softmax_attention(c.options());
    const auto state = attention->make_state(1, shape_of(c));
    const Part head(c, 0, split, nullptr, state.get());
    attention->forward(any_context(), head.out, head.in);
    const Part tail(c, split, length, state.get(), nullptr);
    attention->forward(any_context(), tail.out, tail.in);
    AttentionGradients gradients = c.gradients();
    gradients.query = gradients.query.slice(1, split, length);
    gradients.key = gradients.key.slice(1, split, length);
    gradients.value = gradients.value.slice(1, split, length);
    attention->backward(any_context(), gradients, c.grad().slice(1, split, length), tail.in, tail.out.out,
                        tail.out.normaliser);
    const auto behind = [&](const std::vector<float>& x, std::int64_t dim) {
      return std::vector<float>(x.begin() + split * 2 * dim, x.end());
    };
    EXPECT_LE(relative_error(behind(c.grad_query, 20), behind(whole.grad_query, 20)), 1e-5);
    EXPECT_LE(relative_error(behind(c.grad_key, 20), behind(whole.grad_key, 20)), 1e-5);
    EXPECT_LE(relative_error(behind(c.grad_value, 12), behind(whole.grad_value, 12)), 1e-5);
  }
}

/// A case cut at `split` into two calls with masks of their own, the second of which continues the first's
/// state. Expects outputs and gradients, where grad_out is zero in the first part, to be those of one call
/// under `whole`.
void expect_continuation(const Mask& whole, const Mask& first, const Mask& second, std::int64_t split,
                         std::int64_t length, std::int64_t held) {
  SCOPED_TRACE(fmt::format("{}, then {}, cut at {} of {}", first.name(), second.name(), split, length));
  Case exact({2, length, length, 2, 11, 6}, whole, kSeed);
  for (std::int64_t b = 0; b < 2; ++b)
    std::fill_n(exact.grad_out.begin() + b * length * 12, split * 12, 0.0f);
  Case c = exact;
  exact.run();
  exact.expect_reference();
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(2, shape_of(c)), final = attention->make_state(2, shape_of(c));
  Part head(c, 0, split, nullptr, state.get()), tail(c, split, length, state.get(), final.get());
  head.in.mask = first;
  tail.in.mask = second;
  attention->forward(any_context(), head.out, head.in);
  attention->forward(any_context(), tail.out, tail.in);
  EXPECT_LE(relative_error(c.out, exact.out), 1e-5);
  EXPECT_EQ(final->position(1), held);
  AttentionGradients gradients = c.gradients();
  gradients.query = gradients.query.slice(1, split, length);
  gradients.key = gradients.key.slice(1, split, length);
  gradients.value = gradients.value.slice(1, split, length);
  attention->backward(any_context(), gradients, c.grad().slice(1, split, length), tail.in, tail.out.out,
                      tail.out.normaliser);
  const auto expect = [&](const std::vector<float>& found, const std::vector<float>& wanted,
                          std::int64_t dim) {
    for (std::int64_t b = 0; b < 2; ++b) {
      const auto behind = [&](const std::vector<float>& x) {
        const auto entry = x.begin() + b * length * 2 * dim;
        return std::vector<float>(entry + split * 2 * dim, entry + length * 2 * dim);
      };
      EXPECT_LE(relative_error(behind(found), behind(wanted)), 1e-5);
    }
  };
  expect(c.grad_query, exact.grad_query, 11);
  expect(c.grad_key, exact.grad_key, 11);
  expect(c.grad_value, exact.grad_value, 6);
}

TEST(SoftmaxCache, SegmentsContinueAcrossCalls) {
  const std::int64_t length = 230;
  for (const std::int64_t split : {1, 60, 149, 160}) {
    // 0 … 150 … 180 … 230: the second call's first segment is what is left of the one that the first leaves.
    std::vector<std::int64_t> head = {0, split}, tail = {0, 150 - split, 180 - split, length - split};
    if (split > 150) {
      head = {0, 150, split};
      tail = {0, 180 - split, length - split};
    }
    expect_continuation(Mask::causal().with_segments({0, 150, 180, length}),
                        Mask::causal().with_segments(head), Mask::causal().with_segments(tail), split, length,
                        50);
  }
}

TEST(SoftmaxCache, PrefixContinuesAState) {
  const std::int64_t length = 150, split = 70, prefix = 33;
  std::vector<std::int64_t> begin(length), end(length);
  for (std::int64_t i = 0; i < length; ++i) end[i] = i < split ? i + 1 : std::max(i + 1, split + prefix);
  expect_continuation(Mask::intervals(begin, end), Mask::causal(), Mask::prefix({prefix}), split, length,
                      length);
}

TEST(SoftmaxCache, PaddingBehindAStateIsNotSeen) {
  const std::int64_t length = 150, split = 70;
  const std::vector<std::int64_t> lengths = {length - 30, length - 30};
  expect_continuation(Mask::causal().with_key_lengths(lengths), Mask::causal(),
                      Mask::causal().with_key_lengths({50, 50}), split, length, length - 30);
  // Padding that reaches into the segment before the last: nothing is left of the last one.
  expect_continuation(Mask::causal().with_segments({0, 125, length}).with_key_lengths(lengths),
                      Mask::causal(), Mask::causal().with_segments({0, 55, 80}).with_key_lengths({50, 50}),
                      split, length, 0);
}

TEST(SoftmaxCache, LaterSegmentsWithoutKeysDoNotSeeTheState) {
  Case c({1, 40, 40, 1, 8, 8}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(1, shape_of(c));
  const Part head(c, 0, 20, nullptr, state.get());
  attention->forward(any_context(), head.out, head.in);
  Part tail(c, 20, 40, state.get(), nullptr);
  tail.in.mask = Mask::causal().with_segments({0, 5, 20}).with_key_lengths({0});
  attention->forward(any_context(), tail.out, tail.in);
  for (std::int64_t i = 20 * 8; i < 25 * 8; ++i) EXPECT_NE(c.out[i], 0);
  for (std::int64_t i = 25 * 8; i < 40 * 8; ++i) EXPECT_EQ(c.out[i], 0);
  for (std::int64_t i = 25; i < 40; ++i) EXPECT_EQ(c.normaliser[i], -INFINITY);
}

TEST(SoftmaxCache, CachedKeysOfAQueryWithoutKeysOfItsOwnAreSeen) {
  Case c({1, 30, 30, 1, 8, 8}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(1, shape_of(c));
  const Part head(c, 0, 29, nullptr, state.get());
  attention->forward(any_context(), head.out, head.in);
  Part tail(c, 29, 30, state.get(), state.get());
  tail.in.mask = Mask::causal().with_key_lengths({0});
  attention->forward(any_context(), tail.out, tail.in);
  EXPECT_EQ(state->position(0), 29);
  Case cross({1, 1, 29, 1, 8, 8}, Mask::full(), kSeed);
  std::copy_n(c.query.end() - 8, 8, cross.query.begin());
  std::copy_n(c.key.begin(), 29 * 8, cross.key.begin());
  std::copy_n(c.value.begin(), 29 * 8, cross.value.begin());
  std::copy_n(c.out.end() - 8, 8, cross.out.begin());
  cross.expect_reference(1e-5, false);
}

TEST(SoftmaxCache, CopiesContinueAlike) {
  Case c({1, 120, 120, 2, 12, 7}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(3, shape_of(c));
  step_through(c, *attention, *state, 0, 80);
  state->copy(2, *state, 0);
  const auto other = attention->make_state(1, shape_of(c));
  other->copy(0, *state, 2);
  EXPECT_EQ(other->position(0), 80);
  EXPECT_EQ(state->position(1), 0);
  Case again = c;
  step_through(c, *attention, *state, 80, 120);
  step_through(again, *attention, *other, 80, 120);
  EXPECT_EQ(again.out, c.out);
  EXPECT_EQ(state->position(2), 80) << "a copy moves with its source";
}

TEST(SoftmaxCache, SavedSlotsAreRestored) {
  Case c({1, 90, 90, 3, 5, 9}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto state = attention->make_state(1, shape_of(c));
  step_through(c, *attention, *state, 0, 60);
  std::vector<float> saved(state->bytes(0) / 4);
  EXPECT_EQ(saved.size(), 60u * 3 * (5 + 9));
  state->save(0, saved);
  // Keys [H, position, E] come first.
  EXPECT_EQ(saved[(1 * 60 + 7) * 5 + 2], c.key[(7 * 3 + 1) * 5 + 2]);
  EXPECT_EQ(saved[3 * 60 * 5 + (2 * 60 + 59) * 9 + 8], c.value[(59 * 3 + 2) * 9 + 8]);
  const auto restored = attention->make_state(1, shape_of(c));
  restored->restore(0, saved, 60);
  Case again = c;
  step_through(c, *attention, *state, 60, 90);
  step_through(again, *attention, *restored, 60, 90);
  EXPECT_EQ(again.out, c.out);
}

TEST(SoftmaxCache, ReservedMemoryChangesNothing) {
  Case small({1, 100, 100, 2, 8, 8}, Mask::causal(), kSeed), large = small;
  const auto attention = make_softmax_attention(small.options());
  const auto grows = attention->make_state(1, shape_of(small));
  const auto reserved = attention->make_state(1, shape_of(small), 100);
  step_through(small, *attention, *grows, 0, 100);
  step_through(large, *attention, *reserved, 0, 100);
  EXPECT_EQ(small.out, large.out);
  EXPECT_EQ(grows->bytes(0), reserved->bytes(0));
  grows->reset(0);
  EXPECT_EQ(grows->position(0), 0);
  EXPECT_EQ(grows->bytes(0), 0u);
  step_through(large, *attention, *grows, 0, 100);
  EXPECT_EQ(small.out, large.out);
}

TEST(SoftmaxCache, StreamsDoNotDependOnTheirNeighbours) {
  Case both({2, 70, 70, 2, 10, 10}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention(both.options());
  const auto pair = attention->make_state(2, shape_of(both));
  Case alone = both;
  both.key[5] = NAN;  // the first stream's
  step_through(both, *attention, *pair, 0, 70);
  const auto single = attention->make_state(1, shape_of(both));
  const std::vector<std::int64_t> slot = {0};
  const AttentionInputs in = alone.inputs();
  for (std::int64_t i = 0; i < 70; ++i) {
    const auto second = [&](auto x) { return token(x, i).slice(0, 1, 2); };
    attention->step(any_context(), second(alone.outputs().out.as<float>()),
                    second(in.query.as<const float>()), second(in.key.as<const float>()),
                    second(in.value.as<const float>()), *single, slot);
  }
  for (std::size_t i = both.out.size() / 2; i < both.out.size(); ++i) EXPECT_EQ(both.out[i], alone.out[i]);
  EXPECT_TRUE(std::isnan(both.out[0]));
  EXPECT_FALSE(std::isnan(both.out[10])) << "the other head";
}

TEST(SoftmaxCache, WhatDoesNotFitIsRefused) {
  Case c({2, 4, 4, 2, 8, 8}, Mask::causal(), kSeed);
  const auto attention = make_softmax_attention({});
  EXPECT_THROW(attention->make_state(-1, shape_of(c)), Error);
  EXPECT_THROW(attention->make_state(1, {0, 8, 8}), Error);
  EXPECT_THROW(attention->make_state(1, shape_of(c), -1), Error);
  const auto state = attention->make_state(2, shape_of(c));
  const auto narrow = attention->make_state(2, {2, 8, 7});
  const auto single = attention->make_state(1, shape_of(c));
  EXPECT_THROW(state->position(2), Error);
  EXPECT_THROW(state->copy(0, *narrow, 0), Error);
  std::vector<float> numbers(33);
  EXPECT_THROW(state->save(0, numbers), Error);
  EXPECT_THROW(state->restore(0, numbers, 1), Error);
  EXPECT_THROW(state->restore(0, {}, -1), Error);
  for (State* wrong : {narrow.get(), single.get()}) {
    const Part initial(c, 0, 4, wrong, nullptr), final(c, 0, 4, nullptr, wrong);
    EXPECT_THROW(attention->forward(any_context(), initial.out, initial.in), Error);
    EXPECT_THROW(attention->forward(any_context(), final.out, final.in), Error);
  }
  Part full(c, 0, 4, state.get(), nullptr);
  full.in.mask = Mask::full();
  EXPECT_THROW(attention->forward(any_context(), full.out, full.in), Error);
  const AttentionInputs in = c.inputs();
  const std::vector<std::int64_t> missing = {0, 2};
  EXPECT_THROW(attention->step(any_context(), token(c.outputs().out.as<float>(), 0),
                               token(in.query.as<const float>(), 0), token(in.key.as<const float>(), 0),
                               token(in.value.as<const float>(), 0), *state, missing),
               Error);
  EXPECT_EQ(state->position(0), 0) << "a refused step leaves the cache alone";
}

}  // namespace
}  // namespace linnet::testing
