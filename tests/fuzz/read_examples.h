#pragma once

#include <algorithm>
#include <vector>

#include "fuzz.h"
#include "linnet/dataset.h"

namespace linnet::fuzz {

/// Reads examples of both parts, and checks that tokens, targets and labels are inside their ranges.
inline void read_examples(const Datasets& datasets) {
  constexpr std::int64_t most_tokens = 4096, fewest = 4;
  for (const Dataset* dataset : {datasets.training.get(), datasets.validation.get()}) {
    const std::vector<std::int64_t> fields = dataset->fields();
    const auto elements = static_cast<std::size_t>(dataset->length()) * fields.size();
    std::vector<std::int32_t> tokens(elements), targets(elements);
    const std::int64_t size = dataset->size(), most = std::max(fewest, most_tokens / dataset->length());
    for (std::int64_t i = 0; i < std::min(size, most); ++i) {
      const std::int64_t label = dataset->read(i < most / 2 ? i : size - 1 - i + most / 2, tokens, targets);
      for (std::size_t k = 0; k < elements; ++k)
        if (tokens[k] < -1 || tokens[k] >= fields[k % fields.size()] ||
            (targets[k] != -1 && targets[k] != tokens[k]))
          report("expected tokens below the values of their field and targets that are tokens");
      if (label < -1 || label >= std::max<std::int64_t>(dataset->classes(), 0))
        report("expected a label below the number of classes");
    }
  }
}

}  // namespace linnet::fuzz
