#include "comm/local.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/fail.h"
#include "comm/transport.h"

namespace linnet {
namespace {

struct Waiting {
  const std::byte* from = nullptr;  ///< of a sender
  std::byte* to = nullptr;          ///< of a receiver
  std::size_t size = 0;
  bool sends = false;
  std::shared_ptr<Transfer::State> state;
};

/// What the ranks of one process share.
struct Exchange {
  std::mutex mutex;
  /// By sender, receiver and tag: messages whose other side has not come yet, all senders or all receivers.
  std::map<std::tuple<int, int, int>, std::deque<Waiting>> waiting;
  int failed = -1;  ///< the rank that has failed first
  std::optional<RankFailure> why;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Exchange> exchange, int rank, int size)
      : exchange_(std::move(exchange)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::shared_ptr<Transfer::State> send(std::span<const std::byte> bytes, int to, int tag) override {
    return meet({rank_, to, tag}, {bytes.data(), nullptr, bytes.size(), true, new_state()});
  }

  std::shared_ptr<Transfer::State> receive(std::span<std::byte> bytes, int from, int tag) override {
    return meet({from, rank_, tag}, {nullptr, bytes.data(), bytes.size(), false, new_state()});
  }

  bool fail(const std::string& message, int status) noexcept override {
    const std::lock_guard lock(exchange_->mutex);
    if (exchange_->failed >= 0) return exchange_->failed == rank_;
    exchange_->failed = rank_;
    exchange_->why = rank_failure(rank_, message, status);
    for (auto& entry : exchange_->waiting)
      for (Waiting& one : entry.second) one.state->finish_with(*exchange_->why);
    exchange_->waiting.clear();
    return true;
  }

 private:
  std::shared_ptr<Transfer::State> new_state() { return std::make_shared<Transfer::State>(weak_from_this()); }

  /// Copies where the other side waits already, otherwise waits for it.
  std::shared_ptr<Transfer::State> meet(std::tuple<int, int, int> where, const Waiting& mine) {
    const std::lock_guard lock(exchange_->mutex);
    if (exchange_->failed >= 0) {
      mine.state->finish_with(*exchange_->why);
      return mine.state;
    }
    std::deque<Waiting>& queue = exchange_->waiting[where];
    if (queue.empty() || queue.front().sends == mine.sends) {
      queue.push_back(mine);
      return mine.state;
    }
    const Waiting other = queue.front();
    queue.pop_front();
    const Waiting& sender = mine.sends ? mine : other;
    const Waiting& receiver = mine.sends ? other : mine;
    if (sender.size != receiver.size) {
      receiver.state->finish_wrong(size_message(receiver.size, sender.size));
    } else {
      if (sender.size > 0) std::memcpy(receiver.to, sender.from, sender.size);
      receiver.state->finish();
    }
    sender.state->finish();
    return mine.state;
  }

  std::shared_ptr<Exchange> exchange_;
  int rank_, size_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> local_ranks(int size) {
  const auto exchange = std::make_shared<Exchange>();
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(communicator_of(std::make_shared<LocalTransport>(exchange, rank, size)));
  return ranks;
}

}  // namespace linnet
