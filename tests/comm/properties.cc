#include "comm/properties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

namespace linnet {
namespace {

/// A whole number that differs for every rank, place and use.
std::uint64_t mixed(std::uint64_t rank, std::uint64_t place) {
  std::uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15u + place * 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  return x ^ x >> 32;
}

std::vector<std::byte> pattern(int rank, std::size_t size) {
  std::vector<std::byte> result(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = mixed(static_cast<std::uint64_t>(rank), i);
    std::memcpy(result.data() + i, &word, std::min(sizeof word, size - i));
  }
  return result;
}

/// Between −1 and 1, times powers of ten, so that the order of a sum matters.
double number(int rank, std::size_t place) {
  const std::uint64_t bits = mixed(static_cast<std::uint64_t>(rank), place);
  const double unit = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  constexpr std::array<double, 4> scales = {1, 1e-9, 1e7, 1e16};
  return unit * scales[bits % 4];
}

/// The affine map x → a x + b modulo 2⁶⁴.
struct Affine {
  std::uint64_t a = 1, b = 0;
  bool operator==(const Affine&) const = default;
};

/// First `first`, then `second`.
Affine after(const Affine& first, const Affine& second) {
  return {second.a * first.a, second.a * first.b + second.b};
}

void combine_maps(std::span<std::byte> earlier, std::span<const std::byte> later) {
  ASSERT_EQ(earlier.size(), later.size());
  for (std::size_t at = 0; at < earlier.size(); at += sizeof(Affine)) {
    std::array<Affine, 2> maps;
    std::copy_n(earlier.begin() + static_cast<std::ptrdiff_t>(at), sizeof(Affine),
                std::as_writable_bytes(std::span(&maps[0], 1)).begin());
    std::copy_n(later.begin() + static_cast<std::ptrdiff_t>(at), sizeof(Affine),
                std::as_writable_bytes(std::span(&maps[1], 1)).begin());
    maps[0] = after(maps[0], maps[1]);
    std::ranges::copy(std::as_bytes(std::span(&maps[0], 1)),
                      earlier.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

std::vector<Affine> maps_of(int rank, std::size_t count) {
  std::vector<Affine> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = {mixed(static_cast<std::uint64_t>(rank), 2 * i) | 1,
                 mixed(static_cast<std::uint64_t>(rank), 2 * i + 1)};
  return result;
}

void expect_scan(Communicator& ranks, std::size_t count, Communicator::Direction direction) {
  const bool forwards = direction == Communicator::Direction::forwards;
  std::vector<Affine> maps = maps_of(ranks.rank(), count);
  std::vector<int> before;
  for (int other = 0; other < ranks.size(); ++other)
    if (forwards ? other < ranks.rank() : other > ranks.rank()) before.push_back(other);
  if (!forwards) std::ranges::reverse(before);
  std::vector<Affine> expected = before.empty() ? maps : maps_of(before.front(), count);
  for (std::size_t of = 1; of < before.size(); ++of) {
    const std::vector<Affine> next = maps_of(before[of], count);
    for (std::size_t i = 0; i < count; ++i) expected[i] = after(expected[i], next[i]);
  }
  const bool any = ranks.exclusive_scan(std::as_writable_bytes(std::span(maps)), combine_maps, direction);
  EXPECT_EQ(any, !before.empty());
  EXPECT_TRUE(maps == expected) << "rank " << ranks.rank() << " of " << ranks.size() << ", forwards "
                                << forwards;
}

template <class T, class Wide>
void expect_sum(Communicator& ranks, std::size_t count) {
  const auto value = [](int rank, std::size_t i) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(mixed(static_cast<std::uint64_t>(rank), i));
    else
      return static_cast<T>(number(rank, i));
  };
  std::vector<T> numbers(count), expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    numbers[i] = value(ranks.rank(), i);
    Wide total = static_cast<Wide>(value(0, i));
    for (int other = 1; other < ranks.size(); ++other) total += static_cast<Wide>(value(other, i));
    expected[i] = static_cast<T>(total);
  }
  ranks.sum(std::span(numbers));
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(numbers)), std::as_bytes(std::span(expected))))
      << count << " numbers of " << sizeof(T) << " bytes";
}

}  // namespace

void expect_broadcast_from_every_root(Communicator& ranks) {
  for (int root = 0; root < ranks.size(); ++root)
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100003}}) {
      std::vector<std::byte> bytes = pattern(ranks.rank(), size);
      ranks.broadcast(bytes, root);
      EXPECT_TRUE(bytes == pattern(root, size)) << "root " << root << ", " << size << " bytes";
    }
}

void expect_gathered_in_order(Communicator& ranks) {
  for (const std::size_t size : {0, 1, 7, 65537}) {
    std::vector<std::byte> all(size * static_cast<std::size_t>(ranks.size())), expected;
    ranks.all_gather(pattern(ranks.rank(), size), all);
    for (int other = 0; other < ranks.size(); ++other) {
      const std::vector<std::byte> part = pattern(other, size);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(all == expected) << size << " bytes";
  }
}

void expect_sums_in_order(Communicator& ranks) {
  for (const std::size_t count : {0, 1, 2, 511, 513, 100003}) {
    expect_sum<std::int64_t, std::uint64_t>(ranks, count);
    expect_sum<double, double>(ranks, count);
    expect_sum<float, double>(ranks, count);
  }
}

void expect_scans_in_order(Communicator& ranks) {
  for (const std::size_t count : {0, 1, 3, 4099})
    for (const auto direction : {Communicator::Direction::forwards, Communicator::Direction::backwards})
      expect_scan(ranks, count, direction);
}

void expect_groups_apart(Communicator& ranks) {
  // Of odd and of even ranks, and all in one; groups of groups.
  const int colour = ranks.rank() % 2;
  const std::unique_ptr<Communicator> half = ranks.split(colour);
  const std::unique_ptr<Communicator> whole = ranks.split(0);
  EXPECT_EQ(half->size(), (ranks.size() + 1 - colour) / 2);
  EXPECT_EQ(half->rank(), ranks.rank() / 2);
  EXPECT_EQ(whole->size(), ranks.size());
  EXPECT_EQ(whole->rank(), ranks.rank());
  std::vector<int> members(static_cast<std::size_t>(half->size()));
  const int mine = ranks.rank();
  half->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(members)));
  for (std::size_t i = 0; i < members.size(); ++i) EXPECT_EQ(members[i], colour + 2 * static_cast<int>(i));
  expect_scan(*half, 5, Communicator::Direction::forwards);
  expect_scan(*half, 5, Communicator::Direction::backwards);
  const std::unique_ptr<Communicator> single = half->split(half->rank());
  EXPECT_EQ(single->size(), 1);

  // Messages of the same ranks and tags in two communicators, received in the other order.
  const int next = (ranks.rank() + 1) % ranks.size(),
            previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  const std::array<int, 2> sent = {mine, mine + 1000};
  std::array<int, 2> received{};
  Transfer first = ranks.send(std::as_bytes(std::span(&sent[0], 1)), next, 3);
  Transfer second = whole->send(std::as_bytes(std::span(&sent[1], 1)), next, 3);
  whole->receive(std::as_writable_bytes(std::span(&received[1], 1)), previous, 3).wait();
  ranks.receive(std::as_writable_bytes(std::span(&received[0], 1)), previous, 3).wait();
  first.wait();
  second.wait();
  EXPECT_EQ(received, (std::array<int, 2>{previous, previous + 1000}));
}

void expect_messages_of_all_sizes(Communicator& ranks) {
  const int next = (ranks.rank() + 1) % ranks.size(),
            previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000001}, std::size_t{64} << 20}) {
    const std::vector<std::byte> mine = pattern(ranks.rank(), size);
    std::vector<std::byte> received(size);
    Transfer receive = ranks.receive(received, previous, Communicator::most_tag);
    Transfer send = ranks.send(mine, next, Communicator::most_tag);
    send.wait();
    receive.wait();
    EXPECT_TRUE(received == pattern(previous, size)) << size << " bytes";
  }
}

void expect_many_messages_in_order(Communicator& ranks) {
  constexpr std::size_t tags = 7, messages = 700;
  std::vector<std::uint64_t> sent(messages), received(messages);
  for (int other = 0; other < ranks.size(); ++other) {
    const int to = (ranks.rank() + other) % ranks.size(),
              from = (ranks.rank() + ranks.size() - other) % ranks.size();
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < messages; ++i) {
      sent[i] = mixed(static_cast<std::uint64_t>(ranks.rank()), i);
      transfers.push_back(ranks.send(std::as_bytes(std::span(&sent[i], 1)), to, static_cast<int>(i % tags)));
    }
    // All of one tag, then all of the next.
    for (std::size_t tag = 0; tag < tags; ++tag)
      for (std::size_t i = tag; i < messages; i += tags)
        transfers.push_back(
            ranks.receive(std::as_writable_bytes(std::span(&received[i], 1)), from, static_cast<int>(tag)));
    for (Transfer& transfer : transfers) transfer.wait();
    for (std::size_t i = 0; i < messages; ++i)
      EXPECT_EQ(received[i], mixed(static_cast<std::uint64_t>(from), i))
          << "message " << i << " from " << from;
  }
}

void expect_refusals(Communicator& ranks) {
  const int next = (ranks.rank() + 1) % ranks.size(),
            previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  std::array<std::byte, 3> bytes{};
  EXPECT_THROW(ranks.send(bytes, ranks.size(), 0), UsageError);
  EXPECT_THROW(ranks.send(bytes, 0, Communicator::most_tag + 1), UsageError);
  EXPECT_THROW(ranks.receive(bytes, -1, 0), UsageError);
  EXPECT_THROW(ranks.receive(bytes, 0, -1), UsageError);
  EXPECT_THROW(ranks.broadcast(bytes, ranks.size()), UsageError);
  EXPECT_THROW(ranks.all_gather(bytes, std::span(bytes).first(2)), UsageError);
  // A message of another size than the receive is an error of the receiver.
  const std::size_t piece = std::size_t{16} << 20;  // in which MPI carries large ones
  using Sizes = std::pair<std::size_t, std::size_t>;
  for (const auto& [sent, expected] : {Sizes{3, 2}, Sizes{3, 4}, Sizes{0, 1}, Sizes{piece + 1, piece},
                                       Sizes{piece, piece + 1}, Sizes{piece, 3 * piece}}) {
    const std::vector<std::byte> out(sent);
    std::vector<std::byte> in(expected);
    Transfer receive = ranks.receive(in, previous, 1);
    ranks.send(out, next, 1).wait();
    EXPECT_THROW(receive.wait(), Error) << sent << " bytes for " << expected;
  }
}

}  // namespace linnet
