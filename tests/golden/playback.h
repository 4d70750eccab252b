// Our queue pair takes the place of one side of a captured session and hears what the
// recorded other side said.
#pragma once

#include <string>
#include <vector>

#include "proto/queue_pair.h"
#include "session.h"

namespace beeline::test {

struct SentPacket {
  wire::Headers headers;
  std::vector<std::byte> payload;
};

struct Received {
  proto::Completion completion;
  std::vector<std::byte> payload;
};

struct Playback {
  std::vector<SentPacket> requests;                 // what we asked
  std::vector<SentPacket> responses;                // what we answered
  std::vector<proto::Completion> send_completions;  // in the order polled
  std::vector<Received> receives;
  std::vector<std::vector<std::byte>> read_data;  // what each of our READs and atomics brought, in order
  std::vector<std::byte> written_by_peer;         // the region that the peer's WRITEs went to, at the end
  std::vector<std::uint64_t> cells;               // where each of the peer's atomics went, at the end
  proto::QpState final_state{};
  proto::QpCounters counters;
};

// The captured machines were slow (an emulated guest), and this queue pair retransmits sooner
// than rxe's timeout: at the recorded times it repeats requests, with a stopped clock never.
enum class Clock : std::uint8_t { stopped, recorded };

// Work requests are posted when the recorded side began to send them; what the queue pair has
// to say is collected after every step.
Playback play(const Session& session, Side ours, Clock clock = Clock::stopped);

// The first packet of each PSN.
std::vector<SentPacket> without_repetitions(const std::vector<SentPacket>& sent);

// The differences between what we sent and what the recorded side sent, one line per packet.
// `recorded` are indices of events. Fields of the README's list are taken over from the recorded
// packet before the comparison, which then is byte by byte, pad and ICRC included; how often that
// was necessary is counted.
struct Comparison {
  std::vector<std::string> differences;
  std::size_t migration_requests = 0;
};
Comparison compare(const Session& session, const std::vector<std::size_t>& recorded,
                   const std::vector<SentPacket>& sent);

}  // namespace beeline::test
