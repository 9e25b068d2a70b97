#include "layers/parameters.h"

#include <gtest/gtest.h>

#include "linnet/error.h"
#include "support/parameters.h"

namespace linnet {
namespace {

ParameterTable table_of_three() {
  ParameterTable table;
  table.add("a", {3, 5}, normal(2), true);
  table.add("b", {1}, constant(0.5f), false);
  table.add(
      "c", {16}, [](std::int64_t index, double) { return static_cast<float>(index); }, false);
  return table;
}

TEST(ParameterTable, AlignsEveryParameterTo64Bytes) {
  const ParameterTable table = table_of_three();
  EXPECT_EQ(table.parameter_count(), 15 + 1 + 16);
  std::int64_t end = 0;
  for (const auto& row : table.rows()) {
    EXPECT_EQ(row.place.offset() % 16, 0) << row.name;
    EXPECT_GE(row.place.offset(), end) << row.name;
    end = row.place.offset() + row.count;
  }
  EXPECT_GE(table.size(), end);
}

TEST(ParameterTable, WhatOnlySomeAttentionsHaveLeavesTheRandomNumbersOfOthers) {
  const auto drawn = [](bool more) {
    ParameterTable table;
    table.add("a", {3}, normal(1), true);
    if (more) table.add("projection", {4}, normal(1), true, ParameterTable::Numbers::apart);
    if (more) table.add_untrained("directions", {4}, normal(1));
    const ParameterPlace last = table.add("b", {3}, normal(1), true);
    std::vector<float> values(static_cast<std::size_t>(table.size()));
    table.initialise(values, 7);
    return std::vector<float>(values.begin() + last.offset(), values.begin() + last.offset() + 3);
  };
  EXPECT_EQ(drawn(true), drawn(false));
}

TEST(ParameterTable, RefusesMoreThanAnyMemoryHolds) {
  ParameterTable table;
  const std::int64_t large = std::int64_t{1} << 60;
  table.add("first", {large}, constant(0), false);
  EXPECT_THROW(table.add("second", {2, large / 2}, constant(0), false), Error);
  EXPECT_THROW(table.add("third", {large, 4}, constant(0), false), Error);
  EXPECT_THROW(table.add("fourth", {large / 4, large}, constant(0), false), Error);
}

TEST(ParameterTable, InitialisesFromTheSeedAlone) {
  const ParameterTable table = table_of_three();
  const auto made = [&](std::uint64_t seed) {
    Tensor values = Tensor::of<float>({table.size()});
    table.initialise(values.span<float>(), seed);
    expect_padding_is_zero(table, values.span<float>());
    return by_name(table, values.span<float>());
  };
  const auto values = made(1);
  EXPECT_EQ(values, made(1));
  EXPECT_NE(values.at("a"), made(2).at("a"));
  EXPECT_EQ(values.at("b"), std::vector<double>{0.5});
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(values.at("c")[i], static_cast<double>(i));
}

TEST(ParameterTable, NormalHasTheDeviationAskedFor) {
  ParameterTable table;
  table.add("w", {200, 100}, normal(0.25), true);
  Tensor values = Tensor::of<float>({table.size()});
  table.initialise(values.span<float>(), 3);
  EXPECT_NEAR(norm(values.span<float>()) / std::sqrt(20000), 0.25, 0.25 * 5 / std::sqrt(2 * 20000));
}

TEST(ParameterTable, RefusesShapesThatOverflow) {
  ParameterTable table;
  EXPECT_THROW(table.add("w", {std::int64_t{1} << 40, std::int64_t{1} << 40}, constant(0), true), Error);
  EXPECT_THROW(table.add("w", {-1, 2}, constant(0), true), Error);
}

}  // namespace
}  // namespace linnet
