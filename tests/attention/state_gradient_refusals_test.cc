// What a backward pass with gradients of states refuses, before it writes anything.
#include "attention/attention_tools.h"
#include "attention/state_cases.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::batch;
using test::head_dim;
using test::heads;
using test::key_value_families;
using test::KeyValueFamily;
using test::Problem;
using test::shape;
using test::value_dim;

/// The sentence with which a backward pass refuses, having written nothing.
std::string refusal(const Attention& attention, const Problem& problem, const State* initial,
                    Shape of_initial, Shape of_final) {
  Problem copy({batch, 40, 40, heads, head_dim, value_dim}, problem.mask, 160);
  Tensor d_initial = of_initial.empty() ? Tensor() : Tensor::of<float>(std::move(of_initial)),
         d_final = of_final.empty() ? Tensor() : Tensor::of<float>(std::move(of_final));
  for (Tensor* tensor : {&copy.dq, &copy.dk, &copy.dv, &d_initial})
    for (float& number : tensor->span<float>()) number = 77;
  AttentionInputs inputs = copy.inputs();
  inputs.initial = initial;
  AttentionGradients gradients = copy.gradients();
  gradients.initial = d_initial.view<float>();
  gradients.final = std::as_const(d_final).view<float>();
  const std::string sentence = linnet::error_of([&] {
    attention.backward(any_context(), gradients, std::as_const(copy.grad).view<float>(), inputs,
                       std::as_const(copy.out).view<float>(), std::as_const(copy.normaliser).view<float>());
  });
  for (const Tensor* tensor : {&copy.dq, &copy.dk, &copy.dv, &d_initial})
    for (const float number : tensor->span<float>()) EXPECT_EQ(number, 77) << sentence;
  return sentence;
}

TEST(StateGradients, WrongSizesAreRefusedBeforeAnyWork) {
  const Problem problem({batch, 40, 40, heads, head_dim, value_dim}, Mask::causal(), 161);
  for (const KeyValueFamily& family : key_value_families()) {
    const auto attention = make_attention(family.options);
    const auto state = attention->make_state(batch, shape);
    EXPECT_NE(refusal(*attention, problem, state.get(), {}, {batch, 5})
                  .find("] expected the gradient of the "
                        "final state [3, at least "),
              std::string::npos)
        << family.name;
  }
  const auto attention = make_attention({});
  const auto state = attention->make_state(batch, shape);
  const std::int64_t width = heads * head_dim * (value_dim + 1);
  EXPECT_EQ(state->gradient_floats(0), width);
  const std::string of = "[linear attention] expected the gradient of the ";
  EXPECT_EQ(refusal(*attention, problem, state.get(), {batch, width - 1}, {}),
            of + "initial state [3, at least 126], got [3, 125]");
  EXPECT_EQ(refusal(*attention, problem, state.get(), {batch - 1, width}, {}),
            of + "initial state [3, at least 126], got [2, 126]");
  EXPECT_EQ(refusal(*attention, problem, state.get(), {batch, width}, {batch, width - 1}),
            of + "final state [3, at least 126], got [3, 125]");
  EXPECT_EQ(refusal(*attention, problem, state.get(), {batch, width}, {batch * width}),
            of + "final state [3, at least 126], got [378]");
  EXPECT_EQ(refusal(*attention, problem, nullptr, {batch, width}, {}),
            "[linear attention] expected an initial state where its gradient is wanted, got none");
}

TEST(StateGradients, MasksAndFamiliesWithoutStatesAreRefused) {
  const std::int64_t width = heads * head_dim * (value_dim + 1);
  for (const Mask& mask : {Mask::full(), Mask::window(3, 0), Mask::full().with_segments({0, 40})}) {
    const Problem problem({batch, 40, 40, heads, head_dim, value_dim}, mask, 162);
    EXPECT_EQ(
        refusal(*make_attention({}), problem, nullptr, {}, {batch, width}),
        "[linear attention] expected a causal or prefix mask with the gradient of a final state, got the "
        "mask " +
            mask.name());
  }
  const Problem problem({batch, 40, 40, heads, head_dim, value_dim}, Mask::causal(), 163);
  AttentionOptions kernel, linformer, lsh, ahead, rootless;
  kernel.family = Family::kernel;
  linformer.family = Family::linformer;
  lsh.family = Family::lsh;
  ahead.family = Family::local;
  ahead.local.right = 3;
  rootless.family = Family::strided;
  for (const AttentionOptions& options : {kernel, linformer, lsh, ahead, rootless}) {
    const auto attention = make_attention(options);
    const std::string sentence = refusal(*attention, problem, nullptr, {}, {batch, width});
    EXPECT_NE(sentence, "");
    EXPECT_EQ(sentence, linnet::error_of([&] { attention->make_state(1, shape); }));
    EXPECT_EQ(sentence, linnet::error_of([&] { attention->state_floats(shape); }));
  }
}

}  // namespace
}  // namespace linnet
