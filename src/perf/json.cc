#include "perf/json.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace beeline::perf {
namespace {

using Json = nlohmann::ordered_json;

Json environment_of(const Agreement& agreement) {
  const Plan& plan = agreement.plan;
  Json out;
  utsname host{};
  if (uname(&host) == 0) {
    out["host"] = host.nodename;
    out["kernel"] = host.release;
  }
  out["cpus"] = sysconf(_SC_NPROCESSORS_ONLN);
  out["test"] = plan.test->name;
  out["role"] = agreement.is_server ? "server" : "client";
  out["provider"] = agreement.provider;
  out["device"] = agreement.device;
  out["mtu_bytes"] = agreement.mtu_bytes;
  out["gid_index"] = agreement.gid_index;
  out["local_gid"] = to_string(agreement.local.gid);
  out["remote_gid"] = to_string(agreement.remote.gid);
  out["queue_pairs"] = plan.queue_pairs;
  out["tx_depth"] = plan.tx_depth;
  out["bidirectional"] = plan.bidirectional;
  out["check"] = plan.check;
  return out;
}

Json result_of(const Row& row) {
  Json out;
  out["bytes"] = row.bytes;
  out["iterations"] = row.iterations;
  if (row.bandwidth) {
    out["bandwidth_GBps"] = row.bandwidth->average_bytes_per_s / 1e9;
    out["bandwidth_peak_GBps"] = row.bandwidth->peak_bytes_per_s / 1e9;
    out["message_rate_Mpps"] = row.bandwidth->messages_per_s / 1e6;
  }
  if (row.latency) {
    const LatencySummary& l = *row.latency;
    out["latency_us"] = {{"min", l.min_us},     {"max", l.max_us},       {"average", l.average_us},
                         {"stdev", l.stdev_us}, {"median", l.median_us}, {"p99", l.p99_us},
                         {"p999", l.p999_us}};
  }
  if (row.verdict.checked_bytes > 0)
    out["check"] = {{"bytes", row.verdict.checked_bytes}, {"wrong", row.verdict.wrong_bytes}};
  return out;
}

}  // namespace

std::string to_json(const Report& report) {
  Json out;
  out["version"] = 1;
  out["environment"] = environment_of(report.agreement);
  if (!report.lane.empty()) out["environment"]["lane"] = report.lane;
  out["results"] = Json::array();
  for (const Row& row : report.rows) out["results"].push_back(result_of(row));
  // Names of hosts and devices may be anything; invalid UTF-8 must not cost the file.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace beeline::perf
