#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/transport.h"

namespace linnet {

/// A transfer that a thread of the program has asked for.
struct Order {
  bool sends = false;
  std::byte* data = nullptr;  ///< of a send only read
  std::size_t size = 0;
  int other = 0, tag = 0;
  std::shared_ptr<Transfer::State> state;
};

/// The messages of the program, for the one thread that calls MPI.
class Freight {
 public:
  Freight();  ///< collective over all ranks
  ~Freight();
  Freight(const Freight&) = delete;
  Freight& operator=(const Freight&) = delete;

  void begin(Order order);
  bool poll();  ///< Whether a piece has arrived or has been taken.
  bool empty() const;
  bool under_way_to(int rank) const;     ///< whether a message to the rank has not been taken yet
  void cancel();                         ///< receives that no message has reached yet
  void give_up(const RankFailure& why);  ///< finishes all transfers, which MPI must not touch any more
  void close();                          ///< before MPI_Finalize

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet
