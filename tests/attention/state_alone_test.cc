// Calls that compute a state, or the gradient of one, without the queries.
#include "attention/attention_tools.h"
#include "attention/log_scaled_maps.h"
#include "attention/mask_cases.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::Problem;
using test::saved;

constexpr std::int64_t batch = 3, heads = 2, head_dim = 9, value_dim = 6;

AttentionOptions options_of(const std::string& map) {
  AttentionOptions options;
  FeatureMapOptions random;
  random.head_dim = head_dim;
  random.random.features = 16;
  options.linear.feature_map = find_feature_map(map, random);
  return options;
}

/// A problem that continues the state of 50 earlier tokens.
struct Continued {
  Continued(const AttentionOptions& options, const Mask& mask, std::int64_t length, bool decays)
      : attention(make_attention(options)),
        earlier({batch, 50, 50, heads, head_dim, value_dim}, Mask::causal(), 7),
        problem({batch, length, length, heads, head_dim, value_dim}, mask, 8),
        initial(attention->make_state(batch, {heads, head_dim, value_dim})),
        final(attention->make_state(batch, {heads, head_dim, value_dim})) {
    if (decays)
      for (Problem* part : {&earlier, &problem}) part->decaying({0.9f, 0.99f});
    AttentionOutputs outputs = earlier.outputs();
    outputs.final = initial.get();
    attention->forward(any_context(), outputs, earlier.inputs());
  }

  AttentionInputs inputs() const {
    AttentionInputs inputs = problem.inputs();
    inputs.initial = initial.get();
    inputs.position = 50;
    return inputs;
  }

  std::unique_ptr<Attention> attention;
  Problem earlier, problem;
  std::unique_ptr<State> initial, final;
};

const std::vector<std::int64_t> lengths = {0, 1, 63, 64, 65, 200};

std::vector<Mask> masks_of(std::int64_t n) {
  return {Mask::causal(), Mask::causal().with_key_lengths({n / 3, n, 0}), Mask::prefix({n})};
}

TEST(StateAlone, IsThatOfAWholeForwardPass) {
  for (const std::string map : {"elu", "favor"})
    for (const bool decays : {false, true})
      for (const std::int64_t length : lengths)
        for (const Mask& mask : masks_of(length)) {
          if (decays && (map == "favor" || mask.kind() != Mask::Kind::causal)) continue;
          SCOPED_TRACE(testing::Message() << map << ", " << mask.name() << ", " << length << " tokens");
          Continued call(options_of(map), mask, length, decays);
          AttentionOutputs outputs = call.problem.outputs();
          outputs.final = call.final.get();
          call.attention->forward(any_context(), outputs, call.inputs());
          const auto alone = call.attention->make_state(batch, {heads, head_dim, value_dim});
          call.attention->forward(any_context(), {.out = {}, .final = alone.get()}, call.inputs());
          for (std::int64_t b = 0; b < batch; ++b) {
            EXPECT_EQ(saved(*alone, b), saved(*call.final, b));
            EXPECT_EQ(alone->position(b), call.final->position(b));
          }
        }
}

TEST(StateAlone, HasTheGradientOfAWholeBackwardPass) {
  for (const std::string map : {"elu", "favor"})
    for (const bool decays : {false, true})
      for (const std::int64_t length : lengths)
        for (const Mask& mask : masks_of(length)) {
          if (decays && (map == "favor" || mask.kind() != Mask::Kind::causal)) continue;
          SCOPED_TRACE(testing::Message() << map << ", " << mask.name() << ", " << length << " tokens");
          Continued call(options_of(map), mask, length, decays);
          call.attention->forward(any_context(), call.problem.outputs(), call.inputs());
          const std::int64_t width = call.initial->gradient_floats(0);
          Tensor whole = test::unset_tensor({batch, width}), alone = test::unset_tensor({batch, width});
          const auto backward = [&](AttentionGradients gradients, Tensor& initial) {
            gradients.initial = initial.view<float>();
            call.attention->backward(any_context(), gradients, std::as_const(call.problem.grad).view<float>(),
                                     call.inputs(), std::as_const(call.problem.out).view<float>(),
                                     std::as_const(call.problem.normaliser).view<float>());
          };
          backward(call.problem.gradients(), whole);
          backward({}, alone);
          EXPECT_TRUE(std::ranges::equal(alone.span<float>(), whole.span<float>()));
        }
}

TEST(StateAlone, NeedsAStateAndTheLinearFamily) {
  const auto error = [](Continued& call, const AttentionOutputs& outputs) {
    return error_of([&] { call.attention->forward(any_context(), outputs, call.inputs()); });
  };
  Continued call(options_of("elu"), Mask::causal(), 5, false);
  EXPECT_NE(error(call, {.out = {}}).find("out"), std::string::npos);
  AttentionOptions softmax;
  softmax.family = Family::softmax;
  Continued other(softmax, Mask::causal(), 5, false);
  EXPECT_NE(error(other, {.out = {}, .final = other.final.get()}).find("out"), std::string::npos);
}

}  // namespace
}  // namespace linnet
