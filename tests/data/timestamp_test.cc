#include "data/timestamp.h"

#include <gtest/gtest.h>

namespace linnet {
namespace {

constexpr std::int64_t second = 1'000'000, day = 86'400 * second;

TEST(Timestamp, ReadsDatesAndIntegers) {
  EXPECT_EQ(parse_timestamp("1970-01-01"), (Timestamp{0, true}));
  EXPECT_EQ(parse_timestamp("1970-01-02 00:00"), (Timestamp{day, true}));
  EXPECT_EQ(parse_timestamp("1969-12-31T23:59:59.5"), (Timestamp{-second / 2, true}));
  // The check value of POSIX: 2001-09-09 01:46:40 is 1,000,000,000 seconds after 1970.
  EXPECT_EQ(parse_timestamp("2001-09-09 01:46:40"), (Timestamp{1'000'000'000 * second, true}));
  EXPECT_EQ(parse_timestamp("2001-09-09T01:46:40Z"), (Timestamp{1'000'000'000 * second, true, true}));
  for (const char* other : {"2001-09-09 03:46:40+02:00", "2001-09-08T22:16:40-0330", "2001-09-09 00:46:40-01",
                            "2001-09-09 01:46:40.0+00:00"})
    EXPECT_EQ(parse_timestamp(other), parse_timestamp("2001-09-09T01:46:40Z")) << other;
  EXPECT_EQ(parse_timestamp("2001-09-09 01:46:40.000001"), (Timestamp{1'000'000'000 * second + 1, true}));
  EXPECT_EQ(parse_timestamp("2000-02-29"), (Timestamp{11016 * day, true}));
  EXPECT_EQ(parse_timestamp("42"), (Timestamp{42, false}));
  EXPECT_EQ(parse_timestamp("-7"), (Timestamp{-7, false}));
}

TEST(Timestamp, IsWrittenAsItIsRead) {
  for (const char* text :
       {"42", "-7", "1970-01-01 00:00:00", "2001-09-09 01:46:40.000001", "1969-12-31 23:59:59.500000",
        "2016-07-01 12:00:00Z", "2016-07-01 12:00:00.250000Z"})
    EXPECT_EQ(timestamp_text(*parse_timestamp(text)), text);
}

TEST(Timestamp, RefusesOtherText) {
  for (const char* text : {"",
                           "now",
                           "4.5",
                           "99999999999999999999",
                           "2016-7-1",
                           "2016-07-01 ",
                           "2016-07-01 1:00",
                           "2016-07-01x",
                           "2016-07-01 12",
                           "2016-07-01 24:00",
                           "2016-07-01 12:60",
                           "2016-07-01 12:00:60",
                           "2016-07-01 12:00:00.",
                           "2016-07-01 12:00:00.1234567",
                           "2016-07-01 12:00:00+",
                           "2016-07-01 12:00:00+1",
                           "2016-07-01 12:00:00+01:0",
                           "2016-07-01 12:00:00+01:",
                           "2016-07-01 12:00:00+24:00",
                           "2016-07-01 12:00:00+01:60",
                           "2016-07-01 12:00:00+01:00Z",
                           "2016-07-01 12:00:00ZZ",
                           "2016-07-01 12:00:00 +01:00",
                           "2016-07-01+01:00",
                           "2016-13-01",
                           "2016-00-01",
                           "2016-02-30",
                           "1900-02-29",
                           "2016/07/01",
                           "01.07.2016",
                           "2016-07-01Z"})
    EXPECT_EQ(parse_timestamp(text), std::nullopt) << text;
}

}  // namespace
}  // namespace linnet
