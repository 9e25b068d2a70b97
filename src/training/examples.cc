#include "training/examples.h"

#include <algorithm>

#include "base/fail.h"
#include "base/parallel.h"
#include "linnet/dataset.h"
#include "training/masking.h"

namespace linnet {

void check_fit(const ModelConfig& config, const Dataset& dataset) {
  if (dataset.length() != config.length)
    fail<UsageError>("training",
                     "expected model.length = {} as the data has, got {}; where model.length is 0, the data "
                     "decides, for text, bytes, copy and fasta by data.length",
                     dataset.length(), config.length);
  if (dataset.vocabulary() > config.vocabulary)
    fail<UsageError>("training", "expected model.vocabulary of at least {} as the data has, got {}",
                     dataset.vocabulary(), config.vocabulary);
  if (config.classes > 0 && dataset.classes() != config.classes)
    fail<UsageError>("training", "expected model.classes = {} as the data has, got {}", dataset.classes(),
                     config.classes);
  if (dataset.size() == 0) fail("training", "expected at least 1 example, got an empty set");
}

Batch Examples::read(Context& context, const Dataset& dataset, const ModelConfig& config, std::int64_t count,
                     const Index& index, const Masks& masks) {
  const std::int64_t length = config.length;
  inputs_.resize(static_cast<std::size_t>(count * length));
  targets_.resize(inputs_.size());
  key_lengths_.resize(static_cast<std::size_t>(count));
  parallel_for(context, count, [&](std::int64_t i) {
    const std::span<std::int32_t> tokens(inputs_.data() + i * length, static_cast<std::size_t>(length));
    const std::span<std::int32_t> counted(targets_.data() + i * length, static_cast<std::size_t>(length));
    const std::int64_t label = dataset.read(index(i), tokens, counted);
    const auto padding = std::find_if(tokens.begin(), tokens.end(), [](std::int32_t t) { return t < 0; });
    key_lengths_[static_cast<std::size_t>(i)] = padding - tokens.begin();
    std::fill(padding, tokens.end(), 0);  // some token: nothing sees it
    if (config.masked()) {
      hide_tokens(tokens, counted, config.vocabulary, config.mask_token(), masks.random,
                  static_cast<std::uint64_t>(masks.draw(i)));
    } else {
      std::shift_right(tokens.begin(), tokens.end(), 1);
      tokens[0] = config.first_input(config.classes > 0 ? label : -1);
    }
  });
  if (std::ranges::all_of(key_lengths_, [&](std::int64_t tokens) { return tokens == length; }))
    key_lengths_.clear();
  return {count, length, inputs_, targets_, key_lengths_};
}

Batch part_of(const Batch& batch, std::int64_t first, std::int64_t last) {
  const auto part = [&](const auto& all, std::int64_t each) {
    return all.empty() ? all
                       : all.subspan(static_cast<std::size_t>(first * each),
                                     static_cast<std::size_t>((last - first) * each));
  };
  return {last - first, batch.length, part(batch.inputs, batch.length), part(batch.targets, batch.length),
          part(batch.key_lengths, 1)};
}

std::int64_t counted_targets(const Batch& batch) {
  return std::ranges::count_if(batch.targets, [](std::int32_t target) { return target >= 0; });
}

void check_batch(const char* operation, const ModelConfig& config, const Batch& batch) {
  if (batch.examples < 1)
    fail<UsageError>(operation, "expected a batch of at least 1 example, got {}", batch.examples);
  if (batch.length < 1 || batch.length > config.length)
    fail<UsageError>(operation, "expected examples of 1 … {} positions, got {}", config.length, batch.length);
  const auto check_size = [&](const char* what, std::size_t size, std::int64_t each) {
    const auto found = static_cast<std::int64_t>(size);
    if (found / each != batch.examples || found % each != 0)
      fail<UsageError>(operation, "expected {} for {} examples of {}, got {}", what, batch.examples, each,
                       size);
  };
  check_size("inputs", batch.inputs.size(), batch.length);
  check_size("targets", batch.targets.size(), batch.length);
  if (!batch.key_lengths.empty()) check_size("key lengths", batch.key_lengths.size(), 1);

  const auto check_range = [&](const char* what, const auto& values, std::int64_t least, std::int64_t most) {
    for (const std::int64_t value : values)
      if (value < least || value > most)
        fail<UsageError>(operation, "expected {} in {} … {}, got {}", what, least, most, value);
  };
  check_range("inputs", batch.inputs, 0, config.input_tokens() - 1);
  check_range("targets", batch.targets, -1, config.vocabulary - 1);
  check_range("key lengths", batch.key_lengths, 0, batch.length);
  for (std::size_t i = 0; i < batch.key_lengths.size(); ++i) {
    const auto length = static_cast<std::size_t>(batch.length);
    const auto padding =
        batch.targets.subspan(i * length, length).subspan(static_cast<std::size_t>(batch.key_lengths[i]));
    check_range("targets of the padding", padding, -1, -1);
  }
}

}  // namespace linnet
