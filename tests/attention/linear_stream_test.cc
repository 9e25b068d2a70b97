#include "attention/attention_tools.h"

namespace linnet {
namespace {

using test::random_tensor;
using test::relative_error;

// Long streams of one small head. Tokens come round again after `period`, so that states at 10^4 and at 10^7
// tokens are in the same phase (10^7 − 10^4 is a multiple of it).
constexpr std::int64_t dim = 4, period = 27 * 37 * 5;
constexpr HeadShape shape = {1, dim, dim};

struct Stream {
  explicit Stream(const AttentionOptions& options, float gamma = 0)
      : attention(make_attention(options)), state(attention->make_state(1, shape)) {
    if (gamma == 0) return;
    decay = Tensor::of<float>({1});
    decay.span<float>()[0] = gamma;
  }

  void step(const float* q, const float* k, const float* v) {
    const std::int64_t slot = 0;
    attention->step(any_context(), {out, {1, 1, dim}}, {q, {1, 1, dim}}, {k, {1, 1, dim}}, {v, {1, 1, dim}},
                    *state, {&slot, 1}, std::as_const(decay).view<float>());
  }
  void token(std::int64_t i) {
    const float* row = tokens.span<float>().data() + i % period * 3 * dim;
    step(row, row + dim, row + 2 * dim);
  }

  /// How much the next eight outputs change where the next token's key and value are others.
  std::vector<double> response(std::int64_t at) {
    const Tensor other = random_tensor({3 * dim}, 301);
    const auto before = attention->make_state(1, shape);
    before->copy(0, *state, 0);
    std::vector<double> outputs[2];
    for (std::vector<double>& outs : outputs) {
      state->copy(0, *before, 0);
      for (std::int64_t i = at; i < at + 8; ++i) {
        const float* row = tokens.span<float>().data() + i % period * 3 * dim;
        if (i == at && &outs != outputs)
          step(row, other.span<float>().data(), other.span<float>().data() + dim);
        else
          token(i);
        outs.insert(outs.end(), out, out + dim);
      }
    }
    state->copy(0, *before, 0);
    for (std::size_t i = 0; i < outputs[0].size(); ++i) outputs[1][i] -= outputs[0][i];
    return outputs[1];
  }

  std::unique_ptr<Attention> attention;
  std::unique_ptr<State> state;
  Tensor decay;
  float out[dim];
  const Tensor tokens = random_tensor({period, 3 * dim}, 300);
};

TEST(LinearStream, ADecayingOneRespondsAfterTenMillionTokens) {
  Stream stream({}, 0.99f);
  std::vector<double> early;
  for (std::int64_t i = 0; i < 10'000'000; ++i) {
    if (i == 10'000) early = stream.response(i);
    stream.token(i);
  }
  EXPECT_EQ(stream.state->position(0), 10'000'000);
  EXPECT_GT(relative_error(early, std::vector<double>(early.size()), 1), 1e-3);
  const double error = relative_error(stream.response(10'000'000), early);
  RecordProperty("error", testing::PrintToString(error));
  EXPECT_LT(error, 1e-5);
}

// Σ γ^i of n ones, which a state of the map identity holds in steps and in calls of a few tokens.
TEST(LinearStream, DecayingSumsKeepWhatTheirDecayRoundsOff) {
  AttentionOptions options;
  options.linear.feature_map = find_feature_map("identity");
  options.linear.normalise = Normalise::none;
  const auto attention = make_attention(options);
  constexpr std::int64_t tokens = 120'000;
  for (const float gamma : {1 - 0x1p-12f, 1 - 1e-5f, 1 - 1e-6f, 1 - 0x1p-24f, 0.75f, 0.5f, 0.3f, 1e-3f}) {
    const long double exact = (1 - std::pow(static_cast<long double>(gamma), tokens)) / (1.0L - gamma);
    Tensor decay = Tensor::of<float>({1});
    decay.span<float>()[0] = gamma;
    for (const std::int64_t together :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1000}, tokens}) {  // 0: steps
      SCOPED_TRACE(testing::Message() << "decay " << gamma << ", " << together << " tokens together");
      const auto state = attention->make_state(1, {1, 1, 1});
      const std::int64_t slot = 0;
      float out = 0;
      Tensor ones = Tensor::of<float>({1, tokens, 1, 1}), outs = Tensor::of<float>({1, tokens, 1, 1});
      std::ranges::fill(ones.span<float>(), 1.0f);
      for (std::int64_t done = 0; done < tokens;) {
        if (together == 0) {
          const View<const float> one(ones.span<float>().data(), {1, 1, 1});
          attention->step(any_context(), {&out, {1, 1, 1}}, one, one, one, *state, {&slot, 1},
                          std::as_const(decay).view<float>());
          ++done;
          continue;
        }
        const std::int64_t count = std::min(together, tokens - done);
        const View<const float> rows(ones.span<float>().data(), {1, count, 1, 1});
        AttentionInputs inputs = {rows, rows, rows, Mask::causal(), state.get()};
        inputs.decay = std::as_const(decay).view<float>();
        inputs.position = done;
        const View<float> results(outs.span<float>().data(), {1, count, 1, 1});
        attention->forward(any_context(), {results, {}, state.get()}, inputs);
        out = outs.span<float>()[static_cast<std::size_t>(count - 1)];
        done += count;
      }
      EXPECT_LT(std::abs(out / exact - 1), 3e-7L);
    }
  }
}

// Without decay the newest of n tokens weighs about 1/n.
TEST(LinearStream, WithoutDecayTheResponseFades) {
  Stream stream({});
  double early = 0;
  const auto size = [](const std::vector<double>& numbers) {
    return relative_error(numbers, std::vector<double>(numbers.size()), 1);
  };
  for (std::int64_t i = 0; i < 100'000; ++i) {
    if (i == 1'000) early = size(stream.response(i));
    stream.token(i);
  }
  EXPECT_GT(early, 1e-4);
  EXPECT_LT(size(stream.response(100'000)), 0.02 * early);
}

/// S and z in long double, with elu features.
struct ExactSums {
  static long double phi(long double x) { return x > 0 ? x + 1 : std::exp(x); }

  void add(const float* k, const float* v, std::int64_t width) {
    for (std::int64_t e = 0; e < width; ++e) {
      const long double feature = phi(k[e]);
      for (std::int64_t m = 0; m < width; ++m) sums[e * width + m] += feature * v[m];
      normaliser[e] += feature;
    }
  }
  std::vector<double> out(const float* q, std::int64_t width) const {
    std::vector<double> result;
    for (std::int64_t m = 0; m < width; ++m) {
      long double above = 0, below = 1e-6L;
      for (std::int64_t e = 0; e < width; ++e) {
        above += phi(q[e]) * sums[e * width + m];
        below += phi(q[e]) * normaliser[e];
      }
      result.push_back(double(above / below));
    }
    return result;
  }

  std::vector<long double> sums = std::vector<long double>(64), normaliser = std::vector<long double>(8);
};

/// The exact sums over `rounds` whole periods of the stream's tokens.
ExactSums sums_of_rounds(const Stream& stream, std::int64_t rounds) {
  ExactSums exact;
  for (std::int64_t i = 0; i < period; ++i) {
    const float* row = stream.tokens.span<float>().data() + i * 3 * dim;
    exact.add(row + dim, row + 2 * dim, dim);
  }
  for (std::vector<long double>* sums : {&exact.sums, &exact.normaliser})
    for (long double& sum : *sums) sum *= rounds;
  return exact;
}

/// The exact outputs of the period that follows on `rounds` whole ones.
std::vector<double> outputs_after_rounds(const Stream& stream, std::int64_t rounds) {
  ExactSums exact = sums_of_rounds(stream, rounds);
  std::vector<double> result;
  for (std::int64_t i = 0; i < period; ++i) {
    const float* row = stream.tokens.span<float>().data() + i * 3 * dim;
    exact.add(row + dim, row + 2 * dim, dim);
    const std::vector<double> out = exact.out(row, dim);
    result.insert(result.end(), out.begin(), out.end());
  }
  return result;
}

constexpr std::int64_t rounds = 10'000'000 / period;

// Sums of ten million terms, token by token: plain ones round off more with every token.
TEST(LinearStream, CompensatedSumsDoNotDrift) {
  AttentionOptions plain_options;
  plain_options.linear.sums = StateSums::plain;
  Stream compensated({}), plain(plain_options);
  std::vector<double> found[2];
  for (std::int64_t i = 0; i < (rounds + 1) * period; ++i) {
    compensated.token(i);
    plain.token(i);
    if (i < rounds * period) continue;
    found[0].insert(found[0].end(), compensated.out, compensated.out + dim);
    found[1].insert(found[1].end(), plain.out, plain.out + dim);
  }
  const std::vector<double> wanted = outputs_after_rounds(compensated, rounds);
  const double error = relative_error(found[0], wanted), plain_error = relative_error(found[1], wanted);
  RecordProperty("compensated", testing::PrintToString(error));
  RecordProperty("plain", testing::PrintToString(plain_error));
  EXPECT_LT(error, 1e-6);
  EXPECT_LT(error, plain_error);
}

// The same through one state in the parallel form, a prompt of some thousand tokens a call.
TEST(LinearStream, CompensatedSumsDoNotDriftInThePrefill) {
  Stream stream({});
  Tensor out = Tensor::of<float>({1, period, 1, dim});
  const auto rows = [&](std::int64_t which) {
    return View<const float>(stream.tokens.span<float>().data() + which * dim, {1, period, 1, dim},
                             {period * 3 * dim, 3 * dim, dim, 1});
  };
  for (std::int64_t round = 0; round <= rounds; ++round) {
    const AttentionInputs inputs = {rows(0), rows(1), rows(2), Mask::causal(), stream.state.get()};
    stream.attention->forward(any_context(), {out.view<float>(), {}, stream.state.get()}, inputs);
  }
  EXPECT_EQ(stream.state->position(0), (rounds + 1) * period);
  const double error = relative_error(out.span<float>(), outputs_after_rounds(stream, rounds));
  RecordProperty("compensated", testing::PrintToString(error));
  EXPECT_LT(error, 1e-6);
}

TEST(LinearStream, ParallelSumsDoNotDrift) {
  const std::int64_t n = 200'000, width = 8;
  test::Problem problem({1, n, n, 1, width, width}, Mask::causal(), 310);
  problem.forward(*make_attention({}));
  ExactSums exact;
  std::vector<double> found, wanted;
  const auto q = problem.q.view<float>(), k = problem.k.view<float>(), v = problem.v.view<float>(),
             out = problem.out.view<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    exact.add(k.at(0, i), v.at(0, i), width);
    if (i % 199 != 198 && i < n - 100) continue;
    const std::vector<double> row = exact.out(q.at(0, i), width);
    wanted.insert(wanted.end(), row.begin(), row.end());
    found.insert(found.end(), out.at(0, i), out.at(0, i) + width);
  }
  const double error = relative_error(found, wanted);
  RecordProperty("error", testing::PrintToString(error));
  EXPECT_LT(error, 1e-6);
  // The last ones alone, which are the smallest.
  const std::size_t last = 100 * width;
  EXPECT_LT(relative_error(std::span(found).last(last), std::span(wanted).last(last)), 1e-6);
}

}  // namespace
}  // namespace linnet
