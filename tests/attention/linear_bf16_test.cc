#include "attention/attention_tools.h"
#include "attention/mask_cases.h"
#include "linnet/error.h"
#include "linnet/reference.h"

namespace linnet {
namespace {

using test::Exact;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::Sizes;

/// A bf16 tensor [B, N, H, D] inside wider rows, so that the views are strided.
struct Bf16 {
  explicit Bf16(const Shape& shape)
      : width(shape[3]), tensor(Tensor::of<bf16>({shape[0], shape[1], shape[2], shape[3] + 5})) {
    for (bf16& number : tensor.span<bf16>()) number = to_bf16(NAN);
  }
  explicit Bf16(const Tensor& f32) : Bf16(f32.shape()) {
    each([&](bf16& number, std::size_t i) { number = to_bf16(f32.span<float>()[i]); });
  }

  template <class Body>
  void each(const Body& body) const {
    const View<bf16> all = view();
    std::size_t next = 0;
    for (std::int64_t b = 0; b < all.extent(0); ++b)
      for (std::int64_t i = 0; i < all.extent(1); ++i)
        for (std::int64_t h = 0; h < all.extent(2); ++h)
          for (std::int64_t d = 0; d < width; ++d) body(all(b, i, h, d), next++);
  }
  View<bf16> view() const { return const_cast<Tensor&>(tensor).view<bf16>().slice(3, 0, width); }
  View<const bf16> read() const { return view(); }
  std::vector<double> numbers() const {
    std::vector<double> result;
    each([&](bf16 number, std::size_t) { result.push_back(to_float(number)); });
    return result;
  }
  /// Nothing was written beside the rows.
  void expect_untouched_margins() const {
    for (std::int64_t b = 0; b < tensor.shape()[0]; ++b)
      for (std::int64_t i = 0; i < tensor.shape()[1]; ++i)
        for (std::int64_t h = 0; h < tensor.shape()[2]; ++h)
          for (std::int64_t d = width; d < width + 5; ++d)
            ASSERT_TRUE(std::isnan(to_float(tensor.view<bf16>()(b, i, h, d))));
  }

  std::int64_t width;
  Tensor tensor;
};

/// The f32 tensor, its numbers rounded to bf16.
Tensor rounded(const Tensor& f32) {
  Tensor result = f32.clone();
  for (float& number : result.span<float>()) number = to_float(to_bf16(number));
  return result;
}

double narrowed(double number) { return to_float(to_bf16(float(number))); }

Tensor narrowed(const Tensor& f64) {
  Tensor result = f64.clone();
  for (double& number : result.span<double>()) number = narrowed(number);
  return result;
}

/// Exact attention whose calls exchange bf16: inputs, out and gradients are rounded, nothing else. `backward`
/// takes the rounded out, which only G⁺ = [g/d, −(g·o)/d] holds: its gradients are those of the attention
/// that does not divide, with values [V, 1].
struct Rounded {
  Rounded(AttentionOptions options, const Problem& problem) : exact(options, problem, true) {
    if (options.linear.normalise == Normalise::sum) {
      const std::int64_t width = exact.v.shape()[3];
      Tensor values = with_column(exact.v), sums = with_column(exact.grad), grad = with_column(exact.grad);
      for (std::int64_t r = 0; r < exact.v.size() / width; ++r)
        values.span<double>()[r * (width + 1) + width] = 1;
      const ReferenceInputs inputs = {exact.q.view<double>(), exact.k.view<double>(), values.view<double>(),
                                      problem.mask, exact.decay.view<double>()};
      options.linear.normalise = Normalise::none;
      reference_forward(options, sums.view<double>(), inputs);
      for (std::int64_t r = 0; r < exact.grad.size() / width; ++r) {
        const double* sum = sums.span<double>().data() + r * (width + 1);
        double* g = grad.span<double>().data() + r * (width + 1);
        const double d = sum[width] + options.linear.epsilon;
        for (std::int64_t m = 0; m < width; ++m) {
          g[width] -= g[m] * narrowed(sum[m] / d) / d;
          g[m] /= d;
        }
      }
      Tensor d_values = values.clone();
      reference_backward(options,
                         {exact.dq.view<double>(), exact.dk.view<double>(), d_values.view<double>(),
                          exact.d_decay.view<double>()},
                         grad.view<double>(), inputs);
      for (std::int64_t r = 0; r < exact.v.size() / width; ++r)
        std::copy_n(d_values.span<double>().data() + r * (width + 1), width,
                    exact.dv.span<double>().data() + r * width);
    }
    for (Tensor* result : {&exact.out, &exact.dq, &exact.dk, &exact.dv}) *result = narrowed(*result);
  }

  /// The f64 tensor with a column of zeros more.
  static Tensor with_column(const Tensor& narrow) {
    Shape shape = narrow.shape();
    const std::int64_t width = shape[3]++;
    Tensor result = Tensor::of<double>(shape);
    for (std::int64_t r = 0; r < narrow.size() / std::max<std::int64_t>(1, width); ++r)
      std::copy_n(narrow.span<double>().data() + r * width, width,
                  result.span<double>().data() + r * (width + 1));
    return result;
  }

  Exact exact;
};

// Error against the exact attention on the unrounded inputs: at most twice what the rounding causes.
void expect_twice_the_rounding(const AttentionOptions& options, const Sizes& sizes, const MaskCase& mask,
                               std::uint64_t seed, const std::vector<float>& gamma = {}) {
  Problem problem(sizes, mask.mask, seed), coarse(sizes, mask.mask, seed);
  if (!gamma.empty()) {
    problem.decaying(gamma);
    coarse.decaying(gamma);
  }
  SCOPED_TRACE(mask.what + "; " + problem.describe(seed));
  for (Tensor* tensor : {&coarse.q, &coarse.k, &coarse.v, &coarse.grad}) *tensor = rounded(*tensor);
  const Exact exact(options, problem, true);
  const Exact floor = std::move(Rounded(options, coarse).exact);

  const Bf16 q(problem.q), k(problem.k), v(problem.v), grad(problem.grad), out(problem.out.shape()),
      dq(problem.q.shape()), dk(problem.k.shape()), dv(problem.v.shape());
  AttentionInputs inputs = {q.read(), k.read(), v.read(), mask.mask};
  inputs.decay = std::as_const(problem.decay).view<float>();
  const auto attention = make_attention(options);
  attention->forward(any_context(), {out.view(), problem.normaliser.view<float>()}, inputs);
  attention->backward(any_context(), {dq.view(), dk.view(), dv.view(), problem.d_decay.view<float>()},
                      grad.read(), inputs, out.read(), std::as_const(problem.normaliser).view<float>());
  const auto expect = [&](const char* what, const auto& found, const Tensor& wanted, const Tensor& least) {
    const double unavoidable = relative_error(least.span<double>(), wanted.span<double>());
    EXPECT_LE(relative_error(found, wanted.span<double>()), 2 * unavoidable + 1e-5) << what;
  };
  expect("out", out.numbers(), exact.out, floor.out);
  expect("gradient of query", dq.numbers(), exact.dq, floor.dq);
  expect("gradient of key", dk.numbers(), exact.dk, floor.dk);
  expect("gradient of value", dv.numbers(), exact.dv, floor.dv);
  if (!gamma.empty())
    expect("gradient of decay", problem.d_decay.span<float>(), exact.d_decay, floor.d_decay);
  for (const Bf16* result : {&out, &dq, &dk, &dv}) result->expect_untouched_margins();
}

TEST(LinearBf16, ErrorIsAtMostTwiceThatOfRounding) {
  for (const std::int64_t n : {1, 33, 64, 200}) {
    std::vector<MaskCase> masks = test::some_masks(2, n, 400 + n);
    masks.push_back(test::full_case());
    masks.push_back(test::causal_case());
    for (const MaskCase& mask : masks) {
      // With one key in sight gradients of queries and keys are what rounding leaves of zero.
      if (mask.visible_keys(2, n, n) < 2) continue;
      expect_twice_the_rounding({}, {2, n, n, 2, 12, 9}, mask, 401 + n);
    }
  }
  for (const MaskCase& mask : {test::causal_case(), test::window_case(49, 0)})
    expect_twice_the_rounding({}, {1, 1000, 1000, 1, 16, 16}, mask, 403);
}

TEST(LinearBf16, EveryInstructionSetAndSize) {
  test::for_each_target([] {
    for (const auto& [e, m] : test::uneven_sizes) {
      if (e == 1) continue;
      for (const MaskCase& mask : {test::causal_case(), test::window_case(20, 3)})
        expect_twice_the_rounding({}, {1, 97, 97, 2, e, m}, mask, 410);
    }
  });
}

TEST(LinearBf16, EveryMap) {
  for (const FeatureMapInfo& info : feature_map_table()) {
    SCOPED_TRACE(info.name);
    AttentionOptions options;
    options.linear.feature_map = find_feature_map(info.name);
    options.linear.normalise = info.non_negative ? Normalise::sum : Normalise::none;
    for (const MaskCase& mask : {test::causal_case(), test::full_case()})
      expect_twice_the_rounding(options, {2, 97, 97, 2, 16, 9}, mask, 420);
  }
}

TEST(LinearBf16, Decay) {
  expect_twice_the_rounding({}, {2, 150, 150, 3, 12, 9}, test::causal_case(), 430, {0.5f, 0.9f, 0.99f});
}

TEST(LinearBf16, StatesGoOnFromBf16) {
  const auto attention = make_attention({});
  Problem problem({1, 90, 90, 2, 12, 9}, Mask::causal(), 440);
  for (Tensor* tensor : {&problem.q, &problem.k, &problem.v}) *tensor = rounded(*tensor);
  const Bf16 q(problem.q), k(problem.k), v(problem.v), out(problem.out.shape());
  const auto state = attention->make_state(1, {2, 12, 9}), wide = attention->make_state(1, {2, 12, 9});
  attention->forward(any_context(), {out.view(), {}, state.get()},
                     {q.read(), k.read(), v.read(), Mask::causal()});
  attention->forward(any_context(), {problem.out.view<float>(), {}, wide.get()}, problem.inputs());
  // The numbers are the same in bf16 and f32, and so are the sums.
  EXPECT_LT(relative_error(test::saved(*state, 0), test::saved(*wide, 0)), 1e-6);
  std::vector<double> narrow;
  for (const float number : problem.out.span<float>()) narrow.push_back(to_float(to_bf16(number)));
  EXPECT_LT(relative_error(out.numbers(), narrow), 1e-3);
}

TEST(LinearBf16, MixedTypesAreRefused) {
  const auto attention = make_attention({});
  Problem problem({1, 20, 20, 2, 8, 8}, Mask::causal(), 450);
  const Bf16 narrow(problem.q);
  const auto refusal = [&](const std::function<void()>& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto sentence = [](const std::string& what, const std::string& wanted, const std::string& found) {
    return "[linear attention] expected " + what + " in " + wanted + " as query, got " + found;
  };
  AttentionInputs inputs = problem.inputs();
  inputs.key = narrow.read();
  EXPECT_EQ(refusal([&] { attention->forward(any_context(), problem.outputs(), inputs); }),
            sentence("key", "f32", "bf16"));
  inputs = problem.inputs();
  inputs.value = narrow.read();
  EXPECT_EQ(refusal([&] { attention->forward(any_context(), problem.outputs(), inputs); }),
            sentence("value", "f32", "bf16"));
  inputs = problem.inputs();
  EXPECT_EQ(refusal([&] { attention->forward(any_context(), {narrow.view()}, inputs); }),
            sentence("out", "f32", "bf16"));
  inputs.query = inputs.key = inputs.value = narrow.read();
  EXPECT_EQ(refusal([&] { attention->forward(any_context(), problem.outputs(), inputs); }),
            sentence("out", "bf16", "f32"));
  problem.forward(*attention);
  AttentionGradients gradients = problem.gradients();
  gradients.key = narrow.view();
  EXPECT_EQ(refusal([&] {
              attention->backward(any_context(), gradients, std::as_const(problem.grad).view<float>(),
                                  problem.inputs(), problem.out.view<float>(),
                                  problem.normaliser.view<float>());
            }),
            sentence("the gradient of key", "f32", "bf16"));
  EXPECT_EQ(refusal([&] {
              attention->backward(any_context(), problem.gradients(), narrow.read(), problem.inputs(),
                                  problem.out.view<float>(), problem.normaliser.view<float>());
            }),
            sentence("the gradient of out", "f32", "bf16"));
}

}  // namespace
}  // namespace linnet
