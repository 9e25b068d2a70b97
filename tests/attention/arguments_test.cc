#include "attention/arguments.h"

#include <functional>

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

}  // namespace
}  // namespace linnet
