#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "hwy/targets.h"
#include "linnet/attention.h"

namespace linnet::test {

/// Uniform in (-scale, scale).
inline Tensor random_tensor(Shape shape, std::uint64_t seed, float scale = 1.0f) {
  Tensor tensor = Tensor::of<float>(std::move(shape));
  const Random random(seed, Draw::test);
  const auto numbers = tensor.span<float>();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = scale * (2 * random.uniform(i) - 1);
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
  return std::sqrt(difference) / std::max(std::sqrt(norm), least);
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 1, heads = 1, head_dim = 8, value_dim = 8;
};

/// Inputs of one attention, their gradient of out, and room for all results.
struct Problem {
  Problem(const Sizes& sizes, Mask mask, std::uint64_t seed)
      : mask(std::move(mask)),
        q(random_tensor({sizes.batch, sizes.queries, sizes.heads, sizes.head_dim}, seed)),
        k(random_tensor({sizes.batch, sizes.keys, sizes.heads, sizes.head_dim}, seed + 1)),
        v(random_tensor({sizes.batch, sizes.keys, sizes.heads, sizes.value_dim}, seed + 2)),
        grad(random_tensor({sizes.batch, sizes.queries, sizes.heads, sizes.value_dim}, seed + 3)),
        out(grad.clone()),
        normaliser(Tensor::of<float>({sizes.batch, sizes.queries, sizes.heads})),
        dq(q.clone()),
        dk(k.clone()),
        dv(v.clone()) {}

  AttentionInputs inputs() const { return {q.view<float>(), k.view<float>(), v.view<float>(), mask}; }
  AttentionOutputs outputs() { return {out.view<float>(), normaliser.view<float>()}; }
  AttentionGradients gradients() { return {dq.view<float>(), dk.view<float>(), dv.view<float>()}; }

  void forward(const Attention& attention) { attention.forward(outputs(), inputs()); }
  void backward(const Attention& attention) {
    attention.backward(gradients(), std::as_const(grad).view<float>(), inputs(),
                       std::as_const(out).view<float>(), std::as_const(normaliser).view<float>());
  }

  Mask mask;
  Tensor q, k, v, grad;
  Tensor out, normaliser, dq, dk, dv;
};

/// The same in double precision.
struct Exact {
  Exact(const AttentionOptions& options, const Problem& problem, bool gradients)
      : q(to_double(problem.q)),
        k(to_double(problem.k)),
        v(to_double(problem.v)),
        grad(to_double(problem.grad)),
        out(grad.clone()),
        dq(q.clone()),
        dk(k.clone()),
        dv(v.clone()) {
    const ReferenceInputs inputs = {std::as_const(q).view<double>(), std::as_const(k).view<double>(),
                                    std::as_const(v).view<double>(), problem.mask};
    reference_forward(options, out.view<double>(), inputs);
    if (gradients)
      reference_backward(options, dq.view<double>(), dk.view<double>(), dv.view<double>(),
                         std::as_const(grad).view<double>(), inputs);
  }

  Tensor q, k, v, grad, out, dq, dk, dv;
};

inline double error_of(const Tensor& f32, const Tensor& f64, double least = 1e-30) {
  return relative_error(f32.span<float>(), f64.span<double>(), least);
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
