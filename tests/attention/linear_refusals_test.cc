#include "attention/attention_tools.h"
#include "linnet/error.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::Problem;

/// The sentence with which `body` refuses, having written to nothing that the problem holds.
std::string refusal_before_any_work(Problem& problem, const std::function<void()>& body) {
  Tensor* results[] = {&problem.out, &problem.normaliser, &problem.dq,
                       &problem.dk,  &problem.dv,         &problem.d_decay};
  for (Tensor* result : results)
    for (float& number : result->span<float>()) number = 77;
  const std::string sentence = error_of(body);
  for (const Tensor* result : results)
    for (const float number : result->span<float>()) EXPECT_EQ(number, 77) << sentence;
  return sentence;
}

const std::vector<std::pair<std::vector<float>, std::string>> bad_decays = {
    {{0.5f, 0.0f, 1.0f}, "expected a decay above 0 and at most 1 for head 1, got 0"},
    {{-0.5f, 1.0f, 1.0f}, "expected a decay above 0 and at most 1 for head 0, got -0.5"},
    {{0.5f, 1.0f, 1.5f}, "expected a decay above 0 and at most 1 for head 2, got 1.5"},
    {{0.5f, NAN, 1.0f}, "expected a decay above 0 and at most 1 for head 1, got nan"},
    {{0.5f, 1.0f}, "expected decay [3], got [2]"},
    {{0.5f, 1.0f, 1.0f, 1.0f}, "expected decay [3], got [4]"}};

TEST(LinearRefusals, DecayOutOfRangeBeforeAnyWork) {
  const auto attention = make_attention({});
  for (const auto& [gamma, sentence] : bad_decays) {
    Problem problem({2, 40, 40, 3, 8, 8}, Mask::causal(), 700);
    problem.decaying(gamma).d_decay = Tensor::of<float>({3});
    EXPECT_EQ(refusal_before_any_work(problem, [&] { problem.forward(*attention); }),
              "[linear attention] " + sentence);
    EXPECT_EQ(refusal_before_any_work(problem, [&] { problem.backward(*attention); }),
              "[linear attention] " + sentence);
    const auto state = attention->make_state(2, {3, 8, 8});
    const std::vector<float> before = test::saved(*state, 0);
    EXPECT_EQ(refusal_before_any_work(problem, [&] { test::run_steps(*attention, problem, *state, 0, 1); }),
              "[linear attention] " + sentence);
    EXPECT_EQ(test::saved(*state, 0), before);
    EXPECT_EQ(state->position(0), 0);
  }
}

TEST(LinearRefusals, DecayWithOtherMasksBeforeAnyWork) {
  const auto attention = make_attention({});
  std::vector<std::uint8_t> ones(40 * 40, 1);
  const Mask boolean = Mask::boolean(View<const std::uint8_t>(ones.data(), {1, 40, 40}));
  const std::vector<std::int64_t> begin(40, 0), end(40, 40);
  for (const Mask& mask : {Mask::full(), Mask::prefix({3}), Mask::window(3, 0), Mask::intervals(begin, end),
                           boolean, Mask::full().with_segments({0, 40})}) {
    Problem problem({2, 40, 40, 3, 8, 8}, mask, 710);
    problem.decaying({0.5f, 0.9f, 1.0f});
    const std::string sentence =
        "[linear attention] expected a causal mask with a decay, got the mask " + mask.name();
    EXPECT_EQ(refusal_before_any_work(problem, [&] { problem.forward(*attention); }), sentence);
    EXPECT_EQ(refusal_before_any_work(problem, [&] { problem.backward(*attention); }), sentence);
  }
}

TEST(LinearRefusals, GradientOfADecayThatIsNotThere) {
  const auto attention = make_attention({});
  Problem problem({2, 40, 40, 3, 8, 8}, Mask::causal(), 720);
  problem.d_decay = Tensor::of<float>({3});
  EXPECT_EQ(refusal_before_any_work(problem, [&] { problem.backward(*attention); }),
            "[linear attention] expected a decay where its gradient is wanted, got none");
  problem.decaying({0.5f, 0.9f, 1.0f}).d_decay = Tensor::of<float>({2});
  EXPECT_EQ(refusal_before_any_work(problem, [&] { problem.backward(*attention); }),
            "[linear attention] expected the gradient of decay [3], got [2]");
}

TEST(LinearRefusals, DecayIsTheLinearFamilysAlone) {
  AttentionOptions options;
  options.family = Family::softmax;
  const auto attention = make_attention(options);
  Problem problem({2, 40, 40, 3, 8, 8}, Mask::causal(), 730);
  problem.decaying({0.5f, 0.9f, 1.0f});
  EXPECT_NE(refusal_before_any_work(problem, [&] { problem.forward(*attention); }).find("decay"),
            std::string::npos);
  EXPECT_NE(refusal_before_any_work(problem, [&] { problem.backward(*attention); }).find("decay"),
            std::string::npos);
  const auto state = attention->make_state(2, {3, 8, 8});
  EXPECT_NE(refusal_before_any_work(problem, [&] { test::run_steps(*attention, problem, *state, 0, 1); })
                .find("decay"),
            std::string::npos);
}

TEST(LinearRefusals, StatesWithMasksThatTakeNone) {
  const auto attention = make_attention({});
  const auto state = attention->make_state(2, {3, 8, 8});
  std::vector<std::uint8_t> ones(40 * 40, 1);
  const std::vector<std::int64_t> begin(40, 0), end(40, 40);
  for (const Mask& mask : {Mask::full(), Mask::window(3, 0), Mask::intervals(begin, end),
                           Mask::boolean(View<const std::uint8_t>(ones.data(), {1, 40, 40})),
                           Mask::window(3, 0).with_segments({0, 40})}) {
    Problem problem({2, 40, 40, 3, 8, 8}, mask, 740);
    AttentionInputs inputs = problem.inputs();
    inputs.initial = state.get();
    AttentionOutputs outputs = problem.outputs();
    const std::string sentence = " state, got the mask " + mask.name();
    const std::string expected = "[linear attention] expected a causal or prefix mask with ";
    EXPECT_EQ(refusal_before_any_work(problem, [&] { attention->forward(any_context(), outputs, inputs); }),
              expected + "an initial" + sentence);
    EXPECT_EQ(refusal_before_any_work(
                  problem,
                  [&] {
                    attention->backward(any_context(), problem.gradients(), problem.grad.view<float>(),
                                        inputs, problem.out.view<float>(), problem.normaliser.view<float>());
                  }),
              expected + "an initial" + sentence);
    outputs.final = state.get();
    EXPECT_EQ(refusal_before_any_work(problem,
                                      [&] { attention->forward(any_context(), outputs, problem.inputs()); }),
              expected + "a final" + sentence);
    EXPECT_EQ(state->position(0), 0);
  }
}

TEST(LinearRefusals, MasksThatDoNotFitBeforeAnyWork) {
  const auto attention = make_attention({});
  std::vector<std::uint8_t> ones(40 * 40, 1);
  std::vector<std::int64_t> begin(40, 0), end(40, 40), falling(40, 40);
  falling.back() = 3;
  for (const Mask& mask :
       {Mask::window(-1, 0), Mask::prefix({41}), Mask::causal().with_segments({0, 50, 40}),
        Mask::causal().with_segments({0, 20}), Mask::intervals(begin, falling), Mask::intervals({0}, {40}),
        Mask::full().with_key_lengths({40, 41}), Mask::full().with_key_lengths({40}),
        Mask::boolean(View<const std::uint8_t>(ones.data(), {1, 20, 80}))}) {
    Problem problem({2, 40, 40, 3, 8, 8}, mask, 750);
    EXPECT_TRUE(refusal_before_any_work(problem, [&] {
                  problem.forward(*attention);
                }).starts_with("[linear attention] expected "));
    EXPECT_TRUE(refusal_before_any_work(problem, [&] {
                  problem.backward(*attention);
                }).starts_with("[linear attention] expected "));
  }
}

}  // namespace
}  // namespace linnet
