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

/// Takes prompts that begin alike, whose states are the first slots of `held`, to their ends. Only then the
/// state of a stream moves, so that it has taken its whole prompt or nothing where this throws.
void take_group(Context& context, const Network& network, Transformer& layers, RecurrentState& states,
                RecurrentState& held, std::span<Prompt> group, FunctionReference<void(const Prompt&)> taken) {
  take_together(context, layers, held, group);
  std::vector<std::int64_t> left;
  const auto prompt = [&](std::int64_t i) -> Prompt& { return group[static_cast<std::size_t>(i)]; };
  for (std::int64_t i = 0; i < std::ssize(group); ++i) {
    if (!prompt(i).tokens.empty()) {
      left.push_back(i);
      continue;
    }
    states.copy(prompt(i).stream, held, i);
    taken(prompt(i));
  }
  while (!left.empty()) {
    const Prompt& first = prompt(left.front());
    const auto others = std::stable_partition(left.begin(), left.end(),
                                              [&](std::int64_t i) { return alike(prompt(i), first); });
    RecurrentState part(network, others - left.begin());
    std::vector<Prompt> prompts;
    for (auto i = left.begin(); i != others; ++i) {
      part.copy(std::ssize(prompts), held, *i);
      prompts.push_back(prompt(*i));
    }
    take_group(context, network, layers, states, part, prompts, taken);
    left.erase(left.begin(), others);
  }
}

}  // namespace

void take_prompts(Context& context, const Network& network, Transformer& layers, RecurrentState& states,
                  RecurrentState& single, std::vector<Prompt> prompts,
                  FunctionReference<void(const Prompt&)> taken) {
  for (const Prompt& prompt : prompts) states.reserve(prompt.stream, prompt.position + prompt.steps());
  while (!prompts.empty()) {
    const auto others =
        std::stable_partition(prompts.begin(), prompts.end(),
                              [first = prompts.front()](const Prompt& p) { return alike(p, first); });
    const std::int64_t count = std::min<std::int64_t>(others - prompts.begin(), most_prompts);
    const auto group = std::span(prompts).first(static_cast<std::size_t>(count));
    RecurrentState several;
    if (count > 1) several = RecurrentState(network, count);
    RecurrentState& held = count > 1 ? several : single;
    for (std::int64_t i = 0; i < count; ++i) held.copy(i, states, group[static_cast<std::size_t>(i)].stream);
    take_group(context, network, layers, states, held, group, taken);
    prompts.erase(prompts.begin(), prompts.begin() + count);
  }
}

}  // namespace linnet
