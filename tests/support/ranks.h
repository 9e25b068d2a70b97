#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
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

/// The same for what may throw: the sentences of the ranks that are to print one, where not all have ended
/// well.
inline std::vector<std::string> on_ranks(int size, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> sentences;
  std::mutex mutex;
  with_ranks(size, [&](Communicator& rank) {
    try {
      body(rank);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (rank.fail(error.what())) sentences.emplace_back(error.what());
    }
  });
  return sentences;
}

}  // namespace linnet
