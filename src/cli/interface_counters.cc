#include "cli/interface_counters.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/descriptor.h"

namespace beeline::cli {
namespace {

struct Counter {
  const char* name;
  __u64 rtnl_link_stats64::*value;
};
using Stats = rtnl_link_stats64;
constexpr Counter counters[] = {
    {"rx_packets", &Stats::rx_packets},
    {"tx_packets", &Stats::tx_packets},
    {"rx_bytes", &Stats::rx_bytes},
    {"tx_bytes", &Stats::tx_bytes},
    {"rx_errors", &Stats::rx_errors},
    {"tx_errors", &Stats::tx_errors},
    {"rx_dropped", &Stats::rx_dropped},
    {"tx_dropped", &Stats::tx_dropped},
    {"multicast", &Stats::multicast},
    {"collisions", &Stats::collisions},
    {"rx_length_errors", &Stats::rx_length_errors},
    {"rx_over_errors", &Stats::rx_over_errors},
    {"rx_crc_errors", &Stats::rx_crc_errors},
    {"rx_frame_errors", &Stats::rx_frame_errors},
    {"rx_fifo_errors", &Stats::rx_fifo_errors},
    {"rx_missed_errors", &Stats::rx_missed_errors},
    {"tx_aborted_errors", &Stats::tx_aborted_errors},
    {"tx_carrier_errors", &Stats::tx_carrier_errors},
    {"tx_fifo_errors", &Stats::tx_fifo_errors},
    {"tx_heartbeat_errors", &Stats::tx_heartbeat_errors},
    {"tx_window_errors", &Stats::tx_window_errors},
};

Descriptor open_socket() {
  Descriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const timeval patience{1, 0};
  if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

bool ask(int fd, unsigned index) {
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.link.ifi_family = AF_UNSPEC;
  request.link.ifi_index = static_cast<int>(index);
  return ::send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request);
}

// The statistics in an answer of `size` bytes. A kernel may know fewer counters than this structure, or more.
bool find_stats(const char* answer, std::size_t size, Stats& stats) {
  nlmsghdr header;
  if (size < NLMSG_HDRLEN) return false;
  std::memcpy(&header, answer, sizeof header);
  if (header.nlmsg_type != RTM_NEWLINK || header.nlmsg_len > size) return false;
  for (std::size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(ifinfomsg));
       at + RTA_LENGTH(0) <= header.nlmsg_len;) {
    rtattr attribute;
    std::memcpy(&attribute, answer + at, sizeof attribute);
    if (attribute.rta_len < RTA_LENGTH(0) || at + attribute.rta_len > header.nlmsg_len) return false;
    if (attribute.rta_type == IFLA_STATS64) {
      const std::size_t bytes = attribute.rta_len - RTA_LENGTH(0);
      std::memcpy(&stats, answer + at + RTA_LENGTH(0), std::min(bytes, sizeof stats));
      return true;
    }
    at += RTA_ALIGN(attribute.rta_len);
  }
  return false;
}

}  // namespace

std::map<std::string, std::uint64_t> interface_counters(const std::string& name) {
  std::map<std::string, std::uint64_t> values;
  const unsigned index = ::if_nametoindex(name.c_str());
  const Descriptor socket = open_socket();
  if (index == 0 || !socket || !ask(socket.get(), index)) return values;
  std::array<char, 32768> answer{};
  const ssize_t size = ::recv(socket.get(), answer.data(), answer.size(), 0);
  Stats stats{};
  if (size <= 0 || !find_stats(answer.data(), static_cast<std::size_t>(size), stats)) return values;
  for (const Counter& counter : counters) values[counter.name] = stats.*counter.value;
  return values;
}

}  // namespace beeline::cli
