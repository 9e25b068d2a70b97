#pragma once

#include "series/input.h"

namespace linnet {

/// `score` of linnet/series.h.
SeriesScores scores_of(const SeriesInput& input, int threads, const SeriesProgress& progress);

}  // namespace linnet
