// What strangers wrote (a log, a host, another doctor), fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace beeline::doctor {

inline constexpr std::size_t whole = std::string_view::npos;  // no text is longer

// Control characters, marks that reverse the writing direction and invalid UTF-8 as \xNN; without blanks at
// the ends. Longer texts are cut, and end in "…".
std::string printable(std::string_view text, std::size_t longest = 240);

}  // namespace beeline::doctor
