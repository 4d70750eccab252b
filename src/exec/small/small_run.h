// A small call under way. Each rank sends each peer of its plan one parcel: the call's
// fingerprint and all data for that peer, in one message. Nobody asks for it and nothing is registered:
// parcels are received in slots, which stay taken until the call is over.
//
// Never blocks, and allocates nothing for a call that is like one of the last few.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "exec/connections/connections.h"
#include "exec/message.h"
#include "exec/small/script.h"

namespace beeline::exec {

class SmallRun {
 public:
  SmallRun(Connections& connections, Rank rank, int size);

  // Does a call travel this way? A matter of its fingerprint and the group's size, so all ranks agree.
  bool takes(const Call& call) const;

  // ---- a call

  Result<void> begin(const Call& call, const Fingerprint& fingerprint);
  // Does what can be done now; was that anything?
  Result<bool> advance();
  bool complete() const { return program_ != nullptr && next_ == program_->instructions.size(); }
  // Gives the slots back. The caller's memory has not been known to anybody but this rank at any time.
  Result<void> end();
  void abandon() {
    program_ = nullptr;
    has_sent_letters_ = false;
  }

  // ---- what arrives, also between calls. `now` is the call under way, or the last one.

  Result<void> on_parcel(Rank peer, const Parcel& parcel, const Fingerprint& now, bool under_way);
  // The last call that a peer has sent a parcel of, at least if that is the call `before` one that it
  // announces.
  std::uint64_t last_from(Rank peer, std::uint64_t before);
  // A peer that sent a parcel of this call, which travels another way here.
  std::optional<Error> difference(const Fingerprint& call);

  // ---- for warnings and statistics

  // Wakes those that sleep though a letter of this call has gone to them. Now and then while it is under way.
  Result<void> wake_sleepers();
  // Before this rank sleeps: those it waits for are told, so that they wake it. True when there is no reason
  // to sleep any more.
  bool prepare_to_sleep();
  // Nor is it wise to sleep for long: somebody may not know.
  bool all_know_that_we_sleep() const { return all_know_that_we_sleep_; }
  // A letter may come, which nothing but looking tells; or is even likely to.
  bool may_get_letters() const { return program_ != nullptr && connections_.has_mailboxes(); }
  bool looks_for_letters() const { return program_ != nullptr && looks_for_letters_; }

  // Whose parcel is missing, the surest first.
  std::vector<Rank> silent() const;
  // Do parcels speak for their senders only?
  bool knows_who_is_missing() const { return algorithm_ == coll::Algorithm::direct; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Sender {
    std::uint64_t last = 0;
    std::array<Parcel, 2> parcels{};  // of its latest calls, by sequence modulo 2
    std::array<std::uint64_t, 2> sequences{};
    std::uint64_t woken = 0;  // in which call this one was
  };
  // A call that was made before: everything but its buffers and its sequence.
  struct Known {
    bool used = false;
    Fingerprint call;  // sequence 0
    Program program;
    MessageBuffer header{};
  };
  using Instruction = Program::Instruction;

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value); }
  Result<Known*> find(const Call& call, const Fingerprint& fingerprint);
  Result<const Script*> script_for(const Call& call);
  Result<void> check(Rank peer) const;
  Result<void> explain(Rank peer, const Parcel& parcel) const;
  bool has_taken(Rank peer) const {
    return senders_[index(peer)].sequences[fingerprint_.sequence % 2] == fingerprint_.sequence;
  }
  bool has_letter(Rank peer) const {
    return connections_.has_letter(peer, fingerprint_.sequence, sequence_be_);
  }
  bool has(Rank peer) const { return has_taken(peer) || has_letter(peer); }
  void take_letter(Rank peer, std::uint64_t sequence);
  static MessageBuffer header_of(const Parcel& parcel);
  void gather(const Instruction& send, std::byte* to) const;
  Result<bool> send(const Instruction& send);
  Result<bool> send_letter(const Instruction& send);
  Result<bool> await(const Instruction& await);
  void reduce(const Instruction& reduce);
  std::byte* at(Program::Place place) const { return bases_[place.base] + place.offset; }

  Connections& connections_;
  const Rank rank_;
  const int size_;
  const coll::Algorithm algorithm_;
  std::map<std::pair<coll::Operation, int>, Script> scripts_;  // by operation and root
  std::array<Known, 8> known_;
  std::size_t latest_ = 0, oldest_ = 0;

  Fingerprint fingerprint_;
  DType dtype_ = DType::uint8;
  RedOp redop_ = RedOp::sum;
  const Program* program_ = nullptr;  // null between calls
  std::size_t next_ = 0;
  bool looks_for_letters_ = false;
  bool all_know_that_we_sleep_ = false;
  bool has_sent_letters_ = false;  // in this call, to whoever may sleep
  MessageBuffer header_{};  // of this call: what every parcel begins with, and half of it every letter ends
  std::uint64_t sequence_be_ = 0;  // as it is in there
  std::vector<std::byte*> bases_;  // see Program::Base
  std::vector<std::byte> partial_;
  std::vector<Sender> senders_;  // by rank
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace beeline::exec
