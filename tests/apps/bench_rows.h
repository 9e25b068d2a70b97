#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "apps/program.h"
#include "io/json.h"

namespace linnet {

inline Strings keys_of(const Json& object) {
  Strings keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// All that every row of a benchmark has.
inline void expect_common_fields(const Json& row, const std::string& bench, int threads) {
  EXPECT_EQ(row["bench"], bench);
  EXPECT_EQ(row["threads"], threads);
  EXPECT_EQ(row["dtype"], "f32");
  EXPECT_FALSE(row["isa"].get<std::string>().empty());
  EXPECT_GT(row["peak_memory_bytes"].get<std::int64_t>(), 1 << 20);
  EXPECT_THAT(keys_of(row["ceiling"]),
              testing::UnorderedElementsAreArray({"dtype", "gemm_gflops", "copy_gbs"}));
  EXPECT_THAT(keys_of(row["time_ms"]), testing::UnorderedElementsAreArray({"median", "min", "max", "count"}));
  EXPECT_GT(row["ceiling"]["gemm_gflops"].get<double>(), 0);
  EXPECT_GT(row["time_ms"]["min"].get<double>(), 0);
  EXPECT_LE(row["time_ms"]["min"], row["time_ms"]["median"]);
  EXPECT_LE(row["time_ms"]["median"], row["time_ms"]["max"]);
}

inline void expect_fields(const Json& row, const Strings& names) {
  for (const std::string& name : names) EXPECT_TRUE(row.contains(name)) << name << " in " << row;
}

}  // namespace linnet
