// The examining half: what was measured between this host and a peer, pair by pair.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "doctor/peer/channel.h"
#include "doctor/peer/rail.h"

namespace beeline::doctor::peer {

inline constexpr std::uint16_t first_source_port = 0xC000;  // where RoCE v2 source ports begin
inline constexpr int swept_ports = 64;

struct EchoResult {
  bool answered = false;
  std::string error;                  // what the kernel said, if it said anything
  std::string request_on, answer_on;  // the interfaces on which the packets arrived
};
struct MtuResult {
  std::uint32_t wanted_bytes = 0;                 // the UDP payload that fills the smaller link MTU
  std::uint32_t there_bytes = 0, back_bytes = 0;  // the largest that passed
  bool reported = false;                          // somebody said "too big": not a black hole
};
struct PortResult {
  std::vector<std::uint16_t> lost, busy;
};
struct RcResult {
  bool ok = false;
  bool unreached = false;  // retry exceeded
  std::string text;
};

// A pair of GID addresses of one family.
struct Pair {
  const Rail* here_rail = nullptr;
  const Rail* there_rail = nullptr;
  IpAddress here, there;
  bool same_rail = false;  // expected to reach each other; else crosswise
  std::uint16_t port = 0;  // of the echo there; 0: it could not be opened
  EchoResult echo;
  std::optional<MtuResult> mtu;
  std::optional<PortResult> ports;
  std::optional<RcResult> rc;
  std::string ends() const;  // "mlx5_0 10.0.0.1 -> mlx5_0 10.0.0.2"
};

struct Measured {
  HostFacts here, there;
  std::vector<Pair> pairs;
  std::size_t left_out = 0;  // pairs beyond the limit
  bool same_host = false;    // all addresses are the same
  bool driver_here = false;
};

// Pairs of addresses of one family that are not the same on both hosts.
void add_pairs(Measured& measured);
// The whole conversation with a listener. `measured.pairs` points into the result's rails.
beeline::Result<std::unique_ptr<Measured>> measure(Channel& channel, HostFacts here,
                                                   verbs::Provider* provider);

}  // namespace beeline::doctor::peer
