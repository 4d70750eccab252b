#include "nic/rx.h"

#include <algorithm>

#include "nic/train_cut.h"
#include "wire/icrc.h"

namespace beeline::nic {
namespace {

constexpr Qpn management_qpn{1};

// Connections: packets come from the peer's address and to ours; UDP source ports may change on the way.
bool from_peer(const Route& route, const port::InPacket& datagram) {
  return route.known && datagram.source == route.remote && datagram.destination == route.local;
}

// Datagrams come from anybody, to any address of the queue pair's device.
bool is_for(std::span<const Gid> addresses, const port::InPacket& datagram) {
  return std::find(addresses.begin(), addresses.end(), datagram.destination) != addresses.end();
}

wire::IpUdp ip_udp_of(const port::InPacket& datagram) {
  wire::IpUdp ip_udp;
  ip_udp.source = datagram.source;
  ip_udp.destination = datagram.destination;
  ip_udp.source_port = datagram.source_port;
  ip_udp.ip_id = datagram.ip_id;
  ip_udp.dont_fragment = datagram.dont_fragment;
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(datagram.bytes.size());
  return ip_udp;
}

bool is_datagrams(const QueuePair& qp) { return qp.type == proto::QpType::ud; }

// Where the hop limit was not seen, it is what most hosts send with.
proto::Arrival arrival_of(const port::InPacket& datagram) {
  proto::Arrival arrival{datagram.source, datagram.destination, datagram.marks.traffic_class};
  if (datagram.marks.hop_limit != 0) arrival.hop_limit = datagram.marks.hop_limit;
  return arrival;
}

constexpr proto::Arrival unseen{};  // what connections do not ask for

}  // namespace

// What is longer than any packet is not looked at as one.
Receiver::Examined Receiver::examine(const port::InPacket& datagram) {
  if (datagram.bytes.size() > packet_bytes_max) return tl::unexpected(Flaw::malformed);
  const auto packet = wire::parse(datagram.bytes);
  if (!packet) return tl::unexpected(Flaw::malformed);
  if (!icrc_is_good(datagram)) return tl::unexpected(Flaw::icrc);
  return *packet;
}

// 0: it is no train, as far as can be told.
std::size_t Receiver::cut_of(const port::InPacket& datagram) {
  if (!datagram.may_be_train) return 0;
  if (datagram.bytes.empty()) return 0;
  std::uint16_t& likely = last_cuts_[load_u8(datagram.bytes.data())];
  const std::size_t cut = find_train_cut(datagram.bytes, ip_udp_of(datagram), likely);
  if (cut != 0) likely = static_cast<std::uint16_t>(cut);
  return cut;
}

port::InPacket Receiver::part_of(const port::InPacket& train, std::size_t cut, std::size_t place) {
  port::InPacket part = train;
  part.bytes = train.bytes.subspan(place * cut, std::min(cut, train.bytes.size() - place * cut));
  part.ip_id = static_cast<std::uint16_t>(train.ip_id + place);
  return part;
}

QueuePair* Receiver::deliver(const port::InPacket& datagram, const Examined& packet, TimePoint now) {
  ++counters_.received;
  if (!packet) {
    ++(packet.error() == Flaw::icrc ? counters_.icrc_bad : counters_.malformed);
    return nullptr;
  }
  if (packet->headers.bth.destination == management_qpn) {
    let_go();
    management_.take(datagram, *packet, now);
    return nullptr;
  }
  QueuePair* qp = find(*packet);
  if (qp == nullptr) return nullptr;
  hold(*qp);
  const bool admitted = is_datagrams(*qp) ? is_for(qp->addresses, datagram) : from_peer(qp->route, datagram);
  if (!admitted) {
    ++counters_.wrong_peer;
    return nullptr;
  }
  counters_.wire_payload_received += packet->payload.size();
  if (is_datagrams(*qp))
    qp->protocol.handle_packet(now, *packet, arrival_of(datagram));
  else
    qp->protocol.handle_packet(now, *packet, unseen);
  return qp;
}

void Receiver::hold(QueuePair& qp) {
  if (held_ == &qp && ++held_for_ < packets_per_lock) return;
  let_go();
  qp.mutex.lock();
  held_ = &qp;
  held_for_ = 0;
}

void Receiver::let_go() {
  if (held_ != nullptr) held_->mutex.unlock();
  held_ = nullptr;
}

// A plain UDP socket does not show the IP identification of a foreign sender, so any one that explains
// the ICRC is accepted, and counted apart. A port that shows it leaves nothing to guess.
bool Receiver::icrc_is_good(const port::InPacket& datagram) {
  switch (wire::check_icrc(ip_udp_of(datagram), datagram.bytes, datagram.ip_header_seen)) {
    case wire::IcrcVerdict::good_exact:
      ++counters_.icrc_exact;
      return true;
    case wire::IcrcVerdict::good_affine:
      ++counters_.icrc_affine;
      return true;
    case wire::IcrcVerdict::bad:
      break;
  }
  return false;
}

QueuePair* Receiver::find(const wire::PacketView& packet) {
  QueuePair* qp = queue_pairs_.find(packet.headers.bth.destination);
  if (qp == nullptr) ++counters_.no_queue_pair;
  return qp;
}

}  // namespace beeline::nic
