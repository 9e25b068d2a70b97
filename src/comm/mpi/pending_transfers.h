#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/transport.h"

namespace linnet {

/// A transfer that a thread of the program has asked for.
struct TransferRequest {
  bool sends = false;
  std::byte* data = nullptr;  ///< of a send only read
  std::size_t size = 0;
  int other = 0, tag = 0;
  std::shared_ptr<Transfer::State> state;
};

/// The transfers under way between the program's ranks, for the one thread that calls MPI.
class PendingTransfers {
 public:
  PendingTransfers();  ///< collective over all ranks
  ~PendingTransfers();
  PendingTransfers(const PendingTransfers&) = delete;
  PendingTransfers& operator=(const PendingTransfers&) = delete;

  void begin(TransferRequest asked);
  bool poll();  ///< Whether a piece has arrived or has been taken.
  bool empty() const;
  bool pending_to(int rank) const;           ///< whether a message to the rank has not been taken yet
  void cancel();                             ///< receives that no message has reached yet
  void abandon_all(const RankFailure& why);  ///< finishes all transfers, which MPI must not touch any more
  void close();                              ///< before MPI_Finalize

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet
