// Where a train is to be cut that was received whole.
//
// A raw socket (port/udp/raw_socket.h) sees what a process of this host sends before anybody has cut it, and
// nothing says into how many pieces. But the pieces are packets of one queue pair with PSNs that follow one
// another, but for an acknowledgement at the end, and the ICRC of the first is right under one length only.
// What this gives is a proposal: the ICRC of each piece is checked as that of any packet.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "wire/icrc.h"

namespace beeline::nic {

// No packet is longer: what is must be a train.
inline constexpr std::size_t packet_bytes_max = 4096 + 64;

// By its opcode; nothing is checked.
bool is_acknowledgement(Bytes packet);

// Bytes of each packet but the last; 0 when it is no train. `ip_udp` is of the first. `likely` is tried
// before all others.
std::size_t find_train_cut(Bytes bytes, const wire::IpUdp& ip_udp, std::size_t likely = 0);

}  // namespace beeline::nic
