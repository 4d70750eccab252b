#include "doctor/log/pages.h"

#include <fmt/format.h>

#include "doctor/log/conclude.h"
#include "doctor/log/kinds.h"

namespace beeline::doctor::log {
namespace {

// Of the table of contents.
struct Chapter {
  std::string_view title;
  Kind first;  // up to the first of the next chapter
};
constexpr Chapter chapters[] = {
    {"Completion statuses", Kind::completion_4},
    {"Connecting queue pairs, GIDs", Kind::modify_qp_110},
    {"Memory", Kind::mr_no_memory},
    {"Ports, cards, devices", Kind::port_error},
    {"Slow", Kind::socket_fallback},
    {"The job's own connections", Kind::wrong_interface},
    {"Waiting", Kind::store_timeout},
    {"Processes, GPUs, hosts", Kind::process_killed},
    {"Versions", Kind::plugin_mismatch},
};

std::string code(std::string_view text) {
  return text.find('`') == text.npos ? fmt::format("`{}`", text) : fmt::format("`` {} ``", text);
}

std::string sentence(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 32);
  return text + (text.empty() || text.back() == '.' ? "" : ".");
}

std::string page(const Rule& row) {
  std::string text = fmt::format("# {}\n\n{}\n", row.error, row.meaning);
  if (row.rank == Class::secondary)
    text +=
        "\n**Look for the line before it**, in the logs of all ranks: this is what others see of a "
        "failure.\n";
  if (!row.also.empty()) {
    text += "\nThe same, as other programs and versions write it:\n\n";
    for (std::string_view rest = row.also; !rest.empty();) {
      const auto end = std::min(rest.find('\n'), rest.size());
      text += fmt::format("- {}\n", code(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  text += "\n## Causes, the likeliest first\n\n";
  int number = 0;
  for (const CauseRule& cause : row.causes) {
    text += fmt::format("{}. {}", ++number, sentence(std::string(cause.text)));
    bool has_page = false;
    for (const Rule& other : rules()) has_page = has_page || (other.id == cause.id && &other != &row);
    text += has_page ? fmt::format(" ([{0}]({0}.md))\n", cause.id) : "\n";
  }
  text += fmt::format(
      "\n## What to run next\n\n{}\n\n`beeline doctor --log FILE…` finds this in a log (`{}`), says which "
      "rank was "
      "first, and which cause the log has evidence for.\n\n## Sources\n\n{}\n",
      code(row.next), row.id, sentence(std::string(row.source)));
  return text;
}

std::string contents() {
  std::string text =
      "# Symptoms\n\nOne page per error that `beeline doctor --log` knows, under the text that programs "
      "print. "
      "Statuses that libibverbs numbers have the number in the page's name.\n";
  std::size_t chapter = 0;
  for (const Rule& row : rules()) {
    if (chapter < std::size(chapters) && row.kind == chapters[chapter].first)
      text += fmt::format("\n## {}\n\n", chapters[chapter++].title);
    text += fmt::format("- [{}]({}.md)\n", row.error, row.id);
  }
  return text;
}

}  // namespace

std::map<std::string, std::string> symptom_pages() {
  std::map<std::string, std::string> pages = {{"README.md", contents()}};
  for (const Rule& row : rules()) pages.emplace(fmt::format("{}.md", row.id), page(row));
  return pages;
}

}  // namespace beeline::doctor::log
