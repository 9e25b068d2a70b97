#include "layers/self_attention.h"

#include <gtest/gtest.h>

#include "support/contexts.h"
#include "support/layer_check.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 31;

struct Kind {
  const char* name;
  AttentionOptions options;
  reference::AttentionSettings settings;
  Decay decay = Decay::none;

  bool rotary() const { return settings.rotary; }
  /// An even size of heads where that is needed.
  std::int64_t head_dim(std::int64_t wanted) const { return rotary() ? 2 * wanted : wanted; }
};

/// γ of each head, different ones.
std::vector<float> decays(std::int64_t heads) {
  std::vector<float> result;
  for (std::int64_t h = 0; h < heads; ++h)
    result.push_back(0.5f + 0.4f * static_cast<float>(h) / static_cast<float>(heads));
  return result;
}

std::vector<Kind> kinds() {
  std::vector<Kind> result;
  const auto linear = [&](const char* name, std::shared_ptr<const FeatureMap> map, double alpha,
                          float epsilon) {
    Kind kind{name, {}, {}};
    kind.options.linear.feature_map = std::move(map);
    kind.options.linear.epsilon = epsilon;
    kind.settings = {"linear", name, alpha, epsilon, true, 1};
    result.push_back(kind);
  };
  linear("elu", elu_map(), 1, 1e-6f);
  linear("elu", elu_map(0.3f), 0.3f, 1e-6f);
  linear("relu", relu_map(), 1,
         0.1f);  // features may all be 0: a larger ε keeps the problem well-conditioned
  linear("squared-relu", squared_relu_map(), 1, 0.1f);
  linear("exp", exp_map(), 1, 1e-6f);
  linear("identity", identity_map(), 1, 1e-6f);
  result.back().options.linear.normalise = Normalise::none;
  result.back().settings.normalise = false;
  linear("elu", elu_map(), 1, 1e-6f);
  result.back().decay = Decay::fixed;
  linear("elu", elu_map(), 1, 1e-6f);
  result.back().decay = Decay::learned;
  Kind softmax{"softmax", {}, {}};
  softmax.options.family = Family::softmax;
  softmax.settings.family = "softmax";
  result.push_back(softmax);
  softmax.settings.rotary = true;
  result.push_back(softmax);
  linear("elu", elu_map(), 1, 1e-6f);
  result.back().settings.rotary = true;
  linear("exp", exp_map(), 1, 1e-6f);
  result.back().settings.rotary = true;
  result.back().decay = Decay::learned;
  Kind local{"local", {}, {}};
  local.options.family = Family::local;
  local.options.local.left = 3;
  local.settings.family = "local";
  local.settings.window = 3;
  local.settings.rotary = true;
  result.push_back(local);
  return result;
}

struct Made {
  ParameterTable table;
  SelfAttention::Parts parts;
  std::unique_ptr<SelfAttention> attention;
  Tensor values;

  Made(const Kind& kind, std::int64_t heads, std::int64_t head_dim, bool training) {
    parts = {.width = heads * head_dim,
             .heads = heads,
             .attention = kind.options,
             .decay = kind.decay,
             .output_deviation = 0.1,
             .rotary = kind.rotary()};
    if (kind.decay != Decay::none) parts.initial_decay = decays(heads);
    attention = std::make_unique<SelfAttention>(table, "attention", parts);
    values = random_values(table, seed);
    attention->pack(any_context(), values.span<float>(), training);
  }
};

TEST(SelfAttention, MatchesReferenceWithGradients) {
  for (const Kind& kind : kinds())
    for (const auto& [batch, length, heads, wanted_dim] :
         {std::array<std::int64_t, 4>{1, 1, 1, 1}, {2, 5, 1, 3}, {1, 7, 3, 2}, {3, 3, 2, 5}}) {
      const std::int64_t head_dim = kind.head_dim(wanted_dim);
      SCOPED_TRACE(testing::Message() << kind.name << (kind.rotary() ? " rotary" : "") << ", batch " << batch
                                      << ", length " << length << ", heads " << heads << " of " << head_dim);
      const std::int64_t b = batch, l = length, d = heads * head_dim;
      Made made(kind, heads, head_dim, true);
      SelfAttention::Saved saved;
      saved.reserve(b, l, made.parts);
      auto settings = kind.settings;
      settings.heads = heads;
      if (kind.decay == Decay::fixed) {
        const std::vector<float> decay = decays(heads);
        settings.decay.assign(decay.begin(), decay.end());
      }
      const LayerUnderTest layer = {
          b * l, d,
          [&](auto& y, const auto& x) {
            made.attention->forward(any_context(), view(y, {b, l, d}), view(x, {b, l, d}), {}, saved);
          },
          [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
            made.attention->backward(any_context(), view(dx, {b, l, d}), view(dy, {b, l, d}),
                                     view(x, {b, l, d}), saved, gradients);
          },
          [&](const auto& x, const auto& p) {
            return reference::self_attention(x, l, p, "attention", settings);
          }};
      expect_matches_reference(made.table, made.values.span<float>(), layer, seed);
    }
}

TEST(SelfAttention, TrainsOnRoundedRowsWhereItsProductsReadThem) {
  const std::int64_t b = 2, l = 67, heads = 8, d = 256;
  const auto x = normals(b * l * d, seed), dy = normals(b * l * d, seed + 1);
  const bool fast = kernels::multiplies_fast(kernels::WeightType::bf16);
  for (const auto& [family, rotary] : {std::pair(Family::linear, false), std::pair(Family::linear, true),
                                       std::pair(Family::softmax, false)}) {
    std::vector<float> y[2], dx[2], gradients[2];
    for (const kernels::WeightType type : {kernels::WeightType::f32, kernels::WeightType::bf16}) {
      SelfAttention::Parts parts;
      parts.width = d;
      parts.heads = heads;
      parts.attention.family = family;
      parts.output_deviation = 0.1;
      parts.rotary = rotary;
      ParameterTable table(kernels::WeightType::f32, type);
      SelfAttention attention(table, "attention", parts);
      EXPECT_EQ(attention.parts().rounded,
                fast && type == kernels::WeightType::bf16 && family == Family::linear && !rotary);
      const Tensor values = random_values(table, seed);
      attention.pack(any_context(), values.span<float>(), true);
      SelfAttention::Saved saved;
      saved.reserve(b, l, attention.parts());
      EXPECT_EQ(static_cast<double>(saved.qkv.bytes() + saved.attended.bytes() + saved.normaliser.bytes()),
                4.0 * b * l * SelfAttention::Saved::floats_per_token(attention.parts()));
      const auto i = static_cast<std::size_t>(type == kernels::WeightType::bf16);
      y[i] = dx[i] = std::vector<float>(x.size());
      gradients[i] = std::vector<float>(table.size());
      attention.forward(any_context(), view(y[i], {b, l, d}), view(x, {b, l, d}), {}, saved);
      attention.backward(any_context(), view(dx[i], {b, l, d}), view(dy, {b, l, d}), view(x, {b, l, d}),
                         saved, gradients[i]);
      std::vector<float> both = dy, again(table.size());
      attention.backward(any_context(), view(both, {b, l, d}), view(std::as_const(both), {b, l, d}),
                         view(x, {b, l, d}), saved, again, view(std::as_const(both), {b, l, d}));
      EXPECT_EQ(gradients[i], again);
      for (std::size_t n = 0; n < x.size(); ++n) EXPECT_NEAR(both[n], dx[i][n] + dy[n], 1e-5);
    }
    EXPECT_LT(relative_error(y[1], in_double(y[0])), 0.006);
    EXPECT_LT(relative_error(dx[1], in_double(dx[0])), 0.006);
    EXPECT_LT(relative_error(gradients[1], in_double(gradients[0])), 0.006);
  }
}

TEST(SelfAttention, LinformerMatchesReferenceHoweverItsProjectionsAreShared) {
  using Sharing = ProjectionSharing;
  const std::int64_t b = 2, l = 5, heads = 2, d = 6;
  for (const Sharing sharing : {Sharing::none, Sharing::headwise, Sharing::key_value, Sharing::layerwise}) {
    SCOPED_TRACE(testing::Message() << "sharing " << static_cast<int>(sharing));
    SelfAttention::Parts parts;
    parts.width = d;
    parts.heads = heads;
    parts.output_deviation = 0.1;
    parts.attention.family = Family::linformer;
    parts.causal = false;
    parts.projections = {.rank = 3, .length = 7, .sharing = sharing};
    ParameterTable table;
    SelfAttention first(table, "first", parts);
    parts.projections.owned = sharing == Sharing::layerwise ? first.projection() : nullptr;
    SelfAttention second(table, "second", parts);
    const std::int64_t pairs = (sharing == Sharing::none ? heads : 1) * 3 * 7;
    EXPECT_EQ(table.parameter_count(),
              2 * (3 * d * d + 3 * d + d * d + d) + pairs * (sharing == Sharing::layerwise   ? 1
                                                             : sharing == Sharing::key_value ? 2
                                                                                             : 4));
    const Tensor values = random_values(table, seed);
    for (SelfAttention* layer : {&first, &second}) layer->pack(any_context(), values.span<float>(), true);

    reference::AttentionSettings settings;
    settings.family = "linformer";
    settings.heads = heads;
    settings.rank = 3;
    settings.projection_length = 7;
    auto shared = settings;
    if (sharing == Sharing::layerwise) shared.projections_of = "first";
    SelfAttention::Saved saved[2];
    for (auto& one : saved) one.reserve(b, l, parts);
    std::vector<float> between(static_cast<std::size_t>(b * l * d)), dbetween(between.size());
    const LayerUnderTest layer = {
        b * l, d,
        [&](auto& y, const auto& x) {
          first.forward(any_context(), view(between, {b, l, d}), view(x, {b, l, d}), {}, saved[0]);
          second.forward(any_context(), view(y, {b, l, d}), view(std::as_const(between), {b, l, d}), {},
                         saved[1]);
        },
        [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
          second.backward(any_context(), view(dbetween, {b, l, d}), view(dy, {b, l, d}),
                          view(std::as_const(between), {b, l, d}), saved[1], gradients);
          first.backward(any_context(), view(dx, {b, l, d}), view(std::as_const(dbetween), {b, l, d}),
                         view(x, {b, l, d}), saved[0], gradients);
        },
        [&](const auto& x, const auto& p) {
          return reference::self_attention(reference::self_attention(x, l, p, "first", settings), l, p,
                                           "second", shared);
        }};
    expect_matches_reference(table, values.span<float>(), layer, seed);
  }
}

TEST(SelfAttention, StepsAndSplitsGiveTheParallelFormWithResidual) {
  const std::int64_t heads = 2, length = 150;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(testing::Message() << kind.name << (kind.rotary() ? " rotary" : ""));
    const std::int64_t head_dim = kind.head_dim(9), d = heads * head_dim;
    Made made(kind, heads, head_dim, false);
    auto settings = kind.settings;
    settings.heads = heads;
    if (kind.decay == Decay::fixed) {
      const std::vector<float> decay = decays(heads);
      settings.decay.assign(decay.begin(), decay.end());
    }
    const auto x = normals(length * d, seed), residual = normals(length * d, seed + 1);
    auto expected =
        reference::self_attention(reference::Matrix(length, d, in_double(x)), length,
                                  by_name(made.table, made.values.span<float>()), "attention", settings)
            .values;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += residual[i];

    const auto state = made.attention->make_state(3, 0);
    std::vector<float> stepped(x.size());
    const std::int64_t slot[] = {1};
    for (std::int64_t t = 0; t < length; ++t)
      made.attention->step(any_context(), view(stepped, {length, d}).slice(0, t, t + 1),
                           view(x, {length, d}).slice(0, t, t + 1),
                           view(residual, {length, d}).slice(0, t, t + 1), *state, slot);
    EXPECT_LT(relative_error(stepped, expected), 1e-5);
    EXPECT_EQ(state->position(1), length);
    EXPECT_EQ(state->position(0), 0);

    for (const std::int64_t split : {0, 1, 63, 64, 65, 149, 150}) {
      SCOPED_TRACE(testing::Message() << "split at " << split);
      const auto own = made.attention->make_state(1, 0);
      SelfAttention::Saved saved;
      saved.reserve(1, length, made.parts);
      std::vector<float> y(x.size());
      const auto part = [&](std::int64_t begin, std::int64_t end, const State* initial) {
        made.attention->forward(any_context(), view(y, {1, length, d}).slice(1, begin, end),
                                view(x, {1, length, d}).slice(1, begin, end),
                                view(residual, {1, length, d}).slice(1, begin, end), saved,
                                {begin, initial, own.get()});
      };
      part(0, split, nullptr);
      part(split, length, own.get());
      EXPECT_LT(relative_error(y, expected), 1e-5);
      EXPECT_EQ(own->position(0), length);
    }
  }
}

}  // namespace
}  // namespace linnet
