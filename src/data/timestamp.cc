#include "data/timestamp.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <system_error>

namespace linnet {
namespace {

/// Takes `digits` digits from the front; nothing where there are fewer.
std::optional<int> take_digits(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return {};
  int value = 0;
  for (const char digit : text.substr(0, digits)) {
    if (digit < '0' || digit > '9') return {};
    value = 10 * value + (digit - '0');
  }
  text.remove_prefix(digits);
  return value;
}

/// Takes a separator with the digits behind it.
std::optional<int> take_field(std::string_view& text, std::string_view separators, std::size_t digits) {
  if (text.empty() || separators.find(text.front()) == std::string_view::npos) return {};
  text.remove_prefix(1);
  return take_digits(text, digits);
}

std::optional<std::chrono::microseconds> take_time_of_day(std::string_view& text) {
  constexpr std::size_t digits_of_microseconds = 6;
  const auto hour = take_field(text, " T", 2), minute = take_field(text, ":", 2);
  if (!hour || !minute || *hour > 23 || *minute > 59) return {};
  std::chrono::microseconds time = std::chrono::hours(*hour) + std::chrono::minutes(*minute);
  if (text.starts_with(':')) {
    const auto second = take_field(text, ":", 2);
    if (!second || *second > 59) return {};
    time += std::chrono::seconds(*second);
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      std::int64_t unit = 1'000'000;
      std::size_t digits = 0;
      for (; digits < digits_of_microseconds; ++digits) {
        const auto digit = take_digits(text, 1);
        if (!digit) break;
        unit /= 10;
        time += std::chrono::microseconds(unit * *digit);
      }
      if (digits == 0) return {};
    }
  }
  return time;
}

/// Takes what says how far a time of day is from UTC; nothing where that is no offset.
std::optional<std::chrono::minutes> take_offset(std::string_view& text) {
  if (text == "Z") {
    text.remove_prefix(1);
    return std::chrono::minutes(0);
  }
  const int sign = text.starts_with('-') ? -1 : 1;
  const auto hours = take_field(text, "+-", 2);
  const auto minutes = text.empty()            ? 0
                       : text.starts_with(':') ? take_field(text, ":", 2)
                                               : take_digits(text, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59) return {};
  return sign * (std::chrono::hours(*hours) + std::chrono::minutes(*minutes));
}

/// A date and the time of day.
struct Civil {
  std::chrono::year_month_day date;
  std::chrono::microseconds of_day;
};

Civil civil_of(const Timestamp& time) {
  const std::chrono::sys_time<std::chrono::microseconds> point{std::chrono::microseconds(time.value)};
  const auto day = std::chrono::floor<std::chrono::days>(point);
  return {day, point - day};
}

std::chrono::year_month_day month_end(std::chrono::year_month month) { return month / std::chrono::last; }

bool is_month_end(const std::chrono::year_month_day& date) {
  return date == month_end(date.year() / date.month());
}

}  // namespace

bool is_month_end(const Timestamp& time) { return time.calendar && is_month_end(civil_of(time).date); }

std::optional<int> months_between(const Timestamp& from, const Timestamp& to) {
  if (!from.calendar || !to.calendar || to.value <= from.value) return {};
  const Civil a = civil_of(from), b = civil_of(to);
  const bool same_day = a.date.day() == b.date.day(), ends = is_month_end(a.date) && is_month_end(b.date);
  if (a.of_day != b.of_day || !(same_day || ends)) return {};
  const auto month = [](const Civil& civil) { return civil.date.year() / civil.date.month(); };
  return static_cast<int>((month(b) - month(a)).count());
}

Timestamp months_later(const Timestamp& from, int months, bool at_end) {
  const Civil civil = civil_of(from);
  const std::chrono::year_month month = civil.date.year() / civil.date.month() + std::chrono::months(months);
  std::chrono::year_month_day date = month / civil.date.day();
  if (!date.ok() || (at_end && is_month_end(civil.date))) date = month_end(month);
  Timestamp later = from;
  later.value =
      std::chrono::microseconds(std::chrono::sys_days(date).time_since_epoch() + civil.of_day).count();
  return later;
}

std::optional<Timestamp> parse_timestamp(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  if (const auto [at, error] = std::from_chars(text.data(), end, number); error == std::errc() && at == end)
    return Timestamp{number, false};
  const auto year = take_digits(text, 4), month = take_field(text, "-", 2), day = take_field(text, "-", 2);
  if (!year || !month || !day) return {};
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return {};
  std::chrono::microseconds time = std::chrono::sys_days(date).time_since_epoch();
  if (!text.empty()) {
    const auto of_day = take_time_of_day(text);
    if (!of_day) return {};
    time += *of_day;
  }
  const bool utc = !text.empty();
  if (utc) {
    const auto offset = take_offset(text);
    if (!offset || !text.empty()) return {};
    time -= *offset;
  }
  return Timestamp{time.count(), true, utc};
}

std::string timestamp_text(const Timestamp& time) {
  if (!time.calendar) return fmt::format("{}", time.value);
  constexpr std::int64_t second = 1'000'000;
  const std::int64_t seconds = time.value / second - (time.value % second < 0 ? 1 : 0),
                     rest = time.value - seconds * second;
  const std::string text =
      fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(seconds)));
  return fmt::format("{}{}{}", text, rest == 0 ? "" : fmt::format(".{:06}", rest), time.utc ? "Z" : "");
}

}  // namespace linnet
