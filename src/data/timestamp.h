#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace linnet {

/// A point of time in a series: an integer of any meaning, or a date with a time of day.
struct Timestamp {
  std::int64_t value = 0;  ///< the integer, or microseconds since 1970-01-01 00:00:00
  bool calendar = false;   ///< whether it is a date
  bool utc = false;        ///< whether the date says how far from UTC it is, so that the value is that of UTC

  bool operator==(const Timestamp&) const = default;
};

/// Reads "42", "2016-07-01", "2016-07-01 12:30", "2016-07-01 12:30:05" or "2016-07-01T12:30:05.25". "Z", or
/// an offset from UTC as "+02:00", "-0330" or "+02", may follow a time of day. Nothing for any other text, a
/// date that does not exist, and more than six digits of a second.
std::optional<Timestamp> parse_timestamp(std::string_view text);

/// Whole months from a date to a later one: both have the same time of day, and the same day of the month or
/// the last one of theirs. Nothing for others.
std::optional<int> months_between(const Timestamp& from, const Timestamp& to);

/// The date so many months later, on the last day of the month where `from` is one with `at_end`, or where
/// that month has no such day.
Timestamp months_later(const Timestamp& from, int months, bool at_end);

/// Whether a date is the last one of its month.
bool is_month_end(const Timestamp& time);

/// The integer, or the date as "2016-07-01 12:30:05", with microseconds where it has a fraction of a second
/// and "Z" where it is of UTC.
std::string timestamp_text(const Timestamp& time);

}  // namespace linnet
