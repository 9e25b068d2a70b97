// LSH attention against its double-precision reference, that one against softmax attention and finite
// differences.
#include <numeric>

#include "attention/attention_tools.h"
#include "attention/lsh/hash.h"
#include "kernels/targets.h"
#include "linnet/error.h"
#include "linnet/reference.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::random_tensor;
using test::to_double;
using test::unset_tensor;

AttentionOptions lsh_options(std::int64_t buckets, std::int64_t chunk, std::int64_t rounds,
                             std::uint64_t seed = 1) {
  AttentionOptions options;
  options.family = Family::lsh;
  options.lsh = {.buckets = buckets, .chunk = chunk, .rounds = rounds, .seed = seed};
  return options;
}

struct Shared {
  std::int64_t batch = 1, length = 1, heads = 1, head_dim = 8, value_dim = 8;
};

/// Inputs of a call with shared queries and keys, and all its results.
struct Problem {
  Problem(const Shared& s, Mask m, std::uint64_t seed)
      : mask(std::move(m)),
        q(random_tensor({s.batch, s.length, s.heads, s.head_dim}, seed, 2.0f)),
        v(random_tensor({s.batch, s.length, s.heads, s.value_dim}, seed + 1)),
        grad(random_tensor(v.shape(), seed + 2)),
        out(unset_tensor(v.shape())),
        normaliser(unset_tensor({s.batch, s.length, s.heads})),
        dq(unset_tensor(q.shape())),
        dk(unset_tensor(q.shape())),
        dv(unset_tensor(v.shape())) {}

  AttentionInputs inputs() const { return {q.view<float>(), q.view<float>(), v.view<float>(), mask}; }
  AttentionOutputs outputs() { return {out.view<float>(), normaliser.view<float>()}; }
  AttentionGradients gradients() { return {dq.view<float>(), dk.view<float>(), dv.view<float>()}; }
  void forward(const Attention& attention, Context& context = any_context()) {
    attention.forward(context, outputs(), inputs());
  }
  void backward(const Attention& attention, Context& context = any_context()) {
    attention.backward(context, gradients(), std::as_const(grad).view<float>(), inputs(),
                       std::as_const(out).view<float>(), std::as_const(normaliser).view<float>());
  }

  Mask mask;
  Tensor q, v, grad, out, normaliser, dq, dk, dv;
};

struct Expected {
  Expected(const AttentionOptions& options, const Problem& p)
      : mask(p.mask),
        q(to_double(p.q)),
        v(to_double(p.v)),
        grad(to_double(p.grad)),
        out(v.clone()),
        dq(q.clone()),
        dk(q.clone()),
        dv(v.clone()) {
    reference_forward(options, out.view<double>(), inputs());
    reference_backward(options, {dq.view<double>(), dk.view<double>(), dv.view<double>()},
                       std::as_const(grad).view<double>(), inputs());
  }
  ReferenceInputs inputs() const { return {q.view<double>(), q.view<double>(), v.view<double>(), mask}; }

  Mask mask;
  Tensor q, v, grad, out, dq, dk, dv;
};

void expect_reference(const AttentionOptions& options, Problem& p) {
  const auto attention = make_attention(options);
  const Expected expected(options, p);
  p.forward(*attention);
  p.backward(*attention);
  // Gradients of tokens that see one key alone vanish but for rounding.
  const double least = 1e-2 * std::sqrt(double(p.q.size()));
  EXPECT_LT(test::error_of(p.out, expected.out), 1e-5);
  EXPECT_LT(test::error_of(p.dq, expected.dq, least), 1e-5);
  EXPECT_LT(test::error_of(p.dv, expected.dv), 1e-5);
  for (const float x : p.dk.span<float>()) EXPECT_EQ(x, 0);
}

TEST(Lsh, AnySizeMatchesReference) {
  std::uint64_t seed = 600;
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    for (const std::int64_t length : {1, 2, 63, 64, 65, 200}) {
      for (const auto& [buckets, chunk, rounds] :
           {std::array<std::int64_t, 3>{0, 64, 1}, {0, 16, 4}, {6, 10, 2}, {1, 300, 1}, {64, 1, 3}}) {
        Problem p({2, length, 2, 17, 9}, mask, seed);
        SCOPED_TRACE(mask.name() + ", length " + std::to_string(length) + ", buckets " +
                     std::to_string(buckets) + ", chunk " + std::to_string(chunk) + ", rounds " +
                     std::to_string(rounds) + ", seed " + std::to_string(seed));
        expect_reference(lsh_options(buckets, chunk, rounds, seed++), p);
      }
    }
  }
}

TEST(Lsh, ManyBlocksAndWideHeadsMatchReference) {
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    Problem many({1, 1000, 1, 20, 33}, mask, 700);
    expect_reference(lsh_options(8, 64, 2), many);
    Problem one_chunk({1, 900, 1, 8, 8}, mask, 703);
    expect_reference(lsh_options(2, 900, 2), one_chunk);
    Problem wide({1, 450, 1, 300, 290}, mask, 706);
    expect_reference(lsh_options(4, 100, 2), wide);
  }
}

// Scores of 4096 with the tokens of the same direction and of 0 with the others, which f32 holds exactly:
// rounds are weighed by their sums. Directions that share a bucket in some rounds only make other tokens
// meet.
TEST(Lsh, LargeExactScoresCostNoDigits) {
  AttentionOptions options = lsh_options(2, 8, 6);
  options.scale = 1;
  Problem p({1, 200, 1, 4, 8}, Mask::full(), 710);
  for (std::int64_t i = 0; i < 200; ++i)
    for (std::int64_t e = 0; e < 4; ++e) p.q.view<float>()(0, i, 0, e) = e == i * i % 7 % 4 ? 4096.0f : 0.0f;
  const Expected expected(options, p);
  p.forward(*make_attention(options));
  EXPECT_LT(test::error_of(p.out, expected.out), 1e-6);
}

/// That `p.out` is softmax attention over keys of length 1, of which a query sees those that are 1 in `seen`
/// [N, N].
void expect_softmax_over(const Problem& p, const std::vector<std::uint8_t>& seen) {
  const std::int64_t length = p.q.shape()[1], head_dim = p.q.shape()[3];
  Tensor unit = p.q.clone();
  for (float* x = unit.span<float>().data(); x != unit.span<float>().data() + unit.size(); x += head_dim) {
    const double norm = std::sqrt(std::inner_product(x, x + head_dim, x, 0.0));
    for (std::int64_t e = 0; e < head_dim; ++e) x[e] = static_cast<float>(x[e] / norm);
  }
  AttentionOptions softmax;
  softmax.family = Family::softmax;
  Tensor exact = unset_tensor(p.out.shape());
  make_attention(softmax)->forward(
      any_context(), {exact.view<float>(), {}},
      {p.q.view<float>(), std::as_const(unit).view<float>(), p.v.view<float>(),
       Mask::boolean(View<const std::uint8_t>(seen.data(), {1, length, length}))});
  EXPECT_LT(test::relative_error(p.out.span<float>(), exact.span<float>()), 1e-5);
}

TEST(Lsh, OneBucketAndOneChunkIsSoftmaxWithoutItself) {
  constexpr std::int64_t length = 130;
  std::vector<std::uint8_t> others(length * length, 1);
  for (std::int64_t i = 0; i < length; ++i) others[i * length + i] = 0;
  for (const bool causal : {false, true}) {
    for (std::int64_t i = 0; i < length && causal; ++i)
      std::fill(others.begin() + i * length + i, others.begin() + (i + 1) * length, 0);
    others[0] = causal ? 1 : 0;  // the first token sees nothing else
    Problem p({2, length, 2, 16, 12}, causal ? Mask::causal() : Mask::full(), 720);
    p.forward(*make_attention(lsh_options(1, length, 3)));
    expect_softmax_over(p, others);
  }
}

// In one chunk a token sees those that share its bucket in some round: softmax over them, of which each
// counts once.
TEST(Lsh, AKeyCountsOnceInHoweverManyRoundsItIsMet) {
  constexpr std::int64_t length = 150;
  for (const bool causal : {false, true}) {
    const AttentionOptions options = lsh_options(4, length, 4, 5);
    Problem p({1, length, 1, 16, 12}, causal ? Mask::causal() : Mask::full(), 730);
    p.forward(*make_attention(options));
    const std::vector<std::uint32_t> buckets =
        lsh::hash_tokens(any_context(), options, std::as_const(p.q).view<float>(), p.mask).buckets;
    std::vector<std::uint8_t> met(length * length, 0);
    std::int64_t repeated = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t j = 0; j < (causal ? i : length); ++j) {
        std::int64_t rounds = 0;
        for (std::int64_t round = 0; round < 4 && i != j; ++round)
          rounds += buckets[round * length + i] == buckets[round * length + j];
        met[i * length + j] = rounds > 0;
        repeated += rounds > 1;
      }
      const auto row = met.begin() + i * length;
      if (std::count(row, row + length, 1) == 0) row[i] = 1;
    }
    EXPECT_GT(repeated, length);
    expect_softmax_over(p, met);
  }
}

TEST(Lsh, ReferenceGradientsMatchFiniteDifferences) {
  for (const Mask& mask : {Mask::full(), Mask::causal().with_key_lengths({9, 12})}) {
    const AttentionOptions options = lsh_options(2, 4, 2, 3);
    const Problem p({2, 12, 2, 4, 3}, mask, 740);
    Expected at(options, p);
    const auto loss = [&] {
      Tensor out = at.out.clone();
      reference_forward(options, out.view<double>(), at.inputs());
      return std::inner_product(out.span<double>().begin(), out.span<double>().end(),
                                at.grad.span<double>().begin(), 0.0);
    };
    constexpr double step = 1e-6;
    for (const auto& [x, dx] : {std::pair<Tensor*, Tensor*>{&at.q, &at.dq}, {&at.v, &at.dv}}) {
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
}

TEST(Lsh, PaddingIsAsIfTheInputWereShort) {
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    const AttentionOptions options = lsh_options(4, 16, 2);
    Problem padded({2, 90, 2, 8, 8}, mask.with_key_lengths({37, 0}), 760);
    Problem cut({1, 37, 2, 8, 8}, mask, 760);
    std::copy_n(padded.q.span<float>().data(), cut.q.size(), cut.q.span<float>().data());
    std::copy_n(padded.v.span<float>().data(), cut.v.size(), cut.v.span<float>().data());
    std::copy_n(padded.grad.span<float>().data(), cut.grad.size(), cut.grad.span<float>().data());
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t i = b == 0 ? 37 : 0; i < 90; ++i)
        for (Tensor* x : {&padded.q, &padded.v, &padded.grad})
          std::fill_n(x->view<float>().at(b, i), 16, NAN);
    const auto attention = make_attention(options);
    for (Problem* p : {&padded, &cut}) {
      p->forward(*attention);
      p->backward(*attention);
    }
    for (const auto& [with, without] : {std::pair<Tensor*, Tensor*>{&padded.out, &cut.out},
                                        {&padded.dq, &cut.dq},
                                        {&padded.dk, &cut.dk},
                                        {&padded.dv, &cut.dv}}) {
      for (std::int64_t i = 0; i < with->size(); ++i)
        EXPECT_EQ(with->span<float>()[i], i < without->size() ? without->span<float>()[i] : 0);
    }
  }
}

TEST(Lsh, NanReachesWhoSeesItOnly) {
  Problem p({1, 200, 1, 8, 8}, Mask::causal(), 765);
  const AttentionOptions options = lsh_options(8, 16, 2);
  const auto attention = make_attention(options);
  p.forward(*attention);
  const Tensor before = p.out.clone();
  *p.v.view<float>().at(0, 100) = NAN;
  p.forward(*attention);
  const Expected expected(options, p);
  int reached = 0;
  for (std::int64_t i = 0; i < p.out.size(); ++i) {
    const float found = p.out.span<float>()[i];
    if (std::isnan(expected.out.span<double>()[i])) {
      EXPECT_TRUE(std::isnan(found)) << i;
      EXPECT_GT(i, 100 * 8);
      ++reached;
    } else {
      EXPECT_EQ(found, before.span<float>()[i]) << i;
    }
  }
  EXPECT_GT(reached, 0);
}

TEST(Lsh, VectorsOfLengthZeroMatchReference) {
  Problem p({1, 70, 1, 8, 8}, Mask::full(), 770);
  for (const std::int64_t i : {0, 13, 14, 69}) std::fill_n(p.q.view<float>().at(0, i), 8, 0.0f);
  expect_reference(lsh_options(2, 16, 2), p);
}

TEST(Lsh, BitsDoNotDependOnTheThreads) {
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    const auto attention = make_attention(lsh_options(16, 32, 3));
    Problem one({2, 1000, 2, 33, 20}, mask, 780);
    Context single(1);
    one.forward(*attention, single);
    one.backward(*attention, single);
    for (const int threads : {2, 3, 8}) {
      Problem more({2, 1000, 2, 33, 20}, mask, 780);
      Context context(threads);
      more.forward(*attention, context);
      more.backward(*attention, context);
      EXPECT_TRUE(test::equal(more.out, one.out));
      EXPECT_TRUE(test::equal(more.normaliser, one.normaliser));
      EXPECT_TRUE(test::equal(more.dq, one.dq));
      EXPECT_TRUE(test::equal(more.dv, one.dv));
    }
  }
}

TEST(Lsh, LargeOutputsStoredPastTheCachesAreTheSame) {
  // 2^20 numbers of output take streaming stores where there is one round; one batch entry alone does not.
  for (const std::int64_t rounds : {1, 2}) {
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      const auto attention = make_attention(lsh_options(0, 64, rounds));
      Problem large({9, 2000, 2, 16, 32}, mask, 130);
      attention->forward(any_context(), large.outputs(), large.inputs());
      Tensor alone = unset_tensor({1, 2000, 2, 32}), normaliser = unset_tensor({1, 2000, 2});
      const AttentionInputs all = large.inputs();
      const ConstFloatView last = all.query.slice(0, 8, 9);
      attention->forward(any_context(), {alone.view<float>(), normaliser.view<float>()},
                         {last, last, all.value.slice(0, 8, 9), mask});
      EXPECT_TRUE(std::ranges::equal(large.out.span<float>().last(2000 * 2 * 32), alone.span<float>()));
      EXPECT_TRUE(
          std::ranges::equal(large.normaliser.span<float>().last(2000 * 2), normaliser.span<float>()));
    }
  }
}

TEST(Lsh, Bf16IsTheRoundedInputsAttention) {
  const AttentionOptions options = lsh_options(4, 16, 2);
  const auto attention = make_attention(options);
  Problem p({2, 70, 2, 16, 8}, Mask::full(), 790);
  const auto narrow = [](Tensor& x) {
    Tensor half = Tensor::of<bf16>(x.shape());
    for (std::int64_t i = 0; i < x.size(); ++i) {
      half.span<bf16>()[i] = to_bf16(x.span<float>()[i]);
      x.span<float>()[i] = to_float(half.span<bf16>()[i]);
    }
    return half;
  };
  const Tensor q = narrow(p.q), v = narrow(p.v), grad = narrow(p.grad);
  Tensor out = Tensor::of<bf16>(v.shape()), dq = q.clone(), dk = q.clone(), dv = v.clone();
  const Expected expected(options, p);
  const AttentionInputs inputs = {q.float_view(), q.float_view(), v.float_view(), p.mask};
  attention->forward(any_context(), {out.float_view(), p.normaliser.view<float>()}, inputs);
  attention->backward(any_context(), {dq.float_view(), dk.float_view(), dv.float_view()}, grad.float_view(),
                      inputs, std::as_const(out).float_view(), std::as_const(p.normaliser).view<float>());
  const auto error = [](const Tensor& half, const Tensor& exact) {
    std::vector<float> wide;
    for (const bf16 x : half.span<bf16>()) wide.push_back(to_float(x));
    return test::relative_error(wide, exact.span<double>());
  };
  EXPECT_LT(error(out, expected.out), 4e-3);
  EXPECT_LT(error(dq, expected.dq), 8e-3);
  EXPECT_LT(error(dv, expected.dv), 8e-3);
  for (const bf16 x : dk.span<bf16>()) EXPECT_EQ(to_float(x), 0);
}

TEST(Lsh, EveryInstructionSetMatchesReference) {
  kernels::for_every_target([] {
    for (const Mask& mask : {Mask::full(), Mask::causal()}) {
      Problem p({1, 150, 2, 20, 33}, mask, 800);
      expect_reference(lsh_options(4, 32, 2), p);
    }
  });
}

TEST(LshHash, OppositesNeverMeetAndLengthDoesNotMatter) {
  constexpr std::int64_t length = 300;
  const Tensor q = random_tensor({1, length, 2, 16}, 810);
  Tensor opposite = q.clone(), longer = q.clone();
  for (float& x : opposite.span<float>()) x = -x;
  for (float& x : longer.span<float>()) x *= 4;
  const AttentionOptions options = lsh_options(256, 64, 3);
  const auto hash = [&](const Tensor& x) {
    return lsh::hash_tokens(any_context(), options, x.view<float>(), Mask::full()).buckets;
  };
  const std::vector<std::uint32_t> buckets = hash(q), of_opposite = hash(opposite);
  EXPECT_EQ(hash(longer), buckets);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    EXPECT_LT(buckets[i], 256u);
    EXPECT_NE(buckets[i], of_opposite[i]);
  }
}

TEST(LshHash, NearVectorsMeetMoreOftenThanFarOnes) {
  constexpr std::int64_t pairs = 2000;
  // Tokens 2i and 2i + 1 are `apart` of their length from each other.
  const auto meetings = [](float apart) {
    Tensor q = random_tensor({1, 2 * pairs, 1, 16}, 820);
    const Tensor other = random_tensor({1, 2 * pairs, 1, 16}, 821);
    for (std::int64_t i = 0; i < pairs; ++i)
      for (std::int64_t e = 0; e < 16; ++e)
        q.view<float>().at(0, 2 * i + 1)[e] =
            q.view<float>().at(0, 2 * i)[e] + apart * other.view<float>().at(0, i)[e];
    const auto buckets =
        lsh::hash_tokens(any_context(), lsh_options(16, 64, 1), std::as_const(q).view<float>(), Mask::full())
            .buckets;
    std::int64_t met = 0;
    for (std::int64_t i = 0; i < pairs; ++i) met += buckets[2 * i] == buckets[2 * i + 1];
    return met;
  };
  const std::int64_t near = meetings(0.1f), middle = meetings(0.5f), far = meetings(10.0f);
  EXPECT_GT(near, pairs * 8 / 10);
  EXPECT_GT(near, middle + pairs / 10);
  EXPECT_GT(middle, far + pairs / 10);
  // Independent ones meet by chance, once in 16.
  EXPECT_LT(far, pairs / 8);
}

TEST(LshHash, SeedRoundHeadAndLayerDecideTheRotations) {
  Tensor q = random_tensor({1, 200, 2, 16}, 830);
  for (std::int64_t i = 0; i < 200; ++i)
    std::copy_n(q.view<float>().at(0, i, 0), 16, q.view<float>().at(0, i, 1));
  AttentionOptions options = lsh_options(16, 64, 2);
  const auto hash = [&] {
    return lsh::hash_tokens(any_context(), options, std::as_const(q).view<float>(), Mask::full()).buckets;
  };
  const std::vector<std::uint32_t> buckets = hash();
  EXPECT_EQ(hash(), buckets);
  const auto part = [&](std::int64_t index) {
    return std::vector<std::uint32_t>(buckets.begin() + 200 * index, buckets.begin() + 200 * (index + 1));
  };
  EXPECT_NE(part(0), part(1));  // heads
  EXPECT_NE(part(0), part(2));  // rounds
  options.layer = 1;
  EXPECT_NE(hash(), buckets);
  options.layer = 0;
  options.lsh.seed = 2;
  EXPECT_NE(hash(), buckets);
}

TEST(LshHash, DefaultBucketsHoldAChunkAtMost) {
  EXPECT_EQ(lsh::bucket_count({}, 0), 1);
  EXPECT_EQ(lsh::bucket_count({}, 64), 1);
  EXPECT_EQ(lsh::bucket_count({}, 65), 2);
  EXPECT_EQ(lsh::bucket_count({}, 16384), 256);
  EXPECT_EQ(lsh::bucket_count({.buckets = 6}, 16384), 6);
}

TEST(LshRefusals, OptionsThatCannotBe) {
  const auto sentence = [](std::int64_t buckets, std::int64_t chunk, std::int64_t rounds) {
    return error_of<UsageError>([&] { make_attention(lsh_options(buckets, chunk, rounds)); });
  };
  EXPECT_EQ(sentence(7, 64, 1),
            "[lsh attention] expected 1 or an even number of buckets up to 65536 (0 chooses one), got 7");
  EXPECT_EQ(sentence(-2, 64, 1),
            "[lsh attention] expected 1 or an even number of buckets up to 65536 (0 chooses one), got -2");
  EXPECT_EQ(sentence(0, 0, 1), "[lsh attention] expected chunks of at least 1 token, got 0");
  EXPECT_EQ(sentence(0, 64, 0), "[lsh attention] expected 1 to 64 rounds, got 0");
  EXPECT_EQ(sentence(0, 64, 65), "[lsh attention] expected 1 to 64 rounds, got 65");
}

TEST(LshRefusals, KeysOfTheirOwn) {
  Problem p({1, 20, 2, 8, 8}, Mask::full(), 840);
  const auto attention = make_attention(lsh_options(0, 64, 1));
  const Tensor copy = p.q.clone();
  AttentionInputs inputs = p.inputs();
  inputs.key = copy.view<float>();
  EXPECT_EQ(error_of([&] { attention->forward(any_context(), p.outputs(), inputs); }),
            "[lsh attention] expected key to be the same view as query, since one hash finds both (its unit "
            "length is made inside), got another one");
  for (const float x : p.out.span<float>()) EXPECT_TRUE(std::isnan(x)) << "written before the check";
}

TEST(LshRefusals, OtherMasksStatesAndDecay) {
  Problem p({1, 20, 2, 8, 8}, Mask::full(), 850);
  const auto attention = make_attention(lsh_options(0, 64, 1));
  for (const Mask& mask : {Mask::prefix({3}), Mask::window(3, 0), Mask::causal().with_segments({0, 20})}) {
    p.mask = mask;
    const std::string sentence =
        "[lsh attention] expected a full or a causal mask, since tokens that were sorted by bucket have no "
        "neighbours in position (use the softmax or the linear family), got the mask " +
        mask.name();
    EXPECT_EQ(error_of([&] { p.forward(*attention); }), sentence);
    EXPECT_EQ(error_of([&] { p.backward(*attention); }), sentence);
  }
  p.mask = Mask::causal();
  const std::string sentence =
      "[lsh attention] expected a call without states, since every new token may move the others to another "
      "chunk (use the softmax or the linear family), got one with a state";
  EXPECT_EQ(error_of([&] { attention->make_state(1, {}); }), sentence);
  const auto other = make_attention({})->make_state(1, {2, 8, 8});
  AttentionInputs inputs = p.inputs();
  inputs.initial = other.get();
  EXPECT_EQ(error_of([&] { attention->forward(any_context(), p.outputs(), inputs); }), sentence);
  const Tensor decay = random_tensor({2}, 851);
  inputs = p.inputs();
  inputs.decay = decay.view<float>();
  EXPECT_EQ(error_of([&] { attention->forward(any_context(), p.outputs(), inputs); }),
            "[lsh attention] expected no decay, which the linear family alone has, got one");
}

}  // namespace
}  // namespace linnet
