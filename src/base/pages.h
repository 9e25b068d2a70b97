#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace linnet {

/// `bytes` undefined bytes, aligned to 64; of 2 MB and more to the system's large pages, which are asked for:
/// rows of one head lie kilobytes apart, so that walking over a large tensor in small pages would miss the
/// TLB at every row. Freed by std::free. Throws std::bad_alloc.
void* allocate_aligned(std::size_t bytes);

/// Gives the whole pages of the system within these bytes back to it; they read as zeros afterwards and are
/// small pages when they are written again. For memory of `allocate_aligned` whose contents are no longer
/// needed.
void release_pages(void* memory, std::size_t bytes);

/// Gives memory that the process has freed and the C library keeps back to the system, where the library can.
void release_free_memory();

/// Zeroed memory of `bytes` bytes, of which the system gives each page when it is first written. Aligned to
/// its pages, large ones where it has them. Throws std::bad_alloc.
class LazyPages {
 public:
  explicit LazyPages(std::size_t bytes);
  ~LazyPages();
  LazyPages(const LazyPages&) = delete;
  LazyPages& operator=(const LazyPages&) = delete;

  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(memory_), bytes_ / sizeof(T)};
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

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
