// For tests: ends of connections, on whatever port.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nic/card.h"

namespace beeline::nic::test {

inline constexpr proto::Access full_access = proto::Access::local_write | proto::Access::remote_write |
                                             proto::Access::remote_read | proto::Access::remote_atomic;

template <class T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? std::move(*result) : T{};
}
inline bool succeeds(const Result<void>& result) {
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result.has_value();
}

// As unmapped memory is to whoever touches it, but nothing else can be mapped there meanwhile.
inline void take_away(void* memory, std::size_t bytes) { ASSERT_EQ(::mprotect(memory, bytes, PROT_NONE), 0); }

inline port::Interface interface_with(const IpAddress& address, std::uint32_t mtu = 65536) {
  port::Interface interface;
  interface.name = "test0";
  interface.up = true;
  interface.mtu = mtu;
  interface.addresses = {address};
  return interface;
}

struct EndOptions {
  std::size_t memory_bytes = 1 << 20;
  std::uint32_t depth = 128, sges = 4, inline_bytes = 256;
  std::uint32_t cq_depth = 1024;
  std::uint32_t path_mtu = 4096;
  std::uint8_t timeout = 8;  // 4.096 us * 2^8: about a millisecond
  std::uint8_t retry_count = 7, rnr_retry = 7, min_rnr_timer = 1;
  std::uint8_t reads = 16;
  Notifier notifier = nullptr;
  void* cookie = nullptr;
  proto::QpType type = proto::QpType::rc;
  SharedQueue* shared_queue = nullptr;  // of the domain:
  std::optional<PdId> domain = {};      // instead of one of its own
  proto::Access access = full_access;
};

// Timeouts that a machine under load does not miss: a second.
inline EndOptions patient_options() {
  EndOptions options;
  options.timeout = 18;
  return options;
}

// What the other side must know.
struct EndAddress {
  Qpn qpn;
  Psn psn;
  Gid gid;
  Key rkey;
  std::uint64_t memory = 0;
};

// One queue pair with its domain, completion queue and one region.
class End {
 public:
  End(Card& card, const EndOptions& options = {})
      : card_(card), options_(options), memory_(options.memory_bytes) {
    domain_ = options.domain ? *options.domain : value_of(card.create_domain());
    // They share the cookie: whoever wants the bell hears no events.
    cq_ = value_of(options.notifier != nullptr
                       ? card.create_cq(options.cq_depth, options.notifier, options.cookie)
                       : card.create_cq(options.cq_depth, nullptr, this, note_event));
    keys_ = value_of(
        card.register_region(domain_, memory_.data(), memory_.size(), address_of(0), options.access));
    QpRequest request;
    request.type = options.type;
    request.shared_queue = options.shared_queue;
    request.events = note_event;
    request.cookie = this;
    request.domain = domain_;
    request.send_cq = request.receive_cq = cq_;
    request.limits = {options.depth, options.depth, options.sges, options.sges, options.inline_bytes, false};
    qp_ = value_of(card.create_qp(request));
  }
  ~End() {
    if (qp_ != nullptr) succeeds(card_.destroy_qp(qp_));
    if (keys_.lkey != Key{}) succeeds(card_.deregister_region(keys_.lkey));
    succeeds(card_.destroy_cq(cq_));
    if (!options_.domain) succeeds(card_.destroy_domain(domain_));
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  EndAddress address() const {
    return {card_.qpn(qp_), psn_, card_.devices()[0].gids[0], keys_.rkey, address_of(0)};
  }

  // To RTS with just what this type of queue pair is told (IBTA vol. 1, table 91).
  void connect(const EndAddress& peer) {
    namespace attr = proto::attr;
    peer_ = peer;
    if (options_.type == proto::QpType::ud) return open_for_datagrams();
    const std::uint32_t rc = options_.type == proto::QpType::rc ? ~0u : 0;
    proto::QpAttr a;
    a.state = proto::QpState::init;
    a.access = full_access;
    ASSERT_TRUE(succeeds(
        card_.modify_qp(qp_, a, attr::state | attr::pkey_index | attr::port | attr::access_flags, nullptr)));
    a.state = proto::QpState::rtr;
    a.path_mtu_bytes = options_.path_mtu;
    a.destination = peer.qpn;
    a.rq_psn = peer.psn;
    a.max_dest_rd_atomic = options_.reads;
    a.min_rnr_timer = options_.min_rnr_timer;
    AddressVector to;
    to.destination = peer.gid;
    ASSERT_TRUE(
        succeeds(card_.modify_qp(qp_, a,
                                 attr::state | attr::address_vector | attr::path_mtu | attr::destination_qp |
                                     attr::rq_psn | (rc & (attr::max_dest_rd_atomic | attr::min_rnr_timer)),
                                 &to)));
    a.state = proto::QpState::rts;
    a.sq_psn = psn_;
    a.timeout = options_.timeout;
    a.retry_count = options_.retry_count;
    a.rnr_retry = options_.rnr_retry;
    a.max_rd_atomic = options_.reads;
    ASSERT_TRUE(succeeds(card_.modify_qp(
        qp_, a,
        attr::state | attr::sq_psn |
            (rc & (attr::timeout | attr::retry_count | attr::rnr_retry | attr::max_rd_atomic)),
        nullptr)));
  }

  std::uint64_t address_of(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(memory_.data()) + offset;
  }
  proto::Sge sge(std::size_t offset, std::size_t bytes) const {
    return {address_of(offset), static_cast<std::uint32_t>(bytes), keys_.lkey};
  }
  proto::PostResult post(proto::WrOpcode opcode, std::uint64_t wr_id, std::span<const proto::Sge> sges,
                         std::size_t remote_offset = 0, std::uint32_t immediate = 0) {
    proto::SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.immediate = immediate;
    wr.remote_address = peer_.memory + remote_offset;
    wr.rkey = peer_.rkey;
    wr.sges = sges;
    return card_.post_send(qp_, wr);
  }
  proto::PostResult post(proto::WrOpcode opcode, std::uint64_t wr_id, std::size_t offset, std::size_t bytes,
                         std::size_t remote_offset = 0, std::uint32_t immediate = 0) {
    const proto::Sge piece = sge(offset, bytes);
    return post(opcode, wr_id, {&piece, bytes == 0 ? 0u : 1u}, remote_offset, immediate);
  }
  proto::PostResult receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
    const proto::Sge piece = sge(offset, bytes);
    return card_.post_recv(qp_, {wr_id, {&piece, 1}});
  }
  // Completions are collected until somebody looks for them.
  void poll() {
    std::array<proto::Completion, 32> out;
    const int n = card_.poll_cq(cq_, out);
    for (int i = 0; i < n; ++i) done.push_back(out[static_cast<std::size_t>(i)]);
    overrun = overrun || n < 0;
  }
  bool failed() const {
    return std::any_of(done.begin(), done.end(),
                       [](const auto& c) { return c.status != proto::WcStatus::success; });
  }
  void open_for_datagrams() {
    namespace attr = proto::attr;
    proto::QpAttr a;
    a.state = proto::QpState::init;
    a.qkey = qkey;
    ASSERT_TRUE(
        succeeds(card_.modify_qp(qp_, a, attr::state | attr::pkey_index | attr::port | attr::qkey, nullptr)));
    a.state = proto::QpState::rtr;
    ASSERT_TRUE(succeeds(card_.modify_qp(qp_, a, attr::state, nullptr)));
    a.state = proto::QpState::rts;
    a.sq_psn = psn_;
    ASSERT_TRUE(succeeds(card_.modify_qp(qp_, a, attr::state | attr::sq_psn, nullptr)));
  }
  proto::PostResult send_datagram(std::uint64_t wr_id, std::size_t offset, std::size_t bytes,
                                  const proto::DatagramTarget& to) {
    const proto::Sge piece = sge(offset, bytes);
    proto::SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = proto::WrOpcode::send;
    wr.signaled = true;
    wr.sges = {&piece, 1};
    wr.target = &to;
    return card_.post_send(qp_, wr);
  }
  proto::QpState state() { return card_.query_qp(qp_, nullptr).state; }
  void deregister() { succeeds(card_.deregister_region(std::exchange(keys_, {}).lkey)); }
  void destroy_queue_pair() { succeeds(card_.destroy_qp(std::exchange(qp_, nullptr))); }

  Card& card() { return card_; }
  QueuePair* qp() { return qp_; }
  CompletionQueue* cq() { return cq_; }
  PdId domain() const { return domain_; }
  RegionKeys keys() const { return keys_; }
  std::vector<std::byte>& memory() { return memory_; }
  void fill(std::size_t offset, std::size_t bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      memory_[offset + i] = static_cast<std::byte>((i * 131 + seed * 29 + i / 251) & 0xFF);
  }

  std::size_t count(CardEvent event) const {
    const std::lock_guard lock(events_mutex_);
    return static_cast<std::size_t>(std::count(events_.begin(), events_.end(), event));
  }

  static constexpr std::uint32_t qkey = 0x11111111;
  std::vector<proto::Completion> done;
  bool overrun = false;

 private:
  static void note_event(void* cookie, CardEvent event) {
    auto& self = *static_cast<End*>(cookie);
    const std::lock_guard lock(self.events_mutex_);
    self.events_.push_back(event);
  }
  Card& card_;
  const EndOptions options_;
  mutable std::mutex events_mutex_;
  std::vector<CardEvent> events_;
  std::vector<std::byte> memory_;
  PdId domain_;
  CompletionQueue* cq_ = nullptr;
  RegionKeys keys_;
  QueuePair* qp_ = nullptr;
  Psn psn_{0xFFFFF0};  // so that every longer test wraps around
  EndAddress peer_;
};

inline void connect(End& a, End& b) {
  a.connect(b.address());
  b.connect(a.address());
}

}  // namespace beeline::nic::test
