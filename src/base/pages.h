#pragma once

#include <cstddef>
#include <memory>

namespace linnet {

/// Zeroed memory, 64-byte aligned, in large pages of the system that several owners share: for pieces of some
/// hundred kilobytes that are read together again and again, the weights of a model say, whose small pages
/// the TLB would miss. A page is given back with its last piece.
class SharedPages {
 public:
  SharedPages() = default;
  explicit SharedPages(std::size_t bytes);

  std::byte* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  std::shared_ptr<std::byte> memory_;  // part of a chunk that it keeps alive
  std::size_t bytes_ = 0;
};

}  // namespace linnet
