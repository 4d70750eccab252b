// Messages of the connection manager as values: what can be parsed can be emitted, and back.
// IBTA vol. 1, 12.6 (connections), 12.11 (service id resolution), 13.4.2 (the header).
//
// A message carries all its private data, zero behind what the sender wrote: its length is not on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tl/expected.hpp>
#include <variant>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"

namespace beeline::wire::cm {

inline constexpr std::size_t mad_bytes = 256;
inline constexpr std::size_t mad_header_bytes = 24;
inline constexpr std::uint16_t permissive_lid = 0xFFFF;
inline constexpr Qpn management_qpn{1};
inline constexpr std::uint32_t management_qkey = 0x8001'0000;  // IBTA vol. 1, 10.2.5

using CommId = Id<struct CommIdTag>;  // names a connection at one end

template <std::size_t bytes>
using PrivateData = std::array<std::byte, bytes>;

// REQ's path; LIDs mean nothing over Ethernet.
struct Path {
  std::uint16_t local_lid = 0, remote_lid = 0;
  Gid local, remote;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint8_t rate = 0;         // 6 bits
  std::uint8_t traffic_class = 0, hop_limit = 0;
  std::uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  std::uint8_t ack_timeout = 0;  // 5 bits: 4.096 us * 2^n
  friend bool operator==(const Path&, const Path&) = default;
};

enum class Transport : std::uint8_t { rc = 0, uc = 1, rd = 2, other = 3 };

// Asks for a connection.
struct Req {
  CommId local_id;
  std::uint32_t ece_vendor_id = 0;  // 24 bits
  std::uint64_t service_id = 0, local_guid = 0;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint32_t local_eecn = 0, remote_eecn = 0;
  std::uint8_t remote_response_timeout = 0, local_response_timeout = 0;  // 5 bits each
  Transport transport = Transport::rc;
  bool flow_control = false;
  Psn starting_psn;
  std::uint8_t retry_count = 0, rnr_retry_count = 0;  // 3 bits each
  std::uint16_t pkey = 0;
  std::uint8_t path_mtu = 0;  // enum ibv_mtu; 4 bits
  bool rdc_exists = false, srq = false;
  std::uint8_t max_cm_retries = 0;      // 4 bits
  std::uint8_t extended_transport = 0;  // 3 bits
  Path primary, alternate;
  PrivateData<92> private_data{};
  friend bool operator==(const Req&, const Req&) = default;
};

enum class Subject : std::uint8_t { req = 0, rep = 1, other = 2 };  // what MRA and REJ are about

// Received, and still thinking.
struct Mra {
  CommId local_id, remote_id;
  Subject subject{};
  std::uint8_t service_timeout = 0;  // 5 bits
  PrivateData<222> private_data{};
  friend bool operator==(const Mra&, const Mra&) = default;
};

// IBTA vol. 1, 12.6.7.2: those that this project sends or must tell apart; any other may come.
enum class RejectReason : std::uint16_t {
  no_queue_pair = 1,
  no_resources = 3,
  timeout = 4,
  unsupported = 5,
  invalid_comm_id = 6,
  invalid_service_id = 8,
  invalid_transport = 9,
  stale_connection = 10,
  invalid_mtu = 26,
  consumer = 28,
};

struct Rej {
  CommId local_id, remote_id;
  Subject subject{};
  std::uint8_t info_bytes = 0;  // 7 bits
  RejectReason reason{};
  std::array<std::byte, 72> info{};
  PrivateData<148> private_data{};
  friend bool operator==(const Rej&, const Rej&) = default;
};

struct Rep {
  CommId local_id, remote_id;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn;
  std::uint32_t local_eecn = 0;
  Psn starting_psn;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;  // 5 bits
  std::uint8_t failover = 0;          // 2 bits
  bool flow_control = false, srq = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bits
  std::uint64_t local_guid = 0;
  PrivateData<196> private_data{};
  friend bool operator==(const Rep&, const Rep&) = default;
};

struct Rtu {
  CommId local_id, remote_id;
  PrivateData<224> private_data{};
  friend bool operator==(const Rtu&, const Rtu&) = default;
};

struct Dreq {
  CommId local_id, remote_id;
  Qpn remote_qpn;
  PrivateData<220> private_data{};
  friend bool operator==(const Dreq&, const Dreq&) = default;
};

struct Drep {
  CommId local_id, remote_id;
  PrivateData<224> private_data{};
  friend bool operator==(const Drep&, const Drep&) = default;
};

// Asks for the queue pair behind a service, for datagrams.
struct SidrReq {
  CommId request_id;
  std::uint16_t pkey = 0;
  std::uint64_t service_id = 0;
  PrivateData<216> private_data{};
  friend bool operator==(const SidrReq&, const SidrReq&) = default;
};

enum class SidrStatus : std::uint8_t { success = 0, unsupported = 1, reject = 2, no_queue_pair = 3 };

struct SidrRep {
  CommId request_id;
  SidrStatus status{};
  std::uint8_t info_bytes = 0;
  Qpn qpn;
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  std::array<std::byte, 72> info{};
  PrivateData<136> private_data{};
  friend bool operator==(const SidrRep&, const SidrRep&) = default;
};

// In the order of their attribute ids, from 0x0010 on.
using Message = std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep>;

struct Mad {
  std::uint64_t transaction = 0;
  std::uint32_t attribute_modifier = 0;
  Message message;
  friend bool operator==(const Mad&, const Mad&) = default;
};

enum class MadError : std::uint8_t {
  bad_length,  // not 256 bytes
  bad_version,
  other_class,        // not the connection manager's
  bad_method,         // it only knows Send
  unknown_attribute,  // load alternate path, or none at all
};
std::string_view name(MadError error);

// Reserved bits, status and class-specific bits are not looked at, and written as zero.
tl::expected<Mad, MadError> parse(Bytes datagram);
std::array<std::byte, mad_bytes> emit(const Mad& mad);

// "REQ", …
std::string_view name(const Message& message);

}  // namespace beeline::wire::cm
