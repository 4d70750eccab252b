// Lossless Ethernet and congestion control, as this host does its part in them.
#include <fmt/format.h>

#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/qos_state.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

void no_answer(Case& c, const Reading& reading, const std::string& interface) {
  if (reading.unreadable()) return c.unreadable(reading);
  c.not_applicable(fmt::format("the driver of {} does not answer {}", interface, name_of(reading.question)));
}

// Global pause, from `ethtool -a`.
struct Pause {
  Reading reading;
  bool rx = false, tx = false;
};
Pause global_pause(Case& c, const std::string& interface) {
  Pause pause{c.command("ethtool -a " + interface), false, false};
  pause.rx = field(pause.reading.value, "RX") == "on";
  pause.tx = field(pause.reading.value, "TX") == "on";
  return pause;
}

std::string pfc_fix(const std::string& interface, int priority) {
  std::string list;
  for (int i = 0; i < 8; ++i) list += fmt::format("{}{}", i == 0 ? "" : ",", i == priority ? 1 : 0);
  return fmt::format(
      "mlnx_qos -i {0} --pfc {1} (or: dcb pfc set dev {0} prio-pfc {2}:on), and the same on the switch's "
      "port",
      interface, list, priority);
}

void pfc(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    if (!state.pfc) {
      no_answer(c, state.pfc_reading, port.netdev);
      continue;
    }
    c.compare(port.netdev + " PFC priorities", state.pfc_text());
    const auto evidence = cite(state.pfc_reading, "PFC on priorities: " + state.pfc_text());
    if (state.any_pfc()) {
      c.pass(evidence);
      continue;
    }
    const auto pause = global_pause(c, port.netdev);
    if (pause.rx && pause.tx) {
      c.pass(evidence + "; " + cite(pause.reading, "RX on, TX on (global pause)"));
      continue;
    }
    c.warn(
        evidence,
        port.netdev +
            " pauses for no priority: under congestion packets are dropped, unless ECN alone prevents that",
        pfc_fix(port.netdev, 3));
  }
}

void pfc_few(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    if (!state.pfc) {
      no_answer(c, state.pfc_reading, port.netdev);
      continue;
    }
    std::size_t count = 0;
    for (const bool on : *state.pfc) count += on ? 1 : 0;
    const auto evidence = cite(state.pfc_reading, "PFC on priorities: " + state.pfc_text());
    if (count <= 2)
      c.pass(evidence);
    else
      c.warn(evidence,
             fmt::format("{} of 8 priorities of {} are lossless: the card's buffer is divided among them, "
                         "and ordinary traffic pauses RoCE",
                         count, port.netdev),
             pfc_fix(port.netdev, 3));
  }
}

void one_pause(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    const auto pause = global_pause(c, port.netdev);
    if (!state.any_pfc()) {
      c.not_applicable("no PFC on " + port.netdev);
    } else if (!pause.reading.found()) {
      no_answer(c, pause.reading, port.netdev);
    } else if (pause.rx || pause.tx) {
      c.warn(
          cite(pause.reading, fmt::format("RX {}, TX {}", pause.rx ? "on" : "off", pause.tx ? "on" : "off")) +
              "; " + cite(state.pfc_reading, "PFC on priorities: " + state.pfc_text()),
          "global pause and PFC are both on for " + port.netdev + "; a link can use one of them",
          "ethtool -A " + port.netdev + " rx off tx off");
    } else {
      c.pass(cite(pause.reading, "RX off, TX off"));
    }
  }
}

void trust(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    if (!state.trusts_dscp) {
      no_answer(c, state.trust_reading, port.netdev);
      continue;
    }
    c.compare(port.netdev + " trust", *state.trusts_dscp ? "dscp" : "pcp");
    if (*state.trusts_dscp) {
      c.pass(cite(state.trust_reading, "trusts DSCP"));
    } else if (!state.any_pfc()) {
      c.not_applicable("no PFC on " + port.netdev + ": nothing depends on what it trusts");
    } else {
      c.warn(cite(state.trust_reading, "trusts PCP (VLAN priority)"),
             port.netdev +
                 " sorts packets by VLAN priority, which packets without a VLAN tag do not have: RoCE lands "
                 "on priority 0",
             "mlnx_qos -i " + port.netdev + " --trust dscp");
    }
  }
}

void dscp_is_lossless(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    if (!state.any_pfc() || !state.trusts_dscp.value_or(false)) {
      c.not_applicable(port.netdev + " has no PFC, or does not trust DSCP");
      continue;
    }
    const auto marked = marked_dscp(c, port);
    const int dscp = marked ? marked->dscp : 0;
    const int priority = state.priority_of_dscp[static_cast<std::size_t>(dscp)];
    c.compare(port.device + " DSCP", std::to_string(dscp));
    const auto evidence = fmt::format(
        "{}; {}",
        marked ? marked->evidence
               : "no traffic class is set (NCCL_IB_TC, tc/1/traffic_class, default_roce_tos)",
        cite(state.trust_reading,
             fmt::format("DSCP {} goes to priority {}, PFC on {}", dscp, priority, state.pfc_text())));
    if ((*state.pfc)[static_cast<std::size_t>(priority)]) {
      c.pass(evidence);
      continue;
    }
    if (!marked)
      c.warn(evidence,
             fmt::format("unless the program sets a traffic class itself, RoCE packets from {} have DSCP 0 "
                         "and are not lossless",
                         port.device),
             "NCCL_IB_TC=106 (DSCP 26) for NCCL; `echo 106 > /sys/class/infiniband/" + port.device +
                 "/tc/1/traffic_class` for everything");
    else
      c.fail(evidence,
             fmt::format("RoCE packets with DSCP {} from {} land on priority {}, which is not lossless", dscp,
                         port.device, priority),
             fmt::format("mlnx_qos -i {} --dscp2prio set,{},3 (a lossless priority); or mark them with a "
                         "DSCP that maps there",
                         port.netdev, dscp));
  }
}

void ecn(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    const int first = state.any_pfc() ? static_cast<int>(number(state.pfc_text()).value_or(3)) : 3;
    for (const char* role : {"roce_np", "roce_rp"}) {
      const auto enabled =
          c.file(fmt::format("/sys/class/net/{}/ecn/{}/enable/{}", port.netdev, role, first));
      c.compare(fmt::format("{} {}", port.netdev, role), std::string(trim(enabled.value)));
      if (enabled.unreadable())
        c.unreadable(enabled);
      else if (!enabled.found())
        c.not_applicable("the driver of " + port.netdev +
                         " does not show its ECN settings in sysfs (MLNX_OFED's does)");
      else if (trim(enabled.value) == "1")
        c.pass(cite(enabled));
      else
        c.warn(
            cite(enabled),
            std::string_view(role) == "roce_np"
                ? port.netdev + " does not report congestion marks back to senders (notification point off)"
                : port.netdev + " does not slow down when told of congestion (reaction point off)",
            "echo 1 > " + enabled.question.name);
    }
  }
}

void cnp_priority(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto dscp = c.file("/sys/class/net/" + port.netdev + "/ecn/roce_np/cnp_dscp");
    if (!dscp.found()) {
      if (dscp.unreadable())
        c.unreadable(dscp);
      else
        c.not_applicable("the driver of " + port.netdev +
                         " does not show its CNP settings in sysfs (MLNX_OFED's does)");
      continue;
    }
    c.compare(port.netdev + " CNP DSCP", std::string(trim(dscp.value)));
    if (number(dscp.value).value_or(0) != 0)
      c.pass(cite(dscp));
    else
      c.warn(cite(dscp),
             "congestion notifications from " + port.netdev +
                 " travel as ordinary traffic, and wait in the queues that they report",
             "echo 48 > " + dscp.question.name + " (and give DSCP 48 strict priority on the switch)");
  }
}

std::optional<std::int64_t> counter(Case& c, const Port& port, const char* name, std::string* evidence) {
  const auto reading = c.file(port.path + "/hw_counters/" + name);
  const auto value = number(reading.value);
  if (reading.found() && value && evidence != nullptr)
    *evidence += (evidence->empty() ? "" : "; ") + cite(reading);
  return value;
}

void retransmissions(Case& c) {
  bool any = false;
  const auto cards = active_roce_cards(c);
  for (const auto& port : cards) {
    std::string evidence;
    std::int64_t lost = 0;
    for (const char* name : {"local_ack_timeout_err", "packet_seq_err", "out_of_sequence",
                             "implied_nak_seq_err", "to_retransmits", "seq_err_naks_rcvd", "tcpRetransSegs"})
      if (const auto value = counter(c, port, name, &evidence)) lost += *value;
    if (evidence.empty()) continue;
    any = true;
    const auto packets = number(c.text(port.path + "/counters/port_rcv_packets").value_or("")).value_or(0);
    // One in a hundred thousand: retransmission then costs bandwidth that one can measure.
    if (lost == 0 || (packets > 0 && lost < packets / 100000)) {
      c.pass(evidence);
      continue;
    }
    c.warn(evidence + fmt::format("; {} packets received", packets),
           port.device + " saw lost or late RoCE packets since its counters were cleared",
           "watch whether they grow during a job: `watch -d grep . " + port.path +
               "/hw_counters/*`; then roce.pfc, roce.ecn, nic.discards here and on the switch");
  }
  if (!any && !cards.empty()) c.not_applicable("these cards count no retransmissions in hw_counters");
}

void receiver_not_ready(Case& c) {
  bool any = false;
  const auto cards = active_roce_cards(c);
  for (const auto& port : cards) {
    std::string evidence;
    std::int64_t count = 0;
    for (const char* name : {"rnr_nak_retry_err", "rnr_naks_rcvd"})
      if (const auto value = counter(c, port, name, &evidence)) count += *value;
    if (evidence.empty()) continue;
    any = true;
    if (count == 0)
      c.pass(evidence);
    else
      c.warn(evidence,
             fmt::format("{} was told {} times that a receiver had no buffer ready", port.device, count),
             "find the program that posts receives too late; raise its receive queue depth");
  }
  if (!any && !cards.empty()) c.not_applicable("these cards do not count RNR NAKs in hw_counters");
}

void notifications(Case& c) {
  bool any = false;
  const auto cards = active_roce_cards(c);
  for (const auto& port : cards) {
    std::string evidence;
    const auto marked = counter(c, port, "np_ecn_marked_roce_packets", &evidence);
    const auto sent = counter(c, port, "np_cnp_sent", &evidence);
    const auto ignored = counter(c, port, "rp_cnp_ignored", &evidence);
    if (!marked || !sent) continue;
    any = true;
    if (*marked > 0 && *sent == 0)
      c.warn(evidence,
             port.device +
                 " received packets marked for congestion and sent no notification: senders never slow down",
             "echo 1 > /sys/class/net/" + port.netdev + "/ecn/roce_np/enable/3");
    else if (ignored && *ignored > 0)
      c.warn(evidence, fmt::format("{} ignored {} congestion notifications", port.device, *ignored),
             "echo 1 > /sys/class/net/" + port.netdev + "/ecn/roce_rp/enable/3");
    else
      c.pass(evidence);
  }
  if (!any && !cards.empty())
    c.not_applicable("these cards do not count congestion notifications in hw_counters");
}

void foreign_pause(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto state = qos_state(c, port.netdev);
    const auto statistics = c.command("ethtool -S " + port.netdev);
    if (!state.pfc || !statistics.found()) {
      no_answer(c, state.pfc ? statistics : state.pfc_reading, port.netdev);
      continue;
    }
    std::string hits;
    for (std::size_t i = 0; i < 8; ++i) {
      const auto name = fmt::format("rx_prio{}_pause", i);
      const auto value = number(field(statistics.value, name).value_or("")).value_or(0);
      if (value > 0 && !(*state.pfc)[i])
        hits += fmt::format("{}{}: {}", hits.empty() ? "" : ", ", name, value);
    }
    if (hits.empty())
      c.pass(cite(statistics, "no PFC frames for priorities without PFC"));
    else
      c.warn(
          cite(statistics, hits) + "; " + cite(state.pfc_reading, "PFC on priorities: " + state.pfc_text()),
          "the switch pauses a priority that " + port.netdev +
              " does not treat as lossless: the two are configured differently",
          "give switch port and host the same PFC priority");
  }
}

constexpr auto qos_guide =
    "https://kubernetes.recipes/recipes/networking/ets-pfc-dscp-trust-mellanox-quickstart/";
constexpr auto ecn_guide =
    "https://docs.nvidia.com/networking/display/mlnxofedv24103250lts/explicit+congestion+notification+(ecn)";
constexpr auto flow_control = "https://docs.nvidia.com/networking/display/mlnxofedv543100/flow+control";
constexpr std::array rows = {
    Check{"roce.pfc", "Some priority, or the whole link, is lossless", pfc,
          "bandwidth collapses under load; status 12 after a while", "mlnx_qos --pfc",
          "NVIDIA/nccl#306; NVIDIA/nccl#394; "
          "https://docs.nvidia.com/networking/display/mlnxofedv543100/flow+control"},
    Check{"roce.pfc_few", "At most two priorities are lossless", pfc_few,
          "unrelated traffic slows training down", "PFC on RoCE's priority only", flow_control},
    Check{"roce.one_pause", "Global pause is off where PFC is on", one_pause,
          "PFC has no effect; the whole link pauses", "ethtool -A IFACE rx off tx off",
          "https://docs.nvidia.com/networking/display/freebsdv371/flow+control"},
    Check{"roce.trust", "Interfaces with PFC trust DSCP", trust,
          "drops under load although PFC is configured", "mlnx_qos --trust dscp", qos_guide},
    Check{"roce.dscp", "The DSCP of RoCE packets maps to a lossless priority", dscp_is_lossless,
          "drops under load although PFC is configured", "NCCL_IB_TC and dscp2prio",
          "openucx/ucx#2434; "
          "https://kubernetes.recipes/recipes/networking/ets-pfc-dscp-trust-mellanox-quickstart/"},
    Check{"roce.ecn", "ECN is on for RoCE's priority, both roles", ecn,
          "pause frames spread; bandwidth varies between jobs", "echo 1 > …/ecn/…/enable/N", ecn_guide},
    Check{"roce.cnp", "Congestion notifications have a DSCP of their own", cnp_priority,
          "congestion control reacts late", "echo 48 > …/cnp_dscp", ecn_guide},
    Check{"roce.retransmissions", "Few RoCE packets were lost or late", retransmissions,
          "slow steps, then status 12 (retry exceeded)", "make the path lossless",
          "NVIDIA/nccl#306; NVIDIA/nccl#378"},
    Check{"roce.rnr", "Receivers were always ready", receiver_not_ready, "status 13 (RNR retry exceeded)",
          "post receives earlier", "NVIDIA/nccl#394"},
    Check{"roce.cnp_counters", "Congestion marks are answered and heeded", notifications,
          "bandwidth collapses when several hosts send to one", "enable roce_np, roce_rp", "NVIDIA/nccl#378"},
    Check{"roce.foreign_pause", "PFC frames arrive for lossless priorities only", foreign_pause,
          "drops under load although PFC is configured on both sides", "one PFC priority on switch and host",
          "https://git.zx2c4.com/linux-dev/commit/?id=827a8cb2dd2b72848652b2a425bba3262808ff44; "
          "https://kubernetes.recipes/recipes/networking/pfc-mellanox-connectx-configuration/"},
};

}  // namespace

std::span<const Check> qos_checks() { return rows; }

}  // namespace beeline::doctor
