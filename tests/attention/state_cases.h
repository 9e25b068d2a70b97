#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linnet/attention.h"

// What the tests of gradients of states share.

namespace linnet::test {

inline constexpr std::int64_t batch = 3, heads = 2, head_dim = 9, value_dim = 6;
inline constexpr HeadShape shape = {heads, head_dim, value_dim};

/// The families whose states are keys and values, and which tokens a state after `count` of them holds.
struct KeyValueFamily {
  std::string name;
  AttentionOptions options;
  std::function<bool(std::int64_t token, std::int64_t count)> holds;
  bool segments = true;
};

inline std::vector<KeyValueFamily> key_value_families() {
  AttentionOptions softmax, local, strided, fixed;
  softmax.family = Family::softmax;
  local.family = Family::local;
  local.local.left = 40;
  strided.family = fixed.family = Family::strided;
  strided.strided.stride = fixed.strided.stride = 16;
  fixed.strided.pattern = SparsePattern::fixed;
  fixed.strided.summary = 3;
  const auto all = [](std::int64_t, std::int64_t) { return true; };
  const auto near = [](std::int64_t token, std::int64_t count) { return count - token <= 41; };
  const auto summaries = [](std::int64_t token, std::int64_t count) {
    return token / 16 == count / 16 || token % 16 >= 13;
  };
  return {{"softmax", softmax, all},
          {"local", local, near},
          {"strided", strided, all, false},
          {"fixed", fixed, summaries, false}};
}

}  // namespace linnet::test
