#include "linnet/communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/hidden.h"
#include "comm/local.h"
#include "comm/transport.h"

namespace linnet {
namespace {

/// Tags of the communicator's own messages, above those of callers.
enum Own : int { broadcasting = Communicator::most_tag + 1, gathering, scattering, meeting, scanning };

/// Up to this size every rank sends all its numbers to all others: one round instead of two.
constexpr std::size_t one_round_bytes = 4096;

/// Of the process, as signals are.
std::atomic<bool> stop = false;

std::int64_t added(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
double added(double a, double b) { return a + b; }

}  // namespace

void Transfer::State::rethrow() const {
  switch (status_.load(std::memory_order_acquire)) {
    case rank_failed:
      throw RankFailure(why_, exit_status_);
    case wrong:
      throw Error(why_);
    default:
      return;
  }
}

void Transfer::State::abandon() {
  if (const std::shared_ptr<Transport> transport = transport_.lock())
    transport->fail("an exception left a transfer unfinished", 1);
}

Transfer::Transfer() = default;
Transfer::Transfer(std::shared_ptr<State> state)
    : state_(std::move(state)), exceptions_(std::uncaught_exceptions()) {}
Transfer::Transfer(Transfer&&) noexcept = default;

// The transfer that stood here before ends as in its destructor.
Transfer& Transfer::operator=(Transfer&& other) noexcept {
  Transfer taken(std::move(other));
  std::swap(state_, taken.state_);
  std::swap(exceptions_, taken.exceptions_);
  return *this;
}

Transfer::~Transfer() {
  if (done()) return;
  if (std::uncaught_exceptions() > exceptions_) state_->abandon();
  state_->sleep();
}

bool Transfer::done() const { return !state_ || state_->done(); }

void Transfer::wait() {
  if (!state_) return;
  state_->sleep();
  std::exchange(state_, nullptr)->rethrow();
}

class LINNET_HIDDEN Communicator::Group {
 public:
  /// `members`: the ranks of the transport that belong to the communicator.
  Group(std::shared_ptr<Transport> carrier, int its_number, std::vector<int> ranks)
      : transport(std::move(carrier)), number(its_number), members(std::move(ranks)) {
    const auto mine = std::ranges::find(members, transport->rank());
    rank = static_cast<int>(mine - members.begin());
  }

  int size() const { return static_cast<int>(members.size()); }
  int tag(int of_message) const { return number << Transport::tag_bits | of_message; }

  Transfer send(std::span<const std::byte> bytes, int to, int of_message) const {
    return Transfer(transport->send(bytes, members[static_cast<std::size_t>(to)], tag(of_message)));
  }
  Transfer receive(std::span<std::byte> bytes, int from, int of_message) const {
    return Transfer(transport->receive(bytes, members[static_cast<std::size_t>(from)], tag(of_message)));
  }

  void check(const char* operation, int other, int of_message = 0) const {
    if (other < 0 || other >= size())
      linnet::fail<UsageError>(operation, "expected a rank from 0 to {}, got {}", size() - 1, other);
    if (of_message < 0 || of_message > most_tag)
      linnet::fail<UsageError>(operation, "expected a tag from 0 to {}, got {}", most_tag, of_message);
  }

  /// Sends part p of `from` to rank p and receives that of rank p into part p of `to`. Parts of this rank are
  /// left alone.
  template <class From, class To>
  void exchange(From from, To to, int of_message) const {
    std::vector<Transfer> transfers;
    for (int away = 1; away < size(); ++away) {
      const int source = (rank + size() - away) % size();
      transfers.push_back(receive(to(source), source, of_message));
    }
    for (int away = 1; away < size(); ++away) {
      const int target = (rank + away) % size();
      transfers.push_back(send(from(target), target, of_message));
    }
    for (Transfer& transfer : transfers) transfer.wait();
  }

  void all_gather(std::span<std::byte> all) const {
    const std::size_t block = all.size() / members.size();
    const auto part = [&](int of) { return all.subspan(static_cast<std::size_t>(of) * block, block); };
    exchange([&](int) { return part(rank); }, part, gathering);
  }

  /// Sums of T in the type Wide.
  template <class T, class Wide>
  void sum(std::span<T> numbers) const {
    if (size() == 1) return;
    const auto ranks = members.size(), own = static_cast<std::size_t>(rank);
    const std::size_t count = numbers.size();
    if (numbers.size_bytes() <= one_round_bytes) {
      std::vector<T> all(ranks * count);
      std::ranges::copy(numbers, all.begin() + static_cast<std::ptrdiff_t>(own * count));
      all_gather(std::as_writable_bytes(std::span(all)));
      add<T, Wide>(numbers,
                   [&](std::size_t of) { return std::span<const T>(all).subspan(of * count, count); });
      return;
    }
    // Each rank adds one part of the elements and gives the sums to all others.
    const auto part = [&](std::size_t of) {
      const std::size_t begin = count * of / ranks, end = count * (of + 1) / ranks;
      return numbers.subspan(begin, end - begin);
    };
    const std::span<T> mine = part(own);
    std::vector<T> others(ranks * mine.size());
    const auto of_rank = [&](std::size_t of) {
      return std::span(others).subspan(of * mine.size(), mine.size());
    };
    std::ranges::copy(mine, of_rank(own).begin());
    const auto bytes_of_part = [&](int of) {
      return std::as_writable_bytes(part(static_cast<std::size_t>(of)));
    };
    exchange(
        bytes_of_part, [&](int of) { return std::as_writable_bytes(of_rank(static_cast<std::size_t>(of))); },
        scattering);
    add<T, Wide>(mine, [&](std::size_t of) { return std::span<const T>(of_rank(of)); });
    exchange([&](int) { return std::as_writable_bytes(mine); }, bytes_of_part, gathering);
  }

  template <class T, class Wide, class OfRank>
  void add(std::span<T> sums, OfRank of_rank) const {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      Wide total = of_rank(0)[i];
      for (std::size_t of = 1; of < members.size(); ++of)
        total = added(total, static_cast<Wide>(of_rank(of)[i]));
      sums[i] = static_cast<T>(total);
    }
  }

  std::shared_ptr<Transport> transport;
  int number = 0;
  std::vector<int> members;
  int rank = 0;
};

Communicator::Communicator(std::unique_ptr<Group> group) : group_(std::move(group)) {}
Communicator::~Communicator() = default;

bool stop_was_requested() { return stop; }

RankFailure rank_failure(int rank, const std::string& reason, int status) {
  return {error_message("ranks", fmt::format("rank {} has failed: {}", rank, reason)), status};
}

std::string size_message(std::size_t expected, std::size_t got) {
  return error_message("receive", fmt::format("expected a message of {} bytes, got {}", expected, got));
}

std::unique_ptr<Communicator> communicator_of(std::shared_ptr<Transport> transport) {
  std::vector<int> members(static_cast<std::size_t>(transport->size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<Communicator>(
      std::make_unique<Communicator::Group>(std::move(transport), 0, std::move(members)));
}

std::unique_ptr<Communicator> Communicator::alone() { return std::move(local_ranks(1).front()); }

int Communicator::rank() const { return group_->rank; }
int Communicator::size() const { return group_->size(); }

Transfer Communicator::send(std::span<const std::byte> bytes, int to, int tag) {
  group_->check("send", to, tag);
  return group_->send(bytes, to, tag);
}

Transfer Communicator::receive(std::span<std::byte> bytes, int from, int tag) {
  group_->check("receive", from, tag);
  return group_->receive(bytes, from, tag);
}

/// A binomial tree: before the round of distance d, the d ranks from the root on have the bytes.
void Communicator::broadcast(std::span<std::byte> bytes, int root) {
  group_->check("broadcast", root);
  const int from_root = (rank() + size() - root) % size();
  std::vector<Transfer> sends;
  for (int distance = 1; distance < size(); distance *= 2) {
    if (from_root < distance && from_root + distance < size())
      sends.push_back(group_->send(bytes, (rank() + distance) % size(), broadcasting));
    else if (from_root >= distance && from_root < 2 * distance)
      group_->receive(bytes, (rank() + size() - distance) % size(), broadcasting).wait();
  }
  for (Transfer& transfer : sends) transfer.wait();
}

void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * static_cast<std::size_t>(size()))
    linnet::fail<UsageError>("all_gather", "expected {} times {} bytes for the result, got {}", size(),
                             mine.size(), all.size());
  if (!mine.empty())
    std::memmove(all.data() + static_cast<std::size_t>(rank()) * mine.size(), mine.data(), mine.size());
  group_->all_gather(all);
}

void Communicator::sum(std::span<std::int64_t> numbers) { group_->sum<std::int64_t, std::int64_t>(numbers); }
void Communicator::sum(std::span<double> numbers) { group_->sum<double, double>(numbers); }
void Communicator::sum(std::span<float> numbers) { group_->sum<float, double>(numbers); }

/// After the round of distance d, a rank has heard of the 2d ranks up to itself.
void Communicator::barrier() {
  for (int distance = 1; distance < size(); distance *= 2) {
    Transfer heard = group_->receive({}, (rank() + size() - distance) % size(), meeting);
    group_->send({}, (rank() + distance) % size(), meeting).wait();
    heard.wait();
  }
}

bool Communicator::exclusive_scan(std::span<std::byte> data, const Combine& combine, Direction direction) {
  const bool forwards = direction == Direction::forwards;
  const int place = forwards ? rank() : size() - 1 - rank();
  const auto rank_of = [&](int at) { return forwards ? at : size() - 1 - at; };
  // Of the ranks up to this one, the last `distance`: with this one, and without it.
  std::vector<std::byte> with(data.begin(), data.end()), without, before(data.size());
  for (int distance = 1; distance < size(); distance *= 2) {
    Transfer received, sent;
    if (place >= distance) received = group_->receive(before, rank_of(place - distance), scanning);
    if (place + distance < size()) sent = group_->send(with, rank_of(place + distance), scanning);
    received.wait();
    sent.wait();
    if (place < distance) continue;
    std::vector<std::byte> joined = before;
    if (2 * distance < size()) {
      combine(joined, with);
      with = joined;
    }
    if (distance > 1) combine(before, without);
    without = before;
  }
  if (place > 0) std::ranges::copy(without, data.begin());
  return place > 0;
}

std::unique_ptr<Communicator> Communicator::split(int colour) {
  // A number that no communicator of any of these ranks has.
  std::vector<std::array<int, 2>> all(group_->members.size());
  const std::array<int, 2> mine = {colour, group_->transport->next_number};
  all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<int> members;
  int number = 0;
  for (std::size_t of = 0; of < all.size(); ++of) {
    number = std::max(number, all[of][1]);
    if (all[of][0] == colour) members.push_back(group_->members[of]);
  }
  if (const int most = group_->transport->most_communicators; number >= most)
    linnet::fail("split", "expected at most {} communicators, got more", most);
  group_->transport->next_number = number + 1;
  return std::make_unique<Communicator>(
      std::make_unique<Group>(group_->transport, number, std::move(members)));
}

void Communicator::on_failure_say(std::string text) { group_->transport->on_failure_say(std::move(text)); }
void Communicator::stop_requested() noexcept { stop = true; }
bool Communicator::fail(const std::string& message, int status) noexcept {
  return group_->transport->fail(message, status);
}

}  // namespace linnet
