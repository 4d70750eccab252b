// What one end tells the other about itself: its rails (devices with their addresses) and
// how they are set up.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "doctor/host/evidence.h"
#include "verbs/verbs.h"

namespace beeline::doctor::peer {

struct RailGid {
  int index = 0;
  IpAddress address;
  std::string type;  // "RoCE v2", "RoCE v1" or "unknown"
};

struct Rail {
  std::string device;                  // mlx5_0, bee0
  std::string netdev;                  // its interface; empty when unknown
  bool driven = false;                 // this program can make queue pairs on it
  std::uint32_t active_mtu_bytes = 0;  // of RoCE: 256 … 4096
  std::uint32_t link_mtu_bytes = 0;    // of the interface
  int dscp = -1;                       // what RoCE packets are marked with; -1 when nobody set it
  std::string dscp_evidence;
  std::string trust, pfc;  // "dscp", "pcp"; "3", "none"; empty when unknown
  std::vector<RailGid> gids;

  // Those that can be tested: RoCE v2, not bound to one link or host.
  std::vector<IpAddress> addresses(bool with_loopback) const;
};

struct HostFacts {
  std::string name;
  std::vector<Rail> rails;
  // Only a host that has nothing else is tested on its loopback addresses.
  bool only_loopback() const;
};

// From the evidence (hardware) and from what the provider drives; `provider` may be null.
HostFacts describe_host(Evidence& evidence, verbs::Provider* provider);

nlohmann::json to_json(const HostFacts& host);
// Of a stranger: bounded and checked.
beeline::Result<HostFacts> host_from_json(const nlohmann::json& message);

}  // namespace beeline::doctor::peer
