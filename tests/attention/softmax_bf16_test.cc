// Softmax attention on bf16 tensors: f32 arithmetic on the same numbers, rounded once.
#include <gtest/gtest.h>

#include "attention/softmax_cases.h"
#include "attention/tiles/rows.h"
#include "kernels/targets.h"

namespace linnet::testing {
namespace {

constexpr std::uint64_t kSeed = 50;

std::vector<bf16> narrow(const std::vector<float>& x) {
  std::vector<bf16> result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), to_bf16);
  return result;
}
std::vector<float> widen(const std::vector<bf16>& x) {
  std::vector<float> result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), to_float);
  return result;
}

/// A case whose inputs are bf16 numbers, and the same call on bf16 tensors with `gap` elements between rows.
struct NarrowCase {
  Case wide;
  std::int64_t gap;
  std::vector<bf16> query, key, value, grad_out, out, grad_query, grad_key, grad_value;
  std::vector<float> normaliser;

  NarrowCase(const Sizes& sizes, const Mask& mask, std::int64_t gap) : wide(sizes, mask, kSeed), gap(gap) {
    for (auto* x : {&wide.query, &wide.key, &wide.value, &wide.grad_out}) *x = widen(narrow(*x));
    query = spread(wide.query, sizes.head_dim);
    key = spread(wide.key, sizes.head_dim);
    value = spread(wide.value, sizes.value_dim);
    grad_out = spread(wide.grad_out, sizes.value_dim);
    out.resize(grad_out.size(), bf16{0x7fc0});
    grad_query.resize(query.size(), bf16{0x7fc0});
    grad_key.resize(key.size(), bf16{0x7fc0});
    grad_value.resize(value.size(), bf16{0x7fc0});
    normaliser = wide.normaliser;
  }

  std::vector<bf16> spread(const std::vector<float>& x, std::int64_t dim) const {
    std::vector<bf16> result(x.size() / dim * (dim + gap));
    for (std::size_t i = 0; i < x.size(); ++i) result[i / dim * (dim + gap) + i % dim] = to_bf16(x[i]);
    return result;
  }
  std::vector<float> gather(const std::vector<bf16>& x, std::int64_t dim) const {
    std::vector<float> result(x.size() / (dim + gap) * dim);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = to_float(x[i / dim * (dim + gap) + i % dim]);
    return result;
  }

  View<bf16> rows(std::vector<bf16>& x, std::int64_t length, std::int64_t dim) const {
    const std::int64_t row = dim + gap, heads = wide.sizes.heads;
    return {x.data(), {wide.sizes.batch, length, heads, dim}, {length * heads * row, heads * row, row, 1}};
  }
  AttentionInputs inputs() {
    return {rows(query, wide.sizes.queries, wide.sizes.head_dim),
            rows(key, wide.sizes.keys, wide.sizes.head_dim),
            rows(value, wide.sizes.keys, wide.sizes.value_dim), wide.mask};
  }
  AttentionOutputs outputs() {
    return {rows(out, wide.sizes.queries, wide.sizes.value_dim),
            View<float>(normaliser.data(), {wide.sizes.batch, wide.sizes.queries, wide.sizes.heads})};
  }

  void run() {
    const auto attention = make_softmax_attention(wide.options());
    attention->forward(any_context(), outputs(), inputs());
    attention->backward(any_context(),
                        {rows(grad_query, wide.sizes.queries, wide.sizes.head_dim),
                         rows(grad_key, wide.sizes.keys, wide.sizes.head_dim),
                         rows(grad_value, wide.sizes.keys, wide.sizes.value_dim)},
                        rows(grad_out, wide.sizes.queries, wide.sizes.value_dim), inputs(), outputs().out,
                        outputs().normaliser);
  }
};

std::vector<Mask> masks_of(std::int64_t length) {
  return {Mask::full(), Mask::causal().with_key_lengths({length / 2, length}), Mask::window(40, 3),
          Mask::prefix({length / 3}).with_segments({0, length / 2, length}),
          Mask::boolean([](View<std::uint8_t> tile, std::int64_t, std::int64_t i, std::int64_t j) {
            for (std::int64_t at = 0; at < tile.size(); ++at)
              tile.data()[at] = (i + at / tile.extent(1)) % 3 <= (j + at % tile.extent(1)) % 4;
          })};
}

TEST(SoftmaxBf16, IsF32OnTheSameNumbersRoundedOnce) {
  kernels::for_every_target([] {
    for (const std::int64_t length : {2, 130}) {
      for (const Mask& mask : masks_of(length)) {
        NarrowCase c({2, length, length, 2, 35, 17}, mask, 3);
        SCOPED_TRACE(c.wide.describe(kSeed));
        c.run();
        c.wide.run(false);
        EXPECT_EQ(c.gather(c.out, 17), widen(narrow(c.wide.out)));
        EXPECT_EQ(c.normaliser, c.wide.normaliser);
        // The gradients are those with the output as it was stored.
        c.wide.out = c.gather(c.out, 17);
        make_softmax_attention(c.wide.options())
            ->backward(any_context(), c.wide.gradients(), c.wide.grad(), c.wide.inputs(),
                       c.wide.outputs().out, c.wide.outputs().normaliser);
        EXPECT_EQ(c.gather(c.grad_query, 35), widen(narrow(c.wide.grad_query)));
        EXPECT_EQ(c.gather(c.grad_key, 35), widen(narrow(c.wide.grad_key)));
        EXPECT_EQ(c.gather(c.grad_value, 17), widen(narrow(c.wide.grad_value)));
        for (std::size_t x = 0; x < c.out.size(); ++x) {
          if (x % 20 < 17) continue;
          ASSERT_EQ(c.out[x].bits, 0x7fc0) << "written between the rows";
        }
      }
    }
  });
}

TEST(SoftmaxBf16, ErrorIsAtMostTwiceThatOfRoundingTheResults) {
  for (const auto& [length, dim] : {std::pair{48, 5}, {200, 16}, {400, 64}}) {
    for (const Mask& mask : masks_of(length)) {
      NarrowCase c({2, length, length, 1, dim, dim}, mask, 0);
      SCOPED_TRACE(c.wide.describe(kSeed));
      c.run();
      // f32 agrees with the reference a thousand times better, as other tests find.
      c.wide.run();
      const auto expect = [&](const std::vector<bf16>& found, const std::vector<float>& exact,
                              const char* name) {
        const double rounding = relative_error(widen(narrow(exact)), exact);
        EXPECT_LE(relative_error(widen(found), exact), 2 * rounding) << name;
      };
      expect(c.out, c.wide.out, "out");
      expect(c.grad_query, c.wide.grad_query, "gradient of query");
      expect(c.grad_key, c.wide.grad_key, "gradient of key");
      expect(c.grad_value, c.wide.grad_value, "gradient of value");
    }
  }
}

TEST(SoftmaxBf16, RoundingIsThatOfToBf16) {
  kernels::for_every_target([] {
    std::vector<float> x = {0.0f,    -0.0f,   1.0f,     1.00390625f, 1.01171875f,
                            3.4e38f, -1e-45f, INFINITY, -INFINITY,   NAN};
    std::uint32_t signalling = 0x7f800001u;
    x.resize(11);
    std::memcpy(&x[10], &signalling, 4);
    const Random random(kSeed, Draw::test);
    for (std::uint64_t i = 0; i < 100; ++i) x.push_back(random.normal(i));
    std::vector<bf16> found(x.size());
    const std::int64_t count = static_cast<std::int64_t>(x.size());
    write_row(rows_of(FloatView(View<bf16>(found.data(), {1, 1, 1, count})), 0, 0), 0, x.data());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(found[i].bits, to_bf16(x[i]).bits) << x[i];
  });
}

TEST(SoftmaxBf16, CacheHoldsTheSameNumbers) {
  NarrowCase c({2, 70, 70, 2, 9, 5}, Mask::causal(), 1);
  const auto attention = make_softmax_attention(c.wide.options());
  const auto narrow_state = attention->make_state(2, {2, 9, 5}), state = attention->make_state(2, {2, 9, 5});
  AttentionOutputs out = c.outputs();
  out.final = narrow_state.get();
  attention->forward(any_context(), out, c.inputs());
  out = c.wide.outputs();
  out.final = state.get();
  attention->forward(any_context(), out, c.wide.inputs());
  std::vector<float> a(state->bytes(1) / 4), b(narrow_state->bytes(1) / 4);
  state->save(1, a);
  narrow_state->save(1, b);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace linnet::testing
