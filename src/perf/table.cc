#include "perf/table.h"

namespace beeline::perf {
namespace {

constexpr double mib = 1024.0 * 1024.0;
constexpr std::string_view rule =
    "---------------------------------------------------------------------------------------\n";

// As perftest prints GIDs: every byte in decimal.
std::string gid_text(const Gid& gid) {
  std::string text;
  for (const std::uint8_t byte : gid.bytes) text += fmt::format("{}{:02}", text.empty() ? "" : ":", byte);
  return text;
}

std::string end_text(const char* name, const EndpointInfo& info) {
  std::string text;
  for (const PeerQueuePair& qp : info.queue_pairs) {
    text += fmt::format(" {} address: LID 0000 QPN 0x{:06x} PSN 0x{:06x} RKey 0x{:08x} VAddr 0x{:016x}\n",
                        name, qp.qpn, qp.psn, qp.rkey, qp.sink);
    text += fmt::format(" GID: {} ({})\n", gid_text(info.gid), to_string(info.gid));
  }
  return text;
}

std::string length_text(const Plan& plan) {
  if (plan.iterations > 0) return fmt::format("{} iterations", plan.iterations);
  return fmt::format("{:g} s", static_cast<double>(plan.duration.count()) / 1e9);
}

std::string arrival_text(const Agreement& agreement) {
  const Test& test = *agreement.plan.test;
  if (!test.latency || test.operation != Operation::write) return {};
  if (agreement.arrival == Agreement::Arrival::memory)
    return " Arrival        : polling the last byte in memory\n";
  return " Arrival        : WRITE with immediate (no order of bytes is promised here)\n";
}

constexpr const char* bandwidth_columns =
    " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n";
constexpr const char* gbit_columns =
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n";
constexpr const char* latency_columns =
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
    "99% "
    "percentile[usec]   99.9% percentile[usec]\n";

}  // namespace

std::string header_text(const Agreement& agreement, bool report_gbits) {
  const Plan& plan = agreement.plan;
  std::string text(rule);
  text += fmt::format("{:>20}{}{}\n", "", plan.bidirectional ? "Bidirectional " : "", plan.test->title);
  text += fmt::format(" Dual-port       : OFF          Device         : {}\n", agreement.device);
  text += fmt::format(" Number of qps   : {:<12} Transport type : IB\n", plan.queue_pairs);
  text += " Connection type : RC           Using SRQ      : OFF\n";
  text += fmt::format(" Provider        : {}\n", agreement.provider);
  text += fmt::format(" TX depth        : {}\n", plan.tx_depth);
  text += fmt::format(" Mtu             : {}[B] (agreed: {} here, {} there)\n", agreement.mtu_bytes,
                      agreement.local_mtu_bytes, agreement.remote_mtu_bytes);
  text += fmt::format(" Link type       : {}\n", agreement.ethernet ? "Ethernet" : "IB");
  text += fmt::format(" GID index       : {}\n", agreement.gid_index);
  if (plan.test->operation == Operation::read)
    text += fmt::format(" Outstand reads  : {}\n", agreement.reads);
  text += fmt::format(" Max inline data : {}[B]\n", agreement.inline_bytes);
  text += arrival_text(agreement);
  text += " rdma_cm QPs     : OFF\n Data ex. method : Ethernet\n";
  text += fmt::format(" Agreed          : {} {}, {} per size{}\n", plan.all_sizes ? "up to" : "messages of",
                      plan.size_bytes, length_text(plan), plan.check ? ", every byte checked" : "");
  text += rule;
  text += end_text("local", agreement.local) + end_text("remote", agreement.remote);
  text += rule;
  if (!agreement.is_server)
    text += plan.test->latency ? latency_columns : report_gbits ? gbit_columns : bandwidth_columns;
  return text;
}

std::string row_text(const Row& row, bool report_gbits) {
  std::string text;
  if (row.bandwidth) {
    const double unit = report_gbits ? 1e9 / 8 : mib;
    text = fmt::format(" {:<7}    {:<10}       {:<16.2f}    {:<16.2f}      {:.6f}", row.bytes, row.iterations,
                       row.bandwidth->peak_bytes_per_s / unit, row.bandwidth->average_bytes_per_s / unit,
                       row.bandwidth->messages_per_s / 1e6);
  } else if (row.latency) {
    const LatencySummary& l = *row.latency;
    text = fmt::format(
        " {:<7} {:<10}     {:<11.2f}    {:<11.2f}  {:<15.2f}    {:<11.2f}    {:<13.2f}   {:<19.2f}   {:.2f}",
        row.bytes, row.iterations, l.min_us, l.max_us, l.median_us, l.average_us, l.stdev_us, l.p99_us,
        l.p999_us);
  }
  if (row.verdict.checked_bytes > 0)
    text +=
        fmt::format("   checked {} bytes: {}", row.verdict.checked_bytes,
                    row.verdict.wrong_bytes == 0
                        ? "all right"
                        : fmt::format("{} WRONG, first at {}", row.verdict.wrong_bytes, row.verdict.first));
  return text + "\n";
}

}  // namespace beeline::perf
