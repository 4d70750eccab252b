// What the two ends say to each other beside the verbs: messages of a type and a bounded
// length, in network byte order. Nothing that arrives is trusted: a field is read only
// where there is one, and a message must end where its fields do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/result.h"
#include "perf/options.h"
#include "verbs/verbs.h"

namespace beeline::perf {

inline constexpr std::uint64_t protocol_magic = 0x6265'656C'5045'5246;  // "beelPERF"
inline constexpr std::uint32_t protocol_version = 1;
inline constexpr std::size_t max_payload_bytes = std::size_t{64} * 1024;

enum class MessageType : std::uint16_t {
  hello = 1,     // client: what it wants; server: the same back
  endpoint = 2,  // GIDs, numbers, keys
  ready = 3,     // queue pairs connected; one per queue pair change of state
  round = 4,     // client: the next round
  start = 5,     // server: prepared for it
  finished = 6,  // one end has done its part of the round
  verdict = 7,   // what --check found
  bye = 8,       // client: no more rounds
  alive = 9,     // heartbeat, at any time
  failure = 10,  // a sentence; the sender gives up
};

struct Message {
  MessageType type{};
  std::vector<std::byte> payload;
};

// The fields that travel, in this order.
struct Hello {
  Plan plan;
};
struct PeerQueuePair {
  std::uint32_t qpn = 0, psn = 0, rkey = 0;
  std::uint64_t source = 0, sink = 0;  // addresses of its two areas
};
struct EndpointInfo {
  Gid gid;
  std::uint32_t mtu_bytes = 0;
  std::uint32_t reads = 0;
  std::vector<PeerQueuePair> queue_pairs;
};
struct Ready {
  bool data_in_order = false;
};
struct Round {
  std::uint64_t size_bytes = 0;
  std::uint64_t first_iteration = 0;
  std::uint64_t iterations = 0;  // per queue pair; 0: for `duration`
  Duration duration{};
};
struct Finished {
  std::uint64_t messages = 0;  // sent, all queue pairs
  std::int64_t elapsed_ns = 0;
  std::vector<std::uint64_t> per_queue_pair;
};
struct Verdict {
  std::uint64_t checked_bytes = 0;
  std::uint64_t wrong_bytes = 0;
  std::string first;  // where the first one was; empty when none
};

Message encode(const Hello& value);
Message encode(const EndpointInfo& value);
Message encode(const Ready& value);
Message encode(const Round& value);
Message encode(const Finished& value);
Message encode(const Verdict& value);
Message encode_failure(std::string_view sentence);
Message empty_message(MessageType type);

// Decoding fails with Errc::protocol and says which message was malformed.
Result<Hello> decode_hello(const Message& message);
Result<EndpointInfo> decode_endpoint(const Message& message);
Result<Ready> decode_ready(const Message& message);
Result<Round> decode_round(const Message& message);
Result<Finished> decode_finished(const Message& message);
Result<Verdict> decode_verdict(const Message& message);
// Printable characters only, bounded.
std::string decode_failure(const Message& message);

}  // namespace beeline::perf
