// Cuts a stream of bytes into lines, in bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace beeline::doctor::log {

// Progress bars return the carriage hundreds of times in what an editor calls one line: each of
// their pieces is a line of its own here, with the number of the whole. Longer pieces are cut.
constexpr std::size_t longest_line = 8192;

class Lines {
 public:
  // Calls take(line, number) for every line that ends in `piece`.
  template <class Take>
  void add(std::string_view piece, Take&& take) {
    for (const char c : piece) {
      if (c == '\n' || c == '\r' || line_.size() >= longest_line) {
        emit(take);
        if (c == '\n') ++number_;
        if (c == '\n' || c == '\r') continue;
      }
      keep(c);
    }
  }
  // What stands after the last line end. Its last word may be half a word: a number or an address
  // is left out, for "status=1" may be the beginning of "status=12".
  template <class Take>
  void end(Take&& take) {
    drop_half_number();
    emit(take);
    line_.clear();
    number_ = 1;
    escape_ = Escape::none;
  }
  std::uint64_t number() const { return number_; }

 private:
  enum class Escape : std::uint8_t { none, started, sequence, title };

  template <class Take>
  void emit(Take&& take) {
    if (!line_.empty()) take(std::string_view(line_), number_);
    line_.clear();
    escape_ = Escape::none;
  }
  void keep(char c);  // without NUL bytes and the escape sequences of terminals
  void drop_half_number();

  std::string line_;
  std::uint64_t number_ = 1;
  Escape escape_ = Escape::none;
};

}  // namespace beeline::doctor::log
