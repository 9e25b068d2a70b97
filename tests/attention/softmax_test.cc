// The tiled forms of softmax attention against the double-precision reference, and that one against finite
// differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <type_traits>

#include "attention/softmax_cases.h"
#include "kernels/targets.h"
#include "linnet/error.h"
#include "linnet/reference.h"

namespace linnet::testing {
namespace {

constexpr std::uint64_t kSeed = 20;

void expect_agreement(const Sizes& sizes, const Mask& mask, std::uint64_t seed = kSeed) {
  Case c(sizes, mask, seed);
  SCOPED_TRACE(c.describe(seed));
  c.run();
  c.expect_reference();
}

TEST(SoftmaxReference, GradientsMatchFiniteDifferences) {
  const std::vector<std::uint8_t> pairs = {1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                           1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1};
  for (const Mask& mask :
       {Mask::full(), Mask::causal(), Mask::causal().with_key_lengths({3}), Mask::prefix({2}),
        Mask::window(1, 1), Mask::intervals({0, 0, 2, 3, 3}, {0, 2, 4, 4, 5}),
        Mask::full().with_segments({0, 1, 3, 5}),
        Mask::boolean(View<const std::uint8_t>(pairs.data(), {1, 5, 5}))}) {
    const std::int64_t length = 5, heads = 2, head_dim = 3, value_dim = 2;
    std::vector<double> inputs[3], grads[3], weight(length * heads * value_dim);
    const std::int64_t dims[3] = {head_dim, head_dim, value_dim};
    const Random random(kSeed, Draw::test);
    std::uint64_t index = 0;
    for (int which = 0; which < 3; ++which) {
      inputs[which].resize(length * heads * dims[which]);
      grads[which].resize(inputs[which].size());
      for (double& x : inputs[which]) x = random.normal(index++);
    }
    for (double& x : weight) x = random.normal(index++);
    AttentionOptions options;
    options.scale = 0.7f;
    const auto view = [&](std::vector<double>& x, std::int64_t dim) {
      return View<double>(x.data(), {1, length, heads, dim});
    };
    const ReferenceInputs in{view(inputs[0], head_dim), view(inputs[1], head_dim), view(inputs[2], value_dim),
                             mask};
    const auto loss = [&] {
      std::vector<double> out(weight.size());
      softmax_reference_forward(options, view(out, value_dim), in);
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weight[i];
      return sum;
    };
    softmax_reference_backward(
        options, {view(grads[0], head_dim), view(grads[1], head_dim), view(grads[2], value_dim)},
        view(weight, value_dim), in);
    for (int which = 0; which < 3; ++which) {
      for (std::size_t i = 0; i < inputs[which].size(); ++i) {
        const double at = inputs[which][i], step = 1e-5;
        inputs[which][i] = at + step;
        const double above = loss();
        inputs[which][i] = at - step;
        const double below = loss();
        inputs[which][i] = at;
        EXPECT_NEAR((above - below) / (2 * step), grads[which][i], 1e-8)
            << mask.name() << " input " << which << " at " << i;
      }
    }
  }
}

TEST(Softmax, MatchesReferenceAtEveryLength) {
  for (std::int64_t length = 0; length <= 70; ++length) {
    expect_agreement({1, length, length, 2, 8, 8}, Mask::causal());
    expect_agreement({1, length, length, 2, 8, 8}, Mask::full());
  }
  for (const std::int64_t length : {95, 96, 97, 127, 128, 129, 143, 144, 145, 191, 192, 193, 255, 300}) {
    expect_agreement({1, length, length, 1, 16, 16}, Mask::causal());
    expect_agreement({1, length, length, 1, 16, 16}, Mask::full());
  }
  expect_agreement({1, 1000, 1000, 1, 32, 32}, Mask::causal());
  expect_agreement({1, 1000, 1000, 1, 32, 32}, Mask::full());
}

TEST(Softmax, MatchesReferenceForOddHeadSizes) {
  const std::int64_t dims[] = {1, 3, 17, 64, 65, 128};
  for (const std::int64_t head_dim : dims) {
    for (const std::int64_t value_dim : dims) {
      expect_agreement({1, 53, 53, 2, head_dim, value_dim}, Mask::causal());
      expect_agreement({2, 31, 101, 1, head_dim, value_dim}, Mask::full().with_key_lengths({101, 40}));
    }
  }
  expect_agreement({1, 100, 100, 1, 1024, 1000}, Mask::causal());
  expect_agreement({1, 30, 100, 1, 300, 1024}, Mask::full());
}

TEST(Softmax, MatchesReferenceAcrossLengths) {
  for (const auto& [queries, keys] :
       {std::pair{1, 300}, {300, 1}, {0, 10}, {10, 0}, {49, 97}, {200, 64}, {500, 30}, {7, 900}})
    expect_agreement({2, queries, keys, 2, 16, 24}, Mask::full());
}

TEST(Softmax, MatchesReferenceForWideChunksOfBothSides) {
  // More than one chunk of queries and of keys in the backward pass: 96 rows at these sizes.
  expect_agreement({1, 250, 250, 1, 256, 256}, Mask::causal());
  expect_agreement({1, 250, 420, 1, 256, 256}, Mask::full());
  expect_agreement({1, 420, 250, 1, 256, 256}, Mask::full().with_key_lengths({170}));
}

TEST(Softmax, PaddingIsNotSeen) {
  for (const std::int64_t length : {0, 1, 20, 64, 99, 100}) {
    for (const Mask& kind : {Mask::full(), Mask::causal()}) {
      Case c({2, 100, 100, 2, 16, 16}, kind.with_key_lengths({length, 100 - length}), kSeed);
      SCOPED_TRACE(c.describe(kSeed));
      c.run();
      c.expect_reference();
      // Not even as 0 · NaN; and its gradients are zeros.
      for (std::int64_t j = length; j < 100; ++j) {
        for (std::int64_t x = 0; x < 32; ++x) {
          EXPECT_EQ(c.grad_key[j * 32 + x], 0);
          EXPECT_EQ(c.grad_value[j * 32 + x], 0);
          c.key[j * 32 + x] = c.value[j * 32 + x] = NAN;
        }
      }
      const std::vector<float> out = c.out, grad_query = c.grad_query;
      c.run();
      EXPECT_EQ(c.out, out);
      EXPECT_EQ(c.grad_query, grad_query);
    }
  }
}

TEST(Softmax, QueryWithoutKeysGivesZeros) {
  Case c({1, 20, 30, 2, 8, 8}, Mask::full().with_key_lengths({0}), kSeed);
  c.run();
  for (const float x : c.out) EXPECT_EQ(x, 0);
  for (const float x : c.normaliser) EXPECT_EQ(x, -INFINITY);
  for (const auto* gradient : {&c.grad_query, &c.grad_key, &c.grad_value})
    for (const float x : *gradient) EXPECT_EQ(x, 0);
}

TEST(Softmax, NormaliserIsTheLogSumExp) {
  Case c({1, 60, 60, 1, 4, 4}, Mask::causal(), kSeed);
  c.run(false);
  for (std::int64_t i = 0; i < 60; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      double score = 0;
      for (int e = 0; e < 4; ++e) score += double{c.query[i * 4 + e]} * c.key[j * 4 + e];
      sum += std::exp(score / 2);
    }
    EXPECT_NEAR(c.normaliser[i], std::log(sum), 1e-5);
  }
  // It may be left out.
  const std::vector<float> out = c.out;
  AttentionOutputs without = c.outputs();
  without.normaliser = {};
  make_softmax_attention(c.options())->forward(any_context(), without, c.inputs());
  EXPECT_EQ(c.out, out);
}

TEST(Softmax, ScaleIsUsed) {
  Case c({1, 70, 70, 1, 16, 16}, Mask::causal(), kSeed);
  c.scale = 0.9f;
  c.run();
  c.expect_reference();
}

TEST(Softmax, LargeInputsStayFinite) {
  for (const float size : {30.0f, 1e4f}) {
    Case c({1, 130, 130, 1, 8, 8}, Mask::causal(), kSeed, size);
    c.run();
    // The scores' own rounding, eps · 1e8 at worst, decides between near ties; the largest wins all the same.
    c.expect_reference(size > 100 ? 1e-3 : 1e-4, false);
    for (const auto* x : {&c.grad_query, &c.grad_key, &c.grad_value})
      for (const float element : *x) EXPECT_TRUE(std::isfinite(element));
  }
}

void expect_same_from_fused_tensors(const Mask& mask) {
  const std::int64_t batch = 2, length = 75, heads = 3, dim = 12, row = 3 * heads * dim + 5;
  Case c({batch, length, length, heads, dim, dim}, mask, kSeed);
  c.run();
  // query, key and value beside one another in a row, as one projection writes them; gradients likewise.
  std::vector<float> fused(batch * length * row), fused_grads(fused.size(), -7.0f);
  const auto part = [&](std::vector<float>& x, std::int64_t which) {
    return View<float>(x.data() + which * heads * dim, {batch, length, heads, dim},
                       {length * row, row, dim, 1});
  };
  const auto copy = [&](View<float> to, View<const float> from) {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t h = 0; h < heads; ++h) std::copy_n(from.at(b, i, h), dim, to.at(b, i, h));
  };
  AttentionInputs in = c.inputs();
  copy(part(fused, 0), in.query.as<const float>());
  copy(part(fused, 1), in.key.as<const float>());
  copy(part(fused, 2), in.value.as<const float>());
  in.query = part(fused, 0);
  in.key = part(fused, 1);
  in.value = part(fused, 2);
  Case again = c;
  const auto attention = make_softmax_attention(c.options());
  attention->forward(any_context(), again.outputs(), in);
  EXPECT_EQ(again.out, c.out);
  attention->backward(any_context(), {part(fused_grads, 0), part(fused_grads, 1), part(fused_grads, 2)},
                      c.grad(), in, again.outputs().out, again.outputs().normaliser);
  copy(again.gradients().query.as<float>(), part(fused_grads, 0));
  copy(again.gradients().key.as<float>(), part(fused_grads, 1));
  copy(again.gradients().value.as<float>(), part(fused_grads, 2));
  EXPECT_EQ(again.grad_query, c.grad_query);
  EXPECT_EQ(again.grad_key, c.grad_key);
  EXPECT_EQ(again.grad_value, c.grad_value);
  for (std::int64_t i = 0; i < batch * length; ++i)
    for (std::int64_t x = 3 * heads * dim; x < row; ++x) EXPECT_EQ(fused_grads[i * row + x], -7.0f);
}

TEST(Softmax, ViewsIntoFusedTensorsGiveTheSame) {
  expect_same_from_fused_tensors(Mask::causal());
  expect_same_from_fused_tensors(Mask::window(20, 4).with_segments({0, 50, 75}).with_key_lengths({75, 60}));
}

/// Compares heads beside each other in an output of 2^20 numbers and more with each head alone in a small
/// one.
template <class T>
void expect_large_outputs_as_small_ones() {
  const std::int64_t length = 4200, heads = 4, dim = 64, row = heads * dim;
  Case c({1, length, length, heads, dim, dim}, Mask::window(70, 3), kSeed);
  const auto attention = make_softmax_attention(c.options());
  const auto converted = [](const std::vector<float>& x) {
    std::vector<T> result;
    for (const float number : x) {
      if constexpr (std::is_same_v<T, float>)
        result.push_back(number);
      else
        result.push_back(to_bf16(number));
    }
    return result;
  };
  const std::vector<T> query = converted(c.query), key = converted(c.key), value = converted(c.value);
  const auto bytes = [](const T* first, std::size_t count) {
    const auto* begin = reinterpret_cast<const std::byte*>(first);
    return std::vector<std::byte>(begin, begin + count * sizeof(T));
  };
  const auto inputs_from = [&](std::int64_t first, std::int64_t count) {
    const auto rows = [&](const std::vector<T>& x) {
      return View<const T>(x.data() + first * dim, {1, length, count, dim}, {length * row, row, dim, 1});
    };
    AttentionInputs in;
    in.query = rows(query);
    in.key = rows(key);
    in.value = rows(value);
    in.mask = c.mask;
    return in;
  };
  std::vector<T> small(c.out.size());
  for (std::int64_t h = 0; h < heads; ++h)
    attention->forward(
        any_context(),
        {View<T>(small.data() + h * dim, {1, length, 1, dim}, {length * row, row, dim, 1}), {}},
        inputs_from(h, 1));
  T mark;
  if constexpr (std::is_same_v<T, float>)
    mark = -7;
  else
    mark = to_bf16(-7);
  for (const std::int64_t shift : {0, 1, 4, 16}) {
    SCOPED_TRACE(shift);
    Tensor memory = Tensor::of<T>({length * row + shift + 1});
    const std::span<T> all = memory.span<T>();
    std::ranges::fill(all, mark);
    attention->forward(any_context(), {View<T>(all.data() + shift, {1, length, heads, dim}), {}},
                       inputs_from(0, heads));
    EXPECT_EQ(bytes(all.data() + shift, small.size()), bytes(small.data(), small.size()));
    EXPECT_EQ(bytes(&all.back(), 1), bytes(&mark, 1));
    for (const T& before : all.first(static_cast<std::size_t>(shift)))
      EXPECT_EQ(bytes(&before, 1), bytes(&mark, 1));
  }
}

TEST(Softmax, LargeOutputsHaveTheBitsOfSmallOnes) {
  expect_large_outputs_as_small_ones<float>();
  expect_large_outputs_as_small_ones<bf16>();
}

// Queries are computed in panels: what the others of a panel see changes neither a sum's terms nor their
// order.
TEST(Softmax, RowsUnderAWindowDoNotDependOnTokensBehindThem) {
  for (const std::int64_t left : {0, 15, 70, 130}) {
    const std::int64_t length = 192, dim = 16;
    Case c({1, length, length, 1, dim, dim}, Mask::window(left, 0), kSeed);
    c.run(false);
    const auto attention = make_softmax_attention(c.options());
    for (const std::int64_t fewer : {1, 40, 97, 130, 151, 160, 191}) {
      SCOPED_TRACE(fmt::format("{} keys before the query, {} tokens", left, fewer));
      std::vector<float> out(static_cast<std::size_t>(fewer * dim)),
          normaliser(static_cast<std::size_t>(fewer));
      AttentionInputs in;
      in.query = View<float>(c.query.data(), {1, fewer, 1, dim});
      in.key = View<float>(c.key.data(), {1, fewer, 1, dim});
      in.value = View<float>(c.value.data(), {1, fewer, 1, dim});
      in.mask = c.mask;
      attention->forward(
          any_context(),
          {View<float>(out.data(), {1, fewer, 1, dim}), View<float>(normaliser.data(), {1, fewer, 1})}, in);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), c.out.begin()));
      EXPECT_TRUE(std::equal(normaliser.begin(), normaliser.end(), c.normaliser.begin()));
    }
  }
}

/// Rows (b, i, h) of x that hold a NaN.
std::vector<bool> rows_with_nan(const std::vector<float>& x, std::int64_t dim) {
  std::vector<bool> found(x.size() / dim);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isnan(x[i])) found[i / dim] = true;
  return found;
}

TEST(Softmax, NanReachesOnlyTheRowsThatSeeIt) {
  const std::int64_t length = 110, heads = 2, dim = 8, bad_head = 1;
  for (const std::int64_t bad : {0, 5, 40, 50, 109}) {
    for (int which = 0; which < 4; ++which) {
      Case c({2, length, length, heads, dim, dim}, Mask::causal(), kSeed);
      std::vector<float>* inputs[] = {&c.query, &c.key, &c.value, &c.grad_out};
      (*inputs[which])[((length + bad) * heads + bad_head) * dim + 3] = NAN;
      c.run();
      SCOPED_TRACE(fmt::format("NaN in input {} at {}", which, bad));
      // In head 1 of entry 1: a query's NaN shows in its own row, a key's or value's in the rows from it on;
      // gradients of keys and values collect those of the queries that see them.
      const auto expect_rows = [&](const std::vector<float>& x, const char* name, auto may) {
        const std::vector<bool> found = rows_with_nan(x, dim);
        for (std::size_t row = 0; row < found.size(); ++row) {
          const bool own = row / (length * heads) == 1 && row % heads == bad_head;
          const std::int64_t i = row / heads % length;
          if (own && may(i)) continue;
          EXPECT_FALSE(found[row]) << name << " row " << i << " own " << own;
        }
      };
      const bool of_query = which == 0 || which == 3;
      const auto here = [&](std::int64_t i) { return of_query ? i == bad : i >= bad; };
      expect_rows(c.out, "out", [&](std::int64_t i) { return which != 3 && here(i); });
      expect_rows(c.grad_query, "gradient of query", here);
      const auto seen = [&](std::int64_t j) { return !of_query || j <= bad; };
      expect_rows(c.grad_key, "gradient of key", seen);
      expect_rows(c.grad_value, "gradient of value", seen);
      EXPECT_EQ(rows_with_nan(c.out, dim)[(length + bad) * heads + bad_head], which != 3);
      EXPECT_TRUE(rows_with_nan(c.grad_query, dim)[(length + bad) * heads + bad_head]);
      if (which == 0) {
        // Its probabilities are no numbers either.
        const std::vector<bool> found = rows_with_nan(c.grad_value, dim);
        for (const std::int64_t j : {std::int64_t{0}, bad})
          EXPECT_TRUE(found[(length + j) * heads + bad_head]) << j;
      }
    }
  }
}

TEST(Softmax, InfiniteValueDoesNotReachEarlierQueries) {
  Case c({1, 60, 60, 1, 8, 8}, Mask::causal(), kSeed);
  const Case untouched = [&] {
    Case run = c;
    run.run();
    return run;
  }();
  c.value[30 * 8] = INFINITY;
  c.run();
  for (std::int64_t i = 0; i < 30 * 8; ++i) EXPECT_NEAR(c.out[i], untouched.out[i], 1e-6);
  EXPECT_EQ(c.out[30 * 8], INFINITY);
}

TEST(Softmax, BitsAreThoseOfOneContextWithTwoAtOnce) {
  const auto run = [](int threads) {
    Context context(threads);
    Case result({2, 420, 420, 3, 40, 24}, Mask::causal(), kSeed);
    result.run(true, context);
    return result;
  };
  const Case alone = run(1);
  const auto expect_equal = [&](const Case& found) {
    EXPECT_EQ(found.out, alone.out);
    EXPECT_EQ(found.normaliser, alone.normaliser);
    EXPECT_EQ(found.grad_query, alone.grad_query);
    EXPECT_EQ(found.grad_key, alone.grad_key);
    EXPECT_EQ(found.grad_value, alone.grad_value);
  };
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::optional<Case> second;
    std::thread other([&] { second = run(2); });
    const Case first = run(3);
    other.join();
    expect_equal(first);
    expect_equal(*second);
  }
}

TEST(Softmax, BitsDoNotDependOnTheThreads) {
  for (const Mask& mask : {Mask::causal(), Mask::full()}) {
    Case one({2, 420, 420, 3, 128, 130}, mask, kSeed);
    Context single(1);
    one.run(true, single);
    for (const int threads : {2, 3, 8}) {
      Case more({2, 420, 420, 3, 128, 130}, mask, kSeed);
      Context context(threads);
      more.run(true, context);
      EXPECT_EQ(more.out, one.out);
      EXPECT_EQ(more.normaliser, one.normaliser);
      EXPECT_EQ(more.grad_query, one.grad_query);
      EXPECT_EQ(more.grad_key, one.grad_key);
      EXPECT_EQ(more.grad_value, one.grad_value);
    }
  }
}

TEST(Softmax, EveryInstructionSetMatchesReference) {
  kernels::for_every_target([] {
    for (const std::int64_t length : {1, 7, 47, 100, 150}) {
      expect_agreement({1, length, length, 2, 17, 33}, Mask::causal());
      expect_agreement({1, length, length + 3, 1, 64, 5}, Mask::full());
    }
    expect_agreement({1, 130, 130, 1, 200, 64}, Mask::causal().with_key_lengths({101}));
  });
}

TEST(Softmax, ArgumentsThatDoNotFitAreRefused) {
  AttentionOptions options;
  options.scale = -1;
  EXPECT_THROW(make_softmax_attention(options), Error);
  options.scale = NAN;
  EXPECT_THROW(make_softmax_attention(options), Error);

  const auto attention = make_softmax_attention({});
  Case c({1, 4, 6, 2, 8, 8}, Mask::full(), kSeed);
  AttentionInputs in = c.inputs();
  in.mask = Mask::causal();
  EXPECT_THROW(attention->forward(any_context(), c.outputs(), in), Error);
  in = c.inputs();
  in.key = in.key.slice(3, 0, 7);
  EXPECT_THROW(attention->forward(any_context(), c.outputs(), in), Error);
  in = c.inputs();
  in.value = in.value.slice(1, 0, 5);
  EXPECT_THROW(attention->forward(any_context(), c.outputs(), in), Error);
  in = c.inputs();
  in.mask = Mask::full().with_key_lengths({7});
  EXPECT_THROW(attention->forward(any_context(), c.outputs(), in), Error);
  AttentionOutputs out = c.outputs();
  out.out = out.out.slice(2, 0, 1);
  EXPECT_THROW(attention->forward(any_context(), out, c.inputs()), Error);
  AttentionGradients gradients = c.gradients();
  std::swap(gradients.query, gradients.key);
  EXPECT_THROW(attention->backward(any_context(), gradients, c.grad(), c.inputs(), c.outputs().out,
                                   c.outputs().normaliser),
               Error);
  EXPECT_THROW(attention->backward(any_context(), c.gradients(), c.grad(), c.inputs(), c.outputs().out, {}),
               Error);
  for (const float x : c.out) EXPECT_TRUE(std::isnan(x)) << "written before the check";
}

}  // namespace
}  // namespace linnet::testing
