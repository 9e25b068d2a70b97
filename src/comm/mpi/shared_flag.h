#pragma once

#include <memory>

namespace linnet {

/// A flag in memory that the ranks of one machine share. It stays when the rank that has raised it ends, and
/// needs no message. Without such memory, and with `apart`, every rank has one of its own.
class SharedFlag {
 public:
  explicit SharedFlag(bool apart = false);  ///< collective over all ranks, `apart` alike
  ~SharedFlag();
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;

  /// Whether this call, of those of all ranks of the machine, is the first. Makes no call of MPI.
  bool raise();

  void close();  ///< before MPI_Finalize; collective over all ranks

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet
