#include "proto/unreliable/connected_receiver.h"

namespace beeline::proto {

void ConnectedReceiver::start() { expected_ = operations_.attributes().rq_psn; }

void ConnectedReceiver::handle_packet(const wire::PacketView& packet) {
  if (!operations_.can_receive() || !fits_in_place(packet)) return drop();
  const Verdict verdict =
      operations_.executor().execute(fragment_of(packet), operations_.attributes().access);
  if (verdict.kind == Verdict::Kind::ok) {
    counters_.bytes_received += packet.payload.size();
    return;
  }
  drop();
  // The receive request's own memory is at fault: an error of this side, which stops the queue pair.
  if (verdict.reported && verdict.code == wire::NakCode::remote_operation) operations_.enter_error();
}

// Whether the packet begins a message, or may continue the one under way: the executor knows which that is.
bool ConnectedReceiver::fits_in_place(const wire::PacketView& packet) {
  const Psn psn = packet.headers.bth.psn;
  const bool in_sequence = psn == expected_;
  expected_ = psn + 1;
  if (!in_sequence) ++counters_.out_of_sequence_packets;
  if (packet.info->starts_message()) {
    operations_.executor().reset();
  } else if (!in_sequence) {
    return false;
  }
  return wire::payload_fits(*packet.info, packet.payload.size(), operations_.attributes().path_mtu_bytes);
}

void ConnectedReceiver::drop() {
  operations_.executor().reset();
  ++counters_.dropped_packets;
}

}  // namespace beeline::proto
