#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "data/statistics.h"
#include "linnet/dataset.h"

namespace linnet {
namespace {

constexpr const char* operation = "dataset";

/// Which rows of an array are no padding.
struct Rows {
  std::span<const std::int64_t> lengths;  // of each example; empty: all steps

  /// Calls `visit` with a pointer to the elements of each step, those of windows over one sequence once each.
  template <class T, class Visit>
  void visit(View<const T> array, const Visit& visit) const {
    const std::int64_t examples = array.extent(0), steps = array.extent(1);
    const bool windows = lengths.empty() && array.stride(0) == array.stride(1);
    for (std::int64_t i = 0; i < examples; ++i) {
      const std::int64_t known = lengths.empty() ? steps : lengths[static_cast<std::size_t>(i)];
      for (std::int64_t t = windows && i > 0 ? steps - 1 : 0; t < known; ++t) visit(array.at(i, t));
    }
  }
};

/// [examples, length] as [examples, length, 1], where there is an array.
template <class T>
View<const T> with_fields(View<const T> array) {
  if (array.rank() != 2) return array;
  return View<const T>(array.data(), {array.extent(0), array.extent(1), 1},
                       {array.stride(0), array.stride(1), 1});
}

/// Throws UsageError for another number of axes, and where there are no elements.
template <class T>
void check_shape(const char* expected, const View<const T>& array, int least_rank, int rank) {
  if (array.data() == nullptr) fail<UsageError>(operation, "expected {}, got a null pointer", expected);
  const auto shape = array.shape();
  if (array.rank() < least_rank || array.rank() > rank ||
      std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 1; }))
    fail<UsageError>(operation, "expected {}, none of them 0, got {}", expected, to_string(shape));
}

/// Throws UsageError unless the first extents of an array are those of the examples.
template <class T>
void check_leading(const char* name, const View<const T>& array, std::int64_t examples, std::int64_t steps) {
  if (array.extent(0) != examples || array.extent(1) != steps)
    fail<UsageError>(operation, "expected {} of {} examples and {} steps, got {}", name, examples, steps,
                     to_string(array.shape()));
}

void check_each(const char* name, std::span<const std::int64_t> given, std::int64_t examples,
                std::int64_t least, std::int64_t most) {
  if (given.empty()) return;
  if (std::ssize(given) != examples)
    fail<UsageError>(operation, "expected {} for {} examples, got {}", name, examples, given.size());
  for (const std::int64_t value : given)
    if (value < least || value > most)
      fail<UsageError>(operation, "expected {} in {} … {}, got {}", name, least, most, value);
}

/// Throws UsageError for tokens outside of the values of their fields; sizes that are 0 become those that
/// occur.
void check_tokens(const char* name, View<const std::int32_t> tokens, const Rows& rows,
                  std::vector<std::int64_t>& fields) {
  const std::size_t count = fields.size();
  std::vector<std::int32_t> least(count, std::numeric_limits<std::int32_t>::max()), most(count, -1);
  rows.visit(tokens, [&](const std::int32_t* row) {
    for (std::size_t f = 0; f < count; ++f) {
      least[f] = std::min(least[f], row[f]);
      most[f] = std::max(most[f], row[f]);
    }
  });
  for (std::size_t f = 0; f < count; ++f) {
    if (least[f] < 0) fail<UsageError>(operation, "expected {} of at least 0, got {}", name, least[f]);
    if (fields[f] == 0) fields[f] = std::int64_t{most[f]} + 1;
    if (most[f] >= fields[f])
      fail<UsageError>(operation, "expected {} in 0 … {}, got {}", name, fields[f] - 1, most[f]);
  }
}

ColumnStatistics checked_statistics(const char* name, View<const float> values, const Rows& rows) {
  const auto columns = static_cast<std::size_t>(values.extent(2));
  rows.visit(values, [&](const float* row) {
    if (std::any_of(row, row + columns, [](float number) { return std::isinf(number); }))
      fail<UsageError>(operation, "expected finite {} or NaN, got infinity", name);
  });
  ColumnStatistics statistics =
      statistics_of_rows(columns, [&](const auto& visit) { rows.visit(values, visit); });
  if (std::ranges::any_of(statistics.mean, [](double mean) { return std::isnan(mean); }))
    fail<UsageError>(operation, "expected a number in every column of the {}, got NaN alone", name);
  return statistics;
}

/// Writes the known steps of an example, and `padding` behind them.
template <class T>
void copy_example(View<const T> from, std::int64_t index, std::int64_t known, std::span<T> to, T padding) {
  auto next = to.begin();
  for (std::int64_t step = 0; step < known; ++step)
    next = std::copy_n(from.at(index, step), from.extent(2), next);
  std::fill(next, to.end(), padding);
}

class ArrayDataset final : public PictureDataset {
 public:
  explicit ArrayDataset(ExampleArrays arrays) : arrays_(std::move(arrays)) {
    take_shapes();
    check_each("lengths", arrays_.lengths, size_, 1, length_);
    check_counted();
    take_tokens();
    take_values();
    take_source();
    take_labels();
  }

  ImageShape image() const override { return arrays_.image; }
  std::int64_t size() const override { return size_; }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override {
    return arrays_.fields.empty() ? 0 : *std::ranges::max_element(arrays_.fields);
  }
  std::vector<std::int64_t> fields() const override { return arrays_.fields; }
  std::int64_t classes() const override { return arrays_.classes; }
  std::int64_t columns() const override { return arrays_.values.empty() ? 0 : arrays_.values.extent(2); }
  std::int64_t target_columns() const override {
    return arrays_.value_targets.empty() ? columns() : arrays_.value_targets.extent(2);
  }
  bool paired() const override { return !arrays_.value_targets.empty() && arrays_.paired; }
  ColumnStatistics column_statistics() const override { return statistics_; }
  ColumnStatistics target_statistics() const override {
    return arrays_.value_targets.empty() ? statistics_ : target_statistics_;
  }
  std::int64_t source_length() const override {
    return arrays_.source.empty() ? 0 : arrays_.source.extent(1);
  }
  std::int64_t source_vocabulary() const override { return arrays_.source_vocabulary; }
  std::vector<std::string> class_names() const override { return arrays_.class_names; }
  std::vector<std::string> column_names() const override { return arrays_.column_names; }
  std::string tokenizer() const override { return arrays_.tokenizer ? arrays_.tokenizer->bytes() : ""; }
  std::int64_t steps(std::int64_t index) const override {
    return arrays_.lengths.empty() ? length_ : arrays_.lengths[static_cast<std::size_t>(index)];
  }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    if (!arrays_.tokens.empty()) {
      copy_example(arrays_.tokens, index, steps(index), tokens, -1);
      std::ranges::copy(tokens, targets.begin());
      leave_out_uncounted(index, targets, -1);
    }
    return arrays_.labels.empty() ? -1 : arrays_.labels[static_cast<std::size_t>(index)];
  }

  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    constexpr float unknown = std::numeric_limits<float>::quiet_NaN();
    if (!arrays_.values.empty()) copy_example(arrays_.values, index, steps(index), values, unknown);
    if (!arrays_.value_targets.empty())
      copy_example(arrays_.value_targets, index, steps(index), targets, unknown);
    else
      std::ranges::copy(values, targets.begin());
    if (!arrays_.counted.empty() && arrays_.counted.extent(2) == 1)
      leave_out_uncounted(index, targets, unknown);
  }

  void read_source(std::int64_t index, std::span<std::int32_t> tokens) const override {
    if (arrays_.source.empty()) return;
    const std::int64_t known = arrays_.source_lengths.empty()
                                   ? source_length()
                                   : arrays_.source_lengths[static_cast<std::size_t>(index)];
    copy_example(arrays_.source, index, known, tokens, -1);
  }

 private:
  /// Assigns `nothing` to the targets [length, each] of steps that do not count.
  template <class T>
  void leave_out_uncounted(std::int64_t index, std::span<T> targets, T nothing) const {
    if (arrays_.counted.empty()) return;
    const std::int64_t each = std::ssize(targets) / length_;
    const bool together = arrays_.counted.extent(2) == 1;
    for (std::int64_t i = 0; i < std::ssize(targets); ++i)
      if (arrays_.counted(index, i / each, together ? 0 : i % each) == 0)
        targets[static_cast<std::size_t>(i)] = nothing;
  }

  void take_shapes() {
    ExampleArrays& arrays = arrays_;
    if (arrays.tokens.rank() == 0 && arrays.values.rank() == 0)
      fail<UsageError>(operation, "expected tokens or values, got neither");
    if (arrays.tokens.rank() > 0)
      check_shape("tokens [examples, steps] or [examples, steps, fields]", arrays.tokens, 2, 3);
    if (arrays.values.rank() > 0) check_shape("values [examples, steps, columns]", arrays.values, 3, 3);
    arrays.tokens = with_fields(arrays.tokens);
    const std::span<const std::int64_t> shape =
        arrays.tokens.rank() > 0 ? arrays.tokens.shape() : arrays.values.shape();
    size_ = shape[0];
    length_ = shape[1];
    if (arrays.values.rank() > 0) check_leading("values", arrays.values, size_, length_);
    if (arrays.counted.rank() > 0) {
      check_shape("counted [examples, steps] or [examples, steps, fields]", arrays.counted, 2, 3);
      arrays.counted = with_fields(arrays.counted);
      check_leading("counted", arrays.counted, size_, length_);
      const std::int64_t fields = arrays.tokens.rank() > 0 ? arrays.tokens.extent(2) : 1;
      if (arrays.counted.extent(2) != 1 && arrays.counted.extent(2) != fields)
        fail<UsageError>(operation, "expected counted of whole steps or of {} field{}, got {}", fields,
                         fields == 1 ? "" : "s", arrays.counted.extent(2));
    }
    if (arrays.value_targets.rank() > 0) {
      check_shape("value_targets [examples, steps, targets]", arrays.value_targets, 3, 3);
      check_leading("value_targets", arrays.value_targets, size_, length_);
    }
  }

  /// Training takes a few examples at a time, in any order: something has to count in each.
  void check_counted() const {
    if (arrays_.counted.empty()) return;
    const std::int64_t each = arrays_.counted.extent(2);
    for (std::int64_t i = 0; i < size_; ++i) {
      bool counts = false;
      for (std::int64_t t = 0; t < steps(i) && !counts; ++t) {
        const std::uint8_t* step = arrays_.counted.at(i, t);
        counts = std::any_of(step, step + each, [](std::uint8_t one) { return one != 0; });
      }
      if (!counts)
        fail<UsageError>(operation, "expected a step that counts in each example, got none in example {}", i);
    }
  }

  void take_tokens() {
    std::vector<std::int64_t>& fields = arrays_.fields;
    if (arrays_.tokens.empty()) {
      if (!fields.empty())
        fail<UsageError>(operation, "expected no fields without tokens, got {}", fields.size());
      if (arrays_.tokenizer) fail<UsageError>(operation, "expected no tokenizer without tokens, got one");
      if (arrays_.image.height != 0)
        fail<UsageError>(operation, "expected tokens for pictures, got values alone");
      return;
    }
    const auto count = static_cast<std::size_t>(arrays_.tokens.extent(2));
    if (fields.empty()) fields.assign(count, arrays_.tokenizer ? arrays_.tokenizer->vocabulary() : 0);
    if (fields.size() != count)
      fail<UsageError>(operation, "expected a vocabulary for each of {} fields, got {}", count,
                       fields.size());
    for (const std::int64_t size : fields)
      if (size < 0) fail<UsageError>(operation, "expected a vocabulary of at least 0, got {}", size);
    check_tokens("tokens", arrays_.tokens, Rows{arrays_.lengths}, fields);
    if (arrays_.tokenizer && (count != 1 || fields[0] != arrays_.tokenizer->vocabulary()))
      fail<UsageError>(operation, "expected the vocabulary of {} tokens that the tokenizer has, got {}",
                       arrays_.tokenizer->vocabulary(), fields[0]);
    const ImageShape& image = arrays_.image;
    if (image.height == 0 && image.width == 0) return;
    if (count != 1 || image.height < 1 || image.width < 1 || (image.channels != 1 && image.channels != 3) ||
        image.height > length_ || image.width > length_ || PictureDataset::length() != length_)
      fail<UsageError>(operation,
                       "expected pictures of {} pixels and channels as the tokens, got {} × {} × {}", length_,
                       image.height, image.width, image.channels);
  }

  void take_values() {
    const Rows rows{arrays_.lengths};
    if (!arrays_.values.empty()) statistics_ = checked_statistics("values", arrays_.values, rows);
    if (!arrays_.value_targets.empty())
      target_statistics_ = checked_statistics("value_targets", arrays_.value_targets, rows);
    if (!arrays_.column_names.empty() && std::ssize(arrays_.column_names) != columns())
      fail<UsageError>(operation, "expected names of {} columns, got {}", columns(),
                       arrays_.column_names.size());
  }

  void take_source() {
    if (arrays_.source.rank() == 0) {
      if (!arrays_.source_lengths.empty() || arrays_.source_vocabulary != 0)
        fail<UsageError>(operation, "expected a source with its lengths and its vocabulary, got none");
      return;
    }
    check_shape("source [examples, steps]", arrays_.source, 2, 2);
    if (arrays_.source.extent(0) != size_)
      fail<UsageError>(operation, "expected a source for each of {} examples, got {}", size_,
                       arrays_.source.extent(0));
    if (arrays_.source_vocabulary < 0)
      fail<UsageError>(operation, "expected a source_vocabulary of at least 0, got {}",
                       arrays_.source_vocabulary);
    arrays_.source = with_fields(arrays_.source);
    check_each("source_lengths", arrays_.source_lengths, size_, 1, arrays_.source.extent(1));
    std::vector<std::int64_t> vocabulary = {arrays_.source_vocabulary};
    check_tokens("tokens of a source", arrays_.source, Rows{arrays_.source_lengths}, vocabulary);
    arrays_.source_vocabulary = vocabulary[0];
  }

  void take_labels() {
    const std::vector<std::int64_t>& labels = arrays_.labels;
    std::int64_t& classes = arrays_.classes;
    constexpr std::int64_t most = std::int64_t{1} << 20;  // that a model has
    if (classes < 0 || classes > most)
      fail<UsageError>(operation, "expected classes in 0 … {}, got {}", most, classes);
    if (classes == 0) classes = std::ssize(arrays_.class_names);
    check_each("labels", labels, size_, 0, (classes == 0 ? most : classes) - 1);
    if (classes == 0 && !labels.empty()) classes = *std::ranges::max_element(labels) + 1;
    if (!arrays_.class_names.empty() && std::ssize(arrays_.class_names) != classes)
      fail<UsageError>(operation, "expected names of {} classes, got {}", classes,
                       arrays_.class_names.size());
  }

  ExampleArrays arrays_;  // all of three dimensions
  std::int64_t size_ = 0, length_ = 0;
  ColumnStatistics statistics_ = {}, target_statistics_ = {};
};

}  // namespace

std::shared_ptr<const Dataset> make_dataset(ExampleArrays arrays) {
  return std::make_shared<ArrayDataset>(std::move(arrays));
}

}  // namespace linnet
