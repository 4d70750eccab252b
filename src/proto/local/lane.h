// A queue pair's end of the local lane: both halves, and the end of it.
#pragma once

#include "proto/local/requester.h"
#include "proto/local/responder.h"

namespace beeline::proto::local {

class Lane {
 public:
  // All of them outlive the lane. `side`: 0 or 1, the peer has the other.
  Lane(Operations& operations, SharedPair& pair, int side, PeerMemory& peer);

  // After a post. True if the peer has something new to see.
  bool post(TimePoint now);
  // WRITEs past the ring: see Requester.
  bool may_write_directly() const { return requester_.may_write_directly(); }
  bool may_place() const { return requester_.may_place(); }
  void note_direct(std::uint32_t bytes) { requester_.note_direct(bytes); }
  void complete_directly(std::uint32_t bytes) { requester_.complete_directly(bytes); }
  // After a receive request was posted. True if a request of the peer has waited for it.
  bool note_receive() { return responder_.note_receive(); }
  // Does what can be done, but no more than a step's worth. True if the peer has something new to see.
  bool step(TimePoint now);
  bool has_more() const { return requester_.has_more() || responder_.has_more(); }
  // Whether step() would find anything: from any thread, as a hint.
  bool has_work() const;
  TimePoint next_timeout() const { return std::min(requester_.next_timeout(), responder_.next_timeout()); }

  // This side is in error or goes: the peer learns it. What is under way here is not touched.
  void close();
  // The process of the peer is gone. What it has answered before counts, and what it has put into the ring is
  // still executed.
  void lose_peer(TimePoint now);

  std::uint64_t bytes_sent() const { return requester_.bytes_sent() + responder_.bytes_read(); }
  std::uint64_t bytes_stored() const { return requester_.bytes_stored(); }
  std::uint64_t bytes_received() const { return responder_.bytes_received() + requester_.bytes_read(); }

 private:
  void settle();

  Operations& operations_;
  const SideLine& theirs_;
  SideLine& ours_;
  Requester requester_;
  Responder responder_;
  bool closed_ = false;
  std::atomic<bool> peer_gone_{false};
};

}  // namespace beeline::proto::local
