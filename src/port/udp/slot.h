// Slots: which process owns which high byte of the queue pair numbers.
//
// A slot is the abstract Unix socket name "@beeline.4791.<slot>". Binding it is
// atomic, the name is scoped to the network namespace exactly as UDP 4791 is, and
// the kernel frees it when the last descriptor goes, however the process dies.
// The socket is at the same time where other processes hand over packets.
//
// It is SOCK_SEQPACKET: both ends learn the other's user from the kernel when they
// connect (SO_PEERCRED), so a packet never goes to a foreign user who took a name,
// and its queue is bounded in bytes (a datagram socket's holds 10 messages on a
// stock kernel, net.unix.max_dgram_qlen).
#pragma once

#include "base/abstract_name.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "port/port.h"

namespace beeline::port {

inline constexpr int slot_count = 256;

struct SlotName : AbstractName {
  explicit SlotName(Slot slot);
};

struct ClaimedSlot {
  Slot slot;
  Descriptor listener;  // bound and listening, non-blocking
};

// Takes the first free slot.
Result<ClaimedSlot> claim_slot();

}  // namespace beeline::port
