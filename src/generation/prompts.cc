#include "generation/prompts.h"

#include <algorithm>

#include "linnet/generation.h"

namespace linnet {
namespace {

/// Prompts that pass through the layers together at most; this bounds the working memory.
constexpr std::int64_t most_prompts = 16;

/// Steps of the next slice.
std::int64_t slice(const Prompt& prompt) {
  constexpr std::int64_t most = Session::prefill_slice;
  return std::min(prompt.steps(), most - prompt.position % most);
}

bool alike(const Prompt& a, const Prompt& b) { return a.position == b.position && slice(a) == slice(b); }

void advance(Prompt& prompt, std::int64_t steps) {
  prompt.position += steps;
  const auto taken = prompt.tokens.first(static_cast<std::size_t>(steps * prompt.fields));
  std::ranges::copy(taken.last(static_cast<std::size_t>(prompt.fields)), prompt.next_input.begin());
  prompt.tokens = prompt.tokens.subspan(taken.size());
}

/// Takes slices of prompts that are alike for as long as they are.
void take_together(Context& context, Transformer& layers, RecurrentState& together,
                   std::span<Prompt> prompts) {
  const Prompt& first = prompts.front();
  std::vector<std::int32_t> inputs;
  do {
    const std::int64_t length = slice(first), position = first.position;
    inputs.clear();
    for (const Prompt& prompt : prompts) {
      inputs.insert(inputs.end(), prompt.next_input.begin(), prompt.next_input.end());
      inputs.insert(inputs.end(), prompt.tokens.begin(),
                    prompt.tokens.begin() + (length - 1) * prompt.fields);
    }
    layers.forward(context, inputs, std::ssize(prompts), length, position, &together, &together);
    for (Prompt& prompt : prompts) advance(prompt, length);
  } while (!first.tokens.empty() &&
           std::ranges::all_of(prompts, [&](const Prompt& prompt) { return alike(prompt, first); }));
}

}  // namespace

void take_prompts(Context& context, const Network& network, Transformer& layers, RecurrentState& states,
                  RecurrentState& single, std::vector<Prompt> prompts,
                  FunctionReference<void(const Prompt&)> taken) {
  for (const Prompt& prompt : prompts) states.reserve(prompt.stream, prompt.position + prompt.steps());
  // Products with bf16 weights depend on the number of rows in the last bit.
  const std::int64_t most = network.config().weights == WeightType::bf16 ? 1 : most_prompts;
  while (!prompts.empty()) {
    const auto others =
        std::stable_partition(prompts.begin(), prompts.end(),
                              [first = prompts.front()](const Prompt& p) { return alike(p, first); });
    const std::int64_t count = std::min(others - prompts.begin(), most);
    const auto chosen = std::span(prompts).first(static_cast<std::size_t>(count));
    RecurrentState several;
    if (count > 1) several = RecurrentState(network, count);
    RecurrentState& together = count > 1 ? several : single;
    for (std::int64_t i = 0; i < count; ++i)
      together.copy(i, states, chosen[static_cast<std::size_t>(i)].stream);
    take_together(context, layers, together, chosen);
    for (std::int64_t i = 0; i < count; ++i) {
      const Prompt& prompt = chosen[static_cast<std::size_t>(i)];
      states.copy(prompt.stream, together, i);
      taken(prompt);
    }
    std::erase_if(prompts, [](const Prompt& prompt) { return prompt.tokens.empty(); });
  }
}

}  // namespace linnet
