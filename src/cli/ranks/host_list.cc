#include "cli/ranks/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace beeline::cli {
namespace {

// Splits at the commas that are not inside of brackets.
std::vector<std::string_view> names_of(std::string_view text) {
  std::vector<std::string_view> names;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      if (i > start) names.push_back(text.substr(start, i - start));
      start = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      inside = text[i] == '[';
    }
  }
  return names;
}

bool parse(std::string_view digits, std::uint32_t& value) {
  const auto* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  return error == std::errc{} && stop == end;
}

// "01-03" or "7", as written: false where it is neither, or too much.
bool add_range(std::string_view range, std::vector<std::string>& out) {
  const auto dash = range.find('-');
  const auto first = range.substr(0, dash);
  const auto last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  std::uint32_t from = 0, to = 0;
  if (!parse(first, from) || !parse(last, to) || to < from || to - from >= most_hosts) return false;
  for (std::uint64_t number = from; number <= to && out.size() < most_hosts; ++number) {
    auto digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    out.push_back(std::move(digits));
  }
  return true;
}

// One name's brackets, from the left: every number of the first with everything that the rest gives.
bool expand(std::string_view name, const std::string& before, std::vector<std::string>& out) {
  const auto open = name.find('[');
  if (open == std::string_view::npos) {
    if (name.find(']') != std::string_view::npos || out.size() >= most_hosts) return false;
    out.push_back(before + std::string(name));
    return true;
  }
  const auto close = name.find(']', open);
  if (close == std::string_view::npos) return false;
  std::vector<std::string> numbers;
  for (const auto range : names_of(name.substr(open + 1, close - open - 1)))
    if (!add_range(range, numbers)) return false;
  return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](const std::string& number) {
    return expand(name.substr(close + 1), before + std::string(name.substr(0, open)) + number, out);
  });
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text) {
  std::vector<std::string> hosts;
  for (const auto name : names_of(text))
    if (!expand(name, "", hosts))
      return fail(Errc::invalid_argument, "'{}' is no list of at most {} hosts, such as n[01-16],login1",
                  text.substr(0, 200), most_hosts);
  return hosts;
}

}  // namespace beeline::cli
