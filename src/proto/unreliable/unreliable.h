// What makes a queue pair a UC or a UD one: the sending half, which both share, and the receiving half of its
// type. There is no timer, and nothing is answered.
#pragma once

#include <cstddef>
#include <span>

#include "proto/ops/operations.h"
#include "proto/unreliable/connected_receiver.h"
#include "proto/unreliable/datagram_receiver.h"
#include "proto/unreliable/sender.h"
#include "wire/packet.h"

namespace beeline::proto {

class Unreliable {
 public:
  Unreliable(const QpSetup& setup, Operations& operations, QpCounters& counters);

  Result<void> modify(const QpAttr& attributes, std::uint32_t mask);
  PostResult post_send(const SendWr& request);
  // Of the queue pair's own service, and partition.
  void handle_packet(const wire::PacketView& packet, const Arrival& arrival);

  bool wants_transmit() const { return sender_.wants_transmit(); }
  std::size_t poll_transmit(std::span<TxDesc> out) { return sender_.poll_transmit(out); }
  void transmit_fault(const TxDesc& desc) { sender_.transmit_fault(desc); }
  void transmit_refused(std::span<const TxDesc> unsent) { sender_.transmit_refused(unsent); }

  void settle() { sender_.settle(); }
  std::size_t poll_completions(std::span<Completion> out);
  bool has_completions() const;

 private:
  Operations& operations_;
  UnreliableSender sender_;
  ConnectedReceiver connected_;
  DatagramReceiver datagrams_;
};

}  // namespace beeline::proto
