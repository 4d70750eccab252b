#include "proto/local/lane.h"

namespace beeline::proto::local {

Lane::Lane(Operations& operations, SharedPair& pair, int side, PeerMemory& peer)
    : operations_(operations),
      theirs_(pair.sides[static_cast<std::size_t>(1 - side)]),
      ours_(pair.sides[static_cast<std::size_t>(side)]),
      requester_(operations, pair.directions[static_cast<std::size_t>(side)], theirs_, ours_, peer),
      responder_(operations, pair.directions[static_cast<std::size_t>(1 - side)], theirs_, ours_, peer) {}

bool Lane::post(TimePoint now) {
  const bool was_closed = closed_;
  const bool published = requester_.run(now);
  settle();
  return published || closed_ != was_closed;
}

bool Lane::step(TimePoint now) {
  // Looked at first: whatever the peer did before it closed can be seen then.
  const bool closed = theirs_.closed.load(std::memory_order_acquire) != 0;
  bool published = responder_.run(now, requester_);
  published |= requester_.run(now);
  requester_.handle_timeout(now);
  if (closed) lose_peer(now);
  const bool was_closed = closed_;
  settle();
  return published || closed_ != was_closed;
}

bool Lane::has_work() const {
  if (responder_.has_request() || requester_.has_answer()) return true;
  return !peer_gone_.load(std::memory_order_relaxed) && theirs_.closed.load(std::memory_order_relaxed) != 0;
}

void Lane::settle() {
  if (operations_.state() == QpState::sqd && requester_.idle()) operations_.note_idle();
  if (operations_.state() == QpState::err) close();
}

void Lane::close() {
  if (closed_) return;
  closed_ = true;
  ours_.closed.store(1, std::memory_order_release);
}

void Lane::lose_peer(TimePoint now) {
  if (peer_gone_.exchange(true, std::memory_order_relaxed)) return;
  (void)requester_.run(now);
  requester_.lose_peer(now);
  settle();
}

}  // namespace beeline::proto::local
