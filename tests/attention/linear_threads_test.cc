#include <thread>

#include "attention/attention_tools.h"
#include "attention/mask_cases.h"

namespace linnet {
namespace {

using test::MaskCase;
using test::Problem;
using test::Sizes;

/// All results of both passes and of the final state, one number after another.
std::vector<float> everything(Context& context, const Attention& attention, Problem& problem) {
  std::vector<float> numbers;
  const auto add = [&](const Tensor& tensor) {
    numbers.insert(numbers.end(), tensor.span<float>().begin(), tensor.span<float>().end());
  };
  AttentionOutputs outputs = problem.outputs();
  const std::int64_t batch = problem.q.shape()[0];
  const auto state =
      attention.make_state(batch, {problem.q.shape()[2], problem.q.shape()[3], problem.v.shape()[3]});
  if (problem.mask.takes_state()) outputs.final = state.get();
  attention.forward(context, outputs, problem.inputs());
  problem.backward(attention, context);
  for (const Tensor* tensor : {&problem.out, &problem.normaliser, &problem.dq, &problem.dk, &problem.dv})
    add(*tensor);
  if (problem.decay.size() != 0) add(problem.d_decay);
  for (std::int64_t b = 0; b < batch && problem.mask.takes_state(); ++b) {
    const std::vector<float> slot = test::saved(*state, b);
    numbers.insert(numbers.end(), slot.begin(), slot.end());
  }
  return numbers;
}

void expect_same_bits(Problem& problem) {
  const auto attention = make_attention({});
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 8}) {
    Context context(threads);
    const std::vector<float> numbers = everything(context, *attention, problem);
    if (threads == 1) first = numbers;
    EXPECT_TRUE(numbers == first) << threads << " threads";
  }
}

// One head too, whose work is split otherwise.
TEST(LinearThreads, BitsDoNotDependOnThemForAnyMask) {
  for (const Sizes& sizes : {Sizes{1, 260, 260, 1, 64, 32}, Sizes{2, 70, 70, 3, 33, 47}}) {
    for (const MaskCase& mask : test::all_masks(sizes.batch, sizes.queries, sizes.keys, 600)) {
      Problem problem(sizes, mask.mask, 601);
      SCOPED_TRACE(mask.what + "; " + problem.describe(601));
      // A query without keys leaves no normaliser behind that means anything.
      problem.normaliser = Tensor::of<float>(problem.normaliser.shape());
      expect_same_bits(problem);
    }
  }
}

TEST(LinearThreads, BitsDoNotDependOnThemForOneLongHead) {
  for (const MaskCase& mask : test::some_masks(1, 3000, 610)) {
    SCOPED_TRACE(mask.what);
    Problem problem({1, 3000, 3000, 1, 32, 32}, mask.mask, 611);
    problem.normaliser = Tensor::of<float>(problem.normaliser.shape());
    expect_same_bits(problem);
  }
}

TEST(LinearThreads, BitsDoNotDependOnThemWithDecay) {
  for (const Sizes& sizes : {Sizes{1, 3000, 3000, 1, 64, 64}, Sizes{2, 300, 300, 3, 33, 47}}) {
    for (const MaskCase& mask : {test::causal_case(), test::some_masks(sizes.batch, sizes.keys, 620)[1]}) {
      Problem problem(sizes, mask.mask, 621);
      problem.decaying(std::vector<float>(std::size_t(sizes.heads), 0.97f));
      SCOPED_TRACE(mask.what);
      expect_same_bits(problem);
    }
  }
}

TEST(LinearThreads, BitsDoNotDependOnThemInBf16) {
  for (const MaskCase& mask : test::some_masks(1, 700, 630)) {
    SCOPED_TRACE(mask.what);
    const auto narrow = [](const Tensor& f32) {
      Tensor result = Tensor::of<bf16>(f32.shape());
      for (std::int64_t i = 0; i < f32.size(); ++i) result.span<bf16>()[i] = to_bf16(f32.span<float>()[i]);
      return result;
    };
    const Problem problem({1, 700, 700, 1, 32, 32}, mask.mask, 631);
    const Tensor q = narrow(problem.q), k = narrow(problem.k), v = narrow(problem.v),
                 grad = narrow(problem.grad);
    const auto attention = make_attention({});
    std::vector<std::uint16_t> first;
    for (const int threads : {1, 2, 3, 8}) {
      Context context(threads);
      Tensor results[4];
      for (Tensor& result : results) result = Tensor::of<bf16>(q.shape());
      Tensor normaliser = Tensor::of<float>({1, 700, 1});
      const AttentionInputs inputs = {q.view<bf16>(), k.view<bf16>(), v.view<bf16>(), mask.mask};
      attention->forward(context, {results[0].view<bf16>(), normaliser.view<float>()}, inputs);
      attention->backward(context,
                          {results[1].view<bf16>(), results[2].view<bf16>(), results[3].view<bf16>()},
                          grad.view<bf16>(), inputs, results[0].view<bf16>(), normaliser.view<float>());
      std::vector<std::uint16_t> bits;
      for (const Tensor& result : results)
        for (const bf16 number : result.span<bf16>()) bits.push_back(number.bits);
      if (threads == 1) first = bits;
      EXPECT_TRUE(bits == first) << threads << " threads";
    }
  }
}

TEST(LinearThreads, BitsAreThoseOfOneContextWithTwoAtOnce) {
  const Sizes sizes = {2, 300, 300, 3, 33, 47};
  const auto attention = make_attention({});
  const auto run = [&](int threads) {
    Context context(threads);
    Problem problem(sizes, Mask::causal(), 640);
    return everything(context, *attention, problem);
  };
  const std::vector<float> alone = run(1);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<float> first, second;
    std::thread other([&] { second = run(2); });
    first = run(3);
    other.join();
    EXPECT_TRUE(first == alone);
    EXPECT_TRUE(second == alone);
  }
}

}  // namespace
}  // namespace linnet
