#include "nic/management.h"

#include <cstring>

#include "wire/cm/messages.h"
#include "wire/icrc.h"

namespace beeline::nic {
namespace {

using Verdict = ManagementAgent::Verdict;
using Fate = ManagementAgent::Fate;

constexpr Duration no_room_pause = 1ms;

struct Asked {
  std::uint64_t service_id = 0;
  wire::cm::Mad refusal;
};

// The service that a message asks for, and what to say when nobody has it.
std::optional<Asked> asked_service(const wire::cm::Mad& mad) {
  if (const auto* req = std::get_if<wire::cm::Req>(&mad.message)) {
    wire::cm::Rej rej;
    rej.remote_id = req->local_id;
    rej.reason = wire::cm::RejectReason::invalid_service_id;
    return Asked{req->service_id, {mad.transaction, 0, rej}};
  }
  if (const auto* req = std::get_if<wire::cm::SidrReq>(&mad.message)) {
    wire::cm::SidrRep rep;
    rep.request_id = req->request_id;
    rep.status = wire::cm::SidrStatus::unsupported;
    rep.service_id = req->service_id;
    return Asked{req->service_id, {mad.transaction, 0, rep}};
  }
  return std::nullopt;
}

// In every answer: the high byte of the id that the asking process drew is its slot.
std::uint8_t slot_of_answer(const wire::cm::Mad& mad) {
  return std::visit(
      [](const auto& m) -> std::uint8_t {
        if constexpr (requires { m.remote_id; })
          return static_cast<std::uint8_t>(m.remote_id.value >> 24);
        else if constexpr (requires { m.request_id; })
          return static_cast<std::uint8_t>(m.request_id.value >> 24);
        else
          return 0;
      },
      mad.message);
}

Verdict verdict_without_agent(Bytes bytes) {
  const auto mad = wire::cm::parse(bytes);
  if (!mad) return {};
  if (asked_service(*mad)) return {Fate::for_everybody};
  return {Fate::for_slot, slot_of_answer(*mad)};
}

}  // namespace

void Management::set_agent(ManagementAgent* agent) {
  agent_ = agent;
  unsent_.reset();
  deadline_ = agent == nullptr ? TimePoint::never() : TimePoint{};
}

void Management::take(const port::InPacket& datagram, const wire::PacketView& packet, TimePoint now) {
  const auto& headers = packet.headers;
  if (headers.bth.opcode != wire::Opcode::ud_send_only || packet.payload.size() != mad_bytes ||
      headers.deth.qkey != wire::cm::management_qkey) {
    ++counters_.management_odd;
    return;
  }
  ++counters_.management_received;
  const Verdict verdict = agent_ != nullptr ? agent_->handle_mad(now, datagram.destination, datagram.source,
                                                                 packet.payload, datagram.handed_over)
                                            : verdict_without_agent(packet.payload);
  if (verdict.fate == Fate::taken) deadline_ = {};  // it may have an answer
  if (!datagram.handed_over) pass_on(datagram, packet.payload, verdict);
}

void Management::pass_on(const port::InPacket& datagram, Bytes bytes, Verdict verdict) {
  if (verdict.fate == Fate::for_slot) {
    const bool passed = port_.pass_on(datagram, port::Slot{verdict.slot}) > 0;
    if (passed) return;
    // Whoever had the connection is gone without a word: somebody must agree to its end.
    const auto mad = wire::cm::parse(bytes);
    const auto* dreq = mad ? std::get_if<wire::cm::Dreq>(&mad->message) : nullptr;
    if (dreq == nullptr) return;
    wire::cm::Drep drep;
    drep.local_id = dreq->remote_id;
    drep.remote_id = dreq->local_id;
    (void)send({datagram.destination, datagram.source, wire::cm::emit({mad->transaction, 0, drep})});
    return;
  }
  if (verdict.fate != Fate::for_everybody) return;
  const auto mad = wire::cm::parse(bytes);
  const auto asked = mad ? asked_service(*mad) : std::nullopt;
  if (!asked) return;
  if (port_.is_served(asked->service_id)) {
    (void)port_.pass_on(datagram, std::nullopt);
    return;
  }
  (void)send({datagram.destination, datagram.source, wire::cm::emit(asked->refusal)});
}

void Management::pump(TimePoint now) {
  if (agent_ == nullptr) return;
  if (unsent_ && !send(*unsent_)) {
    deadline_ = now + no_room_pause;
    return;
  }
  unsent_.reset();
  if (agent_->next_timeout() <= now) agent_->handle_timeout(now);
  OutMad mad;
  while (agent_->poll_transmit(now, {&mad, 1}) == 1) {
    if (send(mad)) continue;
    unsent_ = mad;  // and nothing goes before it
    deadline_ = now + no_room_pause;
    return;
  }
  deadline_ = agent_->next_timeout();
}

// False when there is no room; whatever else happens to it is as if it were lost on the way.
bool Management::send(const OutMad& mad) {
  const auto source_port = port_.source_port(mad.local, wire::cm::management_qpn.value);
  if (!source_port) return true;
  wire::Headers headers;
  headers.bth.opcode = wire::Opcode::ud_send_only;
  headers.bth.destination = wire::cm::management_qpn;
  headers.bth.psn = Psn{psn_++ & Psn::mask};
  headers.deth.qkey = wire::cm::management_qkey;
  headers.deth.source = wire::cm::management_qpn;
  std::array<std::byte, wire::max_header_bytes + mad_bytes + wire::icrc_bytes> frame;
  std::size_t bytes = wire::emit(headers, frame);
  wire::IpUdp ip_udp;
  ip_udp.source = mad.local;
  ip_udp.destination = mad.remote;
  ip_udp.source_port = *source_port;
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(bytes + mad_bytes + wire::icrc_bytes);
  wire::Icrc crc(ip_udp);
  crc.update_headers(Bytes(frame).first(bytes));
  std::memcpy(frame.data() + bytes, mad.bytes.data(), mad_bytes);
  crc.update(Bytes(frame).subspan(bytes, mad_bytes));
  bytes += mad_bytes;
  wire::store_icrc(frame.data() + bytes, crc.value());
  bytes += wire::icrc_bytes;

  const iovec piece{frame.data(), bytes};
  port::OutPacket packet;
  packet.source = mad.local;
  packet.destination = mad.remote;
  packet.source_port = *source_port;
  packet.pieces = {&piece, 1};
  if (port_.send({&packet, 1}) == 1) ++counters_.management_sent;
  return packet.status != port::SendStatus::no_room;
}

}  // namespace beeline::nic
