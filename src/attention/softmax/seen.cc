#include <algorithm>

#include "attention/softmax/tiles.h"

namespace linnet::softmax {

Seen fill_seen(std::uint8_t* tile, const Visible& visible, std::int64_t query, std::int64_t queries,
               std::int64_t key, std::int64_t keys) {
  std::uint8_t rows[kPanel * kKeyTile];
  visible.boolean->fill({rows, {queries, keys}}, visible.entry, visible.first_query + query, key,
                        visible.keys);
  const std::int64_t pairs = std::count(rows, rows + queries * keys, std::uint8_t{1});
  if (pairs == 0) return Seen::none;
  if (pairs == queries * keys) return Seen::all;
  for (std::int64_t j = 0; j < keys; ++j) {
    std::uint8_t* seen = tile + j * kPanel;
    for (std::int64_t i = 0; i < queries; ++i) seen[i] = rows[i * keys + j];
    std::fill(seen + queries, seen + kPanel, std::uint8_t{0});
  }
  return Seen::some;
}

}  // namespace linnet::softmax
