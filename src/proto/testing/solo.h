// One queue pair, its peer played by the test: packets in and out by hand, virtual time.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "proto/testing/pair.h"

namespace beeline::proto::testing {

inline constexpr Key local_key{0x10};      // may be written by this side
inline constexpr Key read_only_key{0x11};  // no right at all but to be sent from
inline constexpr Key remote_key{0x12};     // open to the peer
inline constexpr Key foreign_key{0x13};    // in another protection domain
inline constexpr Key spare_key{0x14};      // to be made invalid
inline constexpr std::uint64_t local_base = 0x10'0000, remote_base = 0x20'0000;
inline constexpr std::uint32_t region_bytes = 0x2'0000;
inline constexpr Psn first_sent{1000}, first_received{5000};

inline PairOptions solo_options() {
  PairOptions options;
  options.first_psn = {first_sent, first_received};
  options.window_bytes = 1u << 20;
  return options;
}

// What the regions hold at first. Made once: the tables make thousands of queue pairs.
inline const std::vector<std::byte>& pattern() {
  static const auto bytes = [] {
    std::vector<std::byte> made(region_bytes);
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = std::byte{static_cast<std::uint8_t>(i * 7 + i / 251)};
    return made;
  }();
  return bytes;
}

class Solo {
 public:
  explicit Solo(const PairOptions& options = solo_options(), QpState upto = QpState::rts,
                SharedReceiveQueue* shared_receives = nullptr)
      : qp({.qpn = qpn_of(0),
            .domain = test_domain,
            .limits = options.limits,
            .memory = &memory,
            .window_bytes = options.window_bytes,
            .type = options.type,
            .shared_receives = shared_receives}) {
    constexpr Access all =
        Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;
    memory.add(local_key, test_domain, local_base, region_bytes, Access::local_write);
    memory.add(read_only_key, test_domain, local_base, region_bytes, Access::none);
    memory.add(remote_key, test_domain, remote_base, region_bytes, all);
    memory.add(foreign_key, PdId{99}, remote_base, region_bytes, all);
    memory.add(spare_key, test_domain, remote_base, 64, all);
    for (const Key key : {local_key, read_only_key, remote_key}) memory.find(key)->bytes = pattern();
    connect(
        attributes_of(options, 0), upto,
        [&](const QpAttr& attributes, std::uint32_t mask) { return qp.modify(now, attributes, mask); },
        options.type);
  }

  // --- this side's work requests
  PostResult post(WrOpcode opcode, std::uint32_t length, std::uint64_t wr_id = 0, Key lkey = local_key,
                  bool fence = false) {
    const Sge sge{local_base, length, lkey};
    SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.fence = fence;
    wr.immediate = 0xABCD;
    wr.remote_address = remote_base;
    wr.rkey = Key{0x77};
    wr.sges = std::span(&sge, 1);
    wr.compare = 5;
    wr.swap_or_add = 7;
    wr.invalidate = Key{0x78};
    return qp.post_send(now, wr);
  }
  PostResult post_local_inv(Key key, std::uint64_t wr_id = 0, bool fence = false) {
    SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = WrOpcode::local_inv;
    wr.signaled = true;
    wr.fence = fence;
    wr.invalidate = key;
    return qp.post_send(now, wr);
  }
  PostResult receive(std::uint32_t length, std::uint64_t wr_id = 0, Key lkey = local_key) {
    const Sge sge{local_base, length, lkey};
    return qp.post_recv({wr_id, std::span(&sge, 1)});
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all(64);
    all.resize(qp.poll_completions(all));
    return all;
  }

  // --- what leaves
  std::vector<TxDesc> transmit(std::size_t most = 256) {
    std::vector<TxDesc> descs(most);
    descs.resize(qp.poll_transmit(now, descs));
    return descs;
  }
  std::vector<std::byte> payload_of(const TxDesc& desc) {
    std::vector<std::byte> bytes;
    EXPECT_TRUE(serialize(memory, desc, bytes));
    const std::size_t headers = wire::header_bytes(wire::info(desc.headers.bth.opcode));
    return {bytes.begin() + static_cast<std::ptrdiff_t>(headers),
            bytes.begin() + static_cast<std::ptrdiff_t>(headers + desc.payload_bytes)};
  }

  // --- what the peer sends
  void give(const wire::Headers& headers, Bytes payload = {}) {
    qp.handle_packet(now, {&wire::info(headers.bth.opcode), headers, payload});
  }
  static wire::Headers header(wire::Opcode opcode, Psn psn, bool ack_request = true) {
    wire::Headers headers;
    headers.bth.opcode = opcode;
    headers.bth.psn = psn;
    headers.bth.destination = qpn_of(0);
    headers.bth.ack_request = ack_request;
    headers.reth = {remote_base, remote_key, 0};
    headers.aeth = wire::Aeth::ack(0);
    return headers;
  }
  void request(wire::Opcode opcode, Psn psn, std::uint32_t bytes, std::uint32_t reth_length = 0) {
    wire::Headers headers = header(opcode, psn);
    headers.reth.length = reth_length;
    give(headers, payload(bytes));
  }
  void read_request(Psn psn, std::uint32_t length, std::uint32_t offset = 0) {
    wire::Headers headers = header(wire::Opcode::rc_read_request, psn);
    headers.reth = {remote_base + offset, remote_key, length};
    give(headers);
  }
  void atomic_request(wire::Opcode opcode, Psn psn, std::uint64_t swap_or_add, std::uint64_t compare = 0,
                      std::uint64_t offset = 0, Key key = remote_key) {
    wire::Headers headers = header(opcode, psn);
    headers.atomic = {remote_base + offset, key, swap_or_add, compare};
    give(headers);
  }
  void atomic_answer(Psn psn, std::uint64_t before) {
    wire::Headers headers = header(wire::Opcode::rc_atomic_acknowledge, psn);
    headers.atomic_before = before;
    give(headers);
  }
  // The number that memory holds, in this machine's byte order.
  std::uint64_t number_at(Key key, std::uint64_t offset) {
    std::uint64_t number = 0;
    std::memcpy(&number, memory.find(key)->bytes.data() + offset, sizeof number);
    return number;
  }
  void set_number(Key key, std::uint64_t offset, std::uint64_t number) {
    std::memcpy(memory.find(key)->bytes.data() + offset, &number, sizeof number);
  }
  void answer(Psn psn, wire::Aeth aeth) {
    wire::Headers headers = header(wire::Opcode::rc_acknowledge, psn);
    headers.aeth = aeth;
    give(headers);
  }
  void ack(Psn psn) { answer(psn, wire::Aeth::ack(0)); }
  void nak(Psn psn, wire::NakCode code) { answer(psn, wire::Aeth::nak(code, 0)); }
  void respond(wire::Opcode opcode, Psn psn, std::uint32_t bytes) {
    give(header(opcode, psn), payload(bytes));
  }

  // Payload that the peer sends: a pattern that no region starts out with.
  Bytes payload(std::uint32_t bytes) {
    for (std::size_t i = 0; i < pattern_.size(); ++i)
      pattern_[i] = std::byte{static_cast<std::uint8_t>(0x80 ^ (i * 3))};
    return std::span(pattern_).first(bytes);
  }
  bool holds_pattern(Key key, std::uint64_t offset, std::uint32_t bytes) {
    const Bytes want = payload(bytes);
    const auto& have = memory.find(key)->bytes;
    return std::equal(want.begin(), want.end(), have.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  TestMemory memory;
  TimePoint now{1'000'000};
  QueuePair qp;

 private:
  std::array<std::byte, 8192> pattern_{};
};

// Short descriptions for comparison: "opcode psn".
inline std::vector<std::pair<wire::Opcode, std::uint32_t>> outline(const std::vector<TxDesc>& descs) {
  std::vector<std::pair<wire::Opcode, std::uint32_t>> lines;
  lines.reserve(descs.size());
  for (const TxDesc& desc : descs) lines.emplace_back(desc.headers.bth.opcode, desc.headers.bth.psn.value);
  return lines;
}
using Outline = std::vector<std::pair<wire::Opcode, std::uint32_t>>;

inline std::vector<std::pair<std::uint64_t, WcStatus>> statuses(const std::vector<Completion>& completions) {
  std::vector<std::pair<std::uint64_t, WcStatus>> lines;
  lines.reserve(completions.size());
  for (const Completion& completion : completions) lines.emplace_back(completion.wr_id, completion.status);
  return lines;
}
using Statuses = std::vector<std::pair<std::uint64_t, WcStatus>>;

}  // namespace beeline::proto::testing
