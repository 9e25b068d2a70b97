#pragma once

#include <chrono>
#include <cstdint>

#include "linnet/series.h"

namespace linnet {

/// Tells of the progress of a work at its beginning and ten times a second.
class Pace {
 public:
  Pace(const SeriesProgress& progress, std::int64_t all) : progress_(progress), all_(all) {}

  void show(std::int64_t done) {
    if (!progress_) return;
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    progress_(done, all_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const SeriesProgress& progress_;
  std::int64_t all_;
  Clock::time_point next_ = {};
};

}  // namespace linnet
