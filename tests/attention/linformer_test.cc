// Linformer against its double-precision reference, that one against softmax attention and finite
// differences.
#include "attention/attention_tools.h"
#include "kernels/targets.h"
#include "linnet/error.h"
#include "linnet/reference.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::Exact;
using test::Problem;
using test::random_tensor;
using test::Sizes;
using test::to_double;
using test::unset_tensor;

AttentionOptions linformer_options() {
  AttentionOptions options;
  options.family = Family::linformer;
  return options;
}

/// A problem with projections of `owners` heads for inputs of up to `length` tokens.
struct Projected {
  Projected(const Sizes& sizes, std::int64_t rank, std::int64_t length, std::int64_t owners,
            std::uint64_t seed, std::vector<std::int64_t> key_lengths = {})
      : problem(sizes, key_lengths.empty() ? Mask::full() : Mask::full().with_key_lengths(key_lengths), seed),
        e(random_tensor({owners, rank, length}, seed + 10)),
        f(random_tensor({owners, rank, length}, seed + 11)),
        de(unset_tensor(e.shape())),
        df(unset_tensor(f.shape())) {}

  AttentionInputs inputs() const {
    AttentionInputs inputs = problem.inputs();
    inputs.key_projection = e.view<float>();
    inputs.value_projection = f.view<float>();
    return inputs;
  }
  AttentionGradients gradients() {
    AttentionGradients gradients = problem.gradients();
    gradients.key_projection = de.view<float>();
    gradients.value_projection = df.view<float>();
    return gradients;
  }
  void forward(const Attention& attention, Context& context = any_context()) {
    attention.forward(context, problem.outputs(), inputs());
  }
  void backward(const Attention& attention, Context& context = any_context()) {
    attention.backward(context, gradients(), std::as_const(problem.grad).view<float>(), inputs(),
                       std::as_const(problem.out).view<float>(),
                       std::as_const(problem.normaliser).view<float>());
  }

  Problem problem;
  Tensor e, f, de, df;
};

/// All results in double precision; tokens that are padding may hold anything.
struct Expected {
  explicit Expected(const Projected& p)
      : q(to_double(p.problem.q)),
        k(to_double(p.problem.k)),
        v(to_double(p.problem.v)),
        grad(to_double(p.problem.grad)),
        e(to_double(p.e)),
        f(to_double(p.f)),
        out(grad.clone()),
        dq(q.clone()),
        dk(k.clone()),
        dv(v.clone()),
        de(e.clone()),
        df(f.clone()),
        mask(p.problem.mask) {
    reference_forward(linformer_options(), out.view<double>(), inputs());
    reference_backward(
        linformer_options(),
        {dq.view<double>(), dk.view<double>(), dv.view<double>(), {}, de.view<double>(), df.view<double>()},
        std::as_const(grad).view<double>(), inputs());
  }

  ReferenceInputs inputs() const {
    return {q.view<double>(), k.view<double>(), v.view<double>(), mask, {},
            e.view<double>(), f.view<double>()};
  }

  Tensor q, k, v, grad, e, f, out, dq, dk, dv, de, df;
  Mask mask;
};

void expect_reference(Projected& p) {
  const auto attention = make_attention(linformer_options());
  const Expected expected(p);
  p.forward(*attention);
  p.backward(*attention);
  EXPECT_LT(test::error_of(p.problem.out, expected.out), 1e-5);
  EXPECT_LT(test::error_of(p.problem.dq, expected.dq), 1e-5);
  EXPECT_LT(test::error_of(p.problem.dk, expected.dk), 1e-5);
  EXPECT_LT(test::error_of(p.problem.dv, expected.dv), 1e-5);
  EXPECT_LT(test::error_of(p.de, expected.de), 1e-5);
  EXPECT_LT(test::error_of(p.df, expected.df), 1e-5);
}

TEST(Linformer, AnySizeMatchesReference) {
  std::uint64_t seed = 400;
  for (const std::int64_t length : {1, 63, 64, 65, 200}) {
    for (const std::int64_t rank : {2, 7, 64}) {
      if (rank > length + 1) continue;
      Projected p({2, length, length, 2, 17, 9}, rank, length + 1, 2, seed);
      SCOPED_TRACE(p.problem.describe(seed++) + ", rank " + std::to_string(rank));
      expect_reference(p);
    }
  }
  Projected wide({1, 131, 131, 1, 130, 65}, 129, 300, 1, seed);
  SCOPED_TRACE(wide.problem.describe(seed));
  expect_reference(wide);
}

TEST(Linformer, OneRankIsOneKeyForAll) {
  const auto attention = make_attention(linformer_options());
  Projected p({2, 65, 65, 2, 8, 9}, 1, 70, 2, 425);
  const Expected expected(p);
  p.forward(*attention);
  p.backward(*attention);
  EXPECT_LT(test::error_of(p.problem.out, expected.out), 1e-5);
  EXPECT_LT(test::error_of(p.problem.dv, expected.dv), 1e-5);
  EXPECT_LT(test::error_of(p.df, expected.df), 1e-5);
  // The weight of the only key is 1, whatever it is.
  for (const Tensor* gradient : {&p.problem.dq, &p.problem.dk, &p.de})
    for (const float x : gradient->span<float>()) EXPECT_NEAR(x, 0, 1e-3);
}

TEST(Linformer, QueriesOfAnotherSequenceMatchReference) {
  for (const auto& [queries, keys] : {std::pair<std::int64_t, std::int64_t>{5, 40}, {70, 3}, {0, 4}}) {
    Projected p({1, queries, keys, 2, 8, 8}, 6, 41, 1, 430);
    SCOPED_TRACE(p.problem.describe(430));
    expect_reference(p);
  }
}

TEST(Linformer, HeadsThatShareAProjectionMatchReference) {
  Projected p({3, 130, 130, 4, 16, 16}, 20, 150, 1, 440);
  expect_reference(p);
}

TEST(Linformer, ReferenceWithUnitProjectionsIsExactSoftmax) {
  constexpr std::int64_t length = 33;
  Projected p({2, length, length, 2, 8, 5}, length, length, 1, 450);
  for (Tensor* projection : {&p.e, &p.f})
    for (std::int64_t i = 0; i < length * length; ++i)
      projection->span<float>()[i] = i % length == i / length ? 1.0f : 0.0f;
  const Expected expected(p);
  AttentionOptions softmax;
  softmax.family = Family::softmax;
  const Exact exact(softmax, p.problem, true);
  const auto error = [](const Tensor& a, const Tensor& b) {
    return test::relative_error(a.span<double>(), b.span<double>());
  };
  EXPECT_LT(error(expected.out, exact.out), 1e-14);
  EXPECT_LT(error(expected.dq, exact.dq), 1e-13);
  EXPECT_LT(error(expected.dk, exact.dk), 1e-13);
  EXPECT_LT(error(expected.dv, exact.dv), 1e-13);
}

TEST(Linformer, ReferenceGradientsMatchFiniteDifferences) {
  Projected p({2, 5, 6, 2, 3, 2}, 4, 7, 2, 460, {6, 3});
  Expected at(p);
  const auto loss = [&] {
    Tensor out = at.out.clone();
    reference_forward(linformer_options(), out.view<double>(), at.inputs());
    double sum = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) sum += out.span<double>()[i] * at.grad.span<double>()[i];
    return sum;
  };
  constexpr double step = 1e-6;
  for (const auto& [x, dx] : {std::pair<Tensor*, Tensor*>{&at.q, &at.dq},
                              {&at.k, &at.dk},
                              {&at.v, &at.dv},
                              {&at.e, &at.de},
                              {&at.f, &at.df}}) {
    std::vector<double> differences;
    for (double& number : x->span<double>()) {
      const double kept = number;
      number = kept + step;
      const double above = loss();
      number = kept - step;
      differences.push_back((above - loss()) / (2 * step));
      number = kept;
    }
    EXPECT_LT(test::relative_error(differences, dx->span<double>()), 1e-7);
  }
}

TEST(Linformer, PaddingIsAsIfTheInputWereShort) {
  Projected padded({2, 90, 90, 2, 8, 8}, 10, 100, 2, 470, {37, 0});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t j = b == 0 ? 37 : 0; j < 90; ++j)
      for (std::int64_t i = 0; i < 16; ++i) {
        padded.problem.k.view<float>().at(b, j)[i] = NAN;
        padded.problem.v.view<float>().at(b, j)[i] = INFINITY;
      }
  expect_reference(padded);
  for (std::int64_t i = 0; i < 90 * 16; ++i) {
    EXPECT_EQ(padded.problem.out.view<float>().at(1)[i], 0);
    EXPECT_EQ(padded.problem.dq.view<float>().at(1)[i], 0);
    EXPECT_EQ(padded.problem.dk.view<float>().at(1)[i], 0);
  }

  // The same first entry without its padding, bit for bit.
  Projected cut({1, 90, 37, 2, 8, 8}, 10, 100, 2, 470);
  std::copy_n(padded.problem.q.span<float>().data(), 90 * 16, cut.problem.q.span<float>().data());
  std::copy_n(padded.problem.k.span<float>().data(), 37 * 16, cut.problem.k.span<float>().data());
  std::copy_n(padded.problem.v.span<float>().data(), 37 * 16, cut.problem.v.span<float>().data());
  cut.forward(*make_attention(linformer_options()));
  for (std::int64_t i = 0; i < cut.problem.out.size(); ++i)
    EXPECT_EQ(cut.problem.out.span<float>()[i], padded.problem.out.span<float>()[i]);
}

TEST(Linformer, BitsDoNotDependOnTheThreads) {
  const auto attention = make_attention(linformer_options());
  Projected one({2, 300, 300, 3, 33, 20}, 140, 300, 1, 480);
  Context single(1);
  one.forward(*attention, single);
  one.backward(*attention, single);
  for (const int threads : {2, 3, 8}) {
    Projected more({2, 300, 300, 3, 33, 20}, 140, 300, 1, 480);
    Context context(threads);
    more.forward(*attention, context);
    more.backward(*attention, context);
    EXPECT_TRUE(test::equal(more.problem.out, one.problem.out));
    EXPECT_TRUE(test::equal(more.problem.normaliser, one.problem.normaliser));
    EXPECT_TRUE(test::equal(more.problem.dq, one.problem.dq));
    EXPECT_TRUE(test::equal(more.problem.dk, one.problem.dk));
    EXPECT_TRUE(test::equal(more.problem.dv, one.problem.dv));
    EXPECT_TRUE(test::equal(more.de, one.de));
    EXPECT_TRUE(test::equal(more.df, one.df));
  }
}

TEST(Linformer, Bf16IsTheRoundedInputsAttention) {
  const auto attention = make_attention(linformer_options());
  Projected p({2, 70, 70, 2, 16, 8}, 12, 80, 2, 490);
  const auto narrow = [](Tensor& x) {
    Tensor half = Tensor::of<bf16>(x.shape());
    for (std::int64_t i = 0; i < x.size(); ++i) {
      half.span<bf16>()[i] = to_bf16(x.span<float>()[i]);
      x.span<float>()[i] = to_float(half.span<bf16>()[i]);
    }
    return half;
  };
  const Tensor q = narrow(p.problem.q), k = narrow(p.problem.k), v = narrow(p.problem.v),
               grad = narrow(p.problem.grad);
  Tensor out = Tensor::of<bf16>(p.problem.out.shape()), dq = Tensor::of<bf16>(q.shape()),
         dk = Tensor::of<bf16>(k.shape()), dv = Tensor::of<bf16>(v.shape());
  const Expected expected(p);
  AttentionInputs inputs = p.inputs();
  inputs.query = q.float_view();
  inputs.key = k.float_view();
  inputs.value = v.float_view();
  attention->forward(any_context(), {out.float_view(), p.problem.normaliser.view<float>()}, inputs);
  AttentionGradients gradients = p.gradients();
  gradients.query = dq.float_view();
  gradients.key = dk.float_view();
  gradients.value = dv.float_view();
  attention->backward(any_context(), gradients, grad.float_view(), inputs, std::as_const(out).float_view(),
                      std::as_const(p.problem.normaliser).view<float>());
  const auto error = [](const Tensor& half, const Tensor& exact) {
    std::vector<float> wide;
    for (const bf16 x : half.span<bf16>()) wide.push_back(to_float(x));
    return test::relative_error(wide, exact.span<double>());
  };
  EXPECT_LT(error(out, expected.out), 4e-3);
  EXPECT_LT(error(dq, expected.dq), 8e-3);
  EXPECT_LT(error(dk, expected.dk), 8e-3);
  EXPECT_LT(error(dv, expected.dv), 8e-3);
  EXPECT_LT(test::error_of(p.de, expected.de), 8e-3);
}

TEST(Linformer, EveryInstructionSetMatchesReference) {
  kernels::for_every_target([] {
    Projected p({1, 70, 150, 2, 20, 33}, 130, 151, 1, 500, {140});
    expect_reference(p);
  });
}

TEST(LinformerRefusals, MasksThatTheProjectionMixes) {
  const auto attention = make_attention(linformer_options());
  for (const Mask& mask : {Mask::causal(), Mask::prefix({3}), Mask::window(3, 0),
                           Mask::full().with_segments({0, 10, 40}), Mask::causal().with_key_lengths({7})}) {
    Projected p({2, 40, 40, 3, 8, 8}, 5, 40, 3, 510);
    p.problem.mask = mask;
    const std::string sentence =
        "[linformer attention] expected the full mask, since the projections mix all positions before a mask "
        "could keep them apart (use the linear or the softmax family), got the mask " +
        mask.name();
    EXPECT_EQ(error_of([&] { p.forward(*attention); }), sentence);
    EXPECT_EQ(error_of([&] { p.backward(*attention); }), sentence);
    for (const float x : p.problem.out.span<float>())
      EXPECT_TRUE(std::isnan(x)) << "written before the check";
  }
}

TEST(LinformerRefusals, ProjectionsThatDoNotFit) {
  const auto attention = make_attention(linformer_options());
  const auto sentence = [&](const Sizes& sizes, std::int64_t rank, std::int64_t length, std::int64_t owners) {
    Projected p(sizes, rank, length, owners, 520);
    return error_of([&] { p.forward(*attention); });
  };
  EXPECT_EQ(sentence({1, 9, 9, 3, 4, 4}, 4, 8, 3),
            "[linformer attention] expected at most 8 keys, the length of key_projection, got 9");
  EXPECT_EQ(sentence({1, 6, 6, 3, 4, 4}, 9, 8, 3),
            "[linformer attention] expected key_projection of a rank from 1 to its length 8, got 9");
  EXPECT_EQ(sentence({1, 6, 6, 3, 4, 4}, 0, 8, 3),
            "[linformer attention] expected key_projection of a rank from 1 to its length 8, got 0");
  EXPECT_EQ(sentence({1, 6, 6, 3, 4, 4}, 4, 8, 2),
            "[linformer attention] expected key_projection [3 or 1, rank, length], got [2, 4, 8]");
  Projected p({1, 6, 6, 3, 4, 4}, 4, 8, 3, 520);
  EXPECT_EQ(error_of([&] { p.problem.forward(*attention); }),
            "[linformer attention] expected key_projection [3 or 1, rank, length], got []");
  p.f = random_tensor({3, 5, 8}, 521);
  EXPECT_EQ(error_of([&] { p.forward(*attention); }),
            "[linformer attention] expected value_projection of rank 4 as key_projection, got 5");
}

TEST(LinformerRefusals, GradientsThatDoNotFit) {
  const auto attention = make_attention(linformer_options());
  Projected p({1, 6, 6, 3, 4, 4}, 4, 8, 3, 530);
  p.forward(*attention);
  p.de = unset_tensor({1, 4, 8});
  EXPECT_EQ(error_of([&] { p.backward(*attention); }),
            "[linformer attention] expected the gradient of key_projection [3, 4, 8], got [1, 4, 8]");
  AttentionGradients gradients = p.gradients();
  gradients.key_projection = gradients.value_projection;
  EXPECT_EQ(error_of([&] {
              attention->backward(any_context(), gradients, p.problem.grad.view<float>(), p.inputs(),
                                  p.problem.out.view<float>(), p.problem.normaliser.view<float>());
            }),
            "[linformer attention] expected memory of its own for the gradient of each projection, got the "
            "same twice");
  gradients.key_projection = gradients.value_projection = {};
  EXPECT_NO_THROW(attention->backward(any_context(), gradients, p.problem.grad.view<float>(), p.inputs(),
                                      p.problem.out.view<float>(), p.problem.normaliser.view<float>()));
}

TEST(LinformerRefusals, StatesAndDecay) {
  const auto attention = make_attention(linformer_options());
  const std::string sentence =
      "[linformer attention] expected a call without states, since compressed keys sum over all positions "
      "and cannot grow token by token (use the linear or the softmax family), got one with a state";
  EXPECT_EQ(error_of([&] { attention->make_state(1, {}); }), sentence);
  const auto other = make_attention({})->make_state(1, {3, 4, 4});
  Projected p({1, 6, 6, 3, 4, 4}, 4, 8, 3, 540);
  AttentionInputs inputs = p.inputs();
  inputs.initial = other.get();
  EXPECT_EQ(error_of([&] { attention->forward(any_context(), p.problem.outputs(), inputs); }), sentence);
  AttentionOutputs outputs = p.problem.outputs();
  outputs.final = other.get();
  EXPECT_EQ(error_of([&] { attention->forward(any_context(), outputs, p.inputs()); }), sentence);
  p.problem.decaying({0.5f, 0.5f, 0.5f});
  EXPECT_EQ(error_of([&] { p.forward(*attention); }),
            "[linformer attention] expected no decay, which the linear family alone has, got one");
}

}  // namespace
}  // namespace linnet
