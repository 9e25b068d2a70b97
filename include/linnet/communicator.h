#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "linnet/error.h"
#include "linnet/export.h"

namespace linnet {

/// What calls of a communicator throw after another rank has failed. That rank prints its own error; this one
/// prints nothing, and ends with the same status: a launcher's own is that of the rank that ends first.
class LINNET_API RankFailure : public Error {
 public:
  RankFailure(const std::string& message, int status) : Error(message), status_(status) {}

  int status() const noexcept { return status_; }  ///< that the failed rank gave to `Communicator::fail`

 private:
  int status_;
};

/// A message under way. Its bytes belong to the transfer until it is done.
class LINNET_API Transfer {
 public:
  class State;

  Transfer();  ///< done
  explicit Transfer(std::shared_ptr<State>);
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  /// Waits. Where an exception leaves the scope of an unfinished transfer, the rank fails
  /// (`Communicator::fail`), so that the wait ends.
  ~Transfer();

  /// Whether the bytes have arrived, or may be written again where they were sent. Also true after a failure,
  /// which `wait` throws.
  bool done() const;

  /// Sleeps until the transfer is done. Throws RankFailure where another rank has failed, Error where the
  /// message that arrived has another size.
  void wait();

 private:
  std::shared_ptr<State> state_;
  int exceptions_ = 0;
};

/// The processes ("ranks") that work on one task together. One process alone is a communicator of size 1.
///
/// The functions of a whole communicator (`broadcast` to `split`) are called by all of its ranks in the same
/// order with the same sizes, by one thread of each rank at a time. They return when this rank is done, and
/// throw RankFailure where another rank has failed. UsageError stands for a rank, a tag or a size that there
/// is not, before anything is sent. A rank whose process dies ends all other processes with
/// status 1; the lowest one that lives says so on standard error.
///
/// Messages of two ranks with one tag arrive in the order of the calls. Communicators that `split` made do
/// not see each other's messages.
class LINNET_API Communicator {
 public:
  /// One rank, which is this process.
  static std::unique_ptr<Communicator> alone();

  /// Transfers end before. The last communicator over MPI of a process waits until those of all processes are
  /// destroyed, where no rank has failed; `split` and ranks of one process wait for nobody.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;  ///< 0 … size() − 1
  int size() const;

  /// Copies the bytes of rank `root` to all ranks.
  void broadcast(std::span<std::byte> bytes, int root);

  /// Each rank gives `mine`, all of one size, and has afterwards those of all ranks one after another, in the
  /// order of ranks, in `all`. `mine` may be the rank's own place in `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);

  /// Adds the numbers of all ranks element by element, in the order of ranks; all ranks have the same bits
  /// afterwards. f32 numbers are added in f64 and rounded once. Integers wrap around.
  void sum(std::span<std::int64_t> numbers);
  void sum(std::span<double> numbers);
  void sum(std::span<float> numbers);

  /// Returns once all ranks have called it.
  void barrier();

  static constexpr int most_tag = (1 << 16) - 1;

  /// Begins to send to, or to receive from, another rank (or this one). The transfer goes on while the caller
  /// computes. `tag`, 0 … `most_tag`, and size have to be the same on both sides.
  Transfer send(std::span<const std::byte> bytes, int to, int tag);
  Transfer receive(std::span<std::byte> bytes, int from, int tag);

  /// Leaves in `earlier` the combination of `earlier` and `later`, in this order; an associative operation.
  using Combine = std::function<void(std::span<std::byte> earlier, std::span<const std::byte> later)>;

  enum class Direction { forwards, backwards };

  /// Replaces the bytes of rank r by the combination of those of ranks 0, 1, …, r − 1, in this order, and
  /// backwards by that of ranks R − 1, R − 2, …, r + 1, in this order. False for the first rank of the
  /// direction, which has nothing before it and keeps its bytes. ⌈log₂ R⌉ rounds (Hillis and Steele 1986) of
  /// one message and at most two combinations; brackets depend on r and R alone.
  bool exclusive_scan(std::span<std::byte> data, const Combine& combine,
                      Direction direction = Direction::forwards);

  /// The ranks that give the same colour, in the order of their ranks here. Throws Error where the ranks have
  /// made 8,191 communicators before.
  std::unique_ptr<Communicator> split(int colour);

  /// What the sentence about a dead rank ends with, such as where the last good checkpoint is. At any time,
  /// from any thread.
  void on_failure_say(std::string text);

  /// For signal handlers: a signal has asked this process to stop. Launchers send one to all ranks when a
  /// rank dies and kill them a second later. So from now on a silent rank counts as dead sooner.
  static void stop_requested() noexcept;

  /// This rank cannot go on, and will end with `status`: all calls of other ranks throw RankFailure from now
  /// on, and so do those of this one. True where this rank is to print its error, false where another one
  /// does: one that has failed before, or a lower one that fails at the same time.
  bool fail(const std::string& message, int status = 1) noexcept;

  class Group;
  explicit Communicator(std::unique_ptr<Group>);  ///< for the library's own modules

 private:
  std::unique_ptr<Group> group_;
};

}  // namespace linnet
