#include "attention/arguments.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <memory>

#include "attention/attention_tools.h"
#include "linnet/error.h"

namespace linnet {
namespace {

using test::Problem;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

AttentionOptions of_family(Family family) {
  AttentionOptions options;
  options.family = family;
  return options;
}

class Arguments : public testing::TestWithParam<Family> {
 protected:
  /// The sentence for inputs of these shapes, with outputs that would fit query and value.
  std::string forward_with(Shape q, Shape k, Shape v, Mask mask = Mask::full()) const {
    const Tensor query = Tensor::of<float>(q), key = Tensor::of<float>(k), value = Tensor::of<float>(v);
    Tensor out = Tensor::of<float>({q[0], q[1], q[2], v[3]});
    return message_of([&] {
      attention->forward(any_context(), {out.view<float>(), {}},
                         {query.view<float>(), key.view<float>(), value.view<float>(), mask});
    });
  }

  std::unique_ptr<Attention> attention = make_attention(of_family(GetParam()));
};

TEST_P(Arguments, ShapesThatDoNotFitAreRefused) {
  const std::string family = std::string("[") + name_of(GetParam()) + " attention] ";
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {2, 7, 8, 4}, {2, 7, 8, 6}), "nothing was thrown");
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {2, 7, 7, 4}, {2, 7, 8, 6}),
            family + "expected key [2, 7, 7, 4] to have as many heads as query, got [2, 5, 8, 4]");
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {2, 7, 8, 5}, {2, 7, 8, 6}),
            family + "expected key [2, 7, 8, 5] to have as wide heads as query, got [2, 5, 8, 4]");
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {3, 7, 8, 4}, {2, 7, 8, 6}),
            family + "expected key [3, 7, 8, 4] to have as many batch entries as query, got [2, 5, 8, 4]");
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {2, 7, 8, 4}, {2, 6, 8, 6}),
            family + "expected value [2, 6, 8, 6] to be as long as key, got [2, 7, 8, 4]");
  EXPECT_EQ(forward_with({2, 5, 8, 0}, {2, 7, 8, 0}, {2, 7, 8, 6}),
            family + "expected a head size of at least 1, got 0");
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {2, 7, 8, 4}, {2, 7, 8, 6}, Mask::causal()),
            family + "expected as many queries as keys under a causal mask, got 5 and 7");
  EXPECT_EQ(forward_with({2, 5, 8, 4}, {2, 7, 8, 4}, {2, 7, 8, 6}, Mask::full().with_key_lengths({7, 8})),
            family + "expected key lengths from 0 to 7, got 8");
}

TEST_P(Arguments, OutputsThatDoNotFitAreRefused) {
  Problem problem({2, 7, 7, 3, 4, 6}, Mask::causal(), 1);
  Tensor wrong = Tensor::of<float>({2, 7, 3, 5});
  EXPECT_THROW(attention->forward(any_context(), {wrong.view<float>(), {}}, problem.inputs()), Error);
  EXPECT_THROW(
      attention->forward(any_context(), {problem.out.view<float>(), wrong.view<float>()}, problem.inputs()),
      Error);
  const auto backward = [&](AttentionGradients gradients, View<const float> out,
                            View<const float> normaliser) {
    attention->backward(any_context(), gradients, problem.grad.view<float>(), problem.inputs(), out,
                        normaliser);
  };
  problem.forward(*attention);
  EXPECT_NO_THROW(backward(problem.gradients(), problem.out.view<float>(), problem.normaliser.view<float>()));
  EXPECT_THROW(backward(problem.gradients(), wrong.view<float>(), problem.normaliser.view<float>()), Error);
  EXPECT_THROW(backward(problem.gradients(), problem.out.view<float>(), {}), Error);
  AttentionGradients gradients = problem.gradients();
  gradients.value = wrong.view<float>();
  EXPECT_THROW(backward(gradients, problem.out.view<float>(), problem.normaliser.view<float>()), Error);
}

TEST_P(Arguments, ViewsWithoutMemoryAreRefused) {
  const std::string family = std::string("[") + name_of(GetParam()) + " attention] ";
  Problem problem({2, 7, 7, 3, 4, 6}, Mask::full(), 1);
  const auto forward = [&](View<float> out, View<const float> query) {
    AttentionInputs inputs = problem.inputs();
    inputs.query = query;
    return message_of([&] { attention->forward(any_context(), {out, {}}, inputs); });
  };
  const View<float> out = problem.out.view<float>(), query = problem.q.view<float>();
  EXPECT_EQ(forward(out, query), "nothing was thrown");
  EXPECT_EQ(forward(out, View<const float>(nullptr, {2, 7, 3, 4})),
            family + "expected memory for query [2, 7, 3, 4], got a null pointer");
  EXPECT_EQ(forward(View<float>(nullptr, {2, 7, 3, 6}), query),
            family + "expected memory for out [2, 7, 3, 6], got a null pointer");
  EXPECT_EQ(forward(out, View<const float>(query.data(), {2, -7, 3, 4})),
            family + "expected query with extents of at least 0, got [2, -7, 3, 4]");
}

TEST_P(Arguments, GradientsOfStatesWithoutMemoryAreRefused) {
  Problem problem({1, 7, 7, 3, 4, 6}, Mask::causal(), 1);
  const auto initial = attention->make_state(1, {3, 4, 6}), final = attention->make_state(1, {3, 4, 6});
  AttentionInputs inputs = problem.inputs();
  inputs.initial = initial.get();
  AttentionOutputs outputs = problem.outputs();
  outputs.final = final.get();
  attention->forward(any_context(), outputs, inputs);
  const auto backward = [&](View<float> of_initial, View<const float> of_final) {
    AttentionGradients gradients = problem.gradients();
    gradients.initial = of_initial;
    gradients.final = of_final;
    return message_of([&] {
      attention->backward(any_context(), gradients, problem.grad.view<float>(), inputs,
                          problem.out.view<float>(), problem.normaliser.view<float>());
    });
  };
  const std::int64_t of_initial = std::max<std::int64_t>(initial->gradient_floats(0), 1),
                     of_final = final->gradient_floats(0);
  Tensor first = Tensor::of<float>({1, of_initial}), last = Tensor::of<float>({1, of_final});
  EXPECT_EQ(backward(first.view<float>(), last.view<float>()), "nothing was thrown");
  EXPECT_THAT(backward(View<float>(nullptr, {1, of_initial}), {}),
              testing::HasSubstr("expected memory for the gradient of the initial state"));
  EXPECT_THAT(backward({}, View<const float>(nullptr, {1, of_final})),
              testing::HasSubstr("got a null pointer"));
}

TEST_P(Arguments, PositionsThatCannotBeAreRefused) {
  Problem problem({1, 7, 7, 3, 4, 6}, Mask::causal(), 1);
  for (const std::int64_t position : {std::int64_t{-1}, State::most_position + 1}) {
    AttentionInputs inputs = problem.inputs();
    inputs.position = position;
    EXPECT_THAT(message_of([&] { attention->forward(any_context(), problem.outputs(), inputs); }),
                testing::HasSubstr(fmt::format("expected a position from 0 to 2^53, got {}", position)));
    const auto state = attention->make_state(1, {3, 4, 6});
    Tensor out = Tensor::of<float>({1, 3, 6});
    const Tensor query = Tensor::of<float>({1, 3, 4});
    const std::int64_t slot = 0;
    EXPECT_THAT(message_of([&] {
                  attention->read(any_context(), out.view<float>(), query.view<float>(), *state,
                                  std::span(&slot, 1), std::span(&position, 1));
                }),
                testing::HasSubstr("expected a position from 0 to 2^53"));
  }
}

TEST_P(Arguments, StatesOfSizesThatOverflowAreRefused) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const HeadShape& shape : {HeadShape{most, 4, 6}, HeadShape{3, most, most}, HeadShape{3, 4, most}})
    EXPECT_THAT(message_of([&] { (void)attention->make_state(1, shape); }),
                testing::HasSubstr("of at most 2^31, got 9223372036854775807"));
}

TEST_P(Arguments, StatesGoWithCausalMasksAndOneSlotAnEntry) {
  Problem problem({2, 7, 7, 3, 4, 6}, Mask::full(), 1);
  const auto two = attention->make_state(2, {3, 4, 6}), three = attention->make_state(3, {3, 4, 6});
  AttentionOutputs outputs = problem.outputs();
  outputs.final = two.get();
  EXPECT_THROW(attention->forward(any_context(), outputs, problem.inputs()), Error);
  problem.mask = Mask::causal();
  EXPECT_NO_THROW(attention->forward(any_context(), outputs, problem.inputs()));
  outputs.final = three.get();
  EXPECT_THROW(attention->forward(any_context(), outputs, problem.inputs()), Error);
  AttentionInputs inputs = problem.inputs();
  inputs.initial = three.get();
  EXPECT_THROW(attention->forward(any_context(), problem.outputs(), inputs), Error);
}

TEST_P(Arguments, StepsThatDoNotFitAreRefused) {
  const auto state = attention->make_state(2, {3, 4, 6});
  const Tensor q = Tensor::of<float>({2, 3, 4}), v = Tensor::of<float>({2, 3, 6}),
               wrong = Tensor::of<float>({2, 3, 5});
  Tensor out = Tensor::of<float>({2, 3, 6});
  const auto step = [&](const Tensor& query, const Tensor& key, const Tensor& value,
                        std::vector<std::int64_t> slots) {
    return message_of([&] {
      attention->step(any_context(), out.view<float>(), query.view<float>(), key.view<float>(),
                      value.view<float>(), *state, slots);
    });
  };
  EXPECT_EQ(step(q, q, v, {0, 1}), "nothing was thrown");
  EXPECT_EQ(step(q, q, v, {0, 2}),
            std::string("[") + name_of(GetParam()) + " attention] expected a slot from 0 to 1, got 2");
  EXPECT_NE(step(q, q, v, {0}), "nothing was thrown");
  EXPECT_NE(step(q, wrong, v, {0, 1}), "nothing was thrown");
  EXPECT_NE(step(wrong, wrong, v, {0, 1}), "nothing was thrown");
  EXPECT_NE(step(q, q, wrong, {0, 1}), "nothing was thrown");
}

INSTANTIATE_TEST_SUITE_P(Families, Arguments, testing::Values(Family::linear, Family::softmax),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// Of any of the families with a recurrent form.
AttentionOptions recurrent(Family family) {
  AttentionOptions options = of_family(family);
  options.strided.stride = 16;
  return options;
}

TEST(Steps, ASlotThatIsNamedTwiceIsRefused) {
  for (const Family family : {Family::linear, Family::softmax, Family::local, Family::strided}) {
    const auto attention = make_attention(recurrent(family));
    const auto state = attention->make_state(5000, {1, 1, 1});
    const auto step = [&](const std::vector<std::int64_t>& slots) {
      const auto n = static_cast<std::int64_t>(slots.size());
      const Tensor x = Tensor::of<float>({n, 1, 1});
      Tensor out = Tensor::of<float>({n, 1, 1});
      return message_of([&] {
        attention->step(any_context(), out.view<float>(), x.view<float>(), x.view<float>(), x.view<float>(),
                        *state, slots);
      });
    };
    const auto refused = [&](std::int64_t slot) {
      return fmt::format("[{} attention] expected each slot at most once, got slot {} again", name_of(family),
                         slot);
    };
    EXPECT_EQ(step({3, 3}), refused(3));
    EXPECT_EQ(step({4999, 0, 4097, 1, 4097}), refused(4097));
    for (const std::int64_t slot : {0, 1, 3, 4097, 4999}) EXPECT_EQ(state->position(slot), 0);
    EXPECT_EQ(step({4999, 0, 4097, 1, 4095, 4096}), "nothing was thrown");
    EXPECT_EQ(step({}), "nothing was thrown");
    for (const std::int64_t slot : {0, 1, 4095, 4096, 4097, 4999}) EXPECT_EQ(state->position(slot), 1);
  }
}

TEST(Scales, ImpossibleOnesAreRefused) {
  for (const Family family :
       {Family::softmax, Family::linformer, Family::lsh, Family::local, Family::strided}) {
    for (const float scale : {-1.0f, NAN, INFINITY}) {
      AttentionOptions options = of_family(family);
      options.scale = scale;
      EXPECT_EQ(message_of([&] { make_attention(options); }),
                fmt::format("[{} attention] expected a scale of at least 0, got {}", name_of(family), scale));
      EXPECT_THROW(make_attention(options), UsageError);
    }
  }
}

/// A call of a family's reference in which everything fits: linformer's projections with the keys.
struct ReferenceCall {
  explicit ReferenceCall(Family family)
      : options(recurrent(family)),
        inputs{std::as_const(q).view<double>(),
               std::as_const(k).view<double>(),
               std::as_const(v).view<double>(),
               family == Family::linformer ? Mask::full() : Mask::causal(),
               {},
               std::as_const(p).view<double>(),
               std::as_const(p).view<double>()},
        gradients{dq.view<double>(), dk.view<double>(), dv.view<double>()} {
    if (family != Family::linear) return;
    inputs.decay = std::as_const(decay).view<double>();
    gradients.decay = d_decay.view<double>();
  }

  std::string forward() {
    return message_of([&] { reference_forward(options, out.view<double>(), inputs); });
  }
  std::string backward() {
    return message_of(
        [&] { reference_backward(options, gradients, std::as_const(out).view<double>(), inputs); });
  }

  AttentionOptions options;
  Tensor q = Tensor::of<double>({2, 6, 2, 4}), k = q.clone(), v = Tensor::of<double>({2, 6, 2, 3}),
         p = Tensor::of<double>({2, 3, 6}), decay = one(2), out = v.clone(), dq = q.clone(), dk = k.clone(),
         dv = v.clone(), d_decay = one(2);
  ReferenceInputs inputs;
  ReferenceGradients gradients;

 private:
  static Tensor one(std::int64_t count) {
    Tensor ones = Tensor::of<double>({count});
    std::ranges::fill(ones.span<double>(), 1.0);
    return ones;
  }
};

constexpr Family kFamilies[] = {Family::linear, Family::softmax, Family::kernel, Family::linformer,
                                Family::lsh,    Family::local,   Family::strided};

TEST(References, MasksThatDoNotFitAreRefused) {
  for (const Family family : kFamilies) {
    const auto refuses = [&](const Mask& mask) {
      ReferenceCall call(family);
      EXPECT_EQ(call.forward(), "nothing was thrown") << name_of(family);
      EXPECT_EQ(call.backward(), "nothing was thrown") << name_of(family);
      call.inputs.mask = mask;
      EXPECT_THAT(call.forward(), testing::HasSubstr(" attention reference] expected ")) << name_of(family);
      EXPECT_THAT(call.backward(), testing::HasSubstr(" attention reference] expected ")) << name_of(family);
    };
    const Mask mask = family == Family::linformer ? Mask::full() : Mask::causal();
    refuses(mask.with_key_lengths({3}));
    refuses(mask.with_key_lengths({3, 90}));
    refuses(mask.with_segments({0, 3, 90}));
    refuses(mask.with_segments({0, 3}));
    refuses(Mask::intervals({0}, {1}));
    refuses(Mask::prefix({}));
    const std::uint8_t few[4] = {1, 1, 1, 1};
    refuses(Mask::boolean(View<const std::uint8_t>(few, {1, 2, 2})));
  }
}

TEST(References, GradientsThatDoNotFitAreRefused) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(name_of(family));
    Tensor other = Tensor::of<double>({2, 5, 2, 4});
    for (View<double> ReferenceGradients::*one :
         {&ReferenceGradients::query, &ReferenceGradients::key, &ReferenceGradients::value}) {
      for (const View<double>& wrong : {View<double>(), other.view<double>()}) {
        ReferenceCall call(family);
        call.gradients.*one = wrong;
        EXPECT_THAT(call.backward(), testing::HasSubstr(" attention reference] expected the gradient of "));
      }
    }
  }
  ReferenceCall linear(Family::linear);
  linear.gradients.decay = linear.gradients.decay.slice(0, 0, 1);
  EXPECT_THAT(linear.backward(), testing::HasSubstr("expected the gradient of decay [2], got [1]"));
  linear = ReferenceCall(Family::linear);
  linear.inputs.decay = linear.inputs.decay.slice(0, 0, 1);
  EXPECT_THAT(linear.backward(), testing::HasSubstr("expected decay [2], got [1]"));
  linear.inputs.decay = {};
  EXPECT_THAT(linear.backward(),
              testing::HasSubstr("expected a decay where its gradient is wanted, got none"));
  for (View<double> ReferenceGradients::*one :
       {&ReferenceGradients::key_projection, &ReferenceGradients::value_projection}) {
    ReferenceCall linformer(Family::linformer);
    Tensor wrong = Tensor::of<double>({2, 3, 5});
    linformer.gradients.*one = wrong.view<double>();
    EXPECT_THAT(linformer.backward(), testing::HasSubstr("_projection [2, 3, 6], got [2, 3, 5]"));
  }
}

TEST(References, DecaysOfFamiliesWithoutOneAreRefused) {
  for (const Family family : kFamilies) {
    if (family == Family::linear) continue;
    SCOPED_TRACE(name_of(family));
    const Tensor decay = Tensor::of<double>({2});
    ReferenceCall call(family);
    call.inputs.decay = decay.view<double>();
    EXPECT_THAT(call.forward(), testing::HasSubstr("expected no decay"));
    EXPECT_THAT(call.backward(), testing::HasSubstr("expected no decay"));
  }
}

TEST(Projections, WithoutMemoryAreRefused) {
  for (View<const double> ReferenceInputs::*one :
       {&ReferenceInputs::key_projection, &ReferenceInputs::value_projection}) {
    ReferenceCall call(Family::linformer);
    call.inputs.*one = View<const double>(nullptr, (call.inputs.*one).shape());
    EXPECT_THAT(call.forward(), testing::HasSubstr("got a null pointer"));
  }
  for (View<double> ReferenceGradients::*one :
       {&ReferenceGradients::key_projection, &ReferenceGradients::value_projection}) {
    ReferenceCall call(Family::linformer);
    call.gradients.*one = View<double>(nullptr, {2, 3, 6});
    EXPECT_THAT(call.backward(), testing::HasSubstr("got a null pointer"));
  }
}

TEST(Lsh, LayersThatHaveNoRotationsOfTheirOwnAreRefused) {
  AttentionOptions options = of_family(Family::lsh);
  for (const int layer : {-1, 1 << 26}) {
    options.layer = layer;
    EXPECT_THAT(message_of([&] { (void)make_attention(options); }),
                testing::HasSubstr(fmt::format("expected a layer from 0 to 67108863, got {}", layer)));
  }
  options.layer = (1 << 26) - 1;
  EXPECT_EQ(message_of([&] { (void)make_attention(options); }), "nothing was thrown");
}

TEST(Strided, PatternsThatAreNoneAreRefused) {
  AttentionOptions options = of_family(Family::strided);
  options.strided.pattern = static_cast<SparsePattern>(7);
  EXPECT_THAT(message_of([&] { (void)make_attention(options); }), testing::HasSubstr("got the number 7"));
}

TEST(References, LshWantsAsManyKeysAsQueries) {
  ReferenceCall call(Family::lsh);
  const Tensor more = Tensor::of<double>({2, 7, 2, 4}), values = Tensor::of<double>({2, 7, 2, 3});
  call.inputs.key = more.view<double>();
  call.inputs.value = values.view<double>();
  call.inputs.mask = Mask::full();
  EXPECT_THAT(call.forward(), testing::HasSubstr("expected as many keys as queries"));
}

TEST(Families, AreFoundByName) {
  for (const FamilyInfo& info : family_table()) {
    EXPECT_EQ(find_family(info.name), info.family);
    EXPECT_EQ(name_of(info.family), info.name);
  }
  EXPECT_NE(message_of([] { find_family("sofmtax"); }).find("did you mean softmax?"), std::string::npos);
  EXPECT_THROW(find_family("x"), UsageError);
}

TEST(LinearOptions, ImpossibleOnesAreRefused) {
  AttentionOptions options;
  options.linear.feature_map = nullptr;
  EXPECT_THROW(make_attention(options), UsageError);
  options.linear.feature_map = elu_map();
  options.linear.epsilon = -1;
  EXPECT_THROW(make_attention(options), UsageError);
  options.linear.epsilon = NAN;
  EXPECT_THROW(make_attention(options), UsageError);
}

/// A map with so many features.
class Wide final : public FeatureMap {
 public:
  explicit Wide(std::int64_t features) : features_(features) {}
  std::string name() const override { return "wide"; }
  std::int64_t features(std::int64_t) const override { return features_; }
  void forward(View<float>, View<const float>, const TileContext&) const override {}
  void backward(View<float>, View<const float>, View<const float>, View<const float>,
                const TileContext&) const override {}

 private:
  std::int64_t features_;
};

TEST(Options, OfMapsWithImpossibleFeaturesAreRefused) {
  for (const std::int64_t features : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{1} << 32,
                                      std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()}) {
    AttentionOptions options;
    options.linear.feature_map = std::make_shared<Wide>(features);
    Problem problem({1, 4, 4, 1, 2, 2}, Mask::causal(), 3);
    const auto attention = make_attention(options);
    EXPECT_EQ(
        message_of([&] { problem.forward(*attention); }),
        fmt::format("[linear attention] expected the feature map wide to have 1 to 2147483648 features, "
                    "got {}",
                    features));
  }
}

TEST(Options, ThatCannotBeAreRefusedByTheReferencesToo) {
  std::vector<AttentionOptions> impossible(8);
  impossible[0].family = static_cast<Family>(99);
  impossible[1].linear.feature_map = nullptr;
  impossible[2].family = Family::kernel;
  impossible[2].kernel.similarity = nullptr;
  impossible[3].family = Family::lsh;
  impossible[3].lsh.chunk = 0;
  impossible[4].family = Family::strided;
  impossible[4].strided.stride = -5;
  impossible[5].family = Family::lsh;
  impossible[5].lsh.buckets = -2;
  impossible[6].linear.normalise = static_cast<Normalise>(99);
  impossible[7].family = Family::kernel;
  impossible[7].kernel.normalise = static_cast<Normalise>(99);
  Tensor numbers = Tensor::of<double>({1, 4, 1, 2}), out = Tensor::of<double>({1, 4, 1, 2});
  const View<const double> view = numbers.view<double>();
  for (std::size_t i = 0; i < impossible.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string sentence = message_of([&] { make_attention(impossible[i]); });
    EXPECT_NE(sentence, "nothing was thrown");
    EXPECT_EQ(message_of([&] {
                reference_forward(impossible[i], out.view<double>(), {view, view, view, Mask::causal()});
              }),
              sentence);
    EXPECT_EQ(message_of([&] {
                reference_backward(impossible[i],
                                   {out.view<double>(), out.view<double>(), out.view<double>()}, view,
                                   {view, view, view, Mask::causal()});
              }),
              sentence);
  }
}

TEST(Options, TheStrideOfALengthIsItsRoot) {
  EXPECT_EQ(default_stride(0), 32);
  EXPECT_EQ(default_stride(1024), 32);
  EXPECT_EQ(default_stride(1025), 64);
  EXPECT_EQ(default_stride(std::int64_t{1} << 40), std::int64_t{1} << 20);
  EXPECT_EQ(default_stride((std::int64_t{1} << 40) + 1), (std::int64_t{1} << 20) + 32);
  EXPECT_EQ(default_stride(std::numeric_limits<std::int64_t>::max()), 3'037'000'512);
}

}  // namespace
}  // namespace linnet
