// Gradients of states: handed back through a call, and from call to call.
#include <fmt/format.h>

#include <functional>

#include "attention/attention_tools.h"
#include "attention/family_cases.h"
#include "attention/linear/linear_attention.h"
#include "attention/log_scaled_maps.h"
#include "attention/mask_cases.h"
#include "attention/mask_geometry.h"
#include "attention/state_cases.h"
#include "attention/user_maps.h"

namespace linnet {
namespace {

using test::batch;
using test::boolean_case;
using test::Bounds;
using test::Exact;
using test::head_dim;
using test::heads;
using test::key_value_families;
using test::KeyValueFamily;
using test::MaskCase;
using test::Problem;
using test::relative_error;
using test::saved;
using test::shape;
using test::to_double;
using test::value_dim;

std::int64_t gradient_width(const State& state) {
  std::int64_t width = 0;
  for (std::int64_t b = 0; b < state.slots(); ++b) width = std::max(width, state.gradient_floats(b));
  return width;
}

/// One call behind an initial state that `before` earlier tokens have left, with gradients of its output and
/// its final state.
struct Continued {
  Continued(const AttentionOptions& options, const MaskCase& mask, std::int64_t before, std::int64_t length,
            const std::vector<float>& gamma, std::uint64_t seed, float scale = 1.0f)
      : options(options),
        attention(make_attention(options)),
        mask(mask),
        before(before),
        earlier({batch, before, before, heads, head_dim, value_dim}, Mask::causal(), seed, scale),
        problem({batch, length, length, heads, head_dim, value_dim}, mask.mask, seed + 10, scale),
        initial(attention->make_state(batch, shape)),
        final(attention->make_state(batch, shape)) {
    if (!gamma.empty()) {
      earlier.decaying(gamma);
      problem.decaying(gamma);
    }
    AttentionOutputs outputs = earlier.outputs();
    outputs.final = initial.get();
    attention->forward(any_context(), outputs, earlier.inputs());
  }

  AttentionInputs inputs() const {
    AttentionInputs inputs = problem.inputs();
    inputs.initial = initial.get();
    inputs.position = before;
    return inputs;
  }

  void run(Context& context = any_context()) {
    AttentionOutputs outputs = problem.outputs();
    outputs.final = final.get();
    attention->forward(context, outputs, inputs());
    if (grad_final.size() == 0)
      grad_final = test::random_tensor({batch, std::max<std::int64_t>(1, gradient_width(*final))}, 99);
    d_initial = test::unset_tensor({batch, gradient_width(*initial)});
    AttentionGradients gradients = problem.gradients();
    gradients.initial = d_initial.view<float>();
    gradients.final = std::as_const(grad_final).view<float>();
    attention->backward(context, gradients, std::as_const(problem.grad).view<float>(), inputs(),
                        std::as_const(problem.out).view<float>(),
                        std::as_const(problem.normaliser).view<float>());
  }

  AttentionOptions options;
  std::unique_ptr<Attention> attention;
  MaskCase mask;
  std::int64_t before;
  Problem earlier, problem;
  std::unique_ptr<State> initial, final;
  Tensor grad_final, d_initial;
};

/// The linear reference of a call, from the numbers of its initial state.
struct LinearExact {
  explicit LinearExact(const Continued& call)
      : q(to_double(call.problem.q)),
        k(to_double(call.problem.k)),
        v(to_double(call.problem.v)),
        grad(to_double(call.problem.grad)),
        decay(to_double(call.problem.decay)),
        out(grad.clone()),
        dq(q.clone()),
        dk(k.clone()),
        dv(v.clone()),
        d_decay(decay.clone()) {
    const std::int64_t width = call.initial->gradient_floats(0);
    initial = Tensor::of<double>({batch, width});
    scale = Tensor::of<double>({batch, heads});
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::vector<float> numbers = saved(*call.initial, b);
      const bool compensated = call.options.linear.sums == StateSums::compensated;
      for (std::int64_t i = 0; i < width; ++i)
        initial.view<double>()(b, i) = double(numbers[i]) - (compensated ? double(numbers[width + i]) : 0);
      const std::size_t scales = std::size_t(width) * (compensated ? 2 : 1);
      for (std::int64_t h = 0; h < heads && scales < numbers.size(); ++h)
        scale.view<double>()(b, h) = double(numbers[scales + 2 * h]) + double(numbers[scales + 2 * h + 1]);
    }
    const ReferenceInputs inputs = {std::as_const(q).view<double>(), std::as_const(k).view<double>(),
                                    std::as_const(v).view<double>(), call.mask.mask,
                                    std::as_const(decay).view<double>()};
    const LinearReferenceStates states = {std::as_const(initial).view<double>(),
                                          std::as_const(scale).view<double>(), call.before};
    final = Tensor::of<double>({batch, width});
    d_initial = Tensor::of<double>({batch, width});
    const Tensor grad_final = to_double(call.grad_final);
    linear_reference_forward(call.options, out.view<double>(), inputs, states, final.view<double>());
    linear_reference_backward(
        call.options, {dq.view<double>(), dk.view<double>(), dv.view<double>(), d_decay.view<double>()},
        std::as_const(grad).view<double>(), inputs, states, d_initial.view<double>(),
        grad_final.view<double>());
  }

  Tensor q, k, v, grad, decay, out, dq, dk, dv, d_decay, initial, scale, final, d_initial;
};

double error_of(const Tensor& f32, const Tensor& f64, double least = 1e-30) {
  return test::error_of(f32, f64, least);
}

/// Where log-scales take the decay, γ's gradient is a difference of sums that grow with the position.
constexpr double scaled_decay_tolerance = 2e-4;

void expect_linear_reference(Continued& call, double tolerance) {
  call.run();
  const LinearExact exact(call);
  EXPECT_LT(error_of(call.problem.out, exact.out), tolerance);
  EXPECT_LT(error_of(call.problem.dq, exact.dq, 0.1), tolerance) << "query";
  EXPECT_LT(error_of(call.problem.dk, exact.dk, 0.1), tolerance) << "key";
  EXPECT_LT(error_of(call.problem.dv, exact.dv, 0.1), tolerance) << "value";
  EXPECT_LT(error_of(call.d_initial, exact.d_initial, 0.1), tolerance) << "initial state";
  if (call.problem.decay.size() != 0) {
    const bool scaled = call.options.linear.feature_map->traits().log_scaled;
    EXPECT_LT(error_of(call.problem.d_decay, exact.d_decay, 0.1), scaled ? scaled_decay_tolerance : tolerance)
        << "decay";
  }
  std::vector<float> left;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::vector<float> numbers = saved(*call.final, b);
    left.insert(left.end(), numbers.begin(), numbers.begin() + call.final->gradient_floats(b));
  }
  EXPECT_LT(relative_error(left, exact.final.span<double>(), 0.1), tolerance) << "final state";
}

/// Causal and prefix masks with segments, key lengths and both.
std::vector<MaskCase> masks_of(std::int64_t n, std::uint64_t seed) {
  std::vector<MaskCase> masks;
  for (const MaskCase& kind : {test::causal_case(), test::prefix_case({n / 2}), test::prefix_case({n})}) {
    masks.push_back(kind);
    masks.push_back(test::with_key_lengths(kind, {n / 3, n, 0}));
    const MaskCase packed = test::with_segments(kind, {test::random_bounds(n, seed)});
    masks.push_back(packed);
    masks.push_back(test::with_key_lengths(packed, test::random_lengths(batch, n, seed)));
  }
  return masks;
}

const std::vector<std::int64_t> lengths = {0, 1, 63, 64, 65, 200};

AttentionOptions with_map(std::shared_ptr<const FeatureMap> map, StateSums sums = StateSums::compensated) {
  AttentionOptions options;
  options.linear.feature_map = std::move(map);
  options.linear.sums = sums;
  return options;
}

AttentionOptions favor() {
  FeatureMapOptions random;
  random.head_dim = head_dim;
  random.random.features = 16;
  return with_map(find_feature_map("favor", random));
}

TEST(StateGradients, LinearMatchesReference) {
  for (const StateSums sums : {StateSums::plain, StateSums::compensated}) {
    for (const std::int64_t n : lengths) {
      for (const MaskCase& mask : masks_of(n, 30 + n)) {
        SCOPED_TRACE(mask.what + ", length " + std::to_string(n));
        Continued call(with_map(elu_map(), sums), mask, 50, n, {}, 40);
        expect_linear_reference(call, 1e-5);
      }
    }
  }
}

TEST(StateGradients, LinearWithADecayMatchesReference) {
  for (const std::vector<float>& gamma : {std::vector<float>{0.97f, 1.0f}, {1e-30f, 0.3f}}) {
    for (const StateSums sums : {StateSums::plain, StateSums::compensated}) {
      for (const std::int64_t n : lengths) {
        for (const MaskCase& mask : masks_of(n, 50 + n)) {
          if (mask.mask.kind() != Mask::Kind::causal) continue;
          SCOPED_TRACE(mask.what + ", length " + std::to_string(n) + ", decay " + std::to_string(gamma[0]));
          Continued call(with_map(elu_map(), sums), mask, 50, n, gamma, 60);
          expect_linear_reference(call, 1e-5);
        }
      }
    }
  }
}

TEST(StateGradients, OtherMapsMatchReference) {
  for (const AttentionOptions& options : {with_map(relu_map()), with_map(std::make_shared<test::TwoSided>()),
                                          with_map(std::make_shared<test::Positional>()), favor(),
                                          with_map(std::make_shared<test::LoudMap>())}) {
    for (const std::int64_t n : {1, 65, 130}) {
      for (const MaskCase& mask : masks_of(n, 70 + n)) {
        SCOPED_TRACE(options.linear.feature_map->name() + ", " + mask.what + ", length " + std::to_string(n));
        Continued call(options, mask, 50, n, {}, 80);
        expect_linear_reference(call, 1e-5);
      }
    }
  }
}

TEST(StateGradients, LogScalesWithADecayMatchReference) {
  for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
    for (const std::vector<float>& gamma : {std::vector<float>{0.97f, 1.0f}, {0.2f, 0.7f}}) {
      for (AttentionOptions options : {favor(), with_map(std::make_shared<test::LoudMap>())}) {
        options.linear.normalise = normalise;
        for (const std::int64_t n : lengths) {
          for (const MaskCase& mask : masks_of(n, 50 + n)) {
            if (mask.mask.kind() != Mask::Kind::causal) continue;
            SCOPED_TRACE(options.linear.feature_map->name() + ", " + mask.what + ", length " +
                         std::to_string(n) + ", decay " + std::to_string(gamma[0]));
            Continued call(options, mask, 50, n, gamma, 65);
            expect_linear_reference(call, 2e-5);
          }
        }
      }
    }
  }
}

// γ's gradient takes that of the initial state, also where the caller does not ask for it.
TEST(StateGradients, LogScalesWithADecayNeedNoGradientOfTheInitialState) {
  Continued call(favor(), test::causal_case(), 40, 90, {0.9f, 0.97f}, 66);
  call.run();
  const Tensor wanted = call.problem.d_decay.clone();
  AttentionGradients gradients = call.problem.gradients();
  gradients.final = std::as_const(call.grad_final).view<float>();
  call.attention->backward(any_context(), gradients, std::as_const(call.problem.grad).view<float>(),
                           call.inputs(), std::as_const(call.problem.out).view<float>(),
                           std::as_const(call.problem.normaliser).view<float>());
  EXPECT_TRUE(test::equal(call.problem.d_decay, wanted));
}

TEST(StateGradients, LogScalesOfHundredsMatchReference) {
  for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
    AttentionOptions options = with_map(std::make_shared<test::LoudMap>());
    options.linear.normalise = normalise;
    // Without a normaliser outputs are as small as e^(2 s).
    const float scale = normalise == Normalise::sum ? 8.0f : 1.0f;
    for (const MaskCase& mask : masks_of(100, 90)) {
      SCOPED_TRACE(mask.what);
      Continued call(options, mask, 40, 100, {}, 91, scale);
      expect_linear_reference(call, 1e-5 * std::max(1.0, double(scale) * scale * head_dim / 6));
    }
  }
}

TEST(StateGradients, WithoutNormaliserMatchesReference) {
  AttentionOptions options;
  options.linear.normalise = Normalise::none;
  for (const MaskCase& mask : masks_of(100, 95)) {
    SCOPED_TRACE(mask.what);
    Continued call(options, mask, 40, 100, {}, 96);
    expect_linear_reference(call, 1e-5);
  }
}

// An empty state is S = 0, whose gradient is what a learned first state needs.
TEST(StateGradients, AnEmptyStateHasAGradient) {
  Continued call({}, test::causal_case(), 0, 70, {}, 100);
  expect_linear_reference(call, 1e-5);
  Continued loud(favor(), test::causal_case(), 0, 70, {}, 101);
  loud.run();
  for (const float number : loud.d_initial.span<float>()) EXPECT_EQ(number, 0);
  // Whatever its memory holds.
  Continued other(favor(), test::causal_case(), 0, 70, {}, 101);
  std::vector<float> memory(static_cast<std::size_t>(batch * other.attention->state_floats(shape, 0)));
  other.initial = other.attention->make_state(batch, shape, 0, memory);
  std::ranges::fill(memory, 0.0f);
  other.run();
  for (const float number : other.d_initial.span<float>()) EXPECT_EQ(number, 0);
}

/// A call behind a state against the reference of the whole sequence, in which the tokens of the state are
/// keys like the others.
void expect_whole_reference(const KeyValueFamily& family, const MaskCase& mask, std::int64_t before,
                            std::int64_t length) {
  Continued call(family.options, mask, before, length, {}, 110);
  call.run();
  const std::int64_t total = before + length;
  const MaskCase whole =
      boolean_case("whole", batch, total, total, false, [&](std::int64_t b, std::int64_t i, std::int64_t j) {
        if (i < before) return j <= i;
        if (j >= before) return mask.sees(b, i - before, j - before);
        return segment_of(mask.mask, b, i - before, length).begin == 0;
      });
  Problem joined({batch, total, total, heads, head_dim, value_dim}, whole.mask, 1);
  const auto join = [&](Tensor& to, const Tensor& first, const Tensor& second) {
    const std::int64_t width = heads * to.shape()[3];
    for (std::int64_t b = 0; b < batch; ++b) {
      if (before > 0) std::copy_n(first.view<float>().at(b), before * width, to.view<float>().at(b));
      if (length > 0) std::copy_n(second.view<float>().at(b), length * width, to.view<float>().at(b, before));
    }
  };
  const Tensor none = Tensor::of<float>(call.earlier.grad.shape());
  join(joined.q, call.earlier.q, call.problem.q);
  join(joined.k, call.earlier.k, call.problem.k);
  join(joined.v, call.earlier.v, call.problem.v);
  join(joined.grad, none, call.problem.grad);
  Exact exact(family.options, joined, true);

  // What the two states hold, as tokens of the whole; their gradients are those of these keys and values.
  const auto read = [&](const Tensor& gradients, std::int64_t b, const std::vector<std::int64_t>& tokens,
                        const auto& body) {
    const float* next = gradients.span<float>().data() + b * gradients.shape()[1];
    for (const auto& [to, dim] : {std::pair(&exact.dk, head_dim), std::pair(&exact.dv, value_dim)})
      for (std::int64_t h = 0; h < heads; ++h)
        for (const std::int64_t token : tokens)
          for (std::int64_t i = 0; i < dim; ++i) body(to->template view<double>()(b, token, h, i), *next++);
  };
  std::vector<float> found;
  std::vector<double> wanted;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t begin = length > 0 ? segment_of(mask.mask, b, length - 1, length).begin : 0;
    std::vector<std::int64_t> left, held;
    for (std::int64_t t = 0; t < before && begin == 0; ++t) left.push_back(t);
    for (std::int64_t t = begin; t < visible_keys(mask.mask, b, length); ++t) left.push_back(before + t);
    std::vector<std::int64_t> kept;
    for (std::size_t t = 0; t < left.size(); ++t)
      if (family.holds(std::int64_t(t), std::int64_t(left.size()))) kept.push_back(left[t]);
    ASSERT_EQ(call.final->gradient_floats(b), std::int64_t(kept.size()) * heads * (head_dim + value_dim));
    read(call.grad_final, b, kept, [](double& number, float given) { number += given; });
    for (std::int64_t t = 0; t < before; ++t)
      if (family.holds(t, before)) held.push_back(t);
    ASSERT_EQ(call.initial->gradient_floats(b), std::int64_t(held.size()) * heads * (head_dim + value_dim));
    read(call.d_initial, b, held, [&](double number, float given) {
      found.push_back(given);
      wanted.push_back(number);
    });
  }
  EXPECT_LT(relative_error(found, wanted, 0.1), 1e-5) << "initial state";
  for (const auto& [what, gradient, of_whole] : {std::tuple{"query", &call.problem.dq, &exact.dq},
                                                 {"key", &call.problem.dk, &exact.dk},
                                                 {"value", &call.problem.dv, &exact.dv}}) {
    std::vector<double> tail;
    for (std::int64_t b = 0; b < batch && length > 0; ++b) {
      const double* from = of_whole->view<double>().at(b, before);
      tail.insert(tail.end(), from, from + length * heads * gradient->shape()[3]);
    }
    EXPECT_LT(relative_error(gradient->span<float>(), tail, 0.1), 1e-5) << what;
  }
}

TEST(StateGradients, KeysAndValuesMatchTheReferenceOfTheWhole) {
  for (const KeyValueFamily& family : key_value_families()) {
    for (const auto& [before, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 65}, {1, 1}, {1, 64}, {50, 0}, {50, 1}, {50, 63}, {50, 130}}) {
      for (const MaskCase& mask : masks_of(n, 120 + n)) {
        if (!family.segments && (mask.mask.has_segments() || mask.mask.kind() != Mask::Kind::causal))
          continue;
        SCOPED_TRACE(family.name + ", " + mask.what + fmt::format(", {} and {} tokens", before, n));
        expect_whole_reference(family, mask, before, n);
      }
    }
  }
}

// More than one chunk of held keys and of queries in softmax's rounds.
TEST(StateGradients, LongStatesMatchTheReferenceOfTheWhole) {
  const std::vector<KeyValueFamily> families = key_value_families();
  expect_whole_reference(families[0], test::causal_case(), 800, 60);
  expect_whole_reference(families[0], test::causal_case(), 30, 500);
}

struct Chained {
  std::string name;
  AttentionOptions options;
  std::vector<float> gamma = {};
};

std::vector<Chained> chained_families() {
  std::vector<Chained> families = {
      {"elu", with_map(elu_map())},
      {"elu, plain sums", with_map(elu_map(), StateSums::plain)},
      {"elu, decay", with_map(elu_map()), {0.9f, 0.995f}},
      {"elu, decay, plain sums", with_map(elu_map(), StateSums::plain), {0.5f, 1.0f}},
      {"relu", with_map(relu_map())},
      {"favor", favor()},
      {"favor, decay", favor(), {0.9f, 0.995f}},
      {"user's", with_map(std::make_shared<test::Positional>())},
      {"user's with log-scales", with_map(std::make_shared<test::LoudMap>())},
      {"user's with log-scales, decay", with_map(std::make_shared<test::LoudMap>()), {0.5f, 1.0f}}};
  for (const KeyValueFamily& family : key_value_families()) families.push_back({family.name, family.options});
  return families;
}

/// Both passes of `whole` in pieces that end at `ends`, states handed on and their gradients handed back.
/// γ's gradient is the sum over the pieces.
void run_in_pieces(const Attention& attention, Problem& whole, const Bounds& ends,
                   Context& context = any_context()) {
  std::vector<std::unique_ptr<State>> states;
  std::vector<AttentionInputs> inputs;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    AttentionInputs in = whole.inputs();
    in.query = in.query.slice(1, begin, end);
    in.key = in.key.slice(1, begin, end);
    in.value = in.value.slice(1, begin, end);
    in.initial = states.empty() ? nullptr : states.back().get();
    in.position = begin;
    inputs.push_back(in);
    states.push_back(attention.make_state(batch, shape));
    attention.forward(context,
                      {whole.out.view<float>().slice(1, begin, end),
                       whole.normaliser.view<float>().slice(1, begin, end), states.back().get()},
                      in);
    begin = end;
  }
  std::vector<double> d_decay(heads);
  Tensor d_final;
  for (std::size_t piece = ends.size(); piece-- > 0;) {
    begin = piece == 0 ? 0 : ends[piece - 1];
    const std::int64_t end = ends[piece];
    AttentionGradients gradients = whole.gradients();
    gradients.query = gradients.query.slice(1, begin, end);
    gradients.key = gradients.key.slice(1, begin, end);
    gradients.value = gradients.value.slice(1, begin, end);
    gradients.final = std::as_const(d_final).view<float>();
    Tensor d_initial;
    if (piece > 0) {
      d_initial = test::unset_tensor({batch, gradient_width(*states[piece - 1])});
      gradients.initial = d_initial.view<float>();
    }
    attention.backward(context, gradients, std::as_const(whole.grad).view<float>().slice(1, begin, end),
                       inputs[piece], std::as_const(whole.out).view<float>().slice(1, begin, end),
                       std::as_const(whole.normaliser).view<float>().slice(1, begin, end));
    for (std::int64_t h = 0; h < heads && whole.decay.size() != 0; ++h)
      d_decay[h] += whole.d_decay.view<float>()(h);
    d_final = std::move(d_initial);
  }
  for (std::int64_t h = 0; h < heads && whole.decay.size() != 0; ++h)
    whole.d_decay.view<float>()(h) = static_cast<float>(d_decay[h]);
}

TEST(StateGradients, PiecesMakeAWhole) {
  for (const Chained& family : chained_families()) {
    const auto attention = make_attention(family.options);
    for (const Bounds& ends :
         {Bounds{1, 200}, Bounds{64, 200}, Bounds{199, 200}, Bounds{63, 128, 200}, Bounds{30, 95, 96, 200}}) {
      SCOPED_TRACE(family.name + ", pieces to " + fmt::format("{}", fmt::join(ends, " ")));
      const auto make = [&] {
        Problem problem({batch, 200, 200, heads, head_dim, value_dim}, Mask::causal(), 130);
        if (!family.gamma.empty()) problem.decaying(family.gamma);
        return problem;
      };
      Problem whole = make(), pieces = make();
      whole.forward(*attention);
      whole.backward(*attention);
      run_in_pieces(*attention, pieces, ends);
      const auto error = [](const Tensor& a, const Tensor& b) {
        return relative_error(a.span<float>(), b.span<float>());
      };
      EXPECT_LT(error(pieces.out, whole.out), 1e-5);
      EXPECT_LT(error(pieces.dq, whole.dq), 1e-5);
      EXPECT_LT(error(pieces.dk, whole.dk), 1e-5);
      EXPECT_LT(error(pieces.dv, whole.dv), 1e-5);
      const bool scaled =
          family.options.family == Family::linear && family.options.linear.feature_map->traits().log_scaled;
      EXPECT_LT(error(pieces.d_decay, whole.d_decay), scaled ? scaled_decay_tolerance : 1e-5);
    }
  }
}

TEST(StateGradients, BitsDoNotDependOnThreads) {
  for (const Chained& family : chained_families()) {
    SCOPED_TRACE(family.name);
    const auto run = [&](int threads) {
      Context context(threads);
      Continued call(family.options, test::causal_case(), 50, 130, family.gamma, 140);
      call.run(context);
      std::vector<float> numbers;
      for (const Tensor* tensor :
           {&call.problem.dq, &call.problem.dk, &call.problem.dv, &call.problem.d_decay, &call.d_initial})
        numbers.insert(numbers.end(), tensor->span<float>().begin(), tensor->span<float>().end());
      return numbers;
    };
    const std::vector<float> one = run(1);
    for (const int threads : {2, 3, 8}) EXPECT_EQ(run(threads), one) << threads << " threads";
  }
}

// The gradients of bf16 inputs are those of the same numbers in f32 with the rounded output, rounded once;
// those of states are not rounded.
TEST(StateGradients, BrainFloatsMatchTheSameNumbersInF32) {
  for (const Chained& family : chained_families()) {
    SCOPED_TRACE(family.name);
    Continued call(family.options, test::causal_case(), 50, 90, family.gamma, 150);
    Problem& problem = call.problem;
    const std::vector<Tensor> narrow = round_to_bf16(problem);
    AttentionInputs inputs = call.inputs();
    inputs.query = std::as_const(narrow[0]).float_view();
    inputs.key = std::as_const(narrow[1]).float_view();
    inputs.value = std::as_const(narrow[2]).float_view();
    Tensor out(DType::bf16, problem.out.shape()), dq(DType::bf16, problem.q.shape()),
        dk(DType::bf16, problem.k.shape()), dv(DType::bf16, problem.v.shape());
    call.attention->forward(any_context(),
                            {out.float_view(), problem.normaliser.view<float>(), call.final.get()}, inputs);
    const Tensor d_final = test::random_tensor({batch, gradient_width(*call.final)}, 151);
    Tensor d_initial = test::unset_tensor({batch, gradient_width(*call.initial)}),
           wide_d_initial = d_initial.clone();
    const Tensor normaliser = problem.normaliser.clone();
    AttentionGradients gradients = problem.gradients();
    gradients.final = d_final.view<float>();
    gradients.initial = d_initial.view<float>();
    gradients.query = dq.float_view();
    gradients.key = dk.float_view();
    gradients.value = dv.float_view();
    call.attention->backward(any_context(), gradients, std::as_const(narrow[3]).float_view(), inputs,
                             std::as_const(out).float_view(), normaliser.view<float>());
    for (std::size_t i = 0; i < out.span<bf16>().size(); ++i)
      problem.out.span<float>()[i] = to_float(out.span<bf16>()[i]);
    gradients = problem.gradients();
    gradients.final = d_final.view<float>();
    gradients.initial = wide_d_initial.view<float>();
    call.attention->backward(any_context(), gradients, std::as_const(problem.grad).view<float>(),
                             call.inputs(), std::as_const(problem.out).view<float>(),
                             normaliser.view<float>());
    for (const auto& [half, full] :
         {std::pair(&dq, &problem.dq), std::pair(&dk, &problem.dk), std::pair(&dv, &problem.dv)}) {
      std::vector<float> wide;
      for (const bf16 x : half->span<bf16>()) wide.push_back(to_float(x));
      EXPECT_LT(relative_error(wide, full->span<float>()), 2e-3);
    }
    EXPECT_LT(relative_error(d_initial.span<float>(), wide_d_initial.span<float>()), 1e-6);
  }
}

}  // namespace
}  // namespace linnet
