#include "data/selection.h"

#include <cassert>
#include <utility>

#include "base/fail.h"

namespace linnet {
namespace {

/// Pictures where the whole is of pictures.
class Selection final : public PictureDataset {
 public:
  Selection(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices)
      : whole_(std::move(whole)), indices_(std::move(indices)) {}

  const std::shared_ptr<const Dataset>& whole() const { return whole_; }

  /// Of an example, in the whole.
  std::int64_t of(std::int64_t index) const {
    assert(index >= 0 && index < size());
    return indices_[static_cast<std::size_t>(index)];
  }

  std::int64_t size() const override { return std::ssize(indices_); }
  ImageShape image() const override { return image_shape(*whole_); }
  std::int64_t length() const override { return whole_->length(); }
  std::int64_t vocabulary() const override { return whole_->vocabulary(); }
  std::vector<std::int64_t> fields() const override { return whole_->fields(); }
  std::int64_t classes() const override { return whole_->classes(); }
  std::int64_t columns() const override { return whole_->columns(); }
  std::int64_t target_columns() const override { return whole_->target_columns(); }
  bool paired() const override { return whole_->paired(); }
  ColumnStatistics column_statistics() const override { return whole_->column_statistics(); }
  ColumnStatistics target_statistics() const override { return whole_->target_statistics(); }
  std::int64_t source_length() const override { return whole_->source_length(); }
  std::int64_t source_vocabulary() const override { return whole_->source_vocabulary(); }
  std::vector<std::string> column_names() const override { return whole_->column_names(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::string tokenizer() const override { return whole_->tokenizer(); }
  bool packed() const override { return whole_->packed(); }
  std::int64_t patch() const override { return whole_->patch(); }
  ColumnStatistics applied_statistics() const override { return whole_->applied_statistics(); }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    return whole_->read(of(index), tokens, targets);
  }
  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    whole_->read_values(of(index), values, targets);
  }
  std::vector<PackedSequence> read_sequences(std::int64_t index, std::span<std::int32_t> tokens,
                                             std::span<std::int32_t> targets) const override {
    return whole_->read_sequences(of(index), tokens, targets);
  }
  void read_source(std::int64_t index, std::span<std::int32_t> tokens) const override {
    whole_->read_source(of(index), tokens);
  }
  std::int64_t steps(std::int64_t index) const override { return whole_->steps(of(index)); }
  std::int64_t first_column(std::int64_t index) const override { return whole_->first_column(of(index)); }

 private:
  std::shared_ptr<const Dataset> whole_;  ///< no selection
  std::vector<std::int64_t> indices_;
};

}  // namespace

const Dataset& whole_of(const Dataset& dataset) {
  const auto* const selection = dynamic_cast<const Selection*>(&dataset);
  return selection == nullptr ? dataset : *selection->whole();
}

std::int64_t index_in_whole(const Dataset& dataset, std::int64_t index) {
  const auto* const selection = dynamic_cast<const Selection*>(&dataset);
  return selection == nullptr ? index : selection->of(index);
}

std::shared_ptr<const Dataset> select_examples(std::shared_ptr<const Dataset> dataset,
                                               std::vector<std::int64_t> indices) {
  if (dataset == nullptr) fail<UsageError>("dataset", "expected a dataset, got none");
  if (indices.empty()) fail<UsageError>("dataset", "expected at least 1 index, got none");
  for (const std::int64_t index : indices)
    if (index < 0 || index >= dataset->size())
      fail<UsageError>("dataset", "expected indices in 0 … {}, got {}", dataset->size() - 1, index);
  if (const auto* const selection = dynamic_cast<const Selection*>(dataset.get())) {
    for (std::int64_t& index : indices) index = selection->of(index);
    dataset = std::shared_ptr<const Dataset>(selection->whole());
  }
  return std::make_shared<Selection>(std::move(dataset), std::move(indices));
}

}  // namespace linnet
