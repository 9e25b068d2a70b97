#pragma once

#include <cstdint>
#include <string>

#include "command_line.h"
#include "linnet/run_config.h"

namespace linnet {

/// `linnet inspect MODEL --ranks …`: what training on several machines would take.
struct RanksOptions {
  std::string ranks, bandwidth = "1,10,100";  ///< lists; Gbit/s
  double latency = 50;                        ///< microseconds
  std::int64_t given_sequence_ranks = 0;      ///< 0: those of the configuration
  double rate = 0;                            ///< tokens per second of one rank; 0: measured
  int threads = 0;

  void add_to(Command& command);
  bool given() const { return !ranks.empty(); }

  /// Prints a row for every number of ranks and bandwidth. `name` is that of the configuration, which is
  /// fitted to its data.
  void print(const std::string& name, const RunConfig& config, bool json) const;
};

}  // namespace linnet
