#include "comm/mpi/freight.h"

#include <mpi.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace linnet {
namespace {

/// A message travels in pieces: MPI counts in int, and shares out its buffers better.
constexpr std::size_t piece_bytes = std::size_t{16} << 20;

/// How long a transfer with an error of MPI waits for the news that its other rank is dead.
constexpr std::chrono::seconds patience{10};

struct Message {
  std::size_t expected = 0, moved = 0;
  int pieces = 0, other = 0;
  bool sends = false;
  std::string wrong;
  std::shared_ptr<Transfer::State> state;
};

/// A transfer that does not end well, and says so `until` then if the rank does not end before.
struct Lost {
  std::chrono::steady_clock::time_point until;
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

class Freight::Impl {
 public:
  Impl() {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  }

  void piece_done(const std::shared_ptr<Message>& message, int error, const MPI_Status& status) {
    if (error == MPI_SUCCESS && !message->sends) {
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      message->moved += static_cast<std::size_t>(count);
    }
    int cancelled = 0;
    if (error == MPI_SUCCESS) MPI_Test_cancelled(&status, &cancelled);
    if (cancelled) lost.push_back({std::chrono::steady_clock::time_point::max(), {}, message->state});
    int kind = error;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &kind);
    if (kind == MPI_ERR_TRUNCATE)
      message->wrong = size_message(message->expected, message->expected + 1) + " or more";
    else if (error != MPI_SUCCESS)
      lost.push_back({std::chrono::steady_clock::now() + patience, text_of(error), message->state});
    if (--message->pieces > 0) return;
    if (std::ranges::any_of(lost, [&](const Lost& one) { return one.state == message->state; })) return;
    if (message->wrong.empty() && !message->sends && message->moved != message->expected)
      message->wrong = size_message(message->expected, message->moved);
    if (message->wrong.empty())
      message->state->finish();
    else
      message->state->finish_wrong(message->wrong);
  }

  void end_patience() {
    const auto now = std::chrono::steady_clock::now();
    for (const Lost& one : lost)
      if (now > one.until && !one.state->done()) one.state->finish_wrong(one.why);
    std::erase_if(lost, [](const Lost& one) { return one.state->done(); });
  }

  MPI_Comm ranks = MPI_COMM_NULL;
  std::vector<MPI_Request> requests;
  std::vector<std::shared_ptr<Message>> messages;  ///< of the requests
  std::vector<Lost> lost;
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
};

Freight::Freight() : impl_(std::make_unique<Impl>()) {}
Freight::~Freight() = default;

void Freight::begin(Order order) {
  const auto message = std::make_shared<Message>();
  message->expected = order.size;
  message->pieces = static_cast<int>(std::max<std::size_t>(1, (order.size + piece_bytes - 1) / piece_bytes));
  message->other = order.other;
  message->sends = order.sends;
  message->state = std::move(order.state);
  // Pieces of one sender with one tag arrive in order.
  for (std::size_t at = 0, piece = 0; piece < static_cast<std::size_t>(message->pieces);
       ++piece, at += piece_bytes) {
    const int count = static_cast<int>(std::min(piece_bytes, order.size - at));
    MPI_Request request = MPI_REQUEST_NULL;
    const int error =
        order.sends
            ? MPI_Isend(order.data + at, count, MPI_BYTE, order.other, order.tag, impl_->ranks, &request)
            : MPI_Irecv(order.data + at, count, MPI_BYTE, order.other, order.tag, impl_->ranks, &request);
    if (error != MPI_SUCCESS) {
      impl_->lost.push_back({std::chrono::steady_clock::now() + patience, text_of(error), message->state});
      return;
    }
    impl_->requests.push_back(request);
    impl_->messages.push_back(message);
  }
}

bool Freight::poll() {
  if (!impl_->lost.empty()) impl_->end_patience();
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
    const std::shared_ptr<Message> message = std::exchange(impl_->messages[index], nullptr);
    impl_->piece_done(message, status.MPI_ERROR, status);
  }
  std::erase(impl_->requests, MPI_REQUEST_NULL);
  std::erase(impl_->messages, nullptr);
  return true;
}

bool Freight::empty() const { return impl_->requests.empty(); }

bool Freight::under_way_to(int rank) const {
  return std::ranges::any_of(impl_->messages, [&](const std::shared_ptr<Message>& message) {
    return message->sends && message->other == rank;
  });
}

void Freight::cancel() {
  for (std::size_t i = 0; i < impl_->requests.size(); ++i)
    if (!impl_->messages[i]->sends) MPI_Cancel(&impl_->requests[i]);
}

void Freight::give_up(const RankFailure& why) {
  for (const auto& message : impl_->messages)
    if (!message->state->done()) message->state->finish_with(why);
  for (const Lost& one : impl_->lost)
    if (!one.state->done()) one.state->finish_with(why);
  impl_->messages.clear();
  impl_->requests.clear();
  impl_->lost.clear();
}

void Freight::close() { MPI_Comm_free(&impl_->ranks); }

}  // namespace linnet
