// Whether trains (port.h) may leave from an address.
//
// The ICRC covers IPv4's identification, so we must know how the pieces of a train will be numbered. When the
// kernel cuts it, they get 0, 1, 2, … A network card that cuts by itself may number otherwise, and nobody
// on the sending host sees what it does: trains go out through one only if BEELINE_GSO=on says so. Devices
// that are no hardware (loopback, veth, TAP, …) pass a train on whole, and the kernel cuts it at last; so it
// does where the card's own cutting is switched off. Over IPv6 there is no number.
//
// What is proved is the interface that has the address. If a route leads elsewhere, and a card there numbers
// otherwise, nothing goes wrong but speed: the receiver drops what it cannot explain, and what is sent
// again never goes in trains.
#pragma once

#include <string>

#include "base/address.h"
#include "base/config.h"

namespace beeline::port {

// What is known of an interface.
struct CuttingFacts {
  bool loopback = false;
  bool known = false;        // the three below could be asked for
  bool device_cuts = false;  // feature tx-udp-segmentation
  bool merges = false;       // feature rx-gro
  std::string driver;
  std::string behind_bridge;  // of a bridge: hardware on this host that cuts by itself
};

struct TrainRule {
  bool allowed = false;
  std::string reason;
};

// Pure. `kernel_can`: it knows UDP_SEGMENT (Linux 4.18).
TrainRule judge_trains(Segmentation setting, bool kernel_can, bool ipv4, const std::string& interface,
                       const CuttingFacts& facts);

CuttingFacts cutting_facts(const std::string& interface, bool loopback);
bool kernel_cuts_trains();

// Pure. Whether what comes to the interface in one piece can only be a train that was sent so on this host:
// the k-th packet of that has identification k. (What the kernel merges, it merges from packets of anybody,
// who number as they please.)
bool merges_nothing(const CuttingFacts& facts);

// All of it for one of our addresses.
CuttingFacts cutting_facts(const IpAddress& address);
TrainRule train_rule(Segmentation setting, const IpAddress& address);

}  // namespace beeline::port
