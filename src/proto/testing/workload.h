// A random program of operations for both sides of a pair, from a seed, and its check.
//
// Every operation has source and destination bytes of its own, with gaps between that must
// stay untouched, so the memory at the end is known in advance: all of it is compared. Atomics go
// to cells that many of them share: one that is executed twice, or not at all, gives a wrong answer or a
// wrong cell. Keys are made invalid once each, which a second time would be an error. A READ is
// sometimes followed by a fenced WRITE of the bytes it brought, which only a fence makes right.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "base/random.h"
#include "proto/testing/pair.h"

namespace beeline::proto::testing {

struct WorkloadOptions {
  int operations = 30;                 // per side
  std::uint32_t largest_packets = 12;  // of a message
  double receive_eagerness = 0.5;      // low: receives come late, and RNR NAKs fly
};

class Workload {
 public:
  Workload(OperationPair& pair, const PairOptions& pair_options, const WorkloadOptions& options,
           std::uint64_t seed)
      : pair_(pair), pair_options_(pair_options), options_(options), random_(seed) {
    for (int i = 0; i < options.operations; ++i)
      for (int side = 0; side < 2; ++side) plan_operation(side);
    create_memory();
    for (const auto& [side, index] : order_) apply(side, of(side).operations[index]);
  }

  // Posts, steps and checks until everything is done and nothing is left to happen.
  void run() {
    for (int rounds = 0; !all_posted() || !all_completed(); ++rounds) {
      ASSERT_LT(rounds, 2'000'000) << "no end in sight";
      const bool posted = post_some();
      const bool stepped = pair_.step();
      for (int side = 0; side < 2; ++side) collect(side);
      if (::testing::Test::HasFailure()) return;
      ASSERT_TRUE(posted || stepped || !all_posted()) << "stuck";
    }
    pair_.settle();
    for (int side = 0; side < 2; ++side) {
      collect(side);
      EXPECT_EQ(pair_.state(side), QpState::rts) << "side " << side;
      check_memory(side);
    }
  }

 private:
  static constexpr Key local_key{0x1111}, remote_key{0x2222};
  static constexpr std::uint64_t local_base = 0x1000'0000, remote_base = 0x7F00'0000'0000;
  static constexpr std::uint64_t cells = 3, cell_bytes = 8;  // at the beginning of the remote region

  struct Operation {
    std::uint64_t wr_id = 0;
    WrOpcode opcode{};
    bool signaled = false, solicited = false, fence = false;
    std::uint32_t immediate = 0, length = 0;
    std::uint64_t remote_address = 0;
    std::vector<Sge> sges;
    std::vector<std::byte> inline_bytes;
    bool is_inline = false;
    std::uint64_t compare = 0, swap_or_add = 0;
    Key invalidate{};
    WindowBind bind;
  };
  struct Receive {
    std::uint64_t wr_id = 0;
    std::vector<Sge> sges;
    Completion expected;
    std::uint32_t bytes = 0;  // that arrive in the buffer
  };
  struct Side {
    std::vector<Operation> operations;
    std::vector<Receive> receives;
    std::size_t sends_posted = 0, receives_posted = 0;
    std::deque<std::size_t> awaited_sends;  // signalled operations, by index
    std::size_t receives_completed = 0;
    std::uint64_t local_used = 0, remote_used = cells * cell_bytes;
    std::vector<Key> keys;   // to be made invalid, or windows to be bound
    std::vector<Key> bound;  // windows at the end
    std::vector<std::byte> expected_local, expected_remote;
  };

  Side& of(int side) { return sides_[static_cast<std::size_t>(side)]; }

  std::uint32_t random_length() {
    const std::uint32_t mtu = pair_options_.attributes.path_mtu_bytes;
    const std::array<std::uint32_t, 8> special = {0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 2};
    const std::uint64_t pick = random_.below(special.size() + 4);
    if (pick < special.size()) return special[pick];
    return static_cast<std::uint32_t>(random_.below(std::uint64_t{mtu} * options_.largest_packets));
  }
  std::uint64_t gap() { return 1 + random_.below(9); }
  std::uint64_t allocate(std::uint64_t& used, std::uint64_t base, std::uint64_t length) {
    const std::uint64_t address = base + used + gap();
    used = address - base + length;
    return address;
  }

  // `length` bytes in up to as many pieces as `limit`, some of them empty.
  std::vector<Sge> allocate_pieces(Side& side, std::uint64_t length, std::uint32_t limit) {
    std::vector<Sge> sges(1 + random_.below(limit));
    std::uint64_t left = length;
    for (std::size_t i = 0; i < sges.size(); ++i) {
      const std::uint64_t bytes = i + 1 == sges.size() ? left : random_.below(left + 1);
      sges[i] = {allocate(side.local_used, local_base, bytes), static_cast<std::uint32_t>(bytes), local_key};
      left -= bytes;
    }
    return sges;
  }

  void plan_operation(int side) {
    Operation operation;
    operation.opcode = static_cast<WrOpcode>(random_.below(10));
    operation.fence = random_.chance(0.1);
    if (is_local(operation.opcode)) return plan_local(side, std::move(operation));
    operation.length = is_atomic(operation.opcode) ? cell_bytes : random_length();
    const bool is_read = operation.opcode == WrOpcode::read;
    const std::uint32_t inline_limit = pair_options_.limits.inline_bytes;
    if (!answered_by_data(operation.opcode) && inline_limit != 0 && random_.chance(0.2)) {
      operation.is_inline = true;
      operation.length = static_cast<std::uint32_t>(random_.below(inline_limit + 1));
      operation.inline_bytes.resize(operation.length);
      for (auto& byte : operation.inline_bytes) byte = std::byte{static_cast<std::uint8_t>(random_.next())};
    } else {
      operation.sges = allocate_pieces(of(side), operation.length, pair_options_.limits.send_sges);
    }
    const std::vector<Sge> pieces = operation.sges;
    const std::uint32_t length = operation.length;
    add(side, std::move(operation));
    if (is_read && random_.chance(0.3)) {  // send the bytes on: right only behind a fence
      Operation forward;
      forward.opcode = WrOpcode::write;
      forward.fence = true;
      forward.length = length;
      forward.sges = pieces;
      add(side, std::move(forward));
    }
  }

  Key new_key(int side) {
    Side& self = of(side);
    self.keys.push_back(Key{0x5000 + static_cast<std::uint32_t>(self.keys.size())});
    return self.keys.back();
  }

  void plan_local(int side, Operation operation) {
    operation.invalidate = new_key(side);
    if (operation.opcode == WrOpcode::bind_mw) {
      operation.bind.window = operation.invalidate;
      operation.bind.new_rkey = Key{operation.invalidate.value + 0x1000};
      operation.bind.region = remote_key;
      operation.bind.address = remote_base;
      operation.bind.length = cell_bytes;
      of(side).bound.push_back(operation.bind.new_rkey);
    }
    add(side, std::move(operation));
  }

  static bool is_send(WrOpcode opcode) {
    return opcode == WrOpcode::send || opcode == WrOpcode::send_imm || opcode == WrOpcode::send_inv;
  }

  // Few operands, so that some comparisons hold.
  void choose_atomic(Operation& operation) {
    operation.remote_address = remote_base + random_.below(cells) * cell_bytes;
    operation.compare = random_.below(3);
    operation.swap_or_add =
        operation.opcode == WrOpcode::compare_swap ? random_.below(3) : random_.below(2) * random_.next();
  }

  void add(int side, Operation operation) {
    Side& self = of(side);
    Side& peer = of(1 - side);
    operation.wr_id = (std::uint64_t{0xA0} + static_cast<unsigned>(side)) << 32 | self.operations.size();
    operation.signaled = random_.chance(0.7);
    operation.solicited = random_.chance(0.3);
    operation.immediate = static_cast<std::uint32_t>(random_.next());
    const bool sends = is_send(operation.opcode);
    if (operation.opcode == WrOpcode::send_inv) operation.invalidate = new_key(1 - side);
    if (is_atomic(operation.opcode)) {
      choose_atomic(operation);
    } else if (!sends && !is_local(operation.opcode)) {
      operation.remote_address = allocate(peer.remote_used, remote_base, operation.length);
    }
    if (sends || operation.opcode == WrOpcode::write_imm) plan_receive(1 - side, operation, sends);
    order_.emplace_back(side, self.operations.size());
    self.operations.push_back(std::move(operation));
  }

  void plan_receive(int side, const Operation& operation, bool is_send) {
    Side& self = of(side);
    Receive receive;
    receive.wr_id = (std::uint64_t{0xB0} + static_cast<unsigned>(side)) << 32 | self.receives.size();
    const std::uint32_t room = is_send ? operation.length + static_cast<std::uint32_t>(random_.below(20)) : 8;
    receive.sges = allocate_pieces(self, room, pair_options_.limits.receive_sges);
    receive.bytes = is_send ? operation.length : 0;
    receive.expected.wr_id = receive.wr_id;
    receive.expected.opcode = is_send ? WcOpcode::receive : WcOpcode::receive_write_imm;
    receive.expected.has_immediate =
        operation.opcode == WrOpcode::send_imm || operation.opcode == WrOpcode::write_imm;
    receive.expected.has_invalidated = operation.opcode == WrOpcode::send_inv;
    receive.expected.invalidated = operation.invalidate;
    receive.expected.solicited = operation.solicited;
    receive.expected.immediate = receive.expected.has_immediate ? operation.immediate : 0;
    receive.expected.byte_length = operation.length;
    self.receives.push_back(std::move(receive));
  }

  void create_memory() {
    for (int side = 0; side < 2; ++side) {
      Side& self = of(side);
      const auto create = [&](Key key, std::uint64_t base, std::uint64_t size, Access access) {
        TestMemory::Region& region = pair_.memory(side).add(key, test_domain, base, size + 16, access);
        for (auto& byte : region.bytes) byte = std::byte{static_cast<std::uint8_t>(random_.next())};
        return region.bytes;
      };
      self.expected_local = create(local_key, local_base, self.local_used, Access::local_write);
      self.expected_remote = create(remote_key, remote_base, self.remote_used,
                                    Access::local_write | Access::remote_write | Access::remote_read |
                                        Access::remote_atomic | Access::window_bind);
      for (std::uint64_t cell = 0; cell < cells; ++cell) set_cell(side, cell * cell_bytes, cell);
      for (const Key key : self.keys) pair_.memory(side).add(key, test_domain, remote_base, 8, Access::none);
    }
  }

  void set_cell(int side, std::uint64_t offset, std::uint64_t value) {
    std::memcpy(of(side).expected_remote.data() + offset, &value, cell_bytes);
    auto& bytes = pair_.memory(side).find(remote_key)->bytes;
    std::memcpy(bytes.data() + offset, &value, cell_bytes);
  }

  // The cell as it was goes into the pieces.
  void apply_atomic(Side& self, Side& peer, const Operation& operation) {
    std::byte* const cell = peer.expected_remote.data() + (operation.remote_address - remote_base);
    std::vector<std::byte> bytes(cell, cell + cell_bytes);
    std::uint64_t value = 0;
    std::memcpy(&value, cell, cell_bytes);
    if (operation.opcode == WrOpcode::fetch_add) {
      value += operation.swap_or_add;
    } else if (value == operation.compare) {
      value = operation.swap_or_add;
    }
    std::memcpy(cell, &value, cell_bytes);
    spread(self.expected_local, operation.sges, bytes);
  }

  static std::vector<std::byte> collect_pieces(const std::vector<std::byte>& region,
                                               const std::vector<Sge>& sges) {
    std::vector<std::byte> bytes;
    for (const Sge& sge : sges) {
      const auto from = region.begin() + static_cast<std::ptrdiff_t>(sge.address - local_base);
      bytes.insert(bytes.end(), from, from + sge.length);
    }
    return bytes;
  }
  static void spread(std::vector<std::byte>& region, const std::vector<Sge>& sges,
                     const std::vector<std::byte>& bytes) {
    std::size_t done = 0;
    for (const Sge& sge : sges)
      for (std::uint32_t i = 0; i < sge.length && done < bytes.size(); ++i)
        region[sge.address - local_base + i] = bytes[done++];
  }

  // What the operation does, as simply as it can be said.
  void apply(int side, const Operation& operation) {
    Side& self = of(side);
    Side& peer = of(1 - side);
    const auto remote = [&] {
      return peer.expected_remote.begin() +
             static_cast<std::ptrdiff_t>(operation.remote_address - remote_base);
    };
    if (operation.opcode == WrOpcode::read) {
      const std::vector<std::byte> bytes(remote(), remote() + operation.length);
      return spread(self.expected_local, operation.sges, bytes);
    }
    if (is_local(operation.opcode)) return;
    if (is_atomic(operation.opcode)) return apply_atomic(self, peer, operation);
    const bool sends = is_send(operation.opcode);
    const auto bytes =
        operation.is_inline ? operation.inline_bytes : collect_pieces(self.expected_local, operation.sges);
    if (!sends) std::copy(bytes.begin(), bytes.end(), remote());
    if (sends || operation.opcode == WrOpcode::write_imm) {
      const Receive& receive = peer.receives[applied_receives_[static_cast<std::size_t>(1 - side)]++];
      if (sends) spread(peer.expected_local, receive.sges, bytes);
    }
  }

  bool post_some() {
    bool any = false;
    for (int side = 0; side < 2; ++side) {
      Side& self = of(side);
      while (self.sends_posted < self.operations.size() && random_.chance(0.5) && post_send(side)) any = true;
      while (self.receives_posted < self.receives.size() && random_.chance(options_.receive_eagerness) &&
             post_receive(side))
        any = true;
    }
    return any;
  }

  bool post_send(int side) {
    Side& self = of(side);
    Operation& operation = self.operations[self.sends_posted];
    SendWr wr;
    wr.wr_id = operation.wr_id;
    wr.opcode = operation.opcode;
    wr.signaled = operation.signaled;
    wr.solicited = operation.solicited;
    wr.fence = operation.fence;
    wr.immediate = operation.immediate;
    wr.remote_address = operation.remote_address;
    wr.rkey = remote_key;
    wr.sges = operation.sges;
    wr.compare = operation.compare;
    wr.swap_or_add = operation.swap_or_add;
    wr.invalidate = operation.invalidate;
    wr.bind = &operation.bind;
    std::vector<std::byte> passing = operation.inline_bytes;  // gone after the post
    const Sge inline_sge{reinterpret_cast<std::uintptr_t>(passing.data()), operation.length, Key{0xDEAD}};
    if (operation.is_inline) {
      wr.inline_data = true;
      wr.sges = std::span(&inline_sge, 1);
    }
    const PostResult result = pair_.post_send(side, wr);
    if (result == PostResult::queue_full) return false;
    EXPECT_EQ(result, PostResult::ok);
    if (operation.signaled) self.awaited_sends.push_back(self.sends_posted);
    ++self.sends_posted;
    return result == PostResult::ok;
  }

  bool post_receive(int side) {
    Side& self = of(side);
    const Receive& receive = self.receives[self.receives_posted];
    const PostResult result = pair_.post_recv(side, {receive.wr_id, receive.sges});
    if (result == PostResult::queue_full) return false;
    EXPECT_EQ(result, PostResult::ok);
    ++self.receives_posted;
    return result == PostResult::ok;
  }

  void collect(int side) {
    for (const Completion& completion : pair_.poll_all(side)) {
      pair_.trace().add(completion.wr_id);
      EXPECT_EQ(completion.status, WcStatus::success)
          << "side " << side << " wr " << std::hex << completion.wr_id;
      EXPECT_EQ(completion.qpn, qpn_of(side));
      if (completion.is_receive) {
        check_receive(side, completion);
      } else {
        check_send(side, completion);
      }
    }
  }

  void check_send(int side, const Completion& completion) {
    Side& self = of(side);
    ASSERT_FALSE(self.awaited_sends.empty()) << "one completion too many";
    const Operation& operation = self.operations[self.awaited_sends.front()];
    self.awaited_sends.pop_front();
    EXPECT_EQ(completion.wr_id, operation.wr_id) << "out of order";
    if (!answered_by_data(operation.opcode)) return;
    EXPECT_EQ(completion.opcode, operation.opcode == WrOpcode::read           ? WcOpcode::read
                                 : operation.opcode == WrOpcode::compare_swap ? WcOpcode::compare_swap
                                                                              : WcOpcode::fetch_add);
    EXPECT_EQ(completion.byte_length, operation.length);
    EXPECT_EQ(collect_pieces(pair_.memory(side).find(local_key)->bytes, operation.sges),
              collect_pieces(self.expected_local, operation.sges));
  }

  void check_receive(int side, const Completion& completion) {
    Side& self = of(side);
    ASSERT_LT(self.receives_completed, self.receives_posted) << "one completion too many";
    const Receive& receive = self.receives[self.receives_completed++];
    EXPECT_EQ(completion.wr_id, receive.wr_id) << "out of order";
    EXPECT_EQ(completion.opcode, receive.expected.opcode);
    EXPECT_EQ(completion.has_immediate, receive.expected.has_immediate);
    EXPECT_EQ(completion.solicited, receive.expected.solicited);
    EXPECT_EQ(completion.immediate, receive.expected.immediate);
    EXPECT_EQ(completion.has_invalidated, receive.expected.has_invalidated);
    if (completion.has_invalidated) {
      EXPECT_EQ(completion.invalidated, receive.expected.invalidated);
      EXPECT_EQ(pair_.memory(side).find(completion.invalidated), nullptr);
    }
    EXPECT_EQ(completion.byte_length, receive.expected.byte_length);
    EXPECT_EQ(collect_pieces(pair_.memory(side).find(local_key)->bytes, receive.sges),
              collect_pieces(self.expected_local, receive.sges))
        << "the bytes are not there when the completion is";
  }

  void check_memory(int side) {
    for (const Key key : of(side).keys) EXPECT_EQ(pair_.memory(side).find(key), nullptr);
    for (const Key key : of(side).bound) EXPECT_NE(pair_.memory(side).find(key), nullptr);
    EXPECT_TRUE(pair_.memory(side).find(local_key)->bytes == of(side).expected_local) << "side " << side;
    EXPECT_TRUE(pair_.memory(side).find(remote_key)->bytes == of(side).expected_remote) << "side " << side;
  }

  bool all_posted() const {
    for (const Side& side : sides_)
      if (side.sends_posted != side.operations.size() || side.receives_posted != side.receives.size())
        return false;
    return true;
  }
  bool all_completed() const {
    for (const Side& side : sides_)
      if (!side.awaited_sends.empty() || side.receives_completed != side.receives.size()) return false;
    return true;
  }

  OperationPair& pair_;
  PairOptions pair_options_;
  WorkloadOptions options_;
  Prng random_;
  std::array<Side, 2> sides_;
  std::vector<std::pair<int, std::size_t>> order_;  // in which the operations were planned
  std::array<std::size_t, 2> applied_receives_{};
};

}  // namespace beeline::proto::testing
