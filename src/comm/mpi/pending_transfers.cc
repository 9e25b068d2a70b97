#include "comm/mpi/pending_transfers.h"

#include <mpi.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace linnet {
namespace {

/// A message travels in pieces: MPI counts in int, and shares out its buffers better. The last piece, and no
/// other, is shorter: by it a receiver knows a message of another size.
constexpr std::size_t piece_bytes = std::size_t{16} << 20;

/// How long a transfer with an error of MPI waits for the notice that its other rank is dead.
constexpr std::chrono::seconds grace_period{10};

struct Message {
  std::size_t size = 0;
  int pieces = 0;  ///< that are under way
  int other = 0;
  bool sends = false;
  std::string wrong;
  std::shared_ptr<Transfer::State> state;
};

struct Piece {
  std::shared_ptr<Message> message;
  std::size_t begin = 0;
};

/// A transfer that does not end well. Its error is reported at `deadline`, if the rank does not end before.
struct FailedTransfer {
  std::chrono::steady_clock::time_point deadline;
  std::string why;
  std::shared_ptr<Transfer::State> state;
};

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  return error_message("ranks", fmt::format("expected a message to arrive, got an error of MPI: {}", text));
}

}  // namespace

class PendingTransfers::Impl {
 public:
  Impl() {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  }

  void piece_done(const Piece& piece, int error, const MPI_Status& status) {
    const std::shared_ptr<Message>& message = piece.message;
    int cancelled = 0, kind = error;
    if (error == MPI_SUCCESS) MPI_Test_cancelled(&status, &cancelled);
    if (error != MPI_SUCCESS) MPI_Error_class(error, &kind);
    if (cancelled) {
      // Those of a wrong message are waited for no longer; others end with the failure of a rank.
      if (message->wrong.empty())
        failed.push_back({std::chrono::steady_clock::time_point::max(), {}, message->state});
    } else if (kind == MPI_ERR_TRUNCATE) {
      message->wrong = size_message(message->size, message->size + 1) + " or more";
    } else if (error != MPI_SUCCESS) {
      failed.push_back({std::chrono::steady_clock::now() + grace_period, text_of(error), message->state});
    } else if (!message->sends) {
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      const std::size_t bytes = piece.begin + static_cast<std::size_t>(count);
      if (bytes != std::min(piece.begin + piece_bytes, message->size)) {
        message->wrong = size_message(message->size, bytes);
        cancel(message.get());  // no more will come
      }
    }
    if (--message->pieces > 0) return;
    if (std::ranges::any_of(failed, [&](const FailedTransfer& one) { return one.state == message->state; }))
      return;
    if (message->wrong.empty())
      message->state->finish();
    else
      message->state->finish_wrong(message->wrong);
  }

  /// Receives that no message has reached yet, of one message or of all.
  void cancel(const Message* message = nullptr) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Message* its = pieces[i].message.get();
      if (requests[i] != MPI_REQUEST_NULL && !its->sends && (message == nullptr || its == message))
        MPI_Cancel(&requests[i]);
    }
  }

  void end_grace_periods() {
    const auto now = std::chrono::steady_clock::now();
    for (const FailedTransfer& one : failed)
      if (now > one.deadline && !one.state->done()) one.state->finish_wrong(one.why);
    std::erase_if(failed, [](const FailedTransfer& one) { return one.state->done(); });
  }

  MPI_Comm ranks = MPI_COMM_NULL;
  std::vector<MPI_Request> requests;
  std::vector<Piece> pieces;  ///< of the requests; no message where a piece is done
  std::vector<FailedTransfer> failed;
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
};

PendingTransfers::PendingTransfers() : impl_(std::make_unique<Impl>()) {}
PendingTransfers::~PendingTransfers() = default;

void PendingTransfers::begin(TransferRequest asked) {
  const auto message = std::make_shared<Message>();
  message->size = asked.size;
  message->pieces = static_cast<int>(asked.size / piece_bytes + 1);
  message->other = asked.other;
  message->sends = asked.sends;
  message->state = std::move(asked.state);
  // Pieces of one sender with one tag arrive in asked.
  for (std::size_t at = 0; at <= asked.size; at += piece_bytes) {
    const int count = static_cast<int>(std::min(piece_bytes, asked.size - at));
    MPI_Request request = MPI_REQUEST_NULL;
    const int error =
        asked.sends
            ? MPI_Isend(asked.data + at, count, MPI_BYTE, asked.other, asked.tag, impl_->ranks, &request)
            : MPI_Irecv(asked.data + at, count, MPI_BYTE, asked.other, asked.tag, impl_->ranks, &request);
    if (error != MPI_SUCCESS) {
      impl_->failed.push_back(
          {std::chrono::steady_clock::now() + grace_period, text_of(error), message->state});
      return;
    }
    impl_->requests.push_back(request);
    impl_->pieces.push_back({message, at});
  }
}

bool PendingTransfers::poll() {
  if (!impl_->failed.empty()) impl_->end_grace_periods();
  if (impl_->requests.empty()) return false;
  const int count = static_cast<int>(impl_->requests.size());
  impl_->indices.resize(impl_->requests.size());
  impl_->statuses.resize(impl_->requests.size());
  for (MPI_Status& status : impl_->statuses) status.MPI_ERROR = MPI_SUCCESS;
  int done = 0;
  // Open MPI returns success for errors that it states in the statuses.
  MPI_Testsome(count, impl_->requests.data(), &done, impl_->indices.data(), impl_->statuses.data());
  if (done == 0 || done == MPI_UNDEFINED) return false;
  for (int i = 0; i < done; ++i) {
    const MPI_Status& status = impl_->statuses[static_cast<std::size_t>(i)];
    const auto index = static_cast<std::size_t>(impl_->indices[static_cast<std::size_t>(i)]);
    const Piece piece = std::exchange(impl_->pieces[index], {});
    impl_->piece_done(piece, status.MPI_ERROR, status);
  }
  std::erase(impl_->requests, MPI_REQUEST_NULL);
  std::erase_if(impl_->pieces, [](const Piece& piece) { return piece.message == nullptr; });
  return true;
}

bool PendingTransfers::empty() const { return impl_->requests.empty(); }

bool PendingTransfers::pending_to(int rank) const {
  return std::ranges::any_of(impl_->pieces, [&](const Piece& piece) {
    return piece.message->sends && piece.message->other == rank;
  });
}

void PendingTransfers::cancel() { impl_->cancel(); }

void PendingTransfers::abandon_all(const RankFailure& why) {
  for (const Piece& piece : impl_->pieces)
    if (!piece.message->state->done()) piece.message->state->finish_with(why);
  for (const FailedTransfer& one : impl_->failed)
    if (!one.state->done()) one.state->finish_with(why);
  impl_->pieces.clear();
  impl_->requests.clear();
  impl_->failed.clear();
}

void PendingTransfers::close() { MPI_Comm_free(&impl_->ranks); }

}  // namespace linnet
