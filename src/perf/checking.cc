#include "perf/checking.h"

namespace beeline::perf {
namespace {

// Calls `visit(place, key)` for every message of the round in one area of each queue pair.
template <class Visit>
void for_each_place(Endpoint& end, const Round& round, std::byte* Lane::*area, bool from_server,
                    Visit visit) {
  const std::uint64_t stride = end.plan().size_bytes;
  for (std::size_t lane = 0; lane < end.lanes().size(); ++lane)
    for (std::uint64_t i = 0; i < round.iterations; ++i)
      visit(MutableBytes(end.lanes()[lane].*area + i * stride, round.size_bytes),
            PatternKey{round.first_iteration + i, static_cast<std::uint32_t>(lane), from_server});
}

}  // namespace

Roles roles_of(const Plan& plan, bool is_server) {
  Roles roles;
  roles.is_server = is_server;
  const bool both = plan.bidirectional || (plan.test->latency && plan.test->operation != Operation::read);
  roles.initiates = both || !is_server;
  roles.source = both || (plan.test->operation == Operation::read) == is_server;
  roles.sink = both || !roles.source;
  return roles;
}

void add(Verdict& total, const Verdict& more) {
  total.checked_bytes += more.checked_bytes;
  total.wrong_bytes += more.wrong_bytes;
  if (total.first.empty()) total.first = more.first;
}

void verify_message(Verdict& verdict, Bytes message, const PatternKey& key) {
  verdict.checked_bytes += message.size();
  const PatternDamage damage = check_pattern(message, key);
  if (damage.wrong_bytes == 0) return;
  verdict.wrong_bytes += damage.wrong_bytes;
  if (verdict.first.empty())
    verdict.first =
        fmt::format("iteration {}, queue pair {}, offset {}, {}", key.iteration, key.queue_pair,
                    damage.first_offset, key.from_server ? "server to client" : "client to server");
}

void fill_round(Endpoint& end, const Round& round, const Roles& roles) {
  if (roles.source) for_each_place(end, round, &Lane::source, roles.is_server, fill_pattern);
  if (roles.sink) for_each_place(end, round, &Lane::sink, !roles.is_server, fill_poison);
}

Verdict verify_round(Endpoint& end, const Round& round, const Roles& roles) {
  Verdict verdict;
  if (roles.sink)
    for_each_place(end, round, &Lane::sink, !roles.is_server,
                   [&](Bytes message, const PatternKey& key) { verify_message(verdict, message, key); });
  return verdict;
}

}  // namespace beeline::perf
