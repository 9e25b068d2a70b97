#include "attention/attention_tools.h"
#include "attention/mask_cases.h"
#include "attention/user_maps.h"

namespace linnet {
namespace {

using test::boolean_case;
using test::Bounds;
using test::error_of;
using test::Exact;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::saved;

constexpr double tolerance = 1e-5;
constexpr std::int64_t batch = 2, heads = 2, head_dim = 9, value_dim = 6;
constexpr HeadShape shape = {heads, head_dim, value_dim};

/// A sequence of `first` and then `second` tokens, each in a call of its own with a mask of its own. What the
/// two calls mean together is a boolean mask over all of it: tokens of the second call's first segment see
/// all keys of the first call's last segment.
struct TwoCalls {
  TwoCalls(std::int64_t first, std::int64_t second, MaskCase mask1, MaskCase mask2,
           std::int64_t first_segment, std::uint64_t seed)
      : split(first),
        length(first + second),
        masks{std::move(mask1), std::move(mask2)},
        whole(boolean_case("two calls", batch, length, length, false,
                           [&](std::int64_t b, std::int64_t i, std::int64_t j) {
                             if (i < split) return j < split && masks[0].sees(b, i, j);
                             if (j >= split) return masks[1].sees(b, i - split, j - split);
                             // The last query of the first call's last segment sees all that its state holds.
                             return i - split < first_segment && masks[0].sees(b, split - 1, j);
                           })),
        problem({batch, length, length, heads, head_dim, value_dim}, whole.mask, seed) {}

  AttentionInputs part(int call, const State* initial) const {
    const AttentionInputs all = problem.inputs();
    const std::int64_t begin = call == 0 ? 0 : split, end = call == 0 ? split : length;
    return {all.query.slice(1, begin, end),
            all.key.slice(1, begin, end),
            all.value.slice(1, begin, end),
            masks[call].mask,
            initial,
            begin};
  }
  template <class T>
  View<T> rows(View<T> view, int call) const {
    return call == 0 ? view.slice(1, 0, split) : view.slice(1, split, length);
  }

  void forward(const Attention& attention, State* between, State* last) {
    attention.forward(
        any_context(),
        {rows(problem.out.view<float>(), 0), rows(problem.normaliser.view<float>(), 0), between},
        part(0, nullptr));
    // Kept: the last state may be the one between.
    initial = attention.make_state(batch, shape);
    for (std::int64_t b = 0; b < batch; ++b) initial->copy(b, *between, b);
    attention.forward(any_context(),
                      {rows(problem.out.view<float>(), 1), rows(problem.normaliser.view<float>(), 1), last},
                      part(1, between));
  }

  /// Gradients of the second call alone; the first one's outputs do not enter the loss.
  void backward(const Attention& attention) {
    const View<const float> out = problem.out.view<float>(), normaliser = problem.normaliser.view<float>();
    attention.backward(any_context(),
                       {rows(problem.dq.view<float>(), 1), rows(problem.dk.view<float>(), 1),
                        rows(problem.dv.view<float>(), 1)},
                       rows(std::as_const(problem.grad).view<float>(), 1), part(1, initial.get()),
                       rows(out, 1), rows(normaliser, 1));
  }

  std::int64_t split, length;
  MaskCase masks[2];
  MaskCase whole;
  Problem problem;
  std::unique_ptr<State> initial;
};

/// Causal or prefix masks with everything that goes along, for pieces around the tiles' sizes.
void for_each_pair(const std::function<void(TwoCalls&)>& body) {
  const auto plain = [](std::int64_t kind, std::int64_t n) {
    return kind == 0 ? test::causal_case() : test::prefix_case({kind == 1 ? n / 2 : n});
  };
  std::uint64_t seed = 200;
  for (const auto& [first, second] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 40}, {1, 33}, {31, 64}, {32, 70}, {64, 1}, {65, 32}, {100, 97}, {40, 0}}) {
    for (const std::int64_t kind : {0, 1, 2}) {
      for (const bool segments : {false, true}) {
        for (const bool padding : {false, true}) {
          ++seed;
          MaskCase masks[2] = {plain(kind, first), plain((kind + 1) % 3, second)};
          std::int64_t front = second;
          if (segments) {
            const Bounds bounds[2] = {test::random_bounds(first, seed),
                                      test::random_bounds(second, seed + 1000)};
            for (int call = 0; call < 2; ++call)
              masks[call] = test::with_segments(masks[call], {bounds[call]});
            if (bounds[1].size() > 1) front = bounds[1][1];
          }
          if (padding) {
            const std::int64_t n[2] = {first, second};
            for (int call = 0; call < 2; ++call)
              masks[call] =
                  test::with_key_lengths(masks[call], test::random_lengths(batch, n[call], seed + call));
          }
          TwoCalls calls(first, second, masks[0], masks[1], front, seed);
          SCOPED_TRACE(masks[0].what + "; then " + masks[1].what +
                       fmt::format("; {} and {} tokens, seed {}", first, second, seed));
          body(calls);
        }
      }
    }
  }
}

const std::vector<StateSums> both_sums = {StateSums::plain, StateSums::compensated};

AttentionOptions with_sums(StateSums sums) {
  AttentionOptions options;
  options.linear.sums = sums;
  return options;
}

TEST(LinearMaskStates, TwoCallsMakeAWhole) {
  for (const StateSums sums : both_sums) {
    for (const bool in_place : {false, true}) {
      for_each_pair([&](TwoCalls& calls) {
        const auto attention = make_attention(with_sums(sums));
        const auto between = attention->make_state(batch, shape), last = attention->make_state(batch, shape);
        calls.forward(*attention, between.get(), in_place ? between.get() : last.get());
        EXPECT_LT(error_of(calls.problem.out, Exact({}, calls.problem, false).out), tolerance);
      });
    }
  }
}

TEST(LinearMaskStates, GradientsContinueAnInitialState) {
  for (const StateSums sums : both_sums) {
    for_each_pair([&](TwoCalls& calls) {
      const auto attention = make_attention(with_sums(sums));
      const auto between = attention->make_state(batch, shape);
      calls.forward(*attention, between.get(), between.get());
      calls.backward(*attention);
      for (std::int64_t b = 0; b < batch; ++b)
        std::fill_n(calls.problem.grad.view<float>().at(b), calls.split * heads * value_dim, 0.0f);
      const Exact exact({}, calls.problem, true);
      const double visible = calls.whole.visible_keys(batch, calls.length, calls.length);
      const auto expect = [&](const char* what, const Tensor& found, const Tensor& whole) {
        std::vector<float> a;
        std::vector<double> e;
        for (std::int64_t b = 0; b < batch; ++b)
          for (std::int64_t i = calls.split; i < calls.length; ++i) {
            const std::int64_t width = heads * found.shape()[3];
            a.insert(a.end(), found.view<float>().at(b, i), found.view<float>().at(b, i) + width);
            e.insert(e.end(), whole.view<double>().at(b, i), whole.view<double>().at(b, i) + width);
          }
        EXPECT_LT(relative_error(a, e, 0.03 * std::sqrt(double(e.size()) / (1 + visible))), tolerance)
            << what;
      };
      expect("query", calls.problem.dq, exact.dq);
      expect("key", calls.problem.dk, exact.dk);
      expect("value", calls.problem.dv, exact.dv);
    });
  }
}

// What is left behind is what a step goes on from: the last segment without padding.
TEST(LinearMaskStates, StepsContinueWhatTheLastSegmentLeaves) {
  for (const StateSums sums : both_sums) {
    for_each_pair([&](TwoCalls& calls) {
      const auto attention = make_attention(with_sums(sums));
      const auto state = attention->make_state(batch, shape);
      calls.forward(*attention, state.get(), state.get());
      // The next token sees what a query after the last one would.
      const Problem next({batch, 1, 1, heads, head_dim, value_dim}, Mask::causal(), 7);
      Problem after({batch, 1, calls.length + 1, heads, head_dim, value_dim}, Mask::full(), 7);
      const std::int64_t end = calls.length;
      const MaskCase sees = boolean_case(
          "step", batch, 1, end + 1, false,
          [&](std::int64_t b, auto, std::int64_t j) { return j == end || calls.whole.sees(b, end - 1, j); });
      for (std::int64_t b = 0; b < batch; ++b) {
        std::copy_n(calls.problem.k.view<float>().at(b), end * heads * head_dim, after.k.view<float>().at(b));
        std::copy_n(calls.problem.v.view<float>().at(b), end * heads * value_dim,
                    after.v.view<float>().at(b));
        std::copy_n(next.q.view<float>().at(b), heads * head_dim, after.q.view<float>().at(b));
        std::copy_n(next.k.view<float>().at(b), heads * head_dim, after.k.view<float>().at(b, end));
        std::copy_n(next.v.view<float>().at(b), heads * value_dim, after.v.view<float>().at(b, end));
      }
      after.mask = sees.mask;
      Problem stepped({batch, 1, 1, heads, head_dim, value_dim}, Mask::causal(), 7);
      test::run_steps(*attention, stepped, *state, 0, 1);
      EXPECT_LT(error_of(stepped.out, Exact({}, after, false).out), tolerance);
    });
  }
}

TEST(LinearMaskStates, UsersMapsLearnWhereACallContinues) {
  AttentionOptions options;
  options.linear.feature_map = std::make_shared<test::Positional>();
  const auto attention = make_attention(options);
  for (const std::int64_t first : {1, 32, 45, 70}) {
    TwoCalls calls(first, 90, test::causal_case(), test::prefix_case({20}), 90, 300 + first);
    const auto state = attention->make_state(batch, shape);
    calls.forward(*attention, state.get(), state.get());
    calls.backward(*attention);
    for (std::int64_t b = 0; b < batch; ++b)
      std::fill_n(calls.problem.grad.view<float>().at(b), first * heads * value_dim, 0.0f);
    const Exact exact(options, calls.problem, true);
    EXPECT_LT(error_of(calls.problem.out, exact.out), tolerance);
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto count = std::size_t(90 * heads * head_dim);
      EXPECT_LT(relative_error(std::span(calls.problem.dk.view<float>().at(b, first), count),
                               std::span(exact.dk.view<double>().at(b, first), count), 0.01),
                tolerance);
    }
  }
}

TEST(LinearMaskStates, PositionsCountTheKeysSeen) {
  const auto attention = make_attention({});
  const auto state = attention->make_state(batch, shape);
  Problem problem({batch, 70, 70, heads, head_dim, value_dim}, Mask::prefix({30}).with_key_lengths({0, 41}),
                  9);
  AttentionOutputs outputs = problem.outputs();
  outputs.final = state.get();
  problem.forward(*attention);
  attention->forward(any_context(), outputs, problem.inputs());
  EXPECT_EQ(state->position(0), 0);
  EXPECT_EQ(state->position(1), 41);
  for (const float number : saved(*state, 0)) EXPECT_EQ(number, 0);
}

TEST(LinearMaskStates, CompensatedSumsTakeTwiceTheBytes) {
  const auto plain = make_attention(with_sums(StateSums::plain))->make_state(1, shape);
  const auto compensated = make_attention(with_sums(StateSums::compensated))->make_state(1, shape);
  EXPECT_EQ(plain->bytes(0), heads * (head_dim * value_dim + head_dim) * sizeof(float));
  EXPECT_EQ(compensated->bytes(0), 2 * plain->bytes(0));
  EXPECT_EQ(make_attention({})->make_state(1, shape)->bytes(0), compensated->bytes(0));
}

// Bit for bit, so that a restored or forked stream goes on as the one it came from.
TEST(LinearMaskStates, SavedAndCopiedStatesGoOnAlike) {
  for (const StateSums sums : both_sums) {
    const auto attention = make_attention(with_sums(sums));
    Problem problem({batch, 300, 300, heads, head_dim, value_dim}, Mask::causal(), 10);
    const auto state = attention->make_state(batch, shape), copied = attention->make_state(batch, shape),
               restored = attention->make_state(batch, shape);
    test::run_steps(*attention, problem, *state, 0, 200);
    for (std::int64_t b = 0; b < batch; ++b) {
      copied->copy(b, *state, b);
      restored->restore(b, saved(*state, b), state->position(b));
    }
    test::run_steps(*attention, problem, *state, 200, 300);
    const Tensor out = problem.out.clone();
    for (State* other : {copied.get(), restored.get()}) {
      test::run_steps(*attention, problem, *other, 200, 300);
      EXPECT_TRUE(test::equal(problem.out, out));
      for (std::int64_t b = 0; b < batch; ++b) {
        EXPECT_EQ(other->position(b), 300);
        EXPECT_EQ(saved(*other, b), saved(*state, b));
      }
    }
    EXPECT_LT(error_of(problem.out, Exact({}, problem, false).out), tolerance);
  }
}

}  // namespace
}  // namespace linnet
