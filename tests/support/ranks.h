#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/local.h"

namespace linnet {

/// Runs `body` on a thread for each of `size` ranks.
inline void with_ranks(int size, const std::function<void(Communicator&)>& body) {
  const std::vector<std::unique_ptr<Communicator>> ranks = local_ranks(size);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace linnet
