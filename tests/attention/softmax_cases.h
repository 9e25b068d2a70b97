#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/softmax/softmax_attention.h"
#include "base/random.h"
#include "linnet/reference.h"
#include "linnet/tensor.h"
#include "support/contexts.h"

namespace linnet::testing {

/// ‖a − b‖ / ‖b‖, or the root of the mean square of a where b is zero; NaN when any element is.
template <class A, class B>
double relative_error(const std::vector<A>& a, const std::vector<B>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double apart = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += apart * apart;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / (size > 0 ? size : std::max<double>(1, a.size())));
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 1, heads = 1, head_dim = 1, value_dim = 1;
};

/// Random inputs of a call in f32, and all its results.
struct Case {
  Sizes sizes;
  Mask mask;
  float scale = 0;
  std::vector<float> query, key, value, grad_out;
  std::vector<float> out, normaliser, grad_query, grad_key, grad_value;

  Case(const Sizes& s, Mask m, std::uint64_t seed, float size = 1) : sizes(s), mask(std::move(m)) {
    std::uint32_t stream = 0;
    const auto fill = [&](std::vector<float>& x, std::int64_t length, std::int64_t dim, float factor) {
      const Random random(seed, Draw::test, stream++);
      x.resize(static_cast<std::size_t>(s.batch * length * s.heads * dim));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = factor * static_cast<float>(random.normal(i));
    };
    fill(query, s.queries, s.head_dim, size);
    fill(key, s.keys, s.head_dim, size);
    fill(value, s.keys, s.value_dim, 1);
    fill(grad_out, s.queries, s.value_dim, 1);
    // What is not assigned shows.
    out.assign(grad_out.size(), NAN);
    normaliser.assign(static_cast<std::size_t>(s.batch * s.queries * s.heads), NAN);
    grad_query.assign(query.size(), NAN);
    grad_key.assign(key.size(), NAN);
    grad_value.assign(value.size(), NAN);
  }

  template <class T>
  View<T> rows(std::vector<std::remove_const_t<T>>& x, std::int64_t length, std::int64_t dim) {
    return View<T>(x.data(), {sizes.batch, length, sizes.heads, dim});
  }

  AttentionInputs inputs() {
    AttentionInputs result;
    result.query = rows<float>(query, sizes.queries, sizes.head_dim);
    result.key = rows<float>(key, sizes.keys, sizes.head_dim);
    result.value = rows<float>(value, sizes.keys, sizes.value_dim);
    result.mask = mask;
    return result;
  }
  AttentionOutputs outputs() {
    return {rows<float>(out, sizes.queries, sizes.value_dim),
            View<float>(normaliser.data(), {sizes.batch, sizes.queries, sizes.heads})};
  }
  AttentionGradients gradients() {
    return {rows<float>(grad_query, sizes.queries, sizes.head_dim),
            rows<float>(grad_key, sizes.keys, sizes.head_dim),
            rows<float>(grad_value, sizes.keys, sizes.value_dim)};
  }
  View<const float> grad() { return rows<float>(grad_out, sizes.queries, sizes.value_dim); }

  AttentionOptions options() const {
    AttentionOptions result;
    result.family = Family::softmax;
    result.scale = scale;
    return result;
  }

  void run(bool with_backward = true, Context& context = any_context()) {
    const auto attention = make_softmax_attention(options());
    attention->forward(context, outputs(), inputs());
    if (with_backward)
      attention->backward(context, gradients(), grad(), inputs(), outputs().out, outputs().normaliser);
  }

  /// Expects what `run` gave to be within `bound` of the double-precision reference.
  void expect_reference(double bound = 1e-5, bool with_backward = true) {
    const auto widen = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
    std::vector<double> q = widen(query), k = widen(key), v = widen(value), g = widen(grad_out);
    std::vector<double> o(g.size()), dq(q.size()), dk(k.size()), dv(v.size());
    ReferenceInputs in;
    in.query = rows<double>(q, sizes.queries, sizes.head_dim);
    in.key = rows<double>(k, sizes.keys, sizes.head_dim);
    in.value = rows<double>(v, sizes.keys, sizes.value_dim);
    in.mask = mask;
    softmax_reference_forward(options(), rows<double>(o, sizes.queries, sizes.value_dim), in);
    EXPECT_LE(relative_error(out, o), bound) << "out";
    if (!with_backward) return;
    softmax_reference_backward(
        options(),
        {rows<double>(dq, sizes.queries, sizes.head_dim), rows<double>(dk, sizes.keys, sizes.head_dim),
         rows<double>(dv, sizes.keys, sizes.value_dim)},
        rows<double>(g, sizes.queries, sizes.value_dim), in);
    EXPECT_LE(relative_error(grad_query, dq), bound) << "gradient of query";
    EXPECT_LE(relative_error(grad_key, dk), bound) << "gradient of key";
    EXPECT_LE(relative_error(grad_value, dv), bound) << "gradient of value";
  }

  std::string describe(std::uint64_t seed) const {
    return fmt::format("batch {}, queries {}, keys {}, heads {}, E {}, M {}, mask {}, seed {}", sizes.batch,
                       sizes.queries, sizes.keys, sizes.heads, sizes.head_dim, sizes.value_dim, mask.name(),
                       seed);
  }
};

}  // namespace linnet::testing
