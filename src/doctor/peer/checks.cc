#include "doctor/peer/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "doctor/host/text.h"

namespace beeline::doctor::peer {
namespace {

constexpr std::string_view roce_v2 =
    "https://docs.nvidia.com/networking/display/WINOFv55053000/RoCE+v2+UDP+Port";
constexpr std::string_view plpmtud = "RFC 8899 (packetization layer path MTU discovery); RFC 2923";

// Findings of one check in the making.
class Verdict {
 public:
  void pass(std::string evidence) { add(Status::ok, std::move(evidence), "", ""); }
  void not_applicable(std::string why) { add(Status::not_applicable, std::move(why), "", ""); }
  void warn(std::string evidence, std::string cause, std::string fix) {
    add(Status::warning, std::move(evidence), std::move(cause), std::move(fix));
  }
  void fail(std::string evidence, std::string cause, std::string fix) {
    add(Status::failure, std::move(evidence), std::move(cause), std::move(fix));
  }
  doctor::Result result(const Check& check, const std::string& host) const {
    doctor::Result result;
    result.check = &check;
    result.group = "peer " + host;
    result.status = findings_.empty() ? Status::not_applicable : Status::ok;
    if (!findings_.empty())
      result.status =
          std::min_element(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) {
            return a.status < b.status;
          })->status;
    result.evidence = parts(result.status, &Finding::evidence);
    result.cause = parts(result.status, &Finding::cause);
    result.fix = parts(result.status, &Finding::fix);
    return result;
  }

 private:
  void add(Status status, std::string evidence, std::string cause, std::string fix) {
    findings_.push_back({status, std::move(evidence), std::move(cause), std::move(fix)});
  }
  std::string parts(Status status, std::string Finding::*part) const {
    constexpr std::size_t most = 8;
    std::vector<std::string> distinct;
    for (const auto& finding : findings_)
      if (const auto& text = finding.*part;
          finding.status == status && !text.empty() &&
          std::find(distinct.begin(), distinct.end(), text) == distinct.end())
        distinct.push_back(text);
    auto text = join({distinct.begin(), distinct.begin() + std::min(most, distinct.size())}, "; ");
    return distinct.size() > most ? fmt::format("{}; and {} more", text, distinct.size() - most) : text;
  }
  std::vector<Finding> findings_;
};

std::string why_no_pairs(const Measured& measured) {
  if (measured.here.rails.empty()) return "no RDMA device here";
  if (measured.there.rails.empty()) return "no RDMA device there";
  if (measured.same_host) return "the peer is this host";
  return "no two GID addresses of one family, one of each host";
}

// Rails that face each other, each two once.
std::vector<const Pair*> facing(const Measured& measured) {
  std::vector<const Pair*> chosen;
  std::set<std::pair<const Rail*, const Rail*>> seen;
  for (const auto& pair : measured.pairs)
    if (pair.same_rail && seen.insert({pair.here_rail, pair.there_rail}).second) chosen.push_back(&pair);
  return chosen;
}

std::string families(const Rail& rail, bool loopback) {
  bool v4 = false, v6 = false;
  for (const auto& address : rail.addresses(loopback)) (address.is_v4() ? v4 : v6) = true;
  return v4 && v6 ? "IPv4 and IPv6" : v4 ? "IPv4" : v6 ? "IPv6" : "no routable";
}

std::string types(const HostFacts& host) {
  std::set<std::string> all;
  for (const auto& rail : host.rails)
    for (const auto& gid : rail.gids) all.insert(gid.type);
  return join({all.begin(), all.end()}, " and ");
}

bool speaks_v2(const HostFacts& host) {
  for (const auto& rail : host.rails)
    for (const auto& gid : rail.gids)
      if (gid.type != "RoCE v1") return true;
  return host.rails.empty();
}

std::string families_of(const HostFacts& host) {
  std::vector<std::string> all;
  for (const auto& rail : host.rails) all.push_back(rail.device + " " + families(rail, host.only_loopback()));
  return join(all, ", ");
}

void gid_type(const Measured& m, Verdict& v) {
  if (m.here.rails.empty() || m.there.rails.empty()) return v.not_applicable(why_no_pairs(m));
  const auto evidence = fmt::format("here {}; there {}", types(m.here), types(m.there));
  if (speaks_v2(m.here) == speaks_v2(m.there)) return v.pass(evidence);
  v.fail(evidence, "one host has RoCE v1 GIDs only: v1 and v2 do not understand each other",
         "on the host without RoCE v2: give the interface an address (ip addr add), then `show_gids`; "
         "mlx: cma_roce_mode -d DEVICE -p 1 -m 2");
}

void gid_family(const Measured& m, Verdict& v) {
  if (m.here.rails.empty() || m.there.rails.empty()) return v.not_applicable(why_no_pairs(m));
  const auto evidence = fmt::format("here {}; there {}", families_of(m.here), families_of(m.there));
  if (m.same_host || !m.pairs.empty()) return v.pass(evidence);
  if (m.here.only_loopback() != m.there.only_loopback())
    return v.fail(
        evidence + (m.here.only_loopback() ? "; here only loopback" : "; there only loopback"),
        "one of the hosts has no interface with a link and an address but its loopback",
        "on that host: beeline devices; ip link set INTERFACE up; ip addr add ADDRESS/PREFIX dev INTERFACE");
  v.fail(evidence,
         "the hosts have no address family in common: an RC queue pair needs two GIDs of one family",
         "give both the same kind of address: ip addr add ADDRESS/PREFIX dev INTERFACE");
}

void mtu(const Measured& m, Verdict& v) {
  for (const auto* pair : facing(m)) {
    const auto &here = *pair->here_rail, &there = *pair->there_rail;
    const auto evidence =
        fmt::format("{} link {} RoCE {}; peer's {} link {} RoCE {}", here.device, here.link_mtu_bytes,
                    here.active_mtu_bytes, there.device, there.link_mtu_bytes, there.active_mtu_bytes);
    const bool links =
        here.link_mtu_bytes != 0 && there.link_mtu_bytes != 0 && here.link_mtu_bytes != there.link_mtu_bytes;
    const bool roce = here.active_mtu_bytes != there.active_mtu_bytes;
    if (!links && !roce) {
      v.pass(evidence);
      continue;
    }
    const bool less_here = here.link_mtu_bytes < there.link_mtu_bytes;
    v.fail(
        evidence,
        "the two ends of a rail have different MTUs: what the larger sends, the smaller drops without a word",
        fmt::format("{}: ip link set {} mtu {}", less_here ? "here" : "there",
                    less_here ? here.netdev : there.netdev,
                    std::max(here.link_mtu_bytes, there.link_mtu_bytes)));
  }
}

void traffic_class(const Measured& m, Verdict& v) {
  const auto shown = [](const Rail& rail) {
    return fmt::format(
        "{} DSCP {}{}{}{}", rail.device,
        rail.dscp < 0 ? "not set" : std::to_string(rail.dscp) + " (" + rail.dscp_evidence + ")",
        rail.trust.empty() ? "" : ", trusts " + rail.trust, rail.pfc.empty() ? "" : ", PFC ", rail.pfc);
  };
  const auto differ = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  for (const auto* pair : facing(m)) {
    const auto &here = *pair->here_rail, &there = *pair->there_rail;
    const auto evidence = fmt::format("here {}; there {}", shown(here), shown(there));
    // A NCCL variable that is set in one shell only is set by the job's launcher elsewhere.
    if (here.dscp != there.dscp || differ(here.trust, there.trust) || differ(here.pfc, there.pfc))
      v.warn(evidence, "the two ends mark or queue RoCE traffic differently: one direction is not lossless",
             "give both the same settings: cma_roce_tos -d DEVICE -t TOS; mlnx_qos -i INTERFACE --trust dscp "
             "--pfc 0,0,0,1,0,0,0,0; NCCL_IB_TC in the job's environment");
    else
      v.pass(evidence);
  }
}

std::string echo_port(const Pair& pair) { return fmt::format("echo on UDP {}, not RoCE's 4791", pair.port); }

void reach(const Measured& m, Verdict& v) {
  for (const auto& pair : m.pairs) {
    if (!pair.same_rail) continue;
    if (pair.echo.answered) {
      v.pass(fmt::format("{} ({})", pair.ends(), echo_port(pair)));
    } else if (pair.port == 0) {
      v.fail(fmt::format("{}: the listener could not bind {}", pair.ends(), to_string(pair.there)),
             "the GID's address is not on the peer's interface any more",
             "there: ip addr show; restart what set the GID");
    } else {
      v.fail(
          fmt::format("{}: no answer ({}){}{}", pair.ends(), echo_port(pair),
                      pair.echo.error.empty() ? "" : ": ", pair.echo.error),
          "UDP does not pass between the two addresses, while TCP to the listener does: a firewall, a "
          "missing route, a wrong VLAN or subnet",
          fmt::format("ping -I {} {}; ip route get {} from {}; there: nft list ruleset", to_string(pair.here),
                      to_string(pair.there), to_string(pair.there), to_string(pair.here)));
    }
  }
}

void cross_reach(const Measured& m, Verdict& v) {
  for (const auto& pair : m.pairs) {
    if (pair.same_rail) continue;
    if (pair.echo.answered)
      v.pass(pair.ends());
    else
      v.warn(
          fmt::format("{}: no answer{}{}", pair.ends(), pair.echo.error.empty() ? "" : ": ", pair.echo.error),
          "different rails do not reach each other: a job must pair cards rail by rail",
          "route between the rails with a rule for each source address (ip rule add from ADDRESS table N), "
          "or "
          "keep to the rail: NCCL_CROSS_NIC=0");
  }
}

void arrival(const Measured& m, Verdict& v) {
  const auto flux = [&](const Pair& pair, const std::string& wanted, const std::string& got,
                        const char* what) {
    if (wanted.empty() || got.empty() || wanted == got) return true;
    v.fail(
        fmt::format("{}: the {} arrived on {} instead of {}", pair.ends(), what, got, wanted),
        "ARP flux or a wrong route: an interface answers ARP for another one's address; a RoCE card drops "
        "what is not for it",
        "on that host: sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, a policy "
        "route per interface, then ip neigh flush all on the other");
    return false;
  };
  for (const auto& pair : m.pairs) {
    if (!pair.echo.answered) continue;
    const bool there = flux(pair, pair.there_rail->netdev, pair.echo.request_on, "request");
    const bool here = flux(pair, pair.here_rail->netdev, pair.echo.answer_on, "answer");
    if (there && here) v.pass(fmt::format("{} arrives on {}", pair.ends(), pair.echo.request_on));
  }
}

void mtu_probe(const Measured& m, Verdict& v) {
  for (const auto& pair : m.pairs) {
    if (!pair.mtu || pair.mtu->wanted_bytes == 0) continue;
    const auto& mtu = *pair.mtu;
    const auto least = std::min(mtu.there_bytes, mtu.back_bytes);
    const auto evidence = fmt::format(
        "{}: UDP payloads up to {} bytes there, {} back, of {} that the MTU allows, not fragmented",
        pair.ends(), mtu.there_bytes, mtu.back_bytes, mtu.wanted_bytes);
    if (least >= mtu.wanted_bytes) {
      v.pass(evidence);
      continue;
    }
    // BTH, RETH, immediate and ICRC beside the payload.
    const auto roce = std::min(pair.here_rail->active_mtu_bytes, pair.there_rail->active_mtu_bytes) + 36;
    const auto cause = mtu.reported
                           ? std::string("a hop on the path has a smaller MTU, and says so")
                           : fmt::format("a black hole: packets above {} bytes vanish without a word",
                                         least + (pair.here.is_v4() ? 28 : 48));
    const auto fix = fmt::format("compare the MTU of every switch port on the path; tracepath -n {}",
                                 to_string(pair.there));
    if (least < roce)
      v.fail(evidence, cause + fmt::format("; RoCE packets of MTU {} do not pass", roce - 36), fix);
    else
      v.warn(evidence, cause + fmt::format("; RoCE packets of MTU {} still pass", roce - 36), fix);
  }
}

void source_ports(const Measured& m, Verdict& v) {
  for (const auto& pair : m.pairs) {
    if (!pair.ports) continue;
    const auto tested = static_cast<std::size_t>(swept_ports) - pair.ports->busy.size();
    std::vector<std::string> lost;
    for (const auto port : pair.ports->lost) lost.push_back(std::to_string(port));
    const auto evidence =
        fmt::format("{}: {} of {} source ports from {} ({}){}{}", pair.ends(), tested - lost.size(), tested,
                    first_source_port, echo_port(pair),
                    pair.ports->busy.empty()
                        ? ""
                        : fmt::format(", {} not tested for they are in use", pair.ports->busy.size()),
                    lost.empty() ? "" : "; lost: " + join(lost, " "));
    if (lost.empty())
      v.pass(evidence);
    else
      v.fail(
          evidence,
          lost.size() == tested
              ? "no RoCE source port passes, although others do: a filter on UDP source ports"
              : "some flows are always lost and others never: one link of an ECMP group or a bond is bad, or "
                "a filter drops them",
          "trace such a flow hop by hop (traceroute --sport=PORT -U, the switches' ECMP hash and link "
          "counters) and take that link out");
  }
}

std::string explain_unreached(const Pair& pair) {
  return fmt::format(
      "retry exceeded: {} (GID {}) sent, and no acknowledgement of {} (GID {}) came; {}",
      pair.here_rail->device, gid_string(pair.here), pair.there_rail->device, gid_string(pair.there),
      pair.echo.answered ? fmt::format("UDP {} passes between the two, so UDP 4791 is blocked or "
                                       "the GIDs' devices are not what they seem",
                                       pair.port)
                         : "UDP does not pass between the two at all");
}

void rc_ping(const Measured& m, Verdict& v) {
  for (const auto& pair : m.pairs) {
    if (!pair.rc) continue;
    const auto& rc = *pair.rc;
    const bool known = !pair.same_rail && !pair.echo.answered;  // cross_reach has said it
    if (rc.ok)
      v.pass(pair.ends() + ": WRITE and SEND, every byte right");
    else if (known)
      v.warn(pair.ends() + ": " + rc.text, explain_unreached(pair), "see peer.cross_reach");
    else if (rc.unreached)
      v.fail(pair.ends() + ": " + rc.text, explain_unreached(pair),
             "nft list ruleset | grep 4791 (iptables -S) on both hosts and on what lies between; "
             "security groups of a cloud: allow UDP 4791");
    else
      v.fail(pair.ends() + ": " + rc.text, "an RC queue pair between the two devices does not work",
             "beeline perf write_bw --check there and here, with -d; beeline doctor on both hosts");
  }
  if (std::none_of(m.pairs.begin(), m.pairs.end(), [](const Pair& pair) { return pair.rc.has_value(); }) &&
      !m.pairs.empty())
    v.not_applicable("no pair of devices that this program drives on both hosts");
}

struct Row {
  Check check;
  void (*judge)(const Measured&, Verdict&);
  const char* nothing;  // why there is nothing to say, where there are pairs
};

const std::array<Row, 9>& rows() {
  static const std::array<Row, 9> all = {{
      {{"peer.gid_type", "Both hosts speak RoCE v2", nullptr,
        "status 12 (retry exceeded) right after connecting", "give the interface an address",
        "NVIDIA/nccl#426; NVIDIA/nccl#1538"},
       gid_type,
       ""},
      {{"peer.gid_family", "Both hosts have GIDs of one address family", nullptr,
        "ibv_modify_qp failed with 101, 110 or 22", "give both the same kind of address",
        "uccl-project/uccl#799"},
       gid_family,
       ""},
      {{"peer.mtu", "Both ends of a rail have the same MTU", nullptr,
        "small messages pass, large ones hang or end in status 12", "ip link set INTERFACE mtu 9000",
        plpmtud},
       mtu,
       "no rails that face each other"},
      {{"peer.traffic_class", "Both ends of a rail mark and queue RoCE alike", nullptr,
        "drops and retransmissions in one direction, under load", "the same DSCP, trust and PFC on both",
        "openucx/ucx#2434; https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"},
       traffic_class,
       "no rails that face each other"},
      {{"peer.reach", "UDP passes between the addresses of each rail", nullptr,
        "status 12 (retry exceeded) right after connecting; ibv_modify_qp failed with 110",
        "open the firewall, mend the route", roce_v2},
       reach,
       "no rails that face each other"},
      {{"peer.cross_reach", "UDP passes between different rails", nullptr,
        "hangs or timeouts between some pairs of cards", "policy routes, or NCCL_CROSS_NIC=0",
        "NVIDIA/nccl#1348; openucx/ucx#5598"},
       cross_reach,
       "there is one rail"},
      {{"peer.arrival", "Packets arrive on the interface whose address they bear", nullptr,
        "hangs or 'connection timed out' between some pairs of cards", "arp_ignore=1, arp_announce=2",
        "NVIDIA/nccl#1269; ROCm/rccl#1303"},
       arrival,
       "nothing arrived"},
      {{"peer.mtu_probe", "Packets of the full MTU pass unfragmented, both ways", nullptr,
        "small messages pass, large ones hang or end in status 12", "the same MTU on every hop", plpmtud},
       mtu_probe,
       "no rail over which UDP passes"},
      {{"peer.source_ports", "Every UDP source port passes", nullptr,
        "some connections of a job always fail, others never; status 12 on a few ranks",
        "take the bad link out of the ECMP group", "https://www.rfc-editor.org/rfc/rfc2992; RFC 7690"},
       source_ports,
       "no rail over which UDP passes"},
  }};
  return all;
}

const Row& ping_row() {
  static const Row row = {
      {"peer.rc_ping", "An RC queue pair works between every two devices", nullptr,
       "status 12 (retry exceeded) between these two hosts", "let UDP 4791 pass", roce_v2},
      rc_ping,
      "no two addresses"};
  return row;
}

std::vector<const Row*> all_rows() {
  std::vector<const Row*> all;
  for (const auto& row : rows()) all.push_back(&row);
  all.push_back(&ping_row());
  return all;
}

const Check& listener_check() {
  static const Check check = {"peer.listener",
                              "The peer's doctor answers",
                              nullptr,
                              "",
                              "start `beeline doctor --listen` there, or use --ssh",
                              "docs/doctor.md"};
  return check;
}

}  // namespace

std::span<const Check> checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> list = {listener_check()};
    for (const auto* row : all_rows()) list.push_back(row->check);
    return list;
  }();
  return all;
}

const Check* find_peer_check(std::string_view id) {
  const auto all = checks();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Check& check) { return check.id == id; });
  return found == all.end() ? nullptr : &*found;
}

std::string list_peer_checks() {
  std::string text = "peer: Between this host and a peer (--peer HOST)\n";
  for (const auto& check : checks()) text += fmt::format("    {:<28} {}\n", check.id, check.title);
  return text;
}

std::string peer_checks_as_markdown() {
  std::string text =
      "| check | what holds when it is ok | what it explains in training | source |\n|---|---|---|---|\n";
  for (const auto& check : checks())
    text += fmt::format("| `{}` | {} | {} | {} |\n", check.id, check.title, check.symptom, check.source);
  return text;
}

std::vector<doctor::Result> judge(const Measured& measured, const std::string& host) {
  Verdict listener;
  listener.pass(
      fmt::format("{}, {} devices, {} pairs of addresses{}", measured.there.name, measured.there.rails.size(),
                  measured.pairs.size(),
                  measured.left_out == 0 ? "" : fmt::format(" and {} left out", measured.left_out)));
  std::vector<doctor::Result> results = {listener.result(listener_check(), host)};
  for (const auto* row : all_rows()) {
    Verdict verdict;
    row->judge(measured, verdict);
    auto result = verdict.result(row->check, host);
    if (result.status == Status::not_applicable && result.evidence.empty())
      result.evidence = measured.pairs.empty() ? why_no_pairs(measured) : row->nothing;
    results.push_back(std::move(result));
  }
  return results;
}

std::string remark(const Measured& measured, const std::string& host) {
  if (!measured.pairs.empty()) return "";
  if (measured.same_host && !measured.here.rails.empty())
    return fmt::format(
        "{} is this host, so nothing could be compared or tested: all its addresses are ours. Name another "
        "host.",
        host);
  return fmt::format("Nothing could be tested with {}: {}.", host, why_no_pairs(measured));
}

std::vector<doctor::Result> unreached(const Error& error, const std::string& host, const Way& way) {
  Verdict verdict;
  verdict.fail(
      error.message, "nothing could be compared or tested with it",
      error.code == Errc::not_found
          ? fmt::format("check the name: `getent hosts {}` must print its address (typing error, DNS, "
                        "/etc/hosts)",
                        host)
      : way.ssh ? fmt::format("try `ssh -o BatchMode=yes {} beeline --version`: it must log in without a "
                              "question and find the program there (else --ssh-program PATH)",
                              host)
                : fmt::format("there: beeline doctor --listen (and TCP {} open), or here: --ssh", way.port));
  return {verdict.result(listener_check(), host)};
}

}  // namespace beeline::doctor::peer
