// One collective call under way: its plan, repeated for piece after piece, several pieces
// at a time. A receive sends an advert; the send it meets answers with a WRITE.
//
// Never blocks. An error means that the call, and with it the communicator, has failed.
#pragma once

#include <optional>
#include <vector>

#include "exec/connections/connections.h"
#include "exec/flight_recorder.h"
#include "exec/run/adverts.h"
#include "exec/run/geometry.h"
#include "exec/run/schedule.h"
#include "exec/run/staging.h"

namespace beeline::exec {

class Run {
 public:
  // All of these outlive it.
  Run(Connections& connections, Staging& staging, FlightRecorder& recorder, Rank rank, int size,
      std::uint32_t piece_bytes);

  // ---- a call

  // `schedule` stays until end().
  Result<void> begin(const Call& call, const Fingerprint& fingerprint, const Schedule& schedule);
  // Does what can be done now; was that anything?
  Result<bool> advance();
  bool complete() const { return next_piece_ == geometry_.pieces() && busy_lanes_ == 0; }
  // Did the peer get an advert of this call?
  bool has_advertised_to(Rank peer) const {
    return advertised_[static_cast<std::size_t>(peer.value)] == fingerprint_.sequence;
  }
  // Deregisters the caller's memory. Nothing touches it any more.
  Result<void> end();
  // After an error, with the queue pairs broken: the same without asking whether all is well.
  void abandon() { forget_buffers(); }

  // ---- what arrives, also between calls

  // Of the call under way or a later one.
  Result<void> on_advert(Rank peer, const Message& advert);
  Result<void> on_data(Rank peer, std::uint32_t ticket, std::uint32_t bytes);
  void on_written(std::uint32_t cookie);

  // Adverts that came too early for a call that turns out to need none.
  Result<void> check_invitations_of(const Fingerprint& call) const;

  // ---- for warnings and statistics

  // Peers whose data or whose advert is missing.
  std::vector<Rank> waiting_for() const;
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  using Index = std::uint32_t;  // of a step
  static constexpr std::uint32_t no_slot = UINT32_MAX;

  struct Lane {
    bool busy = false;
    std::uint32_t number = 0;
    std::uint32_t piece = 0;
    std::uint32_t left = 0;              // steps not complete
    std::size_t next_receive = 0;        // into schedule.receives: advertised in this order
    std::vector<std::uint32_t> waits;    // by step: dependencies not complete
    std::vector<std::uint32_t> slots;    // by step: the staging slot its data is in
    std::vector<std::uint32_t> readers;  // by step: readers of its scratch that are not done
    std::vector<Index> ready_sends;      // wait for the peer's advert, or for room
  };

  Result<void> register_buffers();
  void forget_buffers();
  void start_piece(Lane& lane);
  Result<bool> advance_receives(Lane& lane);
  Result<bool> advance_sends(Lane& lane);
  Result<bool> advertise(Lane& lane, Index step);
  Result<bool> answer(Lane& lane, Index step);
  Result<void> check_advert(Rank peer, const Message& advert) const;
  Result<void> check_open_invitations() const;
  void arrived(Lane& lane, Index step);
  void reduce_arrived(Lane& lane, Index step, std::byte* slot);
  void reduce_here(const Lane& lane, Index step);
  void combine(const coll::Step& step, const std::byte* left, const std::byte* right, std::byte* out,
               std::size_t count);
  void copy(const Lane& lane, Index step);
  void ready(Lane& lane, Index step);
  void complete_step(Lane& lane, Index step);
  void release(Lane& lane, Index writer);

  const Schedule::Node& node(Index step) const { return schedule_->nodes[step]; }
  coll::Range elements(const Lane& lane, Index step) const;
  bool moves_nothing(const Lane& lane, Index step) const;
  std::byte* source(const Lane& lane, Index step) const;
  std::byte* destination(const Lane& lane, Index step) const;
  std::byte* locate(const Lane& lane, coll::Slice slice, coll::Range range, Index scratch_writer) const;
  std::uint32_t source_key(const coll::Step& step) const;
  void record(const char* what, Rank peer, const Lane& lane, Index step, std::uint64_t bytes);

  Connections& connections_;
  Staging& staging_;
  FlightRecorder& recorder_;
  Rank rank_;
  std::uint32_t piece_bytes_;

  Call call_;
  Fingerprint fingerprint_;
  const Schedule* schedule_ = nullptr;  // null between calls
  Geometry geometry_;
  verbs::MemoryRegion input_region_, output_region_;

  std::array<Lane, lanes> lanes_;
  std::uint32_t next_piece_ = 0, busy_lanes_ = 0;
  std::vector<Index> completed_;           // steps whose dependents are to be told
  std::vector<Invitations> invitations_;   // by peer
  std::vector<Tickets> tickets_;           // by peer
  std::vector<std::uint64_t> advertised_;  // by peer: the last call that it got an advert of
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace beeline::exec
