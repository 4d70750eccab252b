// What somebody probably meant who mistyped a name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace beeline {

// Of `names` the one that is fewest single-character changes away from `word`; empty where none is near
// enough to be meant (more than a third of the word would have to change).
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);
// "; did you mean all_reduce?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> names);

}  // namespace beeline
