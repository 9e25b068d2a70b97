#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace linnet {

/// Ends a text before the first of some words that occurs in it. A word may begin in one addition to the text
/// and end in a later one.
class StopTexts {
 public:
  /// `words` are not empty and outlive it.
  explicit StopTexts(const std::vector<std::string>& words) : words_(&words) {}

  /// Adds to the text. The result is what belongs to it whatever follows; the beginning of a word at the end
  /// is held back. Nothing once a word was found.
  std::string add(std::string_view added);
  bool found() const { return found_; }
  /// What was held back, where no word has come of it.
  std::string finish();

 private:
  const std::vector<std::string>* words_;
  std::string held_;
  bool found_ = false;
};

}  // namespace linnet
