#include "doctor/log/anchors.h"

#include <queue>

#include "doctor/log/text.h"

namespace beeline::doctor::log {

Anchors::Anchors(std::span<const std::string_view> texts) : texts_(texts.size()) {
  for (const auto text : texts)
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(lower(c));
      if (class_of_[byte] == 0) class_of_[byte] = static_cast<std::uint8_t>(classes_++);
    }
  for (int c = 'A'; c <= 'Z'; ++c)
    class_of_[static_cast<std::size_t>(c)] = class_of_[static_cast<std::size_t>(c) + 32];
  next_.assign(classes_, 0);
  texts_of_.resize(1);
  for (std::size_t i = 0; i < texts.size(); ++i) insert(texts[i], static_cast<std::uint16_t>(i));
  link();
}

void Anchors::insert(std::string_view text, std::uint16_t index) {
  std::uint32_t state = 0;
  for (const char c : text) {
    const std::size_t at = state * classes_ + class_of_[static_cast<unsigned char>(c)];
    if (next_[at] == 0) {
      next_[at] = static_cast<std::uint32_t>(texts_of_.size());
      next_.resize(next_.size() + classes_, 0);
      texts_of_.emplace_back();
    }
    state = next_[at];
  }
  texts_of_[state].push_back(index);
}

// Breadth first: where a state has no way on, the longest suffix that is a state has one.
void Anchors::link() {
  const std::size_t states = texts_of_.size();
  std::vector<std::uint32_t> suffix(states, 0);
  report_.assign(states, 0);
  reports_.assign(states, false);
  for (std::size_t i = 0; i < states; ++i) reports_[i] = !texts_of_[i].empty();
  std::queue<std::uint32_t> ahead;
  for (std::uint32_t c = 0; c < classes_; ++c)
    if (next_[c] != 0) ahead.push(next_[c]);
  while (!ahead.empty()) {
    const std::uint32_t state = ahead.front();
    ahead.pop();
    report_[state] = reports_[suffix[state]] ? suffix[state] : report_[suffix[state]];
    for (std::uint32_t c = 0; c < classes_; ++c) {
      std::uint32_t& way = next_[state * classes_ + c];
      const std::uint32_t other = next_[suffix[state] * classes_ + c];
      if (way == 0) {
        way = other;
      } else {
        suffix[way] = other;
        ahead.push(way);
      }
    }
  }
}

}  // namespace beeline::doctor::log
