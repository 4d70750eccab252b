// The requesting half of a queue pair on the local lane: puts work requests into the ring, takes the
// answers, and copies the bytes of READs into place.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "proto/local/shared_pair.h"
#include "proto/ops/operations.h"

namespace beeline::proto::local {

class Requester {
 public:
  // Bytes that one step copies directly, at most: so long are the locks held.
  static constexpr std::uint32_t step_bytes = 128 * 1024;

  Requester(Operations& operations, Direction& requests, const SideLine& theirs, SideLine& ours,
            PeerMemory& peer);

  // Takes answers, then puts into the ring what there is room for. True if the other side has something
  // new to see.
  bool run(TimePoint now);
  // The first half of it.
  bool take_answers(TimePoint now);
  // Whether run() would find an answer: from any thread, as a hint.
  bool has_answer() const;
  // Whether run() has more to do at once.
  bool has_more() const {
    return operations_.can_send() && fetching_ && fetched_bytes_ != pieces_[index(taken_)].bytes;
  }

  // The other side is gone, or has closed: nobody answers. What is under way and what is posted from now on
  // fails a little later, as it would over the wire: a program that has what it waited for may be about to
  // end.
  void lose_peer(TimePoint now);
  // When to call handle_timeout().
  TimePoint next_timeout() const;
  void handle_timeout(TimePoint now);

  // Everything that was posted has been executed, and more may be: then a WRITE need not go through the ring.
  bool may_write_directly() const {
    return operations_.may_begin() && operations_.sends().empty() && filled_ == taken_ && !lost_ && !gone_;
  }
  // Whether the bytes of a WRITE that is about to be posted may be stored where they are to go. It goes
  // through the ring all the same, in its turn, without them.
  bool may_place() const { return operations_.may_begin() && !lost_ && !gone_; }
  // One past the ring has been executed, and is worth no entry in the send queue …
  void note_direct(std::uint32_t bytes) { bytes_stored_ += bytes; }
  // … or, as it has one, is complete.
  void complete_directly(std::uint32_t bytes) {
    note_direct(bytes);
    ++sequence_;
    operations_.complete_send();
  }

  // Nothing that has begun is left.
  bool idle() const { return filled_ == taken_ && offset_ == 0; }
  std::uint64_t bytes_sent() const { return bytes_sent_ + bytes_stored_; }
  // Of them, by WRITEs that did not go through the ring: the peer has not seen these come.
  std::uint64_t bytes_stored() const { return bytes_stored_; }
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Piece {
    std::uint64_t sequence = 0;  // of the send request
    std::uint32_t offset = 0;    // in its message
    std::uint32_t bytes = 0;
    Carry carry{};
    bool last = false;
  };

  static constexpr std::size_t index(std::uint64_t n) { return static_cast<std::size_t>(n % slot_count); }

  // Taking answers.
  bool take_new_answers(TimePoint now);
  bool take(const Piece& piece);
  bool take_data(const Piece& piece, Bytes data);
  bool take_failure(Answer answer);
  bool fetch(TimePoint now);
  void broken_protocol();

  // Filling the ring.
  bool fill(TimePoint now);
  bool may_begin(const SendRequest& request);
  bool begin(const SendRequest& request);
  bool fill_piece(const SendRequest& request);
  bool fill_data(const SendRequest& request, Slot& slot, Piece& piece);
  bool name_sources(const SendRequest& request);
  void fill_header(const SendRequest& request, Slot& slot, const Piece& piece);
  void note_failed(WcStatus status);
  void settle_failure();
  void give_up();
  Duration grace() const;  // for answers of a peer that is gone
  Duration patience() const;

  Operations& operations_;
  Direction& requests_;
  const SideLine& theirs_;
  SideLine& ours_;
  PeerMemory& peer_;

  std::array<Piece, slot_count> pieces_{};
  std::uint64_t filled_ = 0;  // slots
  std::uint64_t taken_ = 0;
  std::uint64_t sequence_ = 0;      // the send request that is filled in next,
  std::uint32_t offset_ = 0;        // and how much of it is
  std::optional<WcStatus> failed_;  // that one cannot be sent: it fails when all before it are done
  std::uint64_t seen_ = 0;          // of theirs_.executed
  // Copies of both for has_answer().
  std::atomic<std::uint64_t> hint_executed_{0}, hint_offered_{0};

  bool fetching_ = false;  // an offer has been taken up, and the READ is not done
  Source offer_;
  std::uint32_t fetched_bytes_ = 0;

  bool lost_ = false;  // nobody answers any more,
  bool gone_ = false;  // and that is known for long enough
  std::uint32_t heartbeat_ = 0;
  TimePoint patience_ends_ = TimePoint::never();
  std::uint64_t bytes_sent_ = 0, bytes_stored_ = 0, bytes_read_ = 0;  // of payload; directly; by READs
};

}  // namespace beeline::proto::local
