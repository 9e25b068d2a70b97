#pragma once

#include "linnet/communicator.h"

namespace linnet {

// What holds for the ranks of every communicator. Each is called by all of its ranks.

void expect_broadcast_from_every_root(Communicator& ranks);
void expect_gathered_in_order(Communicator& ranks);
void expect_sums_in_order(Communicator& ranks);
void expect_scans_in_order(Communicator& ranks);
void expect_groups_apart(Communicator& ranks);
void expect_messages_of_all_sizes(Communicator& ranks);
void expect_many_messages_in_order(Communicator& ranks);
void expect_refusals(Communicator& ranks);

inline void expect_all(Communicator& ranks) {
  expect_broadcast_from_every_root(ranks);
  expect_gathered_in_order(ranks);
  expect_sums_in_order(ranks);
  expect_scans_in_order(ranks);
  expect_groups_apart(ranks);
  expect_messages_of_all_sizes(ranks);
  expect_many_messages_in_order(ranks);
  expect_refusals(ranks);
  ranks.barrier();
}

}  // namespace linnet
