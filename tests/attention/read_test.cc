// What a state holds, read by queries that leave it as it is: against the reference under a full mask.
#include <gtest/gtest.h>

#include "attention/attention_tools.h"
#include "linnet/error.h"
#include "linnet/feature_map.h"

namespace linnet {
namespace {

using test::random_tensor;
using test::relative_error;
using test::saved;
using test::to_double;
using test::unset_tensor;

constexpr std::uint64_t seed = 61;

std::vector<AttentionOptions> options() {
  std::vector<AttentionOptions> result;
  for (const StateSums sums : {StateSums::plain, StateSums::compensated})
    for (const auto& map : {elu_map(), exp_map(), random_feature_map("favor", 8, {.features = 32})}) {
      AttentionOptions linear;
      linear.linear.feature_map = map;
      linear.linear.sums = sums;
      result.push_back(linear);
    }
  AttentionOptions identity;
  identity.linear.feature_map = identity_map();
  identity.linear.normalise = Normalise::none;
  result.push_back(identity);
  result.push_back({.family = Family::softmax});
  return result;
}

TEST(Read, MatchesTheReferenceUnderAFullMaskAndLeavesTheState) {
  constexpr std::int64_t heads = 2, dim = 8, value_dim = 21, queries = 5;
  for (const AttentionOptions& option : options())
    for (const std::int64_t keys : {1, 7, 130, 300}) {
      SCOPED_TRACE(testing::Message() << name_of(option.family) << ", "
                                      << (option.linear.feature_map ? option.linear.feature_map->name() : "")
                                      << ", " << keys << " keys, seed " << seed);
      const auto attention = make_attention(option);
      const std::vector<std::int64_t> lengths = {keys, (keys + 1) / 2};
      const Tensor q = random_tensor({2, queries, heads, dim}, seed),
                   k = random_tensor({2, keys, heads, dim}, seed + 1),
                   v = random_tensor({2, keys, heads, value_dim}, seed + 2);
      const auto state = attention->make_state(2, {heads, dim, value_dim});
      Tensor unused = unset_tensor({2, keys, heads, value_dim});
      attention->forward(any_context(), {.out = unused.view<float>(), .final = state.get()},
                         {.query = k.view<float>(),
                          .key = k.view<float>(),
                          .value = v.view<float>(),
                          .mask = Mask::causal().with_key_lengths(lengths)});
      const std::vector<float> before = saved(*state, 0);

      Tensor out = unset_tensor({2 * queries, heads, value_dim});
      std::vector<std::int64_t> slots;
      for (std::int64_t i = 0; i < 2 * queries; ++i) slots.push_back(i / queries);
      attention->read(any_context(), out.view<float>(), q.view<float>().reshape({2 * queries, heads, dim}),
                      *state, slots);
      EXPECT_EQ(saved(*state, 0), before);
      EXPECT_EQ(state->position(1), lengths[1]);

      const Tensor wide_q = to_double(q), wide_k = to_double(k), wide_v = to_double(v);
      Tensor expected = Tensor::of<double>({2, queries, heads, value_dim});
      reference_forward(option, expected.view<double>(),
                        {.query = wide_q.view<double>(),
                         .key = wide_k.view<double>(),
                         .value = wide_v.view<double>(),
                         .mask = Mask::full().with_key_lengths(lengths)});
      EXPECT_LT(relative_error(out.span<float>(), expected.span<double>()), 1e-5);
    }
}

TEST(Read, OfASlotWithoutTokensGivesZeros) {
  for (const AttentionOptions& option : options()) {
    const auto attention = make_attention(option);
    const auto state = attention->make_state(1, {2, 8, 5});
    const Tensor q = random_tensor({1, 2, 8}, seed);
    Tensor out = unset_tensor({1, 2, 5});
    const std::int64_t slot[] = {0};
    attention->read(any_context(), out.view<float>(), q.view<float>(), *state, slot);
    for (const float number : out.span<float>()) EXPECT_EQ(number, 0);
  }
}

TEST(Read, IsRefusedWhereItDoesNotFit) {
  const Tensor q = random_tensor({1, 2, 8}, seed);
  Tensor out = unset_tensor({1, 2, 8});
  const std::int64_t slot[] = {0}, other[] = {1};
  const auto local = make_attention({.family = Family::local});
  const auto ring = local->make_state(1, {2, 8, 8});
  EXPECT_THROW(local->read(any_context(), out.view<float>(), q.view<float>(), *ring, slot), Error);
  const auto linear = make_attention({});
  const auto sums = linear->make_state(1, {2, 8, 8});
  EXPECT_THROW(linear->read(any_context(), out.view<float>(), q.view<float>(), *sums, other), Error);
  EXPECT_THROW(linear->read(any_context(), out.view<float>(), q.view<float>(), *ring, slot), Error);
  const std::int64_t positions[] = {0, 1};
  EXPECT_THROW(linear->read(any_context(), out.view<float>(), q.view<float>(), *sums, slot, positions),
               Error);
}

}  // namespace
}  // namespace linnet
