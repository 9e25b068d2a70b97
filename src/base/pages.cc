#include "base/pages.h"

#include <algorithm>
#include <mutex>

#include "linnet/tensor.h"

namespace linnet {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t least_chunk = std::size_t{2} << 20;  // as large as a large page

}  // namespace

SharedPages::SharedPages(std::size_t bytes) : bytes_(bytes) {
  static std::mutex mutex;
  static std::weak_ptr<Tensor> newest;
  static std::size_t used = 0;
  const std::lock_guard lock(mutex);
  const std::size_t wanted = (bytes + alignment - 1) / alignment * alignment;
  std::shared_ptr<Tensor> chunk = newest.lock();
  if (chunk == nullptr || chunk->bytes() - used < wanted) {
    const auto size = static_cast<std::int64_t>(std::max(wanted, least_chunk));
    chunk = std::make_shared<Tensor>(Tensor::of<std::uint8_t>({size}));
    newest = chunk;
    used = 0;
  }
  memory_ = std::shared_ptr<std::byte>(chunk, static_cast<std::byte*>(chunk->raw()) + used);
  used += wanted;
}

}  // namespace linnet
