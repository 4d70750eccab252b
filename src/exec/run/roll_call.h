// Who has made which call: a dissemination among the ranks at the start of every call. In
// round k a rank tells the one 2^k places to its left what it called, once it has heard
// the same from the ranks 1, 2, … 2^(k-1) places to its right. So what comes in round k speaks for
// 2^k ranks, and a rank that has heard all ceil(log2 n) rounds knows that every rank has
// made the same call: it may complete, whatever data the call moves or does not move.
// Ranks are therefore never more than one call apart.
//
// In round 0 an advert tells it as well as an announcement, since it carries the call's
// fingerprint. Distances below n are different ranks, so a message needs no round number.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "exec/fingerprint.h"

namespace beeline::exec {

class RollCall {
 public:
  RollCall(Rank rank, int size) : rank_(rank) {
    for (int distance = 1; distance < size; distance *= 2)
      rounds_.push_back({.hears = Rank{(rank.value + distance) % size},
                         .tells = Rank{(rank.value + size - distance) % size}});
  }

  void begin(const Fingerprint& call) {
    current_ = call;
    told_ = 0;
  }

  // Whom to tell now, if anybody: when that is done, told().
  std::optional<Rank> to_tell() const {
    if (told_ == rounds_.size()) return std::nullopt;
    for (std::size_t round = 0; round < told_; ++round)
      if (!heard(rounds_[round])) return std::nullopt;
    return rounds_[told_].tells;
  }
  void told() { ++told_; }
  // An advert does for what to_tell() asks.
  bool in_first_round() const { return told_ == 0; }

  // A peer has made small calls up to this one (small/small_run.h), of which we hear otherwise.
  void catch_up(Rank from, std::uint64_t sequence) {
    Round* round = round_of(from);
    if (round != nullptr && round->heard < sequence) round->heard = sequence;
  }

  // What a peer called. It may be our call, or the next one.
  Result<void> hear(Rank from, const Fingerprint& call) {
    Round* round = round_of(from);
    if (round == nullptr)
      return fail(Errc::protocol, "rank {} announced a call to rank {}, which does not expect that of it",
                  from.value, rank_.value);
    if (call.sequence != round->heard + 1 || call.sequence > current_.sequence + 1)
      return fail(Errc::protocol, "rank {} announced its call {} after its call {}", from.value,
                  call.sequence, round->heard);
    note(*round, call);
    return {};
  }

  // An advert came. Whether it makes sense is not decided here. It says what its sender called,
  // but nothing of other ranks, so it does for the first round only.
  void overhear(Rank from, const Fingerprint& call) {
    if (rounds_.empty() || rounds_.front().hears != from) return;
    Round& first = rounds_.front();
    if (call.sequence == first.heard + 1 && call.sequence <= current_.sequence + 1) note(first, call);
  }

  // A peer that made another call than we did.
  std::optional<Error> difference() const {
    for (const Round& round : rounds_) {
      const Fingerprint& said = round.said[current_.sequence % 2];
      if (heard(round) && said != current_) return mismatch(rank_, current_, round.hears, said);
    }
    return std::nullopt;
  }

  // Everybody has made our call, and those who wait for us to say so know it.
  bool complete() const {
    for (const Round& round : rounds_)
      if (!heard(round)) return false;
    return told_ == rounds_.size();
  }
  // The rank that certainly has not made our call yet, if we know one: it speaks for itself only.
  std::optional<Rank> missing() const {
    if (rounds_.empty() || heard(rounds_.front())) return std::nullopt;
    return rounds_.front().hears;
  }
  // Those who have not made it yet, or wait for others who have not.
  std::vector<Rank> silent() const {
    std::vector<Rank> ranks;
    for (const Round& round : rounds_)
      if (!heard(round)) ranks.push_back(round.hears);
    return ranks;
  }

 private:
  struct Round {
    Rank hears, tells;
    std::uint64_t heard = 0;            // the latest call of the rank that we hear
    std::array<Fingerprint, 2> said{};  // its latest two, by sequence modulo 2
  };
  bool heard(const Round& round) const { return round.heard >= current_.sequence; }
  static void note(Round& round, const Fingerprint& call) {
    round.heard = call.sequence;
    round.said[call.sequence % 2] = call;
  }
  Round* round_of(Rank from) {
    for (Round& round : rounds_)
      if (round.hears == from) return &round;
    return nullptr;
  }

  Rank rank_;
  Fingerprint current_;
  std::vector<Round> rounds_;
  std::size_t told_ = 0;  // rounds of this call
};

}  // namespace beeline::exec
