// The two lists of adverts: those that peers sent us (invitations: where they want
// data), and those that we sent (tickets: what must still arrive). Both are bounded per peer.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "exec/limits.h"
#include "exec/message.h"

namespace beeline::exec {

// Adverts of one peer that no send has answered yet. May be of calls that we have not begun.
class Invitations {
 public:
  Invitations() { open_.reserve(adverts_per_peer); }

  // False when the peer sends more than it may.
  bool add(const Message& advert) {
    if (open_.size() == adverts_per_peer) return false;
    open_.push_back(advert);
    return true;
  }
  std::optional<Message> take(std::uint64_t sequence, std::uint32_t piece, std::uint32_t ordinal) {
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Message& advert) {
      return advert.call.sequence == sequence && advert.piece == piece && advert.ordinal == ordinal;
    });
    if (found == open_.end()) return std::nullopt;
    const Message advert = *found;
    open_.erase(found);
    return advert;
  }
  const std::vector<Message>& open() const { return open_; }

 private:
  std::vector<Message> open_;
};

// Our open adverts to one peer. A ticket names one of them, and cannot be used twice.
class Tickets {
 public:
  struct Entry {
    bool open = false;
    std::uint32_t lane = 0, step = 0, bytes = 0;
    std::uint32_t generation = 0;
  };

  bool has_room(std::uint32_t lane) const { return find_free(lane).has_value(); }
  // Needs room.
  std::uint32_t open(std::uint32_t lane, std::uint32_t step, std::uint32_t bytes) {
    const std::uint32_t place = *find_free(lane);
    Entry& entry = entries_[place];
    entry = {true, lane, step, bytes, (entry.generation + 1) & 0xFFFFFF};
    return entry.generation << 8 | place;
  }
  // What has arrived; nothing when the peer made the ticket up.
  std::optional<Entry> close(std::uint32_t ticket) {
    const std::uint32_t place = ticket & 0xFF;
    if (place >= entries_.size() || !entries_[place].open || entries_[place].generation != ticket >> 8)
      return std::nullopt;
    entries_[place].open = false;
    return entries_[place];
  }
  bool any_open() const {
    return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.open; });
  }

 private:
  std::optional<std::uint32_t> find_free(std::uint32_t lane) const {
    for (std::uint32_t place = lane * adverts_per_lane; place < (lane + 1) * adverts_per_lane; ++place)
      if (!entries_[place].open) return place;
    return std::nullopt;
  }
  std::array<Entry, adverts_per_peer> entries_{};
};
static_assert(adverts_per_peer <= 256);

}  // namespace beeline::exec
