#include "comm/gather.h"

#include <numeric>

namespace linnet {

Share share_of(const Communicator& ranks, std::int64_t count) {
  const std::int64_t size = ranks.size();
  const auto begin_of = [&](std::int64_t rank) { return (count * rank + size - 1) / size; };
  return {begin_of(ranks.rank()), begin_of(ranks.rank() + 1)};
}

void broadcast(Communicator& ranks, std::string& text, int root) {
  auto size = static_cast<std::int64_t>(text.size());
  ranks.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  text.resize(static_cast<std::size_t>(size));
  ranks.broadcast(std::as_writable_bytes(std::span(text)), root);
}

std::vector<std::byte> gather_bytes(Communicator& ranks, std::span<const std::byte> mine) {
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
  constexpr int tag = Communicator::most_tag;
  if (ranks.rank() != 0) {
    ranks.send(mine, 0, tag).wait();
    return {};
  }
  std::vector<std::byte> all(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
  std::ranges::copy(mine, all.begin());
  std::size_t begin = mine.size();
  std::vector<Transfer> transfers;
  for (int from = 1; from < ranks.size(); ++from) {
    const std::size_t bytes = sizes[static_cast<std::size_t>(from)];
    transfers.push_back(ranks.receive(std::span(all).subspan(begin, bytes), from, tag));
    begin += bytes;
  }
  for (Transfer& transfer : transfers) transfer.wait();
  return all;
}

}  // namespace linnet
