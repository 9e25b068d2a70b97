// States over memory of the caller's.
#include <fmt/format.h>

#include "attention/attention_tools.h"
#include "attention/log_scaled_maps.h"
#include "linnet/error.h"
#include "support/errors.h"

namespace linnet {
namespace {

using test::Problem;
using test::run_steps;
using test::saved;

constexpr std::int64_t slots = 2, heads = 3, head_dim = 5, value_dim = 4;
constexpr HeadShape shape = {heads, head_dim, value_dim};

struct Case {
  std::string name;
  AttentionOptions options;
  std::int64_t floats;        ///< of a slot with a capacity of 50 tokens
  std::int64_t capacity = 0;  ///< tokens that a slot takes; 0: any number
};

std::vector<Case> cases() {
  AttentionOptions plain, compensated, loud, softmax, local, strided, fixed;
  plain.linear.sums = StateSums::plain;
  loud.linear.feature_map = std::make_shared<test::LoudMap>();
  softmax.family = Family::softmax;
  local.family = Family::local;
  local.local.left = 11;
  strided.family = fixed.family = Family::strided;
  strided.strided.stride = fixed.strided.stride = 8;
  fixed.strided.pattern = SparsePattern::fixed;
  fixed.strided.summary = 3;
  constexpr std::int64_t token = heads * (head_dim + value_dim);
  return {{"linear, plain sums", plain, heads * 5 * 5},
          {"linear", compensated, 2 * heads * 5 * 5},
          {"linear, log-scales", loud, 2 * heads * 8 * 5 + 2 * heads},
          {"softmax", softmax, 50 * token + 16, 50},
          {"local", local, 12 * token + 16},
          {"strided", strided, 50 * token + 16, 50},
          {"fixed", fixed, (6 * 3 + 8) * token + 16, 50}};
}

// At an address that no vector is aligned to.
struct Memory {
  explicit Memory(std::size_t floats) : numbers(floats + 1, NAN) {}
  std::span<float> span() { return std::span(numbers).subspan(1); }
  std::vector<float> numbers;
};

TEST(StateMemory, StatesInTheCallersMemoryWorkLikeOthers) {
  for (const Case& a : cases()) {
    SCOPED_TRACE(a.name);
    const auto attention = make_attention(a.options);
    ASSERT_EQ(attention->state_floats(shape, 50), a.floats);
    Memory memory(std::size_t(slots * a.floats));
    const auto own = attention->make_state(slots, shape),
               given = attention->make_state(slots, shape, 50, memory.span());
    Problem problem({slots, 50, 50, heads, head_dim, value_dim}, Mask::causal(), 200);
    Tensor outs[2];
    for (const auto& [state, out] : {std::pair(own.get(), &outs[0]), std::pair(given.get(), &outs[1])}) {
      Problem part({slots, 30, 30, heads, head_dim, value_dim}, Mask::causal(), 201);
      AttentionOutputs outputs = part.outputs();
      outputs.final = state;
      attention->forward(any_context(), outputs, part.inputs());
      run_steps(*attention, problem, *state, 30, 50);
      *out = problem.out.clone();
    }
    for (std::int64_t i = 30; i < 50; ++i)
      for (std::int64_t b = 0; b < slots; ++b)
        EXPECT_TRUE(std::equal(outs[0].view<float>().at(b, i),
                               outs[0].view<float>().at(b, i) + heads * value_dim,
                               outs[1].view<float>().at(b, i)));
    for (std::int64_t b = 0; b < slots; ++b) {
      EXPECT_EQ(saved(*given, b), saved(*own, b));
      EXPECT_EQ(given->position(b), 50);
    }
    own->copy(0, *given, 1);
    given->reset(1);
    given->restore(1, saved(*own, 0), 50);
    EXPECT_EQ(saved(*given, 1), saved(*own, 1));
    EXPECT_TRUE(std::isnan(memory.numbers[0]));
  }
}

// The layout that the header documents, read from the memory itself.
TEST(StateMemory, SlotsLieAsDocumented) {
  for (const Case& a : cases()) {
    SCOPED_TRACE(a.name);
    const auto attention = make_attention(a.options);
    Memory memory(std::size_t(slots * a.floats));
    const auto state = attention->make_state(slots, shape, 50, memory.span());
    Problem problem({slots, 29, 29, heads, head_dim, value_dim}, Mask::causal(), 210);
    AttentionOutputs outputs = problem.outputs();
    outputs.final = state.get();
    attention->forward(any_context(), outputs, problem.inputs());
    for (std::int64_t b = 0; b < slots; ++b) {
      const std::span<const float> slot =
          memory.span().subspan(std::size_t(b * a.floats), std::size_t(a.floats));
      const std::vector<float> numbers = saved(*state, b);
      if (a.options.family == Family::linear) {
        EXPECT_TRUE(std::ranges::equal(slot, numbers));
        continue;
      }
      const std::int64_t capacity = (a.floats - 16) / (heads * (head_dim + value_dim));
      const std::int64_t held = std::int64_t(numbers.size()) / (heads * (head_dim + value_dim));
      const float* next = numbers.data();
      for (const auto& [begin, dim] :
           {std::pair(std::int64_t{0}, head_dim), std::pair(heads * capacity * head_dim, value_dim)}) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t t = 0; t < held; ++t, next += dim) {
            // Of the ring the oldest of its 12 tokens is token 17 of the stream.
            const std::int64_t row = a.options.family == Family::local ? (17 + t) % 12 : t;
            EXPECT_TRUE(std::equal(next, next + dim, slot.data() + begin + (h * capacity + row) * dim));
          }
        }
      }
    }
  }
}

TEST(StateMemory, ALinearSlotAtPositionZeroIsEmptyWhateverItsMemoryHolds) {
  for (const Case& a : cases()) {
    if (a.options.family != Family::linear) continue;
    SCOPED_TRACE(a.name);
    const auto attention = make_attention(a.options);
    Memory memory(std::size_t(slots * a.floats));
    const auto own = attention->make_state(slots, shape),
               filled = attention->make_state(slots, shape, 0, memory.span());
    std::ranges::fill(memory.span(), 7.0f);
    Problem one({slots, 4, 4, heads, head_dim, value_dim}, Mask::causal(), 200),
        other({slots, 4, 4, heads, head_dim, value_dim}, Mask::causal(), 200);
    run_steps(*attention, one, *own, 0, 4);
    run_steps(*attention, other, *filled, 0, 4);
    EXPECT_TRUE(test::equal(one.out, other.out));
    EXPECT_EQ(saved(*own, 1), saved(*filled, 1));
  }
}

TEST(StateMemory, WhatTheMachineCannotHoldIsRefusedBeforeItIsTaken) {
  for (const Case& a : cases()) {
    SCOPED_TRACE(a.name);
    constexpr std::int64_t many = std::int64_t{1} << 34;
    EXPECT_TRUE(error_of<OutOfMemoryError>([&] {
                  make_attention(a.options)->make_state(many, shape, 50);
                }).starts_with(fmt::format("[memory] expected a state of {} slots to fit", many)));
  }
}

TEST(StateMemory, WhatTheMemoryCannotHoldIsRefusedAndChangesNothing) {
  for (const Case& a : cases()) {
    SCOPED_TRACE(a.name);
    const auto attention = make_attention(a.options);
    std::vector<float> small(std::size_t(slots * a.floats - 1), 7.0f);
    EXPECT_TRUE(error_of([&] { attention->make_state(slots, shape, 50, small); })
                    .ends_with(fmt::format("expected memory of {} floats for each of 2 slots, got {} floats",
                                           a.floats, slots * a.floats - 1)));
    EXPECT_TRUE(std::ranges::all_of(small, [](float number) { return number == 7; }));
    if (a.capacity == 0) continue;

    Memory memory(std::size_t(slots * a.floats));
    const auto state = attention->make_state(slots, shape, a.capacity, memory.span()),
               longer = attention->make_state(slots, shape);
    Problem problem({slots, 51, 51, heads, head_dim, value_dim}, Mask::causal(), 220);
    run_steps(*attention, problem, *longer, 0, 51);
    run_steps(*attention, problem, *state, 0, 49);
    // One of the two slots is full.
    Problem one({1, 1, 1, heads, head_dim, value_dim}, Mask::causal(), 221);
    const std::vector<std::int64_t> second = {1}, both = {0, 1};
    attention->step(any_context(), test::token(one.out.view<float>(), 0),
                    test::token(one.inputs().query.as<const float>(), 0),
                    test::token(one.inputs().key.as<const float>(), 0),
                    test::token(one.inputs().value.as<const float>(), 0), *state, second);
    const std::vector<float> before[2] = {saved(*state, 0), saved(*state, 1)};
    std::ranges::fill(problem.out.span<float>(), 7.0f);
    const std::string sentence =
        "expected at most 50 tokens, which the memory given to the state holds, got 51";
    AttentionOutputs outputs = problem.outputs();
    outputs.final = state.get();
    for (const std::function<void()>& action : std::vector<std::function<void()>>{
             [&] { run_steps(*attention, problem, *state, 50, 51); },
             [&] { attention->forward(any_context(), outputs, problem.inputs()); },
             [&] { state->copy(0, *longer, 1); }, [&] { state->restore(0, saved(*longer, 1), 51); }}) {
      EXPECT_TRUE(error_of(action).ends_with(sentence));
      for (std::int64_t b = 0; b < slots; ++b) {
        EXPECT_EQ(saved(*state, b), before[b]);
        EXPECT_EQ(state->position(b), 49 + b);
      }
      EXPECT_TRUE(std::ranges::all_of(problem.out.span<float>(), [](float number) { return number == 7; }));
    }
  }
}

}  // namespace
}  // namespace linnet
