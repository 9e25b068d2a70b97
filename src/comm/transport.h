#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hidden.h"
#include "linnet/communicator.h"

namespace linnet {

class Transport;

/// Shared by a Transfer and the transport that carries it.
class LINNET_HIDDEN Transfer::State {
 public:
  explicit State(std::weak_ptr<Transport> transport) : transport_(std::move(transport)) {}

  /// One of these is called once, from any thread, when the transport touches the bytes no more.
  void finish() { set(complete); }
  void finish_wrong(std::string why) {
    why_ = std::move(why);
    set(wrong);
  }
  void finish_with(const RankFailure& failure) {
    why_ = failure.what();
    exit_status_ = failure.status();
    set(rank_failed);
  }

  bool done() const { return status_.load(std::memory_order_acquire) != pending; }
  void sleep() const { status_.wait(pending, std::memory_order_acquire); }
  void rethrow() const;  ///< what the transfer has ended with, if not well
  void abandon();        ///< an exception leaves the scope of the transfer

 private:
  enum Status : int { pending, complete, rank_failed, wrong };

  void set(Status status) {
    status_.store(status, std::memory_order_release);
    status_.notify_all();
  }

  std::atomic<int> status_ = pending;
  std::string why_;
  int exit_status_ = 0;  ///< of the rank that has failed
  std::weak_ptr<Transport> transport_;
};

/// Carries messages between the ranks of a program. A message matches the oldest receive of its sender and
/// tag.
class Transport : public std::enable_shared_from_this<Transport> {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::shared_ptr<Transfer::State> send(std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual std::shared_ptr<Transfer::State> receive(std::span<std::byte> bytes, int from, int tag) = 0;
  virtual bool fail(const std::string& message, int status) noexcept = 0;
  virtual void on_failure_say(std::string) {}

  /// The tag of a message is the number of its communicator above the tag that the communicator gives it.
  static constexpr int tag_bits = 17;
  int next_number = 1;
  int most_communicators = 1 << 13;  ///< whose numbers tags have room for; fewer with an MPI of shorter tags
};

/// Whether Communicator::stop_requested has been called.
bool stop_was_requested();

/// What calls throw after `rank` has failed for a reason.
RankFailure rank_failure(int rank, const std::string& reason, int status);

/// What is wrong where a message of `got` bytes arrives for a receive of `expected` bytes.
std::string size_message(std::size_t expected, std::size_t got);

/// The communicator of all ranks of a transport.
std::unique_ptr<Communicator> communicator_of(std::shared_ptr<Transport> transport);

}  // namespace linnet
