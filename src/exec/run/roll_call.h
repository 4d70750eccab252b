// Who has made which call: at the start of every call each rank tells both neighbours on
// the ring what it called, and completes only when both have said the same. So neighbours
// are never more than one call apart, and a difference anywhere on the ring is found. An
// advert tells it as well as an announcement, since it carries the call's fingerprint.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "exec/fingerprint.h"

namespace beeline::exec {

class RollCall {
 public:
  RollCall(Rank rank, int size) : rank_(rank) {
    if (size == 1) return;
    neighbours_.push_back({Rank{(rank.value + 1) % size}, 0, {}});
    if (size > 2) neighbours_.push_back({Rank{(rank.value + size - 1) % size}, 0, {}});
  }

  void begin(const Fingerprint& call) { current_ = call; }

  // What a neighbour called. It may be our call, or the next one.
  Result<void> hear(Rank from, const Fingerprint& call) {
    Neighbour* neighbour = find(from);
    if (neighbour == nullptr)
      return fail(Errc::protocol, "rank {} announced a call to rank {}, which is no neighbour", from.value,
                  rank_.value);
    if (call.sequence != neighbour->heard + 1 || call.sequence > current_.sequence + 1)
      return fail(Errc::protocol, "rank {} announced its call {} after its call {}", from.value,
                  call.sequence, neighbour->heard);
    neighbour->heard = call.sequence;
    neighbour->said[call.sequence % 2] = call;
    return {};
  }

  // An advert came. Whether it makes sense is not decided here.
  void overhear(Rank from, const Fingerprint& call) {
    Neighbour* neighbour = find(from);
    if (neighbour == nullptr || call.sequence != neighbour->heard + 1) return;
    if (call.sequence > current_.sequence + 1) return;
    neighbour->heard = call.sequence;
    neighbour->said[call.sequence % 2] = call;
  }

  // A neighbour that made another call than we did.
  std::optional<Error> difference() const {
    for (const Neighbour& neighbour : neighbours_) {
      const Fingerprint& said = neighbour.said[current_.sequence % 2];
      if (neighbour.heard >= current_.sequence && said != current_)
        return mismatch(rank_, current_, neighbour.rank, said);
    }
    return std::nullopt;
  }

  // Neighbours that have not made our call yet.
  std::vector<Rank> missing() const {
    std::vector<Rank> ranks;
    for (const Neighbour& neighbour : neighbours_)
      if (neighbour.heard < current_.sequence) ranks.push_back(neighbour.rank);
    return ranks;
  }
  bool complete() const {
    for (const Neighbour& neighbour : neighbours_)
      if (neighbour.heard < current_.sequence) return false;
    return true;
  }

  template <class Body>
  void for_each_neighbour(Body body) const {
    for (const Neighbour& neighbour : neighbours_) body(neighbour.rank);
  }
  std::size_t neighbours() const { return neighbours_.size(); }

 private:
  struct Neighbour {
    Rank rank;
    std::uint64_t heard = 0;            // its latest call
    std::array<Fingerprint, 2> said{};  // its latest two, by sequence modulo 2
  };
  Neighbour* find(Rank rank) {
    for (Neighbour& neighbour : neighbours_)
      if (neighbour.rank == rank) return &neighbour;
    return nullptr;
  }

  Rank rank_;
  Fingerprint current_;
  std::vector<Neighbour> neighbours_;
};

}  // namespace beeline::exec
