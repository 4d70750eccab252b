#include "nic/tx.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "nic/guarded.h"

namespace beeline::nic {

using port::SendStatus;
using proto::MemoryStatus;

namespace {

// Up to here copying costs less than a second piece of the gather list, and the packet cannot change
// between ICRC and departure.
constexpr std::size_t copy_up_to_bytes = 1024;

// Where a packet goes: datagrams each on a path of their own.
struct Flow {
  const IpAddress& local;
  const IpAddress& remote;
  std::uint16_t source_port;
};

Flow flow_of(const proto::TxDesc& desc, const Route& route) {
  if (desc.path != nullptr) [[unlikely]]
    return {desc.path->local, desc.path->remote, desc.path->source_port};
  return {route.local, route.remote, route.source_port};
}

wire::IpUdp ip_udp_of(const Flow& flow, std::size_t datagram_bytes, std::uint8_t place_in_train) {
  wire::IpUdp ip_udp;
  ip_udp.source = flow.local;
  ip_udp.destination = flow.remote;
  ip_udp.source_port = flow.source_port;
  ip_udp.ip_id = place_in_train;
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(datagram_bytes);
  return ip_udp;
}

bool copies_payload(const proto::TxDesc& desc) {
  return desc.must_copy || desc.payload_bytes <= copy_up_to_bytes || desc.ref_count == 0;
}

}  // namespace

TxBatch::TxBatch(port::Port& port, RegionTable& regions, CardCounters& counters)
    : port_(port), regions_(regions), counters_(counters), packets_(max_packets), descs_(max_packets) {}

bool TxBatch::add(QueuePair& qp, std::unique_lock<BriefLock>& lock, std::size_t quota, TimePoint now,
                  std::size_t& payload_bytes) {
  const std::span descs = std::span(descs_).subspan(desc_count_).first(std::min(quota, room()));
  const std::size_t polled = qp.protocol.poll_transmit(now, descs);
  if (polled == 0) return false;
  BEELINE_CHECK(qp.route.known || qp.type == proto::QpType::ud);
  Share& share = shares_[share_count_++];
  share.qp = &qp;
  share.lock = std::move(lock);
  share.first_desc = desc_count_;
  share.polled = polled;
  share.first_packet = packet_count_;
  share.built = 0;
  desc_count_ += polled;
  payload_bytes = 0;
  train_.begin(polled > 1 && qp.route.known ? port_.train_max(qp.route.local) : 1);
  while (share.built < polled && build(descs[share.built], qp))
    payload_bytes += descs[share.built++].payload_bytes;
  return true;
}

// One packet behind the last. False when its payload cannot be read.
bool TxBatch::build(const proto::TxDesc& desc, const QueuePair& qp) {
  BEELINE_CHECK(desc.payload_bytes <= max_payload);
  Packet& packet = packets_[packet_count_];
  const std::size_t header_bytes = wire::emit(desc.headers, packet.buffer);
  const std::size_t pad_bytes = desc.headers.bth.pad_count;
  const std::size_t trailer_bytes = pad_bytes + wire::icrc_bytes;
  const Flow flow = flow_of(desc, qp.route);
  const bool copied = copies_payload(desc);
  packet.bytes = header_bytes + desc.payload_bytes + trailer_bytes;
  const std::uint8_t place =
      train_.place_of({packet.bytes, copied ? 1 : desc.ref_count + std::size_t{2}, desc.headers.bth.psn,
                       desc.path, desc.alone, desc.headers.bth.opcode == wire::Opcode::rc_acknowledge});
  wire::Icrc crc(ip_udp_of(flow, packet.bytes, place));
  crc.update_headers(Bytes(packet.buffer).first(header_bytes));
  std::byte* payload = packet.buffer.data() + header_bytes;
  std::byte* trailer = copied ? payload + desc.payload_bytes : payload;
  packet.use_count = 0;
  packet.piece_count = 1;
  if (copied) {
    if (!copy_payload(desc, qp, payload)) return false;
    crc.update({payload, desc.payload_bytes});
    packet.pieces[0] = {packet.buffer.data(), packet.bytes};
  } else {
    packet.pieces[0] = {packet.buffer.data(), header_bytes};
    if (!refer_payload(desc, qp, packet, crc)) return false;
    packet.pieces[packet.piece_count++] = {trailer, trailer_bytes};
  }
  std::memset(trailer, 0, pad_bytes);
  crc.update({trailer, pad_bytes});
  packet.icrc = trailer + pad_bytes;
  wire::store_icrc(packet.icrc, crc.value());

  port::OutPacket& out = out_[packet_count_++];
  out.source = flow.local;
  out.destination = flow.remote;
  out.source_port = flow.source_port;
  out.pieces = std::span(packet.pieces).first(packet.piece_count);
  out.place = place;
  out.status = SendStatus::sent;
  return true;
}

// What a peer asked for may have gone to another queue pair since.
bool TxBatch::may_use(const proto::MemoryRef& ref, const QueuePair& qp) {
  return ref.need == proto::Access::none || regions_.check_user(ref.key, qp.qpn) == MemoryStatus::ok;
}

bool TxBatch::copy_payload(const proto::TxDesc& desc, const QueuePair& qp, std::byte* to) {
  if (desc.ref_count == 0) {
    std::copy(desc.inline_payload.begin(), desc.inline_payload.end(), to);
    return true;
  }
  for (const proto::MemoryRef& ref : std::span(desc.refs).first(desc.ref_count)) {
    if (!may_use(ref, qp) ||
        regions_.read(qp.domain, ref.key, ref.address, {to, ref.length}, ref.need) != MemoryStatus::ok)
      return false;
    to += ref.length;
  }
  return true;
}

bool TxBatch::refer_payload(const proto::TxDesc& desc, const QueuePair& qp, Packet& packet, wire::Icrc& crc) {
  for (const proto::MemoryRef& ref : std::span(desc.refs).first(desc.ref_count)) {
    if (ref.length == 0) continue;
    RegionUse& use = packet.uses[packet.use_count];
    const bool readable = may_use(ref, qp) && regions_.enter(qp.domain, ref.key, ref.address, ref.length,
                                                             ref.need, use) == MemoryStatus::ok;
    packet.use_count += readable ? 1 : 0;
    if (!readable || !crc_guarded(crc, {use.bytes(), ref.length})) {
      for (RegionUse& held : std::span(packet.uses).first(packet.use_count)) held.release();
      return false;
    }
    packet.pieces[packet.piece_count++] = {use.bytes(), ref.length};
  }
  return true;
}

// A train that the port refuses is taken apart and sent packet by packet: one of them may be at fault, and it
// shows which. What follows keeps its place behind.
std::size_t TxBatch::send_all() {
  std::size_t sent = 0;
  for (std::span unsent = std::span(out_).first(packet_count_); !unsent.empty();) {
    sent += port_.send(unsent);
    const auto refused = std::find_if(unsent.begin(), unsent.end(), [](const port::OutPacket& packet) {
      return packet.status == SendStatus::train_refused;
    });
    unsent = unsent.subspan(static_cast<std::size_t>(refused - unsent.begin()));
    take_apart(unsent);
  }
  return sent;
}

// The train at the front, if there is one.
void TxBatch::take_apart(std::span<port::OutPacket> unsent) {
  for (std::uint8_t place = 1; place < unsent.size() && unsent[place].place == place; ++place) {
    port::OutPacket& out = unsent[place];
    const Packet& packet = packets_[static_cast<std::size_t>(&out - out_.data())];
    if (out.source.is_v4())
      wire::store_icrc(packet.icrc,
                       wire::change_identification(wire::load_icrc(packet.icrc), place, 0, packet.bytes));
    out.place = 0;
  }
}

bool TxBatch::send(TimePoint now) {
  const std::span out = std::span(out_).first(packet_count_);
  const std::size_t sent = send_all();
  for (Packet& packet : std::span(packets_).first(packet_count_))
    for (RegionUse& use : std::span(packet.uses).first(packet.use_count)) use.release();
  counters_.sent += sent;
  for (const Share& share : std::span(shares_).first(share_count_)) settle(share, now);
  return std::none_of(out.begin(), out.end(), [](const auto& p) { return p.status == SendStatus::no_room; });
}

// Tells the queue pair about its first packet that could not be read, or else about those for
// which there was no room. The rest went out, or was lost on the way, which the protocol handles.
void TxBatch::settle(const Share& share, TimePoint now) {
  const std::span descs = std::span(descs_).subspan(share.first_desc, share.polled);
  const std::span out = std::span(out_).subspan(share.first_packet, share.built);
  for (std::size_t i = 0; i < share.built; ++i) {
    if (out[i].status == SendStatus::fault) {
      ++counters_.send_faults;
      return share.qp->protocol.transmit_fault(now, descs[i]);
    }
    if (out[i].status == SendStatus::no_room) {
      ++counters_.send_no_room;
      return share.qp->protocol.transmit_refused(now, descs.subspan(i));
    }
    if (out[i].status == SendStatus::sent) counters_.wire_payload_sent += descs[i].payload_bytes;
  }
  if (share.built < share.polled) {
    ++counters_.send_faults;
    share.qp->protocol.transmit_fault(now, descs[share.built]);
  }
}

}  // namespace beeline::nic
