#include "comm/mpi/control_channel.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>

namespace linnet {
namespace {

constexpr std::size_t longest_text = 1000;

struct Packet {
  int notice = 0, about = 0, length = 0;
  std::array<char, longest_text> text{};
};

constexpr int header_bytes = static_cast<int>(offsetof(Packet, text));

struct Sent {
  int to = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  Packet packet;
};

}  // namespace

class ControlChannel::Impl {
 public:
  Impl() {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
    expect();
  }

  void expect() { MPI_Irecv(&incoming, sizeof incoming, MPI_BYTE, MPI_ANY_SOURCE, 0, ranks, &receiving); }

  /// Forgets messages that have been taken, and those to ranks that can take none any more.
  void settle() {
    sent.remove_if([](Sent& one) {
      int done = 0;
      return MPI_Test(&one.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
    });
  }

  MPI_Comm ranks = MPI_COMM_NULL;
  Packet incoming;
  MPI_Request receiving = MPI_REQUEST_NULL;
  std::list<Sent> sent;
};

ControlChannel::ControlChannel() : impl_(std::make_unique<Impl>()) {}

/// MPI writes into the packets as long as it is called: where ranks have died it is not called again.
ControlChannel::~ControlChannel() = default;

void ControlChannel::send(int to, Notice notice, int about, const std::string& text) {
  Sent& one = impl_->sent.emplace_back();
  one.to = to;
  one.packet.notice = static_cast<int>(notice);
  one.packet.about = about;
  one.packet.length = static_cast<int>(std::min(text.size(), longest_text));
  std::copy_n(text.begin(), one.packet.length, one.packet.text.begin());
  MPI_Isend(&one.packet, header_bytes + one.packet.length, MPI_BYTE, to, 0, impl_->ranks, &one.request);
}

std::optional<ControlMessage> ControlChannel::next() {
  impl_->settle();
  int arrived = 0;
  MPI_Status status;
  if (MPI_Test(&impl_->receiving, &arrived, &status) != MPI_SUCCESS) {
    impl_->expect();
    return std::nullopt;
  }
  if (!arrived) return std::nullopt;
  const Packet& packet = impl_->incoming;
  ControlMessage result = {status.MPI_SOURCE, static_cast<Notice>(packet.notice), packet.about,
                           std::string(packet.text.data(), static_cast<std::size_t>(packet.length))};
  impl_->expect();
  return result;
}

bool ControlChannel::pending() const { return !impl_->sent.empty(); }

bool ControlChannel::pending_to(int rank) const {
  return std::ranges::any_of(impl_->sent, [&](const Sent& one) { return one.to == rank; });
}

void ControlChannel::close() {
  MPI_Cancel(&impl_->receiving);
  MPI_Wait(&impl_->receiving, MPI_STATUS_IGNORE);
  MPI_Comm_free(&impl_->ranks);
}

}  // namespace linnet
