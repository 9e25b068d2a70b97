#include "base/workspace.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/context_impl.h"
#include "base/pages.h"
#include "base/sanitizers.h"

#if defined(LINNET_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace linnet {
namespace {

constexpr std::size_t least_block = std::size_t{64} << 10;

// What lies between two pieces under the address sanitizer, which then sees a write past the first.
#if defined(LINNET_ADDRESS_SANITIZER)
constexpr std::size_t gap = Arena::alignment;
#else
constexpr std::size_t gap = 0;
#endif

}  // namespace

void Arena::Free::operator()(std::byte* memory) const { std::free(memory); }

Arena::Block::Block(std::size_t bytes)
    : memory(static_cast<std::byte*>(allocate_aligned(bytes))), bytes(bytes) {
  ASAN_POISON_MEMORY_REGION(memory.get(), bytes);
}

void* Arena::take(std::size_t bytes) {
  const std::size_t wanted = (bytes + alignment - 1) / alignment * alignment + gap;
  if (wanted < bytes) throw std::bad_alloc();
  while (at_.block < blocks_.size() && blocks_[at_.block].bytes - at_.offset < wanted) {
    ++at_.block;
    at_.offset = 0;
  }
  if (at_.block == blocks_.size()) blocks_.emplace_back(std::max({wanted, this->bytes() / 4, least_block}));
  std::byte* memory = blocks_[at_.block].memory.get() + at_.offset;
  at_.offset += wanted;
  at_.taken += wanted;
  most_taken_ = std::max(most_taken_, at_.taken);
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
#if defined(LINNET_ADDRESS_SANITIZER)
  // NaN in every type, which whoever reads what nobody wrote hands on to a result that a test compares.
  std::memset(memory, 0xFF, bytes);
#endif
  return memory;
}

void Arena::release(const Mark& mark) noexcept {
  for (std::size_t i = mark.block; i < blocks_.size() && i <= at_.block; ++i) {
    const std::size_t first = i == mark.block ? mark.offset : 0;
    ASAN_POISON_MEMORY_REGION(blocks_[i].memory.get() + first, blocks_[i].bytes - first);
  }
  at_ = mark;
  if (at_.taken > 0 || blocks_.size() <= 1) return;
  at_ = {};
  blocks_.clear();
  try {
    blocks_.emplace_back(most_taken_);
  } catch (const std::bad_alloc&) {
    // The next use takes what it needs.
  }
}

std::size_t Arena::bytes() const {
  std::size_t sum = 0;
  for (const Block& block : blocks_) sum += block.bytes;
  return sum;
}

Workspace::Workspace(Context& context) : arena_(context.impl().arena()), mark_(arena_.mark()) {}

}  // namespace linnet
