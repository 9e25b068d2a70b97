#pragma once

#include <cstdint>
#include <vector>

#include "attention/visible.h"
#include "base/parallel.h"

namespace linnet {

/// The order in which a quadratic backward pass meets the pairs of a chunk of queries and a chunk of keys: in
/// rounds, in which every chunk takes part in one pair at most. So every gradient is written from one place
/// at a time and summed in the order of the rounds, whatever the number of threads. In round t chunk s of the
/// smaller side meets chunk s + t of the larger one, counted round; pairs that see nothing are left out.
class Rounds {
 public:
  Rounds(const Sights& sights, const AttentionSizes& sizes, std::int64_t query_chunk, std::int64_t key_chunk);

  /// Calls body(own, b, h, first_query, first_key) for every pair of chunks in which something may be seen.
  void run(
      Context& context,
      FunctionReference<void(Context&, std::int64_t, std::int64_t, std::int64_t, std::int64_t)> body) const;

 private:
  const Sights& sights_;
  AttentionSizes sizes_;
  std::int64_t query_chunk_, key_chunk_, query_chunks_, key_chunks_;
  std::vector<bool> needed_;
};

}  // namespace linnet
