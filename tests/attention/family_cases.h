#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "attention/attention_tools.h"
#include "linnet/error.h"

// What the tests of the kernel and the sparse families share.

namespace linnet::test {

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Tokens begin … end of a problem, with states.
struct Part {
  Part(Problem& problem, std::int64_t begin, std::int64_t end, const State* initial, State* final)
      : in(problem.inputs()), out(problem.outputs()) {
    in.query = in.query.slice(1, begin, end);
    in.key = in.key.slice(1, begin, end);
    in.value = in.value.slice(1, begin, end);
    in.initial = initial;
    out.out = out.out.slice(1, begin, end);
    out.normaliser = out.normaliser.slice(1, begin, end);
    out.final = final;
  }

  AttentionInputs in;
  AttentionOutputs out;
};

inline void expect_out(const AttentionOptions& options, const Problem& problem) {
  EXPECT_LT(error_of(problem.out, Exact(options, problem, false).out), 1e-5);
}

/// Steps, a prefill that is split anywhere, and steps behind one: all as the reference says.
inline void expect_recurrent_is_parallel(const AttentionOptions& options, std::int64_t length) {
  const auto attention = make_attention(options);
  Problem problem({2, length, length, 2, 9, 5}, Mask::causal(), 5);
  const HeadShape shape = {2, 9, 5};
  {
    const auto state = attention->make_state(2, shape);
    run_steps(*attention, problem, *state, 0, length);
    expect_out(options, problem);
    EXPECT_EQ(state->position(1), length);
  }
  for (const auto& [first, second] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {length / 3, length / 2}, {64, 96}}) {
    std::ranges::fill(problem.out.span<float>(), NAN);
    const auto state = attention->make_state(2, shape), other = attention->make_state(2, shape);
    const Part head(problem, 0, first, nullptr, state.get());
    attention->forward(any_context(), head.out, head.in);
    const Part middle(problem, first, second, state.get(), state.get());
    attention->forward(any_context(), middle.out, middle.in);
    for (std::int64_t b = 0; b < 2; ++b) {
      EXPECT_EQ(state->position(b), second);
      other->restore(b, saved(*state, b), second);
    }
    run_steps(*attention, problem, *other, second, (second + length) / 2);
    const auto copied = attention->make_state(2, shape);
    for (std::int64_t b = 0; b < 2; ++b) copied->copy(b, *other, b);
    const Part tail(problem, (second + length) / 2, length, copied.get(), copied.get());
    attention->forward(any_context(), tail.out, tail.in);
    expect_out(options, problem);
    EXPECT_EQ(copied->position(0), length);
  }
}

/// Gradients of the tokens behind an initial state, which is a constant: those of the whole sequence from a
/// loss of these tokens alone.
inline void expect_gradients_behind_a_state(const AttentionOptions& options, std::int64_t length,
                                            std::int64_t first) {
  const auto attention = make_attention(options);
  Problem problem({2, length, length, 2, 9, 5}, Mask::causal(), 6);
  for (std::int64_t b = 0; b < 2; ++b) std::fill_n(problem.grad.view<float>().at(b, 0), first * 2 * 5, 0.0f);
  const Exact exact(options, problem, true);
  const auto state = attention->make_state(2, {2, 9, 5});
  const Part head(problem, 0, first, nullptr, state.get());
  attention->forward(any_context(), head.out, head.in);
  const Part tail(problem, first, length, state.get(), nullptr);
  attention->forward(any_context(), tail.out, tail.in);
  AttentionGradients gradients = problem.gradients();
  gradients.query = gradients.query.slice(1, first, length);
  gradients.key = gradients.key.slice(1, first, length);
  gradients.value = gradients.value.slice(1, first, length);
  attention->backward(any_context(), gradients,
                      std::as_const(problem.grad).view<float>().slice(1, first, length), tail.in,
                      tail.out.out, tail.out.normaliser);
  for (const auto& [found, wanted] : {std::pair(&problem.dq, &exact.dq), std::pair(&problem.dk, &exact.dk),
                                      std::pair(&problem.dv, &exact.dv)}) {
    std::vector<float> a;
    std::vector<double> b;
    for (std::int64_t entry = 0; entry < 2; ++entry)
      for (std::int64_t i = first; i < length; ++i)
        for (std::int64_t x = 0; x < 2 * found->shape()[3]; ++x) {
          a.push_back(found->view<float>().at(entry, i)[x]);
          b.push_back(wanted->view<double>().at(entry, i)[x]);
        }
    EXPECT_LT(relative_error(a, b), 1e-5);
  }
}

inline void expect_bits_of_any_thread_count(const AttentionOptions& options, const Sizes& sizes,
                                            const Mask& mask) {
  const auto attention = make_attention(options);
  const auto run = [&](int count) {
    Context context(count);
    auto problem = std::make_unique<Problem>(sizes, mask, 8);
    problem->forward(*attention, context);
    problem->backward(*attention, context);
    return problem;
  };
  const auto one = run(1);
  for (const int threads : {2, 3, 8}) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    const auto more = run(threads);
    EXPECT_TRUE(equal(more->out, one->out));
    EXPECT_TRUE(equal(more->dq, one->dq));
    EXPECT_TRUE(equal(more->dk, one->dk));
    EXPECT_TRUE(equal(more->dv, one->dv));
  }
}

/// Rounds q, k, v and the gradient of out to bf16 in place, and returns them as bf16, in this order.
inline std::vector<Tensor> round_to_bf16(Problem& problem) {
  std::vector<Tensor> narrow;
  for (Tensor* tensor : {&problem.q, &problem.k, &problem.v, &problem.grad}) {
    narrow.emplace_back(DType::bf16, tensor->shape());
    for (std::size_t i = 0; i < tensor->span<float>().size(); ++i) {
      narrow.back().span<bf16>()[i] = to_bf16(tensor->span<float>()[i]);
      tensor->span<float>()[i] = to_float(narrow.back().span<bf16>()[i]);
    }
  }
  return narrow;
}

/// Both passes with bf16 against the same numbers in f32.
inline void expect_brain_floats_widened(const AttentionOptions& options, const Sizes& sizes,
                                        const Mask& mask) {
  const auto attention = make_attention(options);
  Problem problem(sizes, mask, 9);
  const std::vector<Tensor> narrow = round_to_bf16(problem);
  problem.forward(*attention);
  problem.backward(*attention);
  Tensor out(DType::bf16, problem.out.shape()), dq(DType::bf16, problem.q.shape()),
      dk(DType::bf16, problem.k.shape()), dv(DType::bf16, problem.v.shape());
  Tensor normaliser = Tensor::of<float>(problem.normaliser.shape());
  const AttentionInputs inputs = {std::as_const(narrow[0]).float_view(),
                                  std::as_const(narrow[1]).float_view(),
                                  std::as_const(narrow[2]).float_view(), problem.mask};
  attention->forward(any_context(), {out.float_view(), normaliser.view<float>()}, inputs);
  attention->backward(any_context(), {dq.float_view(), dk.float_view(), dv.float_view()},
                      std::as_const(narrow[3]).float_view(), inputs, std::as_const(out).float_view(),
                      std::as_const(normaliser).view<float>());
  for (const auto& [half, whole] : {std::pair(&out, &problem.out), std::pair(&dq, &problem.dq),
                                    std::pair(&dk, &problem.dk), std::pair(&dv, &problem.dv)}) {
    std::vector<float> wide;
    for (const bf16 x : half->span<bf16>()) wide.push_back(to_float(x));
    EXPECT_LT(relative_error(wide, whole->span<float>()), 4e-3);
  }
}

}  // namespace linnet::test
