#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "linnet/dataset.h"
#include "linnet/error.h"
#include "support/errors.h"

namespace linnet {
namespace {

/// Sequence i has the tokens 100 i, 100 i + 1 …, of which the first does not count, and the label i % 3.
class Sequences final : public Dataset {
 public:
  Sequences(std::vector<std::int64_t> lengths, std::int64_t length, std::int64_t fields = 1)
      : lengths_(std::move(lengths)), length_(length), fields_(fields) {}
  std::int64_t size() const override { return std::ssize(lengths_); }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return 100000; }
  std::vector<std::int64_t> fields() const override {
    return std::vector<std::int64_t>(static_cast<std::size_t>(fields_), vocabulary());
  }
  std::int64_t classes() const override { return 3; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const std::int64_t known = lengths_[static_cast<std::size_t>(index)] * fields_;
    for (std::int64_t i = 0; i < length_ * fields_; ++i) {
      const auto token = static_cast<std::int32_t>(i < known ? 100 * index + i : -1);
      tokens[static_cast<std::size_t>(i)] = token;
      targets[static_cast<std::size_t>(i)] = i == 0 ? -1 : token;
    }
    return index % 3;
  }

 private:
  std::vector<std::int64_t> lengths_;
  std::int64_t length_, fields_;
};

TEST(Packing, EverySequenceStandsWholeInExactlyOneExample) {
  for (const std::int64_t fields : {1, 3}) {
    const std::vector<std::int64_t> lengths = {7, 1, 3, 10, 2, 2, 5, 4, 9, 1};
    const auto packed = pack_examples(std::make_unique<Sequences>(lengths, 10, fields));
    ASSERT_TRUE(packed->packed());
    std::map<std::int64_t, int> seen;
    const auto count = static_cast<std::size_t>(10 * fields);
    std::vector<std::int32_t> tokens(count), targets(count);
    for (std::int64_t i = 0; i < packed->size(); ++i) {
      std::int64_t begin = 0;
      for (const auto& [end, label] : packed->read_sequences(i, tokens, targets)) {
        const std::int64_t sequence = tokens[static_cast<std::size_t>(begin * fields)] / 100;
        ++seen[sequence];
        EXPECT_EQ(label, sequence % 3);
        EXPECT_EQ(end - begin, lengths[static_cast<std::size_t>(sequence)]);
        for (std::int64_t t = 0; t < (end - begin) * fields; ++t) {
          const auto at = static_cast<std::size_t>(begin * fields + t);
          EXPECT_EQ(tokens[at], 100 * sequence + t);
          EXPECT_EQ(targets[at], t == 0 ? -1 : tokens[at]);
        }
        begin = end;
      }
      EXPECT_EQ(packed->steps(i), begin);
      for (std::size_t t = static_cast<std::size_t>(begin * fields); t < count; ++t)
        EXPECT_EQ(std::pair(tokens[t], targets[t]), std::pair(-1, -1));
    }
    EXPECT_EQ(seen.size(), lengths.size());
    for (const auto& [sequence, times] : seen) EXPECT_EQ(times, 1) << sequence;
    // 44 steps need at least 5 examples of 10.
    EXPECT_EQ(packed->size(), 5);
  }
}

TEST(Packing, DataWhoseExamplesHaveOneLengthAreRefused) {
  DataOptions options;
  options.kind = "copy";
  options.length = 8;
  options.packing = true;
  EXPECT_NE(error_of<UsageError>([&] {
              open_datasets(options);
            }).find("fasta, lines, pairs or tokens for data.packing, got \"copy\""),
            std::string::npos);
}

}  // namespace
}  // namespace linnet
