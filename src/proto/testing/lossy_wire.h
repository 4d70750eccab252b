// A network in virtual time that loses, repeats, delays, reorders and falsifies datagrams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "wire/packet.h"

namespace beeline::proto::testing {

// Probabilities, per datagram.
struct Faults {
  double loss = 0;
  double duplication = 0;
  double reordering = 0;
  double corruption = 0;  // the ICRC catches it: like loss
  double forgery = 0;     // header bits change and the ICRC is right: a hostile peer
};

struct Datagram {
  TimePoint arrival;
  std::uint64_t number = 0;  // tie-break: keeps the order of sending
  int to = 0;
  std::vector<std::byte> bytes;

  friend bool operator>(const Datagram& a, const Datagram& b) {
    return a.arrival != b.arrival ? a.arrival > b.arrival : a.number > b.number;
  }
};

class LossyWire {
 public:
  LossyWire(Prng& random, const Faults& faults) : random_(random), faults_(faults) {}

  void send(TimePoint now, int to, std::vector<std::byte> bytes) {
    if (random_.chance(faults_.loss) || random_.chance(faults_.corruption)) return;
    if (random_.chance(faults_.forgery)) falsify(bytes);
    maybe_flip(bytes);
    if (random_.chance(faults_.duplication)) schedule(now, to, bytes);
    schedule(now, to, std::move(bytes));
  }
  TimePoint next_arrival() const { return queue_.empty() ? TimePoint::never() : queue_.top().arrival; }
  Datagram receive() {
    Datagram datagram = queue_.top();
    queue_.pop();
    return datagram;
  }
  bool empty() const { return queue_.empty(); }
  // To prove that a test would notice: changes one byte behind the headers of the first
  // datagram from the n-th on that is long enough to have payload.
  void flip_payload_byte_of(std::uint64_t n) { flip_from_ = n; }

 private:
  void maybe_flip(std::vector<std::byte>& bytes) {
    if (number_ < flip_from_ || bytes.size() < wire::max_header_bytes + 8) return;
    bytes[wire::max_header_bytes] ^= std::byte{1};
    flip_from_ = UINT64_MAX;
  }
  void schedule(TimePoint now, int to, std::vector<std::byte> bytes) {
    Duration delay = 5us;
    if (random_.chance(faults_.reordering))
      delay += Duration{static_cast<std::int64_t>(random_.below(300'000))};
    queue_.push({now + delay, number_++, to, std::move(bytes)});
  }
  // Any byte of BTH and extension headers may change; what no longer parses is dropped there.
  void falsify(std::vector<std::byte>& bytes) {
    const std::size_t reach = std::min<std::size_t>(bytes.size() - wire::icrc_bytes, wire::max_header_bytes);
    bytes[random_.below(reach)] ^= std::byte{static_cast<std::uint8_t>(1u << random_.below(8))};
  }

  Prng& random_;
  Faults faults_;
  std::uint64_t number_ = 0;
  std::uint64_t flip_from_ = UINT64_MAX;
  std::priority_queue<Datagram, std::vector<Datagram>, std::greater<>> queue_;
};

}  // namespace beeline::proto::testing
