// For tests: two managers over a wire that loses, doubles, swaps and spoils, in virtual time, from a seed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"
#include "proto/cm/manager.h"
#include "wire/cm/service_id.h"

namespace beeline::proto::cm::test {

inline constexpr IpAddress address_a = IpAddress::v4(10, 0, 0, 1), address_b = IpAddress::v4(10, 0, 0, 2);
inline constexpr std::uint64_t service = wire::cm::service_id(wire::cm::PortSpace::tcp, 7174);

struct WireFaults {
  double loss = 0, duplicate = 0, reorder = 0, corrupt = 0;
};

class Pair {
 public:
  explicit Pair(std::uint64_t seed, const WireFaults& faults = {}, const Limits& limits = {})
      : random_(seed), faults_(faults) {
    auto draw = [this] { return random_.next(); };
    a = std::make_unique<Manager>(std::uint8_t{3}, draw, limits);
    b = std::make_unique<Manager>(std::uint8_t{7}, draw, limits);
  }

  // Everything that is under way arrives; true when something did.
  bool carry() {
    collect(*a);
    collect(*b);
    if (wire_.empty()) return false;
    auto arriving = std::move(wire_);
    wire_.clear();
    for (OutMessage& message : arriving) {
      if (random_.chance(faults_.loss)) continue;
      // The ICRC catches damage: as if lost; garbage that passes it is `hostile`'s affair.
      if (random_.chance(faults_.corrupt)) continue;
      deliver(message);
      if (random_.chance(faults_.duplicate)) deliver(message);
    }
    return true;
  }
  void deliver(const OutMessage& message) {
    Manager& to = message.remote == address_a ? *a : *b;
    (void)to.handle_mad(now, message.remote, message.local, message.bytes);
  }
  // Until nothing moves and no timer is due before `until`.
  void run(Duration time) {
    const TimePoint end = now + time;
    for (;;) {
      while (carry()) {
      }
      const TimePoint next = std::min(a->next_timeout(), b->next_timeout());
      if (next > end) break;
      now = std::max(now, next);
      a->handle_timeout(now);
      b->handle_timeout(now);
    }
    now = end;
  }
  ConnectRequest request() const {
    ConnectRequest r;
    r.local = address_a;
    r.remote = address_b;
    r.source_port = 40000;
    r.service_id = service;
    r.end.guid = 0xA;
    r.end.qpn = Qpn{0x030011};
    r.end.psn = Psn{0x123456};
    r.end.responder_resources = 4;
    r.end.initiator_depth = 2;
    r.path_mtu = 3;
    return r;
  }
  LocalEnd answer() const {
    LocalEnd end;
    end.guid = 0xB;
    end.qpn = Qpn{0x070022};
    end.psn = Psn{0x654321};
    return end;
  }

  std::unique_ptr<Manager> a, b;
  TimePoint now{1'000'000'000};

 private:
  void collect(Manager& from) {
    std::array<OutMessage, 16> out;
    while (const std::size_t n = from.poll_transmit(out)) {
      for (std::size_t i = 0; i < n; ++i) {
        wire_.push_back(out[i]);
        if (wire_.size() > 1 && random_.chance(faults_.reorder))
          std::swap(wire_[wire_.size() - 1], wire_[wire_.size() - 2]);
      }
    }
  }
  Prng random_;
  const WireFaults faults_;
  std::vector<OutMessage> wire_;
};

}  // namespace beeline::proto::cm::test
