#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "doctor/log/derive.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

constexpr std::int64_t few_collectives = 32, default_timeout_ms = 600'000;

struct Waiting {
  std::map<std::string, const Event*> first;  // of each rank that reports a timeout
  std::map<std::string, const Event*> last_work;
};

Waiting waiting_ranks(const Story& story) {
  Waiting waiting;
  for (const Event* const event : story.all(Kind::watchdog_timeout))
    if (!event->rank.empty()) waiting.first.try_emplace(event->rank, event);
  for (const Event* const event : story.all(Kind::fact_last_work))
    if (!event->rank.empty()) waiting.last_work.try_emplace(event->rank, event);
  return waiting;
}

// Same sequence number, other operation or size.
bool different_calls(const Waiting& waiting, Late& late) {
  std::map<std::int64_t, const Event*> of_sequence;
  for (const auto& [rank, event] : waiting.first) {
    if (event->sequence < 0 || event->detail.empty()) continue;
    const auto [place, fresh] = of_sequence.try_emplace(event->sequence, event);
    const Event* const other = place->second;
    if (fresh || (other->detail == event->detail && other->elements == event->elements)) continue;
    late.cause = "different-calls";
    late.text =
        fmt::format("collective {} is {} of {} elements on rank {} and {} of {} on rank {}", event->sequence,
                    other->detail, other->elements, other->rank, event->detail, event->elements, event->rank);
    late.rank = event->rank;
    late.host = event->host;
    late.evidence = {other, event};
    return true;
  }
  return false;
}

// The rank with the smallest number, if it is smaller than that of all others but few.
template <class Number>
const Event* behind(const std::map<std::string, const Event*>& ranks, Number number, std::int64_t& most) {
  const Event* least = nullptr;
  std::int64_t least_number = INT64_MAX;
  most = -1;
  for (const auto& [rank, event] : ranks) {
    const std::int64_t value = number(*event);
    if (value < 0) continue;
    most = std::max(most, value);
    if (value < least_number) least = event, least_number = value;
  }
  return least != nullptr && least_number < most ? least : nullptr;
}

bool one_is_behind(const Waiting& waiting, Late& late) {
  struct Measure {
    const char* words;
    std::int64_t Event::*number;
    const std::map<std::string, const Event*>* ranks;
  };
  const Measure measures[] = {{"last enqueued collective", &Event::enqueued, &waiting.last_work},
                              {"waits in collective", &Event::sequence, &waiting.first},
                              {"last completed collective", &Event::completed, &waiting.last_work}};
  for (const Measure& measure : measures) {
    std::int64_t most = -1;
    const Event* const least = behind(
        *measure.ranks, [&](const Event& event) { return event.*measure.number; }, most);
    if (least == nullptr) continue;
    late.cause = "stuck-rank";
    late.rank = least->rank;
    late.host = least->host;
    late.text = fmt::format("rank {} is behind: {} {}, others {}", least->rank, measure.words,
                            least->*measure.number, most);
    late.evidence = {least};
    return true;
  }
  return false;
}

bool some_are_silent(const Story& story, const Waiting& waiting, Late& late) {
  std::set<std::int64_t> silent;
  const auto consider = [&](std::int64_t rank) {
    if (waiting.first.count(std::to_string(rank)) == 0) silent.insert(rank);
  };
  for (std::int64_t rank = 0; rank < std::min<std::int64_t>(story.world(), 65536); ++rank) consider(rank);
  for (const std::string& rank : story.ranks())
    if (const auto value = number(rank)) consider(*value);
  // Ranks below the highest that reports exist too.
  for (const auto& [rank, event] : waiting.first)
    for (std::int64_t lower_rank = 0;
         story.world() == 0 && lower_rank < std::min<std::int64_t>(number(rank).value_or(0), 4096);
         ++lower_rank)
      consider(lower_rank);
  if (silent.empty() || silent.size() > waiting.first.size()) return false;
  std::string names;
  for (const std::int64_t rank : silent) {
    if (names.size() > 40) {
      names += ", …";
      break;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
  }
  late.cause = "stuck-rank";
  if (silent.size() == 1) late.rank = std::to_string(*silent.begin());
  late.text = fmt::format("{} {} report no timeout while {} other ranks wait",
                          silent.size() == 1 ? "rank" : "ranks", names, waiting.first.size());
  if (silent.size() == 1)
    late.text =
        fmt::format("rank {} reports no timeout while {} other ranks wait", names, waiting.first.size());
  return true;
}

// A barrier (one element) near the start, for as long as the default allows.
bool preprocessing(const Waiting& waiting, Late& late) {
  if (waiting.first.empty()) return false;
  for (const auto& [rank, event] : waiting.first)
    if (event->sequence < 0 || event->sequence > few_collectives || event->elements > 1 ||
        event->elements < 0 || event->timeout_ms < default_timeout_ms)
      return false;
  if (waiting.first.count("0") != 0 && waiting.first.size() > 1)
    return false;  // rank 0 waits like the others
  const Event* const first = waiting.first.begin()->second;
  late.cause = "preprocessing";
  late.rank = waiting.first.count("0") == 0 ? "0" : "";
  late.text = fmt::format(
      "collective {} of one element, near the start, ran into the timeout of {} minutes: a barrier that rank "
      "0 had not reached",
      first->sequence, first->timeout_ms / 60000);
  late.evidence = {first};
  return true;
}

}  // namespace

Late who_is_late(const Story& story) {
  Late late;
  const Waiting waiting = waiting_ranks(story);
  if (waiting.first.empty()) return late;
  if (preprocessing(waiting, late) || different_calls(waiting, late) || one_is_behind(waiting, late) ||
      some_are_silent(story, waiting, late))
    return late;
  return late;
}

}  // namespace beeline::doctor::log
