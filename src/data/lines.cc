#include "data/lines.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "data/files.h"
#include "io/json.h"

namespace linnet {
namespace {

constexpr std::size_t most_classes = 10'000;

struct Line {
  std::string text, label;
  std::shared_ptr<const std::string> file;
  std::int64_t number = 0;
};

class LineDataset final : public Dataset {
 public:
  LineDataset(std::vector<std::string> texts, std::vector<std::int32_t> labels,
              std::vector<std::string> names, std::int64_t length)
      : texts_(std::move(texts)), labels_(std::move(labels)), names_(std::move(names)), length_(length) {}
  std::int64_t size() const override { return std::ssize(texts_); }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return 256; }
  std::int64_t classes() const override { return std::ssize(names_); }
  std::vector<std::string> class_names() const override { return names_; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size());
    const std::string& text = texts_[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < static_cast<std::size_t>(length_); ++i)
      tokens[i] = targets[i] = i < text.size() ? static_cast<std::uint8_t>(text[i]) : -1;
    return labels_.empty() ? -1 : labels_[static_cast<std::size_t>(index)];
  }
  std::int64_t steps(std::int64_t index) const override {
    return std::min(length_, std::ssize(texts_[static_cast<std::size_t>(index)]));
  }

 private:
  std::vector<std::string> texts_;
  std::vector<std::int32_t> labels_;
  std::vector<std::string> names_;
  std::int64_t length_;
};

std::vector<Line> read_lines(const char* key, const std::string& value, bool unlabelled) {
  std::vector<Line> lines;
  for (const std::filesystem::path& path : files_named(key, value, "lines")) {
    const auto file = std::make_shared<const std::string>(path.string());
    for (TabbedLine& line : read_tabbed_lines(path, "a label and a text", unlabelled)) {
      if (line.after.empty() || (line.before.empty() && !unlabelled))
        fail("data", "{}: expected a label and a text in line {}, got no {}", *file, line.number,
             line.before.empty() ? "label" : "text");
      lines.push_back({std::move(line.after), std::move(line.before), file, line.number});
    }
  }
  return lines;
}

using Contents = PartContents<std::vector<Line>>;

/// The labels of data.path, sorted; without data.path those of the lines that there are.
std::vector<std::string> sorted_labels(const Contents& contents, bool validation_held_out) {
  std::set<std::string> names;
  const auto add = [&](const std::optional<std::vector<Line>>& lines) {
    if (lines)
      for (const Line& line : *lines) names.insert(line.label);
  };
  const bool of_path = contents.training.has_value();
  add(contents.training);
  if (validation_held_out || !of_path) add(contents.validation);
  if (!of_path) add(contents.test);
  if (names.size() > most_classes)
    fail("data", "expected lines of at most {} labels, got {}", most_classes, names.size());
  return {names.begin(), names.end()};
}

std::unique_ptr<Dataset> dataset_of(std::optional<std::vector<Line>>& lines,
                                    const std::vector<std::string>& names, const DataOptions& options) {
  if (!lines) return nullptr;
  std::map<std::string, std::int32_t> numbers;
  for (std::size_t i = 0; i < names.size(); ++i) numbers.emplace(names[i], static_cast<std::int32_t>(i));
  const bool given = !options.class_names.empty();
  std::vector<std::string> texts;
  std::vector<std::int32_t> labels;
  for (Line& line : *lines) {
    texts.push_back(std::move(line.text));
    if (!options.labels) continue;
    if (line.label.empty()) {
      labels.push_back(-1);
      continue;
    }
    const auto found = numbers.find(given ? as_json_text(line.label) : line.label);
    if (found == numbers.end())
      fail("data", "{}: expected one of the {} labels of {} ({}), got \"{}\" in line {}", *line.file,
           names.size(), given ? "the model" : "data.path",
           shortened(fmt::format("{}", fmt::join(names, ", "))), shortened(line.label), line.number);
    labels.push_back(found->second);
  }
  return std::make_unique<LineDataset>(std::move(texts), std::move(labels), names, options.length);
}

}  // namespace

Datasets open_lines(const DataOptions& options, const Parts& parts) {
  check_example_length(options, "lines");
  const auto hold_out = [&](std::vector<Line>& all) {
    if (all.size() < held_out_every)
      fail("data", "{}: expected at least {} lines, every tenth of which is held out, got {}", options.path,
           held_out_every, all.size());
    return take_held_out(all);
  };
  // The labels are those of data.path, whichever part is wanted.
  const auto read = [&](const char* key, const std::string& value) {
    return read_lines(key, value, !options.class_names.empty());
  };
  std::vector<std::string> names;
  const bool names_of_path = options.labels && !options.path.empty() && options.class_names.empty();
  auto contents = read_parts(options, parts, read, hold_out, names_of_path);
  if (options.labels)
    names = options.class_names.empty() ? sorted_labels(contents, options.validation.empty())
                                        : options.class_names;
  Datasets datasets;
  if (parts.training) datasets.training = dataset_of(contents.training, names, options);
  if (parts.validation) datasets.validation = dataset_of(contents.validation, names, options);
  datasets.test = dataset_of(contents.test, names, options);
  return datasets;
}

std::unique_ptr<Dataset> unlabelled_texts(std::vector<std::string> texts, const DataOptions& options) {
  std::vector<std::int32_t> labels(texts.size(), -1);
  return std::make_unique<LineDataset>(std::move(texts), std::move(labels), options.class_names,
                                       options.length);
}

}  // namespace linnet
