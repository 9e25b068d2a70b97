#include "base/pages.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#include "linnet/tensor.h"

namespace linnet {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t large_page = std::size_t{2} << 20;

}  // namespace

// Results do not depend on large pages, so a kernel that refuses them is fine. What would be left over of the
// last one stays in small pages.
void* allocate_aligned(std::size_t bytes) {
  void* memory = nullptr;
  const bool large = bytes >= large_page;
  if (posix_memalign(&memory, large ? large_page : alignment, bytes) != 0) throw std::bad_alloc();
  if (large) madvise(memory, bytes / large_page * large_page, MADV_HUGEPAGE);
  return memory;
}

void release_pages(void* memory, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = (first + page - 1) / page * page, end = (first + bytes) / page * page;
  if (begin >= end) return;
  std::byte* const from = static_cast<std::byte*>(memory) + (begin - first);
  madvise(from, end - begin, MADV_DONTNEED);
  // The system's own search for small pages to join would otherwise fill what has been given back with zeros.
  madvise(from, end - begin, MADV_NOHUGEPAGE);
}

void release_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

LazyPages::LazyPages(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  madvise(memory_, bytes / large_page * large_page, MADV_HUGEPAGE);
}

LazyPages::~LazyPages() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

SharedPages::SharedPages(std::size_t bytes) : bytes_(bytes) {
  static std::mutex mutex;
  static auto& newest = *new std::weak_ptr<Tensor>;  // never destroyed: threads may outlive the program's end
  static std::size_t used = 0;
  const std::lock_guard lock(mutex);
  const std::size_t wanted = (bytes + alignment - 1) / alignment * alignment;
  std::shared_ptr<Tensor> chunk = newest.lock();
  if (chunk == nullptr || chunk->bytes() - used < wanted) {
    const auto size = static_cast<std::int64_t>(std::max(wanted, large_page));
    chunk = std::make_shared<Tensor>(Tensor::of<std::uint8_t>({size}));
    newest = chunk;
    used = 0;
  }
  memory_ = std::shared_ptr<std::byte>(chunk, static_cast<std::byte*>(chunk->raw()) + used);
  used += wanted;
}

}  // namespace linnet
