#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace beeline {
namespace {

// Levenshtein's distance, a row of his table at a time.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  constexpr std::size_t longest = 64;  // nobody mistypes more, and the work is bounded
  if (word.size() > longest) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view name : names)
    if (const std::size_t changes = distance(word, name); changes < best_distance) {
      best = name;
      best_distance = changes;
    }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> names) {
  const auto meant = nearest(word, names);
  return meant.empty() ? std::string() : "; did you mean " + std::string(meant) + "?";
}

}  // namespace beeline
