#include "layers/block.h"

#include <gtest/gtest.h>

#include "support/contexts.h"
#include "support/dropout.h"
#include "support/layer_check.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 41;

Block::Parts parts_of(bool norm_first, Family family, std::int64_t width = 6, std::int64_t heads = 2) {
  AttentionOptions attention;
  attention.family = family;
  attention.layer = 3;
  return {.attention = {.width = width, .heads = heads, .attention = attention, .output_deviation = 0.1},
          .feed_forward = {width, 7, kernels::Activation::gelu, 0.1},
          .norm_first = norm_first,
          .layer = 3};
}

/// With SwiGLU, normalisation by the root mean square and rotary positions.
Block::Parts other_parts(Block::Parts parts) {
  parts.feed_forward.activation = kernels::Activation::swiglu;
  parts.norm = NormKind::rms;
  parts.attention.rotary = true;
  return parts;
}

reference::BlockSettings settings_of(const Block::Parts& parts) {
  reference::BlockSettings settings;
  settings.attention.family = name_of(parts.attention.attention.family);
  settings.attention.heads = parts.attention.heads;
  settings.attention.rotary = parts.attention.rotary;
  if (parts.feed_forward.gated()) settings.activation = "swiglu";
  settings.norm_first = parts.norm_first;
  return settings;
}

void expect_block_matches(const Block::Parts& parts, std::int64_t batch, std::int64_t length,
                          const Dropout& dropout) {
  ParameterTable table;
  Block block(table, "block", parts);
  const Tensor values = random_values(table, seed);
  block.pack(any_context(), values.span<float>(), true);
  Block::Saved saved;
  saved.reserve(batch, length, parts);
  const std::int64_t width = parts.attention.width;
  const reference::BlockMasks masks =
      dropout.rate > 0 ? dropout_masks(parts, batch, length, dropout) : reference::BlockMasks{};
  const LayerUnderTest layer = {batch * length, width,
                                [&](auto& y, const auto& x) {
                                  block.forward(any_context(), view(y, {batch, length, width}),
                                                view(x, {batch, length, width}), saved, dropout);
                                },
                                [&](auto& dx, const auto& dy, const auto& x, std::span<float> gradients) {
                                  dx = dy;
                                  block.backward(any_context(), view(dx, {batch, length, width}),
                                                 view(x, {batch, length, width}), saved, dropout, gradients);
                                },
                                [&](const auto& x, const auto& p) {
                                  return reference::block(x, length, p, "block", settings_of(parts), masks);
                                }};
  expect_matches_reference(table, values.span<float>(), layer, seed);
}

std::vector<const Tensor*> tensors_of(const Block::Saved& saved) {
  return {&saved.inner1,
          &saved.middle,
          &saved.inner2,
          &saved.stats1,
          &saved.stats2,
          &saved.attention.qkv,
          &saved.attention.attended,
          &saved.attention.normaliser,
          &saved.feed_forward.inner,
          &saved.feed_forward.gate,
          &saved.feed_forward.after};
}

TEST(Block, FloatsPerTokenAreThoseThatReserveTakes) {
  for (const Family family : {Family::linear, Family::lsh}) {  // lsh has no keys of its own
    for (const bool other : {false, true}) {
      const Block::Parts parts = other ? other_parts(parts_of(true, family, 8, 2)) : parts_of(true, family);
      Block::Saved saved;
      saved.reserve(3, 5, parts);
      std::int64_t floats = 0;
      for (const Tensor* tensor : tensors_of(saved)) floats += tensor->size();
      EXPECT_EQ(static_cast<double>(floats), 3 * 5 * Block::Saved::floats_per_token(parts));
    }
  }
}

TEST(Block, TrainsOnRoundedRowsWhereItsProductsReadThem) {
  const std::int64_t b = 2, l = 67, d = 192, hidden = 200;
  const auto x = normals(b * l * d, seed), dy = normals(b * l * d, seed + 1);
  const bool fast = kernels::multiplies_fast(kernels::WeightType::bf16);
  for (const bool norm_first : {true, false}) {
    for (const bool other : {false, true}) {
      Block::Parts parts = parts_of(norm_first, Family::linear, d, 6);
      parts.feed_forward.hidden = hidden;
      if (other) parts = other_parts(parts);
      SCOPED_TRACE(testing::Message() << "norm first " << norm_first << ", other parts " << other);
      std::vector<float> y[2], dx[2], gradients[2];
      for (const kernels::WeightType type : {kernels::WeightType::f32, kernels::WeightType::bf16}) {
        ParameterTable table(kernels::WeightType::f32, type);
        Block block(table, "block", parts);
        const Tensor values = random_values(table, seed);
        block.pack(any_context(), values.span<float>(), true);
        Block::Saved saved;
        saved.reserve(b, l, block.parts());
        const bool rounded = norm_first && fast && type == kernels::WeightType::bf16;
        for (const Tensor* inner : {&saved.inner1, &saved.inner2})
          EXPECT_EQ(inner->dtype(), rounded ? DType::bf16 : DType::f32);
        std::size_t bytes = 0;
        for (const Tensor* tensor : tensors_of(saved)) bytes += tensor->bytes();
        EXPECT_EQ(static_cast<double>(bytes), 4.0 * b * l * Block::Saved::floats_per_token(parts, table));
        const auto i = static_cast<std::size_t>(type == kernels::WeightType::bf16);
        y[i] = std::vector<float>(x.size());
        dx[i] = dy;
        gradients[i] = std::vector<float>(table.size());
        block.forward(any_context(), view(y[i], {b, l, d}), view(x, {b, l, d}), saved, {});
        block.backward(any_context(), view(dx[i], {b, l, d}), view(x, {b, l, d}), saved, {}, gradients[i]);
      }
      EXPECT_LT(relative_error(y[1], in_double(y[0])), 0.006);
      EXPECT_LT(relative_error(dx[1], in_double(dx[0])), 0.006);
      EXPECT_LT(relative_error(gradients[1], in_double(gradients[0])), 0.006);
    }
  }
}

TEST(Block, MatchesReferenceWithGradients) {
  for (const bool norm_first : {true, false})
    for (const Family family : {Family::linear, Family::softmax})
      for (const auto& [batch, length, width, heads] :
           {std::array<std::int64_t, 4>{2, 4, 6, 2}, {1, 1, 3, 1}, {1, 6, 7, 7}}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(family) << ", norm first " << norm_first << ", width " << width);
        expect_block_matches(parts_of(norm_first, family, width, heads), batch, length, {});
      }
}

TEST(Block, MatchesReferenceWithOtherPartsAndGradients) {
  for (const bool norm_first : {true, false})
    for (const Family family : {Family::linear, Family::softmax}) {
      SCOPED_TRACE(testing::Message() << name_of(family) << ", norm first " << norm_first);
      expect_block_matches(other_parts(parts_of(norm_first, family, 8, 2)), 2, 4, {});
    }
}

TEST(Block, MatchesReferenceUnderTheSameDropoutWithGradients) {
  for (const bool norm_first : {true, false})
    for (const float rate : {0.1f, 0.5f, 0.9f}) {
      SCOPED_TRACE(testing::Message() << "norm first " << norm_first << ", rate " << rate);
      expect_block_matches(parts_of(norm_first, Family::linear), 2, 5, {rate, 77});
    }
}

TEST(Block, DropsTheShareAskedForAndKeepsTheMean) {
  const Block::Parts parts = parts_of(true, Family::linear, 64, 4);
  for (const float rate : {0.05f, 0.25f, 0.8f}) {
    const reference::BlockMasks masks = dropout_masks(parts, 4, 100, {rate, 5});
    for (const auto& mask : {masks.attention, masks.feed_forward}) {
      double dropped = 0;
      for (const double factor : mask) {
        if (factor != 0) {
          ASSERT_NEAR(factor, 1 / (1 - static_cast<double>(rate)), 1e-5);
        }
        dropped += factor == 0;
      }
      const double count = static_cast<double>(mask.size());
      EXPECT_NEAR(dropped / count, rate, 5 * std::sqrt(rate * (1 - rate) / count));  // five deviations
    }
  }
}

TEST(Block, DropsOtherElementsForOtherSeedsLayersAndBranches) {
  Block::Parts parts = parts_of(true, Family::linear, 64, 4);
  const auto masks = dropout_masks(parts, 1, 20, {0.5f, 5});
  EXPECT_EQ(dropout_masks(parts, 1, 20, {0.5f, 5}).attention, masks.attention);
  const auto share_alike = [](const std::vector<double>& a, const std::vector<double>& b) {
    double alike = 0;
    for (std::size_t i = 0; i < a.size(); ++i) alike += a[i] == b[i];
    return alike / static_cast<double>(a.size());
  };
  const double five_deviations = 5 * std::sqrt(0.25 / static_cast<double>(masks.attention.size()));
  EXPECT_NEAR(share_alike(masks.attention, masks.feed_forward), 0.5, five_deviations);
  EXPECT_NEAR(share_alike(masks.attention, dropout_masks(parts, 1, 20, {0.5f, 6}).attention), 0.5,
              five_deviations);
  parts.layer = parts.attention.attention.layer = 4;
  const auto other_layer = dropout_masks(parts, 1, 20, {0.5f, 5});
  EXPECT_NEAR(share_alike(masks.attention, other_layer.attention), 0.5, five_deviations);
  EXPECT_NEAR(share_alike(masks.feed_forward, other_layer.attention), 0.5, five_deviations);
}

TEST(Block, AppliesAndStepsAsItTrains) {
  const std::int64_t length = 131, width = 12;
  for (const bool norm_first : {true, false})
    for (const Family family : {Family::linear, Family::softmax}) {
      SCOPED_TRACE(testing::Message() << name_of(family) << ", norm first " << norm_first);
      for (const bool other : {false, true}) {
        SCOPED_TRACE(other ? "swiglu, rms, rotary" : "");
        const Block::Parts parts = other ? other_parts(parts_of(norm_first, family, width, 3))
                                         : parts_of(norm_first, family, width, 3);
        ParameterTable table;
        Block block(table, "block", parts);
        const Tensor values = random_values(table, seed);
        block.pack(any_context(), values.span<float>(), false);
        const auto x = normals(length * width, seed);
        const auto expected =
            reference::block(reference::Matrix(length, width, in_double(x)), length,
                             by_name(table, values.span<float>()), "block", settings_of(parts))
                .values;
        SelfAttention::Saved saved;
        saved.reserve(1, length, parts.attention);
        for (const std::int64_t split : {0, 1, 64, 130, 131}) {
          const auto state = block.attention().make_state(1, 0);
          std::vector<float> applied = x;
          const View<float> all = view(applied, {1, length, width});
          block.apply(any_context(), all.slice(1, 0, split), saved, {.final = state.get()});
          block.apply(any_context(), all.slice(1, split, length), saved, {split, state.get(), state.get()});
          EXPECT_LT(relative_error(applied, expected), 1e-5) << "split at " << split;
        }
        const auto state = block.attention().make_state(2, 0);
        std::vector<float> stepped = x;
        const std::int64_t slot[] = {1};
        for (std::int64_t t = 0; t < length; ++t)
          block.step(any_context(), view(stepped, {length, width}).slice(0, t, t + 1), *state, slot);
        EXPECT_LT(relative_error(stepped, expected), 1e-5);
      }
    }
}

}  // namespace
}  // namespace linnet
