#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "linnet/communicator.h"

namespace linnet {

/// A contiguous part of things that are numbered from 0.
struct Share {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// The part of this rank when `count` things are shared out evenly, in the order of ranks. No rank has more
/// than rank 0, so that a single thing is its.
Share share_of(const Communicator& ranks, std::int64_t count);

/// Gives all ranks the text of rank `root`.
void broadcast(Communicator& ranks, std::string& text, int root = 0);

/// On rank 0 the bytes of all ranks one after another, in the order of ranks; nothing on other ranks. Like
/// the functions of a communicator, all ranks call it; sizes may differ.
std::vector<std::byte> gather_bytes(Communicator& ranks, std::span<const std::byte> mine);

/// The same for numbers, and structs of them.
template <class T>
std::vector<T> gather(Communicator& ranks, std::vector<T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (ranks.size() == 1) return mine;
  const std::vector<std::byte> bytes = gather_bytes(ranks, std::as_bytes(std::span(mine)));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(all)).begin());
  return all;
}

/// The same for lists, whose lengths may differ.
template <class T>
std::vector<std::vector<T>> gather_lists(Communicator& ranks, std::vector<std::vector<T>> mine) {
  if (ranks.size() == 1) return mine;
  std::vector<std::int64_t> lengths;
  std::vector<T> joined;
  for (const std::vector<T>& list : mine) {
    lengths.push_back(std::ssize(list));
    joined.insert(joined.end(), list.begin(), list.end());
  }
  mine.clear();
  lengths = gather(ranks, std::move(lengths));
  joined = gather(ranks, std::move(joined));
  std::vector<std::vector<T>> all;
  auto begin = joined.begin();
  for (const std::int64_t length : lengths) {
    all.emplace_back(begin, begin + length);
    begin += length;
  }
  return all;
}

}  // namespace linnet
