#pragma once

#include <span>
#include <vector>

#include "linnet/dataset.h"

namespace linnet {

/// `size` short sequences that count up or down, each from its own beginning: easy to learn, and different
/// enough that the order of examples shows. Where `uneven`, example i counts only its last 1 + i % length
/// tokens.
class Counting : public Dataset {
 public:
  Counting(std::int64_t size, std::int64_t length, std::int64_t vocabulary, std::int64_t classes = 0,
           bool uneven = false)
      : size_(size), length_(length), vocabulary_(vocabulary), classes_(classes), uneven_(uneven) {}

  std::int64_t size() const override { return size_; }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    for (std::int64_t t = 0; t < length_; ++t) {
      const std::int64_t step = index % 2 == 0 ? t : vocabulary_ * length_ - t;
      const auto token = static_cast<std::int32_t>((index / 2 + step) % vocabulary_);
      tokens[static_cast<std::size_t>(t)] = token;
      targets[static_cast<std::size_t>(t)] = uneven_ && t < length_ - 1 - index % length_ ? -1 : token;
    }
    return classes_ > 0 ? index % classes_ : -1;
  }

 private:
  std::int64_t size_, length_, vocabulary_, classes_;
  bool uneven_;
};

}  // namespace linnet
