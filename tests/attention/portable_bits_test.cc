// The linear and the softmax family have the same bits on every processor with the same instruction set, in
// all three passes.
#include "support/portable_bits.h"

#include "attention/attention_tools.h"

namespace linnet {
namespace {

using test::Problem;

constexpr std::uint64_t seed = 640;

/// Both passes over 70 tokens, causal.
BitHash parallel_bits(const AttentionOptions& options, const std::vector<float>& decay = {}) {
  Problem problem({2, 70, 70, 3, 24, 19}, Mask::causal(), seed);
  if (!decay.empty()) problem.decaying(decay);
  const auto attention = make_attention(options);
  problem.forward(*attention);
  problem.backward(*attention);
  BitHash bits;
  for (const Tensor* tensor : {&problem.out, &problem.normaliser, &problem.dq, &problem.dk, &problem.dv})
    bits.add(*tensor);
  if (!decay.empty()) bits.add(problem.d_decay);
  return bits;
}

/// The outputs of 20 steps and the states that they end in.
BitHash step_bits(const AttentionOptions& options, const std::vector<float>& decay = {}) {
  Problem problem({2, 20, 20, 3, 24, 19}, Mask::causal(), seed + 1);
  if (!decay.empty()) problem.decaying(decay);
  const auto attention = make_attention(options);
  const auto state = attention->make_state(2, {3, 24, 19});
  test::run_steps(*attention, problem, *state, 0, 20);
  return BitHash().add(problem.out).add(test::saved(*state, 0)).add(test::saved(*state, 1));
}

const std::vector<float> some_decay = {0.9f, 0.99f, 1.0f};

TEST(PortableBits, LinearAttention) {
  const AttentionOptions elu;
  expect_bits("elu, forward and backward", parallel_bits(elu),
              {0x270cfc890562889b, 0x6e411c1c287251ca, 0x240f76b8082b2c03, 0x097aac908c2fb9e1});
  expect_bits("elu, steps", step_bits(elu),
              {0x354056b7830db0aa, 0x829c60884dacc0ba, 0x6ab68046e47dadb6, 0x413395ed34b5a9c7});
  expect_bits("decay, forward and backward", parallel_bits(elu, some_decay),
              {0x426b2796dc569b4f, 0x76f746b6604aeadb, 0xdba8436f4c14fd60, 0x7e66e63ab3a31fef});
  expect_bits("decay, steps", step_bits(elu, some_decay),
              {0x8a71be94e7fb9637, 0xa613dee6edb6d003, 0x7bd3592e6b415f26, 0x1c2079d4e44059c2});
}

TEST(PortableBits, LinearAttentionWithLogScales) {
  AttentionOptions favor;
  favor.linear.feature_map = random_feature_map("favor", 24, {.features = 32, .seed = seed});
  favor.linear.epsilon = 0;
  expect_bits("favor, forward and backward", parallel_bits(favor),
              {0x58dbbbb2904737dd, 0x25a1898d38e36941, 0x71f617dc0bc9a908, 0x8beeeff49d7c2115});
  expect_bits("favor, steps", step_bits(favor),
              {0x15ad1cd681b6be6d, 0x50832769082add31, 0x564ad1715cbfadb7, 0x123c40e7009eea73});
}

// Sums of a transform have one order, and products with signs are exact: every instruction set has these
// bits.
TEST(PortableBits, HadamardDirections) {
  const RandomFeatureOptions options = {.features = 90, .directions = Directions::hadamard, .seed = seed};
  const auto map = random_feature_map("random-relu", 64, options);
  const Tensor x = test::random_tensor({40, 64}, seed), dy = test::random_tensor({40, 90}, seed + 1);
  Tensor y = Tensor::of<float>({40, 90}), dx = Tensor::of<float>({40, 64});
  map->forward(y.view<float>(), x.view<float>(), {});
  map->backward(dx.view<float>(), dy.view<float>(), x.view<float>(), std::as_const(y).view<float>(), {});
  constexpr std::uint64_t bits = 0x2ee462bc197e40d1;
  expect_bits("random-relu, forward and backward", BitHash().add(y).add(dx), {bits, bits, bits, bits});
}

TEST(PortableBits, SoftmaxAttention) {
  AttentionOptions softmax;
  softmax.family = Family::softmax;
  expect_bits("forward and backward", parallel_bits(softmax),
              {0x353cc56d6b2b40e3, 0x726d9437f41040bc, 0xb127c6fdd2a68191, 0xe0d2c932099ab1a0});
  expect_bits("steps", step_bits(softmax),
              {0xbaed845a4a670a75, 0xb2552078d8479c0c, 0x471e07d14759a48e, 0x319e6b5b6dca9830});
}

}  // namespace
}  // namespace linnet
