#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hwy/targets.h"
#include "linnet/attention.h"
#include "linnet/reference.h"
#include "support/contexts.h"

namespace linnet::test {

/// Uniform in (-scale, scale).
inline Tensor random_tensor(Shape shape, std::uint64_t seed, float scale = 1.0f) {
  Tensor tensor = Tensor::of<float>(std::move(shape));
  const Random random(seed, Draw::test);
  const auto numbers = tensor.span<float>();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = scale * (2 * random.uniform(i) - 1);
  return tensor;
}

/// All NaN, so that what is not assigned shows.
inline Tensor unset_tensor(Shape shape) {
  Tensor tensor = Tensor::of<float>(std::move(shape));
  for (float& number : tensor.span<float>()) number = NAN;
  return tensor;
}

inline Tensor to_double(const Tensor& tensor) {
  Tensor wide = Tensor::of<double>(tensor.shape());
  const auto from = tensor.span<float>();
  std::copy(from.begin(), from.end(), wide.span<double>().begin());
  return wide;
}

/// ‖a − b‖ / ‖b‖, with ‖b‖ at least `least` so that gradients that vanish exactly can be compared.
template <class A, class B>
double relative_error(const A& a, const B& b, double least = 1e-30) {
  double difference = 0, norm = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
    norm += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference) / std::max({std::sqrt(norm), least, 1e-300});
}

/// Whether the elements are equal, one by one.
inline bool equal(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.span<float>(), b.span<float>());
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 1, heads = 1, head_dim = 8, value_dim = 8;
};

/// Inputs of one attention, their gradient of out, and room for all results.
struct Problem {
  Problem(const Sizes& sizes, Mask mask, std::uint64_t seed, float scale = 1.0f)
      : mask(std::move(mask)),
        q(random_tensor({sizes.batch, sizes.queries, sizes.heads, sizes.head_dim}, seed, scale)),
        k(random_tensor({sizes.batch, sizes.keys, sizes.heads, sizes.head_dim}, seed + 1, scale)),
        v(random_tensor({sizes.batch, sizes.keys, sizes.heads, sizes.value_dim}, seed + 2)),
        grad(random_tensor({sizes.batch, sizes.queries, sizes.heads, sizes.value_dim}, seed + 3)),
        out(unset_tensor(grad.shape())),
        normaliser(unset_tensor({sizes.batch, sizes.queries, sizes.heads})),
        dq(unset_tensor(q.shape())),
        dk(unset_tensor(k.shape())),
        dv(unset_tensor(v.shape())) {}

  /// With a decay of one number a head.
  Problem& decaying(const std::vector<float>& gamma) {
    decay = Tensor::of<float>({static_cast<std::int64_t>(gamma.size())});
    std::copy(gamma.begin(), gamma.end(), decay.span<float>().begin());
    d_decay = unset_tensor(decay.shape());
    return *this;
  }

  AttentionInputs inputs() const {
    return {q.view<float>(), k.view<float>(), v.view<float>(), mask, nullptr, 0, decay.view<float>()};
  }
  AttentionOutputs outputs() { return {out.view<float>(), normaliser.view<float>()}; }
  AttentionGradients gradients() {
    return {dq.view<float>(), dk.view<float>(), dv.view<float>(), d_decay.view<float>()};
  }

  void forward(const Attention& attention, Context& context = any_context()) {
    attention.forward(context, outputs(), inputs());
  }
  void backward(const Attention& attention, Context& context = any_context()) {
    attention.backward(context, gradients(), std::as_const(grad).view<float>(), inputs(),
                       std::as_const(out).view<float>(), std::as_const(normaliser).view<float>());
  }

  std::string describe(std::uint64_t seed) const {
    return "seed " + std::to_string(seed) + ", " + mask.name() + ", query " + to_string(q.shape()) +
           ", key " + to_string(k.shape()) + ", value " + to_string(v.shape());
  }

  Mask mask;
  Tensor q, k, v, grad;
  Tensor out, normaliser, dq, dk, dv;
  Tensor decay, d_decay;
};

/// The same in double precision.
struct Exact {
  Exact(const AttentionOptions& options, const Problem& problem, bool gradients)
      : q(to_double(problem.q)),
        k(to_double(problem.k)),
        v(to_double(problem.v)),
        grad(to_double(problem.grad)),
        decay(to_double(problem.decay)),
        out(grad.clone()),
        dq(q.clone()),
        dk(k.clone()),
        dv(v.clone()),
        d_decay(decay.clone()) {
    const ReferenceInputs in = inputs(problem.mask);
    reference_forward(options, out.view<double>(), in);
    if (gradients)
      reference_backward(options,
                         {dq.view<double>(), dk.view<double>(), dv.view<double>(), d_decay.view<double>()},
                         std::as_const(grad).view<double>(), in);
  }

  ReferenceInputs inputs(const Mask& mask) const {
    return {q.view<double>(), k.view<double>(), v.view<double>(), mask, decay.view<double>()};
  }

  Tensor q, k, v, grad, decay, out, dq, dk, dv, d_decay;
};

inline double error_of(const Tensor& f32, const Tensor& f64, double least = 1e-30) {
  return relative_error(f32.span<float>(), f64.span<double>(), least);
}

/// The gradient of a query or key is a mean over the c keys that a query sees, of terms of size 1 and of
/// either sign: 1/√c. It cancels to nearly 0 where all of them weigh alike, as with one visible key; what is
/// left is measured against a tenth of the mean then.
inline double least_gradient(const Tensor& gradient, double visible_keys) {
  return 0.03 * std::sqrt(double(gradient.size()) / (1 + visible_keys));
}

/// Runs both passes and expects every result to be that of the reference. `visible_keys` is how many keys a
/// query sees, about.
inline void expect_reference(const AttentionOptions& options, Problem& problem, const Exact& exact,
                             double visible_keys, double tolerance = 1e-5) {
  const auto attention = make_attention(options);
  problem.forward(*attention);
  problem.backward(*attention);
  EXPECT_LT(error_of(problem.out, exact.out), tolerance);
  EXPECT_LT(error_of(problem.dq, exact.dq, least_gradient(exact.dq, visible_keys)), tolerance);
  // A key's gradient sums over the queries that see it, as many as keys that a query sees where there are as
  // many of both.
  const double queries_a_key =
      std::sqrt(std::max(1.0, double(exact.q.shape()[1]) / std::max<double>(1, exact.k.shape()[1])));
  EXPECT_LT(error_of(problem.dk, exact.dk, queries_a_key * least_gradient(exact.dk, visible_keys)),
            tolerance);
  EXPECT_LT(error_of(problem.dv, exact.dv), tolerance);
}

/// Token i of every batch entry: [B, H, D] of a view [B, N, H, D].
template <class T>
View<T> token(View<T> view, std::int64_t i) {
  return View<T>(view.at(0, i), {view.extent(0), view.extent(2), view.extent(3)},
                 {view.stride(0), view.stride(2), 1});
}

/// The recurrent form of tokens `begin` to `end` into the problem's out; slot b serves batch entry b.
inline void run_steps(const Attention& attention, Problem& problem, State& state, std::int64_t begin,
                      std::int64_t end) {
  std::vector<std::int64_t> slots(problem.q.shape()[0]);
  for (std::size_t b = 0; b < slots.size(); ++b) slots[b] = std::int64_t(b);
  for (std::int64_t i = begin; i < end; ++i)
    attention.step(
        any_context(), token(problem.out.view<float>(), i), token(std::as_const(problem.q).view<float>(), i),
        token(std::as_const(problem.k).view<float>(), i), token(std::as_const(problem.v).view<float>(), i),
        state, slots, std::as_const(problem.decay).view<float>());
}

/// The numbers of a slot.
inline std::vector<float> saved(const State& state, std::int64_t slot) {
  std::vector<float> numbers(state.bytes(slot) / sizeof(float));
  state.save(slot, numbers);
  return numbers;
}

/// Pairs (E, M) that leave every kind of remainder.
constexpr std::pair<std::int64_t, std::int64_t> uneven_sizes[] = {{1, 17}, {17, 1},  {64, 64}, {65, 32},
                                                                  {3, 65}, {32, 48}, {20, 7}};

/// Runs `body` once for every instruction set that this machine has.
template <class Body>
void for_each_target(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace linnet::test
