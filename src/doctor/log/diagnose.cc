#include "doctor/log/diagnose.h"

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_map>

#include "doctor/log/anchors.h"
#include "doctor/log/blocks.h"
#include "doctor/log/conclude.h"
#include "doctor/log/derive.h"
#include "doctor/log/lines.h"
#include "doctor/log/prefix.h"
#include "doctor/log/recognise.h"
#include "doctor/log/story.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

constexpr std::size_t most_streams = 4096, most_facts = 65536;
constexpr std::uint64_t longest_traceback = 400;  // lines

std::vector<Recogniser> all_recognisers() {
  std::vector<Recogniser> all;
  for (const auto part :
       {verbs_recognisers(), set_up_recognisers(), process_recognisers(), kernel_recognisers()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<std::string_view> anchors_of(const std::vector<Recogniser>& recognisers) {
  std::vector<std::string_view> anchors;
  anchors.reserve(recognisers.size());
  for (const Recogniser& row : recognisers) anchors.push_back(row.anchor);
  return anchors;
}

struct Table {
  std::vector<Recogniser> recognisers = all_recognisers();
  std::size_t first_of_kernel = recognisers.size() - kernel_recognisers().size();
  Anchors anchors{anchors_of(recognisers)};
};

// The same for every reader, and made once: linking the anchors takes longer than reading most logs.
const Table& all_rows() {
  static const Table table;
  return table;
}

// "### node7 dmesg", "===== node7 =====": whoever puts several hosts' outputs into one file writes above them
// whose they are.
bool is_heading(std::string_view body) {
  static constexpr std::string_view marks = "#=-*>+";
  if (body.size() < 4 || body[0] != body[1] || marks.find(body[0]) == marks.npos) return false;
  return std::any_of(body.begin(), body.end(), is_letter);
}

// "before.txt" and "after.txt" are two looks at one host; other files are of different hosts.
bool is_one_of_two_looks(std::string_view name) {
  name = name.substr(name.rfind('/') + 1);
  for (const std::string_view mark :
       {"before", "after", "start", "end", "pre", "post", "first", "second", "t0", "t1"})
    if (has(name, mark)) return true;
  return false;
}

}  // namespace

struct Reader::Impl {
  void take(std::string_view text, std::uint64_t number, bool cut);
  void recognise(const Line& line, const Mark& mark);
  bool accept_exception(const Line& line);
  void add(Event&& event, const Line& line, const Mark& mark);
  void end_source();

  const Table& table = all_rows();
  Anchors::Seen seen_anchors;
  Lines lines;
  Story story;
  std::uint32_t source = 0;
  bool open = false;
  std::string set;
  std::string section;  // the last heading, until somebody says who it is
  std::string storage;
  std::vector<std::pair<std::uint16_t, std::size_t>> hits;
  std::unordered_map<std::uint64_t, std::uint64_t> tracebacks;  // stream -> line
  std::unordered_map<std::uint64_t, std::size_t> facts;         // what was said before, and by whom
  std::uint64_t order = 0, bytes = 0, line_count = 0;
};

void Reader::Impl::add(Event&& event, const Line& line, const Mark& mark) {
  // Facts come thousands of times; only how often, and when last, is news.
  const bool is_fact =
      !is_symptom(event.kind) && event.kind != Kind::fact_rank && event.kind != Kind::fact_last_work;
  std::uint64_t key = 0;
  if (is_fact) {
    key = line.stream ^ (std::hash<std::string>{}(event.detail) * 31) ^ (std::uint64_t{mark.source} << 40) ^
          (static_cast<std::uint64_t>(event.kind) << 52);
    if (const auto known = facts.find(key); known != facts.end())
      return story.repeat(known->second, mark.order);
  }
  if (event.rank.empty()) event.rank = line.rank;
  if (event.host.empty()) event.host = line.host;
  if (event.pid.empty()) event.pid = line.pid;
  event.section = mark.section;
  std::string_view when = line.when;
  while (!when.empty() && (when.front() == '[' || when.back() == ']'))
    when.front() == '[' ? when.remove_prefix(1) : when.remove_suffix(1);
  event.when = printable(when, 40);
  event.stamps = line.stamps;
  event.inner = line.inner;
  event.source = mark.source;
  event.line = mark.line;
  event.order = mark.order;
  event.last_order = mark.order;
  event.kernel = event.kernel || line.kernel;
  event.cut = line.cut;
  event.text = printable(line.whole);
  for (std::string* const text : {&event.rank, &event.host, &event.device, &event.peer, &event.local_gid,
                                  &event.remote_gid, &event.detail})
    *text = printable(*text, 120);
  const auto place = story.add(std::move(event));
  if (is_fact && place && facts.size() < most_facts) facts.emplace(key, *place);
}

// Only the last line of a traceback: programs print errors that they handle, too.
bool Reader::Impl::accept_exception(const Line& line) {
  const auto seen = tracebacks.find(line.stream);
  if (seen == tracebacks.end() || line.number - seen->second > longest_traceback) return false;
  tracebacks.erase(seen);
  return true;
}

void Reader::Impl::recognise(const Line& line, const Mark& mark) {
  hits.clear();
  table.anchors.scan(line.body, seen_anchors,
                     [&](std::uint16_t row, std::size_t end) { hits.emplace_back(row, end); });
  std::sort(hits.begin(), hits.end());
  bool symptom = false;
  for (const auto& [row, end] : hits) {
    const Recogniser& recogniser = table.recognisers[row];
    if (symptom && (recogniser.kind == Kind::count_ || is_symptom(recogniser.kind) ||
                    recogniser.kind == Kind::fact_exception))
      continue;
    Event event;
    event.kind = recogniser.kind;
    event.kernel = row >= table.first_of_kernel;
    if (!recogniser.extract(line, line.body.substr(end), event) || event.kind == Kind::count_) continue;
    if (symptom && is_symptom(event.kind)) continue;
    if (event.kind == Kind::fact_exception) {
      if (!accept_exception(line)) continue;
      event.kind = Kind::process_failed;
      event.detail = line.body;
    }
    symptom = symptom || is_symptom(event.kind);
    add(std::move(event), line, mark);
  }
}

void Reader::Impl::take(std::string_view text, std::uint64_t number, bool cut) {
  ++order;
  Line line = take_apart(text, number, storage);
  line.cut = cut;
  if (line.body.empty()) return;
  story.saw(line);
  Mark mark;
  mark.source = source;
  mark.line = number;
  mark.order = order;
  const bool named = line.stream != 0 || line.nccl;
  if (named)
    section.clear();
  else if (is_heading(line.body))
    section = printable(line.body, 200);
  mark.section = section;
  if (line.body.find("Traceback (most recent call last)") != line.body.npos) {
    if (tracebacks.size() >= most_streams) tracebacks.clear();
    tracebacks[line.stream] = number;
  }
  recognise(line, mark);
  if (line.nccl) return;  // no tool's output
  mark.host = line.host;
  mark.stamps = line.stamps;
  mark.set = set;
  mark.text = printable(line.whole);
  story.blocks().read(line, mark, [&](Event&& event) { add(std::move(event), line, mark); });
}

void Reader::Impl::end_source() {
  if (!open) return;
  line_count += lines.number() - 1;
  lines.end([&](std::string_view text, std::uint64_t number) {
    ++line_count;
    take(text, number, true);
  });
  tracebacks.clear();
  section.clear();
  open = false;
}

Reader::Reader() : impl_(std::make_unique<Impl>()) {}
Reader::~Reader() = default;

void Reader::start_source(std::string_view name) {
  impl_->end_source();
  const std::string safe = printable(name, 200);
  impl_->source = impl_->story.add_source(safe);
  impl_->set = is_one_of_two_looks(name) ? "" : std::to_string(impl_->source) + "/";
  impl_->open = true;
}

void Reader::add(std::string_view piece) {
  if (!impl_->open) start_source("stdin");
  impl_->bytes += piece.size();
  impl_->lines.add(piece,
                   [&](std::string_view text, std::uint64_t number) { impl_->take(text, number, false); });
}

Diagnosis Reader::finish() {
  impl_->end_source();
  impl_->story.settle();
  derive(impl_->story);
  Diagnosis diagnosis = conclude(impl_->story);
  diagnosis.lines = impl_->line_count;
  diagnosis.bytes = impl_->bytes;
  diagnosis.ranks = impl_->story.ranks().size();
  diagnosis.hosts = impl_->story.hosts().size();
  return diagnosis;
}

Diagnosis diagnose(std::span<const Source> sources) {
  Reader reader;
  for (const Source& source : sources) {
    reader.start_source(source.name);
    reader.add(source.text);
  }
  return reader.finish();
}

std::optional<Severity> worst(const Diagnosis& diagnosis) {
  std::optional<Severity> worst;
  for (const Finding& finding : diagnosis.findings)
    if (!worst || finding.severity > *worst) worst = finding.severity;
  return worst;
}

}  // namespace beeline::doctor::log
