#include "training/examples.h"

#include <algorithm>

#include "base/fail.h"
#include "base/parallel.h"
#include "linnet/dataset.h"
#include "training/masking.h"

namespace linnet {

void check_fit(const ModelConfig& config, const Dataset& dataset) {
  if (dataset.length() != config.length)
    fail<UsageError>("training", "expected model.length = {} as the data has, got {}", dataset.length(),
                     config.length);
  if (dataset.vocabulary() > config.vocabulary)
    fail<UsageError>("training", "expected model.vocabulary of at least {} as the data has, got {}",
                     dataset.vocabulary(), config.vocabulary);
  if (config.classes > 0 && dataset.classes() != config.classes)
    fail<UsageError>("training", "expected model.classes = {} as the data has, got {}", dataset.classes(),
                     config.classes);
  if (dataset.size() == 0) fail("training", "expected at least 1 example, got an empty set");
}

void Examples::read(Context& context, const Dataset& dataset, const ModelConfig& config, std::int64_t count,
                    const Index& index, const Masks& masks) {
  const std::int64_t length = config.length;
  inputs.resize(static_cast<std::size_t>(count * length));
  targets.resize(inputs.size());
  key_lengths.resize(static_cast<std::size_t>(count));
  parallel_for(context, count, [&](std::int64_t i) {
    const std::span<std::int32_t> tokens(inputs.data() + i * length, static_cast<std::size_t>(length));
    const std::span<std::int32_t> counted(targets.data() + i * length, static_cast<std::size_t>(length));
    const std::int64_t label = dataset.read(index(i), tokens, counted);
    const auto padding = std::find_if(tokens.begin(), tokens.end(), [](std::int32_t t) { return t < 0; });
    key_lengths[static_cast<std::size_t>(i)] = padding - tokens.begin();
    std::fill(padding, tokens.end(), 0);  // some token: nothing sees it
    if (config.masked()) {
      hide_tokens(tokens, counted, config.vocabulary, config.mask_token(), masks.random,
                  static_cast<std::uint64_t>(masks.draw(i)));
    } else {
      std::shift_right(tokens.begin(), tokens.end(), 1);
      tokens[0] = config.first_input(config.classes > 0 ? label : -1);
    }
  });
  if (std::ranges::all_of(key_lengths, [&](std::int64_t tokens) { return tokens == length; }))
    key_lengths.clear();
  counted = std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; });
}

}  // namespace linnet
