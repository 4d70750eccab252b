#include "doctor/log/lines.h"

#include "doctor/log/text.h"

namespace beeline::doctor::log {

void Lines::keep(char c) {
  const bool is_letter_or_at = c >= '@' && c <= '~';
  switch (escape_) {
    case Escape::none:
      if (c == '\x1b') {
        escape_ = Escape::started;
      } else if (c != '\0') {
        line_ += c;
      }
      return;
    case Escape::started:  // ESC [ parameters letter, ESC ] title BEL, or ESC letter
      escape_ = c == '[' ? Escape::sequence : c == ']' ? Escape::title : Escape::none;
      return;
    case Escape::sequence:
      if (is_letter_or_at) escape_ = Escape::none;
      return;
    case Escape::title:
      if (c == '\a') escape_ = Escape::none;
      return;
  }
}

void Lines::drop_half_number() {
  const auto is_part = [](char c) { return is_hex(c) || c == ':' || c == '.' || c == 'x'; };
  std::size_t end = line_.size();
  bool has_digit = false;
  for (; end > 0 && is_part(line_[end - 1]); --end)
    has_digit = has_digit || is_digit(line_[end - 1]) || line_[end - 1] == ':';
  // "failed" ends in letters that are hexadecimal digits too.
  const bool word_goes_on = end > 0 && is_letter(line_[end - 1]);
  if (has_digit && !word_goes_on) line_.resize(end);
}

}  // namespace beeline::doctor::log
