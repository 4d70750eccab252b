// Finds which of many short texts occur in a line, in one pass over it (Aho and Corasick, 1975).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace beeline::doctor::log {

class Anchors {
 public:
  // Which texts were found in the line at hand: what a thread that scans brings along.
  class Seen {
    friend class Anchors;
    std::vector<std::uint64_t> round_of;
    std::uint64_t round = 0;
  };

  // Upper and lower case are the same.
  explicit Anchors(std::span<const std::string_view> texts);

  // Calls found(index, end) for the first occurrence of each text; `end` is the offset behind it.
  template <class Found>
  void scan(std::string_view line, Seen& seen, Found&& found) const {
    seen.round_of.resize(texts_);
    ++seen.round;
    std::uint32_t state = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      state = next_[state * classes_ + class_of_[static_cast<unsigned char>(line[i])]];
      for (std::uint32_t at = reports_[state] ? state : report_[state]; at != 0; at = report_[at]) {
        for (const std::uint16_t text : texts_of_[at]) {
          if (seen.round_of[text] == seen.round) continue;
          seen.round_of[text] = seen.round;
          found(text, i + 1);
        }
      }
    }
  }

 private:
  void insert(std::string_view text, std::uint16_t index);
  void link();

  std::array<std::uint8_t, 256> class_of_{};
  std::uint32_t classes_ = 1;
  std::vector<std::uint32_t> next_;    // state × class -> state
  std::vector<std::uint32_t> report_;  // the next shorter state that ends a text; 0 is none
  std::vector<bool> reports_;
  std::vector<std::vector<std::uint16_t>> texts_of_;
  std::size_t texts_;
};

}  // namespace beeline::doctor::log
