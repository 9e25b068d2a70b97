#pragma once

#include <cstdint>
#include <vector>

#include "attention/visible.h"
#include "base/parallel.h"

namespace linnet {

/// The order in which a quadratic backward pass meets the pairs of a chunk of queries and keys: in rounds, in
/// which no query and no key takes part twice. So every gradient is written from one place at a time and
/// summed in the order of the rounds, whatever the number of threads.
///
/// Where chunks of queries a few places apart see no key in common (windows, short segments), each meets all
/// of its keys at once, every few of them in one round. Elsewhere keys are divided into chunks too: in round
/// t chunk s of the smaller side meets chunk s + t of the larger one, counted round; pairs that see nothing
/// are left out.
class Rounds {
 public:
  /// `key_chunk` keys at most meet a chunk of queries, but where `whole` allows for all that it sees.
  Rounds(const Sights& sights, const AttentionSizes& sizes, std::int64_t query_chunk, std::int64_t key_chunk,
         bool whole = false);

  /// A chunk of queries of head h and the keys that it meets, some of which may be seen.
  struct Meeting {
    std::int64_t b = 0, h = 0, first_query = 0;
    Mask::Interval keys;
  };

  /// Body(own, meeting, next): the thread may go on with the meeting `next`; null where that is not known.
  using Body = FunctionReference<void(Context&, const Meeting&, const Meeting*)>;

  /// Calls it for every meeting.
  void run(Context& context, Body body) const;

 private:
  Mask::Interval reach(std::int64_t b, std::int64_t chunk) const;
  void find_distance();
  void find_needed();
  void run_apart(Context& context, Body body) const;

  const Sights& sights_;
  AttentionSizes sizes_;
  std::int64_t query_chunk_, key_chunk_, query_chunks_, key_chunks_;
  std::int64_t distance_ = 0;  // chunks of queries that far apart share no key; 0 where that is too far
  std::vector<bool> needed_;
};

}  // namespace linnet
