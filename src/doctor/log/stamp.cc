#include "doctor/log/stamp.h"

#include <algorithm>

#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

constexpr std::array<std::string_view, 12> months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<std::string_view, 7> weekdays = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

// Exactly `digits` digits.
std::optional<int> take_digits(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (!is_digit(text[i])) return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

double take_fraction(std::string_view& text) {
  if (text.size() < 2 || (text.front() != '.' && text.front() != ',') || !is_digit(text[1])) return 0;
  text.remove_prefix(1);
  double value = 0, unit = 0.1;
  while (!text.empty() && is_digit(text.front())) {
    value += unit * (text.front() - '0');
    unit /= 10;
    text.remove_prefix(1);
  }
  return value;
}

// 17:48:01, with or without a fraction.
std::optional<double> take_clock(std::string_view& text) {
  std::string_view rest = text;
  const auto hour = take_digits(rest, 2);
  if (!hour || *hour > 23 || !take(rest, ':')) return std::nullopt;
  const auto minute = take_digits(rest, 2);
  if (!minute || *minute > 59 || !take(rest, ':')) return std::nullopt;
  const auto second = take_digits(rest, 2);
  if (!second || *second > 60) return std::nullopt;
  const double value = *hour * 3600.0 + *minute * 60.0 + *second + take_fraction(rest);
  text = rest;
  return value;
}

Stamp date(int month, int day, double clock) {
  return {Clock::date, ((month - 1) * 31.0 + (day - 1)) * 86400.0 + clock};
}
bool is_date(int month, int day) { return month >= 1 && month <= 12 && day >= 1 && day <= 31; }

// 2026-11-30T06:33:17.123Z, 2026/11/30 06:33:17, with an offset from UTC or without.
std::optional<Stamp> take_iso(std::string_view& text) {
  std::string_view rest = text;
  const auto year = take_digits(rest, 4);
  if (!year || rest.empty() || (rest.front() != '-' && rest.front() != '/')) return std::nullopt;
  const char separator = rest.front();
  rest.remove_prefix(1);
  const auto month = take_digits(rest, 2);
  if (!month || !take(rest, separator)) return std::nullopt;
  const auto day = take_digits(rest, 2);
  if (!day || !is_date(*month, *day)) return std::nullopt;
  if (!take(rest, 'T') && !take(rest, ' ') && !take(rest, '_') && !take(rest, '-')) return std::nullopt;
  const auto clock = take_clock(rest);
  if (!clock) return std::nullopt;
  if (!take(rest, 'Z') && rest.size() >= 5 && (rest[0] == '+' || rest[0] == '-') && is_digit(rest[1])) {
    const auto end =
        std::find_if(rest.begin() + 1, rest.end(), [](char c) { return !is_digit(c) && c != ':'; });
    rest.remove_prefix(static_cast<std::size_t>(end - rest.begin()));
  }
  text = rest;
  return date(*month, *day, *clock);
}

std::optional<int> take_month(std::string_view& text) {
  for (std::size_t i = 0; i < months.size(); ++i) {
    if (!starts(text, months[i]) || text.size() < 4 || text[3] != ' ') continue;
    text.remove_prefix(4);
    return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

// "Nov 30 06:33:17" of syslog, "Mon Nov 30 06:33:17 2026" of ctime and dmesg -T, "[May 22 02:20:14 811523]".
std::optional<Stamp> take_named_month(std::string_view& text) {
  std::string_view rest = text;
  for (const auto weekday : weekdays) {
    if (!starts(rest, weekday) || rest.size() < 4 || rest[3] != ' ') continue;
    rest.remove_prefix(4);
    break;
  }
  const auto month = take_month(rest);
  if (!month) return std::nullopt;
  rest = trimmed(rest);
  auto day = take_digits(rest, 2);
  if (!day) day = take_digits(rest, 1);
  if (!day || !is_date(*month, *day) || !take(rest, ' ')) return std::nullopt;
  const auto clock = take_clock(rest);
  if (!clock) return std::nullopt;
  // mpirun puts nothing between its time and what a program says, which may begin with a date.
  std::string_view year = rest;
  const auto ends_here = [](std::string_view behind) {
    return behind.empty() || !is_digit(behind.front()) || take_iso(behind);
  };
  if (take(year, ' ') && take_digits(year, 4) && ends_here(year)) rest = year;
  text = rest;
  return date(*month, *day, *clock);
}

// "E1206 18:44:12.715298746", "E816 01:45:40.183", "I20250825 11:10:33.587517" of glog and c10.
std::optional<Stamp> take_glog(std::string_view& text) {
  std::string_view rest = text;
  if (rest.empty() ||
      (rest.front() != 'I' && rest.front() != 'W' && rest.front() != 'E' && rest.front() != 'F'))
    return std::nullopt;
  rest.remove_prefix(1);
  std::size_t digits = 0;
  while (digits < rest.size() && is_digit(rest[digits])) ++digits;
  if (digits != 3 && digits != 4 && digits != 8) return std::nullopt;
  if (digits == 8) rest.remove_prefix(4);
  const auto month = take_digits(rest, digits == 3 ? 1 : 2);
  const auto day = take_digits(rest, 2);
  if (!month || !day || !is_date(*month, *day) || !take(rest, ' ')) return std::nullopt;
  const auto clock = take_clock(rest);
  if (!clock) return std::nullopt;
  text = rest;
  return date(*month, *day, *clock);
}

// "1608298882.555115" since 1970, "12345.678901" since boot: only in brackets.
std::optional<Stamp> take_seconds(std::string_view& text) {
  std::string_view rest = trimmed(text);
  const auto whole = number(rest);
  if (!whole || *whole < 0) return std::nullopt;
  while (!rest.empty() && is_digit(rest.front())) rest.remove_prefix(1);
  if (rest.empty() || rest.front() != '.') return std::nullopt;
  const double value = static_cast<double>(*whole) + take_fraction(rest);
  if (rest.empty() || rest.front() != ']') return std::nullopt;
  text = rest;
  return Stamp{*whole >= 1'000'000'000 ? Clock::epoch : Clock::boot, value};
}

}  // namespace

std::optional<Stamp> take_stamp(std::string_view& text) {
  std::string_view rest = text;
  const bool bracket = take(rest, '[');
  auto stamp = take_iso(rest);
  if (!stamp) stamp = take_named_month(rest);
  if (!stamp) stamp = take_glog(rest);
  if (!stamp && bracket) stamp = take_seconds(rest);
  if (!stamp) {
    const auto clock = take_clock(rest);
    if (!clock) return std::nullopt;
    stamp = Stamp{Clock::day, *clock};
  }
  if (bracket) take(rest, ']');
  text = rest;
  return stamp;
}

}  // namespace beeline::doctor::log
