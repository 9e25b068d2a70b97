#include <algorithm>
#include <cassert>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "linnet/dataset.h"

namespace linnet {
namespace {

class PackedDataset final : public Dataset {
 public:
  explicit PackedDataset(std::shared_ptr<const Dataset> singles) : singles_(std::move(singles)) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(singles_->size()));
    std::iota(order.begin(), order.end(), 0);
    for (const std::int64_t index : order) steps_.push_back(singles_->steps(index));
    const auto steps_of = [&](std::int64_t index) { return steps_[static_cast<std::size_t>(index)]; };
    std::ranges::stable_sort(order, std::greater{}, steps_of);
    std::multimap<std::int64_t, std::size_t> space;  // steps that an example has left, and the example
    for (const std::int64_t index : order) {
      const auto found = space.lower_bound(steps_of(index));
      std::int64_t left = singles_->length();
      std::size_t example = examples_.size();
      if (found != space.end()) {
        std::tie(left, example) = *found;
        space.erase(found);
      } else {
        examples_.emplace_back();
      }
      examples_[example].push_back(index);
      left -= steps_of(index);
      if (left > 0) space.emplace(left, example);
    }
  }

  std::int64_t size() const override { return std::ssize(examples_); }
  std::int64_t length() const override { return singles_->length(); }
  std::int64_t vocabulary() const override { return singles_->vocabulary(); }
  std::vector<std::int64_t> fields() const override { return singles_->fields(); }
  std::int64_t classes() const override { return singles_->classes(); }
  std::vector<std::string> class_names() const override { return singles_->class_names(); }
  std::string tokenizer() const override { return singles_->tokenizer(); }
  bool packed() const override { return true; }

  std::int64_t steps(std::int64_t index) const override {
    std::int64_t sum = 0;
    for (const std::int64_t single : members(index)) sum += steps_[static_cast<std::size_t>(single)];
    return sum;
  }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    read_sequences(index, tokens, targets);
    return -1;
  }

  std::vector<PackedSequence> read_sequences(std::int64_t index, std::span<std::int32_t> tokens,
                                             std::span<std::int32_t> targets) const override {
    const std::size_t fields = tokens.size() / static_cast<std::size_t>(length());
    std::vector<std::int32_t> own_tokens(tokens.size()), own_targets(targets.size());
    std::vector<PackedSequence> sequences;
    std::int64_t end = 0;
    std::ranges::fill(tokens, -1);
    std::ranges::fill(targets, -1);
    for (const std::int64_t single : members(index)) {
      const std::int64_t label = singles_->read(single, own_tokens, own_targets);
      const std::size_t begin = static_cast<std::size_t>(end) * fields,
                        count = static_cast<std::size_t>(steps_[static_cast<std::size_t>(single)]) * fields;
      std::copy_n(own_tokens.begin(), count, tokens.subspan(begin).begin());
      std::copy_n(own_targets.begin(), count, targets.subspan(begin).begin());
      end += steps_[static_cast<std::size_t>(single)];
      sequences.push_back({end, label});
    }
    return sequences;
  }

 private:
  const std::vector<std::int64_t>& members(std::int64_t index) const {
    assert(index >= 0 && index < size());
    return examples_[static_cast<std::size_t>(index)];
  }

  std::shared_ptr<const Dataset> singles_;
  std::vector<std::int64_t> steps_;                  // of every sequence
  std::vector<std::vector<std::int64_t>> examples_;  // the sequences of each
};

}  // namespace

std::unique_ptr<Dataset> pack_examples(std::shared_ptr<const Dataset> dataset) {
  if (dataset == nullptr) fail<UsageError>("data", "expected a dataset to pack, got none");
  if (dataset->packed()) fail<UsageError>("data", "expected one sequence per example to pack, got several");
  if (dataset->columns() > 0 || dataset->target_columns() > 0 || dataset->vocabulary() == 0)
    fail<UsageError>("data", "expected sequences of tokens to pack, got steps of {} real numbers",
                     std::max(dataset->columns(), dataset->target_columns()));
  if (dataset->source_length() > 0)
    fail<UsageError>("data",
                     "expected examples without sources to pack (data.packing = false with "
                     "data.source_length), got examples with a source each");
  return std::make_unique<PackedDataset>(std::move(dataset));
}

}  // namespace linnet
