#include "port/udp/handover.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace beeline::port {
namespace {

constexpr std::uint32_t magic = 0x42656548;  // "BeeH"
constexpr std::uint8_t version = 1;
constexpr std::uint8_t flag_congested = 1, flag_behind_another = 2;
constexpr std::uint32_t listener_tag = UINT32_MAX;
constexpr std::uint32_t outgoing_tag = 1 << 16;  // and the slot; without it: the place among the incoming
// Garbage for slots that nobody owns must not cost three system calls a packet.
constexpr Duration refusal_memory = 1ms;
constexpr int link_buffer_bytes = 1 << 20;

bool belongs_to(int socket, uid_t user) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == user;
}

}  // namespace

HandOverMessage message_about(const InPacket& packet, Slot sender) {
  HandOverMessage message;
  message.sender = sender;
  message.congestion_experienced = packet.congestion_experienced;
  message.source_port = packet.source_port;
  message.source = packet.source;
  message.destination = packet.destination;
  message.marks = packet.marks;
  return message;
}

InPacket packet_of(const HandOverMessage& message, MutableBytes payload) {
  InPacket packet{message.source, message.destination, message.source_port, payload,
                  message.congestion_experienced};
  packet.marks = message.marks;
  return packet;
}

HandOverHeader encode(const HandOverMessage& message) {
  HandOverHeader header{};
  store_be32(header.data(), magic);
  store_u8(header.data() + 4, version);
  store_u8(header.data() + 5, static_cast<std::uint8_t>(message.kind));
  store_u8(header.data() + 6,
           static_cast<std::uint8_t>((message.congestion_experienced ? flag_congested : 0) |
                                     (message.behind_another ? flag_behind_another : 0)));
  store_u8(header.data() + 7, message.index);
  store_be16(header.data() + 8, message.source_port);
  store_u8(header.data() + 10, message.sender.value);
  store_u8(header.data() + 11, message.marks.traffic_class);
  store_u8(header.data() + 12, message.marks.hop_limit);
  std::memcpy(header.data() + 16, message.source.bytes.data(), 16);
  std::memcpy(header.data() + 32, message.destination.bytes.data(), 16);
  return header;
}

std::optional<HandOverMessage> decode_handover(Bytes bytes) {
  if (bytes.size() < handover_header_bytes) return std::nullopt;
  const std::byte* p = bytes.data();
  const std::uint8_t kind = load_u8(p + 5), flags = load_u8(p + 6);
  if (load_be32(p) != magic || load_u8(p + 4) != version || flags > (flag_congested | flag_behind_another))
    return std::nullopt;
  if (kind != static_cast<std::uint8_t>(HandOverMessage::Kind::packet) &&
      kind != static_cast<std::uint8_t>(HandOverMessage::Kind::answer))
    return std::nullopt;
  for (std::size_t i = 13; i < 16; ++i)
    if (load_u8(p + i) != 0) return std::nullopt;
  HandOverMessage message;
  message.kind = static_cast<HandOverMessage::Kind>(kind);
  message.congestion_experienced = (flags & flag_congested) != 0;
  message.behind_another = (flags & flag_behind_another) != 0;
  message.index = load_u8(p + 7);
  message.source_port = load_be16(p + 8);
  message.sender.value = load_u8(p + 10);
  message.marks = {load_u8(p + 11), load_u8(p + 12)};
  std::memcpy(message.source.bytes.data(), p + 16, 16);
  std::memcpy(message.destination.bytes.data(), p + 32, 16);
  return message;
}

Result<std::unique_ptr<HandOver>> HandOver::create() {
  BEELINE_TRY(ClaimedSlot claimed, claim_slot());
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "cannot make an epoll descriptor");
  std::unique_ptr<HandOver> made(new HandOver(std::move(claimed), std::move(epoll)));
  if (!made->watch(made->listener_.get(), listener_tag))
    return fail_errno(errno, "cannot watch the socket of a slot");
  return made;
}

bool HandOver::watch(int socket, std::uint32_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

// Out of the epoll set by name: a forked child may still hold the descriptor, and would keep it there.
void HandOver::part_from(Descriptor& peer) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.get(), nullptr);
  peer.reset();
  --peers_;
  departure_ = true;
}

// Each listens before it looks for others: of two that come at once, one at least sees the other.
void HandOver::meet_others(TimePoint now) {
  arrival_ = false;
  for (std::size_t slot = 0; slot < outgoing_.size(); ++slot)
    if (slot != slot_.value && !outgoing_[slot] &&
        connect_to(Slot{static_cast<std::uint8_t>(slot)}, now) == Outcome::full)
      arrival_ = true;  // it is there, and is to be met yet
}

HandOver::HandOver(ClaimedSlot claimed, Descriptor epoll)
    : slot_(claimed.slot),
      user_(::geteuid()),
      listener_(std::move(claimed.listener)),
      epoll_(std::move(epoll)),
      incoming_(incoming_max),
      buffers_(batch_max * buffer_bytes) {}

HandOver::Outcome HandOver::connect_to(Slot slot, TimePoint now) {
  if (now < refused_until_[slot.value]) return Outcome::refused;
  Descriptor peer(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!peer) return Outcome::full;
  // Room for the burst that may be under way when a process joins; the kernel grants up to wmem_max.
  ::setsockopt(peer.get(), SOL_SOCKET, SO_SNDBUF, &link_buffer_bytes, sizeof link_buffer_bytes);
  const SlotName name(slot);
  if (::connect(peer.get(), name.get(), name.length) != 0 && errno == EAGAIN) return Outcome::full;
  // A socket that is not connected has no peer, hence no credentials either.
  if (!belongs_to(peer.get(), user_)) {
    refused_until_[slot.value] = now + refusal_memory;
    return Outcome::refused;
  }
  if (!watch(peer.get(), outgoing_tag | slot.value)) return Outcome::full;
  outgoing_[slot.value] = std::move(peer);
  ++peers_;
  return Outcome::passed;
}

HandOver::Outcome HandOver::pass(Slot slot, const HandOverMessage& message, Bytes payload, TimePoint now) {
  HandOverHeader header = encode(message);
  iovec pieces[2] = {{header.data(), header.size()},
                     {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr envelope{};
  envelope.msg_iov = pieces;
  envelope.msg_iovlen = 2;
  Descriptor& peer = outgoing_[slot.value];
  // Twice: the owner we were connected to may have died and the slot have a new one.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!peer)
      if (const Outcome connected = connect_to(slot, now); connected != Outcome::passed) return connected;
    if (::sendmsg(peer.get(), &envelope, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Outcome::passed;
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) return Outcome::full;
    part_from(peer);
  }
  return Outcome::refused;
}

int HandOver::pass_to_all(const HandOverMessage& message, Bytes payload, TimePoint now) {
  if (arrival_) {
    refused_until_.fill(TimePoint{});  // whoever came may have a slot that was free a moment ago
    meet_others(now);
  }
  int passed = 0;
  for (std::size_t slot = 0; slot < outgoing_.size(); ++slot)
    if (outgoing_[slot] &&
        pass(Slot{static_cast<std::uint8_t>(slot)}, message, payload, now) == Outcome::passed)
      ++passed;
  return passed;
}

void HandOver::accept_peers(std::uint64_t& refused) {
  for (std::size_t i = 0; i < batch_max; ++i) {
    Descriptor peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!peer) return;
    admit(std::move(peer), refused);
  }
}

void HandOver::admit(Descriptor peer, std::uint64_t& refused) {
  const auto place = std::find_if(incoming_.begin(), incoming_.end(), [](const Descriptor& d) { return !d; });
  if (place == incoming_.end() || !belongs_to(peer.get(), user_)) {
    ++refused;
    return;
  }
  if (!watch(peer.get(), static_cast<std::uint32_t>(place - incoming_.begin()))) return;
  *place = std::move(peer);
  ++peers_;
  arrival_ = true;
}

// True when `out` was filled.
bool HandOver::read_one(Descriptor& peer, Received& out, MutableBytes buffer, std::uint64_t& refused) {
  iovec piece{buffer.data(), buffer.size()};
  msghdr envelope{};
  envelope.msg_iov = &piece;
  envelope.msg_iovlen = 1;
  const ssize_t length = ::recvmsg(peer.get(), &envelope, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (length <= 0) {
    part_from(peer);
    return false;
  }
  const auto message = decode_handover(buffer.first(static_cast<std::size_t>(length)));
  if ((envelope.msg_flags & MSG_TRUNC) != 0 || !message) {
    ++refused;
    return false;
  }
  out.message = *message;
  out.payload =
      buffer.subspan(handover_header_bytes, static_cast<std::size_t>(length) - handover_header_bytes);
  return true;
}

std::size_t HandOver::receive(std::span<Received> out, std::uint64_t& refused) {
  const std::size_t limit = std::min(out.size(), batch_max);
  if (limit == 0 || !epoll_) return 0;
  epoll_event events[batch_max];
  // One message per ready peer and call; epoll rotates among those that stay ready.
  const int ready = ::epoll_wait(epoll_.get(), events, static_cast<int>(limit), 0);
  std::size_t filled = 0;
  for (int i = 0; i < ready; ++i) {
    if (events[i].data.u32 == listener_tag) {
      accept_peers(refused);
      continue;
    }
    const bool outgoing = (events[i].data.u32 & outgoing_tag) != 0;
    Descriptor& peer = outgoing ? outgoing_[events[i].data.u32 & 0xFF] : incoming_[events[i].data.u32];
    // Nobody says anything to us on a connection that we made: it is readable when its other end is gone.
    if (outgoing) {
      if (peer) part_from(peer);
      continue;
    }
    const MutableBytes buffer{buffers_.data() + filled * buffer_bytes, buffer_bytes};
    if (peer && read_one(peer, out[filled], buffer, refused)) ++filled;
  }
  return filled;
}

void HandOver::close_all() {
  listener_.reset();
  epoll_.reset();
  for (Descriptor& peer : outgoing_) peer.reset();
  for (Descriptor& peer : incoming_) peer.reset();
}

}  // namespace beeline::port
