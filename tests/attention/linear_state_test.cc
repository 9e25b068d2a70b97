#include "attention/attention_tools.h"
#include "linnet/error.h"

namespace linnet {
namespace {

using test::error_of;
using test::Exact;
using test::for_each_target;
using test::Problem;
using test::random_tensor;
using test::relative_error;
using test::saved;

constexpr double tolerance = 1e-5;

AttentionInputs part(const Problem& problem, std::int64_t begin, std::int64_t end) {
  const AttentionInputs all = problem.inputs();
  return {all.query.slice(1, begin, end),
          all.key.slice(1, begin, end),
          all.value.slice(1, begin, end),
          Mask::causal(),
          nullptr,
          begin};
}

TEST(LinearState, TwoPartsMakeAWhole) {
  const auto attention = make_attention({});
  for (const auto& [e, m] : std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 5}, {17, 64}, {64, 33}}) {
    Problem problem({2, 150, 150, 1, e, m}, Mask::causal(), 21);
    const auto whole = attention->make_state(2, {1, e, m});
    attention->forward(any_context(),
                       {problem.out.view<float>(), problem.normaliser.view<float>(), whole.get()},
                       problem.inputs());
    const Tensor out = problem.out.clone(), normaliser = problem.normaliser.clone();
    const std::vector<float> last = saved(*whole, 1);
    EXPECT_EQ(whole->position(1), 150);
    for (const std::int64_t split : {0, 1, 31, 32, 33, 64, 100, 149, 150}) {
      for (const bool in_place : {true, false}) {
        const auto first = attention->make_state(2, {1, e, m}), second = attention->make_state(2, {1, e, m});
        State* final = in_place ? first.get() : second.get();
        const auto rows = [&](Tensor& tensor, std::int64_t begin, std::int64_t end) {
          return tensor.view<float>().slice(1, begin, end);
        };
        attention->forward(any_context(),
                           {rows(problem.out, 0, split), rows(problem.normaliser, 0, split), first.get()},
                           part(problem, 0, split));
        EXPECT_EQ(first->position(0), split);
        AttentionInputs rest = part(problem, split, 150);
        rest.initial = first.get();
        attention->forward(any_context(),
                           {rows(problem.out, split, 150), rows(problem.normaliser, split, 150), final},
                           rest);
        EXPECT_EQ(final->position(0), 150);
        EXPECT_LT(relative_error(problem.out.span<float>(), out.span<float>()), tolerance)
            << "split at " << split;
        EXPECT_LT(relative_error(problem.normaliser.span<float>(), normaliser.span<float>()), tolerance);
        EXPECT_LT(relative_error(saved(*final, 1), last), tolerance);
      }
    }
  }
}

TEST(LinearState, GradientsContinueAnInitialState) {
  for_each_target([] {
    const auto attention = make_attention({});
    // The second part's gradients, the first being a constant, are those of the whole where only the second's
    // outputs enter the loss.
    Problem problem({2, 120, 120, 2, 17, 20}, Mask::causal(), 22);
    const std::int64_t split = 45;
    for (std::int64_t b = 0; b < 2; ++b) std::fill_n(problem.grad.view<float>().at(b), split * 2 * 20, 0.0f);
    problem.forward(*attention);
    problem.backward(*attention);
    const auto state = attention->make_state(2, {2, 17, 20});
    attention->forward(any_context(), {problem.out.view<float>().slice(1, 0, split), {}, state.get()},
                       part(problem, 0, split));
    AttentionInputs rest = part(problem, split, 120);
    rest.initial = state.get();
    const auto rows = [&](auto view) { return view.slice(1, split, 120); };
    Tensor dq = problem.q.clone(), dk = problem.k.clone(), dv = problem.v.clone();
    attention->backward(
        any_context(), {rows(dq.view<float>()), rows(dk.view<float>()), rows(dv.view<float>())},
        rows(std::as_const(problem.grad).view<float>()), rest, rows(std::as_const(problem.out).view<float>()),
        rows(std::as_const(problem.normaliser).view<float>()));
    for (const auto& [found, whole] : {std::pair{&dq, &problem.dq}, {&dk, &problem.dk}, {&dv, &problem.dv}}) {
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto count = static_cast<std::size_t>((120 - split) * 2 * found->shape()[3]);
        const std::span<const float> a(rows(found->view<float>()).at(b), count),
            e(rows(whole->view<float>()).at(b), count);
        EXPECT_LT(relative_error(a, e), tolerance);
      }
    }
  });
}

TEST(LinearState, StepsContinueAPrefill) {
  for_each_target([] {
    for (const auto& [e, m] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 5}, {17, 65}, {64, 64}, {1, 1}}) {
      const auto attention = make_attention({});
      Problem problem({2, 60, 60, 2, e, m}, Mask::causal(), 23);
      const Exact exact({}, problem, false);
      const auto state = attention->make_state(2, {2, e, m});
      AttentionInputs prompt = part(problem, 0, 40);
      attention->forward(any_context(), {problem.out.view<float>().slice(1, 0, 40), {}, state.get()}, prompt);
      const std::vector<std::int64_t> slots = {0, 1};
      for (std::int64_t i = 40; i < 60; ++i) {
        const auto token = [&](auto view) {
          return decltype(view)(view.at(0, i), {2, view.extent(2), view.extent(3)},
                                {view.stride(0), view.stride(2), 1});
        };
        const AttentionInputs all = problem.inputs();
        attention->step(any_context(), token(problem.out.view<float>()), token(all.query.as<const float>()),
                        token(all.key.as<const float>()), token(all.value.as<const float>()), *state, slots);
      }
      EXPECT_EQ(state->position(0), 60);
      EXPECT_LT(error_of(problem.out, exact.out), tolerance);
    }
  });
}

TEST(LinearState, HoldsTheDocumentedSums) {
  AttentionOptions options;
  options.linear.feature_map = identity_map();
  options.linear.normalise = Normalise::none;
  options.linear.sums = StateSums::plain;
  const auto attention = make_attention(options);
  const Problem problem({1, 3, 3, 2, 4, 5}, Mask::causal(), 24);
  Tensor out = problem.out.clone();
  const auto state = attention->make_state(1, {2, 4, 5});
  attention->forward(any_context(), {out.view<float>(), {}, state.get()}, problem.inputs());
  ASSERT_EQ(state->bytes(0), (2 * 4 * 5 + 2 * 4) * sizeof(float));
  const std::vector<float> numbers = saved(*state, 0);
  const auto k = problem.k.view<float>(), v = problem.v.view<float>();
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t f = 0; f < 4; ++f) {
      double z = 0;
      for (std::int64_t j = 0; j < 3; ++j) z += k(0, j, h, f);
      EXPECT_NEAR(numbers[2 * 4 * 5 + h * 4 + f], z, 1e-6);
      for (std::int64_t m = 0; m < 5; ++m) {
        double s = 0;
        for (std::int64_t j = 0; j < 3; ++j) s += double(k(0, j, h, f)) * v(0, j, h, m);
        EXPECT_NEAR(numbers[(h * 4 + f) * 5 + m], s, 1e-6);
      }
    }
  }
}

TEST(LinearState, PaddingIsNotSeen) {
  const auto attention = make_attention({});
  Problem problem({2, 70, 70, 2, 8, 8}, Mask::causal().with_key_lengths({0, 37}), 25);
  const auto state = attention->make_state(2, {2, 8, 8}), shorter = attention->make_state(2, {2, 8, 8});
  AttentionOutputs outputs = problem.outputs();
  outputs.final = state.get();
  attention->forward(any_context(), outputs, problem.inputs());
  EXPECT_EQ(state->position(0), 0);
  EXPECT_EQ(state->position(1), 37);
  Tensor out = Tensor::of<float>({2, 37, 2, 8});
  attention->forward(any_context(), {out.view<float>(), {}, shorter.get()}, part(problem, 0, 37));
  EXPECT_LT(relative_error(saved(*state, 1), saved(*shorter, 1)), 1e-6);
  for (const float number : saved(*state, 0)) EXPECT_EQ(number, 0);
  // Queries of an entry without keys of its own still see what came before.
  AttentionInputs next = problem.inputs();
  next.initial = shorter.get();
  attention->forward(any_context(), problem.outputs(), next);
  double sum = 0;
  for (const float number : problem.out.span<float>().first(70 * 2 * 8)) sum += std::abs(number);
  EXPECT_GT(sum, 1);
}

TEST(LinearState, CopiesSavesAndResets) {
  const auto attention = make_attention({});
  Problem problem({2, 20, 20, 2, 8, 5}, Mask::causal(), 26);
  const auto state = attention->make_state(2, {2, 8, 5}), other = attention->make_state(3, {2, 8, 5});
  attention->forward(any_context(), {problem.out.view<float>(), {}, state.get()}, problem.inputs());
  other->copy(2, *state, 1);
  EXPECT_EQ(saved(*other, 2), saved(*state, 1));
  EXPECT_EQ(other->position(2), 20);
  other->copy(0, *other, 2);
  EXPECT_EQ(saved(*other, 0), saved(*state, 1));
  other->restore(1, saved(*state, 0), 20);
  EXPECT_EQ(saved(*other, 1), saved(*state, 0));
  // Neighbours are left alone, and a forked stream goes its own way.
  other->reset(1);
  for (const float number : saved(*other, 1)) EXPECT_EQ(number, 0);
  EXPECT_EQ(other->position(1), 0);
  EXPECT_EQ(saved(*other, 2), saved(*state, 1));
  const Tensor q = random_tensor({1, 2, 8}, 27), v = random_tensor({1, 2, 5}, 28);
  Tensor out = Tensor::of<float>({1, 2, 5});
  const std::int64_t slot = 0;
  attention->step(any_context(), out.view<float>(), q.view<float>(), q.view<float>(), v.view<float>(), *other,
                  {&slot, 1});
  EXPECT_NE(saved(*other, 0), saved(*state, 1));
  EXPECT_EQ(saved(*other, 2), saved(*state, 1));
}

TEST(LinearState, StatesOfAnotherShapeAreRefused) {
  const auto attention = make_attention({});
  const auto state = attention->make_state(2, {2, 8, 5});
  for (const HeadShape& shape : {HeadShape{1, 8, 5}, HeadShape{2, 9, 5}, HeadShape{2, 8, 6}}) {
    const auto other = attention->make_state(2, shape);
    EXPECT_THROW(state->copy(0, *other, 0), Error);
    Problem problem({2, 20, 20, 2, 8, 5}, Mask::causal(), 29);
    AttentionInputs inputs = problem.inputs();
    EXPECT_THROW(attention->forward(any_context(), {problem.out.view<float>(), {}, other.get()}, inputs),
                 Error);
    inputs.initial = other.get();
    EXPECT_THROW(attention->forward(any_context(), problem.outputs(), inputs), Error);
  }
  EXPECT_THROW(state->copy(2, *state, 0), Error);
  EXPECT_THROW(state->copy(0, *state, -1), Error);
  EXPECT_THROW(state->reset(2), Error);
  EXPECT_THROW(state->position(-1), Error);
  std::vector<float> numbers(3);
  EXPECT_THROW(state->save(0, numbers), Error);
  EXPECT_THROW(state->restore(0, numbers, 1), Error);
  EXPECT_THROW(state->restore(0, saved(*state, 0), -1), Error);
  AttentionOptions softmax;
  softmax.family = Family::softmax;
  const auto cache = make_attention(softmax)->make_state(2, {2, 8, 5});
  EXPECT_THROW(state->copy(0, *cache, 0), Error);
}

TEST(LinearState, ImpossibleShapesAreRefused) {
  const auto attention = make_attention({});
  EXPECT_THROW(attention->make_state(-1, {2, 8, 5}), Error);
  EXPECT_THROW(attention->make_state(1, {0, 8, 5}), Error);
  EXPECT_THROW(attention->make_state(1, {2, 0, 5}), Error);
  EXPECT_THROW(attention->make_state(1, {2, 8, -5}), Error);
  EXPECT_THROW(attention->make_state(1, {std::int64_t{1} << 40, std::int64_t{1} << 40, 5}), Error);
}

}  // namespace
}  // namespace linnet
