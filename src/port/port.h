// How packets leave and enter: the interface between the card and sockets.
// Spans of packets from the start: batch in, batch out.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline::port {

// An interface with its addresses, as the card's devices are made of.
struct Interface {
  std::string name;
  int index = 0;
  bool up = false;
  bool loopback = false;
  std::uint32_t mtu = 0;  // bytes, of the link
  std::array<std::uint8_t, 6> mac{};
  std::vector<IpAddress> addresses;  // in the system's order, IPv4 first
};

// A train is a run of datagrams of one flow that leave in one piece, which the kernel or the device
// cuts (UDP_SEGMENT): all of one size, but the last, which may be shorter. The kernel gives the k-th of them
// the IPv4 identification k, and the only one of an ordinary datagram 0.
inline constexpr std::size_t train_packets_max = 64;    // what every kernel takes
inline constexpr std::size_t train_bytes_max = 65'507;  // of all payloads: a datagram of IPv4
inline constexpr std::size_t train_pieces_max = 1024;   // UIO_MAXIOV
inline constexpr std::size_t packet_pieces_max = 64;    // of one datagram

// What of an IP header a sender may choose and a receiver is told: ToS, or the traffic class, and TTL, or the
// hop limit. An ICRC covers neither.
struct IpMarks {
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;  // 0: the host's own; not seen

  bool operator==(const IpMarks&) const = default;
};

enum class SendStatus : std::uint8_t {
  sent,
  no_room,  // socket buffer full: this and all later packets of the span were not sent
  fault,    // a payload piece is unmapped or protected: not sent, the next ones were tried
  failed,   // no route, interface down, …: counted, treated as lost on the wire
  // Its train cannot leave in one piece: neither that nor what follows was sent, all of it has this status.
  // Send again from here, the packets of this train each on its own (place 0).
  train_refused,
};

// One datagram to send: pieces are gathered by the kernel.
struct OutPacket {
  IpAddress source;  // an address that this port is bound to
  IpAddress destination;
  std::uint16_t source_port = 0;  // one that source_port() returned
  std::span<const iovec> pieces;
  std::uint8_t place = 0;  // in its train; 0 where a train begins, or a datagram is no part of one
  SendStatus status = SendStatus::sent;  // filled in
};

// One received datagram; `bytes` stay valid until the next receive(). (What came as a train, and is known to
// be cut where, is as many datagrams.)
struct InPacket {
  IpAddress source;
  IpAddress destination;  // which of our addresses it came to
  std::uint16_t source_port = 0;
  MutableBytes bytes;                   // UDP payload
  bool congestion_experienced = false;  // IP ECN field is CE
  // Whether the two fields of the IPv4 header that an ICRC covers and a UDP socket does not show were
  // seen; if not, they are what a sender of datagrams that are never fragmented writes.
  bool ip_header_seen = false;
  bool dont_fragment = true;
  std::uint16_t ip_id = 0;  // not seen: what one of our senders would have written
  // It may be a train, of which only the first datagram's IP header was seen, and not where it is cut.
  bool may_be_train = false;
  bool handed_over = false;  // another process of this host passed it on
  IpMarks marks = {};
};

// A number 0 … 255 that this process owns among those that share UDP 4791 in this network
// namespace: the high byte of all its queue pair numbers.
struct Slot {
  std::uint8_t value = 0;
};

struct PortCounters {
  std::uint64_t datagrams_sent = 0, datagrams_received = 0;
  std::uint64_t handed_over = 0;        // received here, passed to the slot they belong to
  std::uint64_t taken_over = 0;         // received through the hand-over channel
  std::uint64_t hand_over_refused = 0;  // no owner, a foreign uid, or nonsense
  std::uint64_t hand_over_dropped = 0;  // the owner's channel was full
  std::uint64_t handed_over_twice = 0;  // taken through the channel, but seen with its IP header before
  std::uint64_t ip_header_odd = 0;      // lengths or flags that no RoCE packet has: dropped
  std::uint64_t passed_on = 0;          // for queue pair 1: to whom the card said
  std::uint64_t learning_rounds = 0;    // asked other processes where packets go; none when all is quiet
  std::uint64_t truncated = 0, send_failures = 0;
  std::uint64_t trains_sent = 0, packets_in_trains = 0;  // the latter are among datagrams_sent
  std::uint64_t trains_refused = 0;                      // by the kernel; sent packet by packet then
  std::uint64_t trains_received = 0;                     // with their cuts known
};

class Port {
 public:
  virtual ~Port() = default;

  virtual Slot slot() const = 0;
  // Opens the socket on `address`:4791 (idempotent). Errors: in_use names the other user's socket,
  // not_found when the address is not on this host.
  virtual Result<void> open_address(const IpAddress& address) = 0;
  // A UDP source port for a flow, 0xC000 … 0xFFFF, stable for equal hashes and marks, bound on `address`:
  // what leaves from there has these marks.
  virtual Result<std::uint16_t> source_port(const IpAddress& address, std::uint32_t flow_hash,
                                            IpMarks marks = {}) = 0;
  // From now on packets to this address say their hop limit (InPacket::marks).
  virtual void show_hop_limits(const IpAddress& /*address*/) {}
  // Payload bytes the receive buffers can really hold (after what the kernel granted).
  virtual std::size_t receive_buffer_bytes() const = 0;

  // How many packets a train from this address may have; 1: there are no trains.
  virtual std::size_t train_max(const IpAddress& /*source*/) const { return 1; }
  // Sends in order; fills in every status. Returns how many were sent.
  virtual std::size_t send(std::span<OutPacket> packets) = 0;
  // Never blocks. Returns how many entries of `out` were filled.
  virtual std::size_t receive(std::span<InPacket> out) = 0;
  // Descriptor that polls readable when receive() may give something (an epoll descriptor).
  virtual int wait_descriptor() const = 0;
  // Sleeps until a datagram may be there, wake() was called, or `deadline`.
  virtual void wait(TimePoint deadline) = 0;
  virtual void wake() = 0;            // from any thread
  virtual TimePoint now() const = 0;  // the monotonic clock
  virtual const PortCounters& counters() const = 0;
  // Whether the slot is this process's alone in this network namespace, as far as the kernel knows.
  virtual bool owns_its_slot() const { return false; }
  // Whether received IPv4 packets come with what their IP header says (InPacket::ip_header_seen).
  virtual bool sees_ip_headers() const { return false; }
  // Datagrams to queue pair 1 come to any process of the host. This one is for the process that owns the
  // slot `to`, or for all others if there is none. How many got it.
  virtual int pass_on(const InPacket& /*packet*/, std::optional<Slot> /*to*/) { return 0; }
  // Whether some process of this host waits for connections to this service (udp/service.h).
  virtual bool is_served(std::uint64_t /*service_id*/) const { return false; }
  // An answer did not come in time. If packets may have gone astray on this host, looks into it, now
  // and then. From any thread.
  virtual void note_silence() {}
  // Whether links or addresses of this host may have changed since the last call. wait() notices that;
  // a thread that is in none asks with `look`, which takes a system call. For the thread that waits.
  virtual bool take_interface_change(bool /*look*/) { return false; }
  // The host's interfaces as they are now, those without an address too.
  virtual Result<std::vector<Interface>> interfaces() const { return std::vector<Interface>{}; }
  // In the child of a fork: closes every descriptor of this port without a word to anybody.
  virtual void abandon_after_fork() = 0;
};

}  // namespace beeline::port
