// What two cards are tried at: every case is a row of a table, played by both ends.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace beeline::interop {

enum class Operation : std::uint8_t { send, send_imm, write, write_imm, read };

// What is wrong in a case, and at which end.
enum class Fault : std::uint8_t {
  none,
  late_receive,        // the responder posts its receives late: RNR, then success
  no_receive,          // never, and the requester retries once only
  bad_rkey,            // a key that names no region of the responder
  out_of_bounds,       // the last byte lies behind the responder's region
  no_permission,       // the responder's region forbids the access
  short_receive,       // the receive buffer is a byte too small
  bad_lkey,            // a key that names no region of the requester
  responder_unmapped,  // the responder's memory went away after registration
  requester_unmapped,  // the requester's did
  wrong_psn,           // the responder expects packets that were never sent
  destroyed,           // the responder's queue pair is destroyed in the middle
};

struct Case {
  std::string_view name;
  Operation operation;
  Fault fault = Fault::none;
  int queue_pairs = 1;
  // One of these is what the requester's completion must say.
  std::array<int, 2> requester = {IBV_WC_SUCCESS, IBV_WC_SUCCESS};
  // What the responder's receive must say, where it posted one that is concerned; else -1.
  int responder = -1;
};

std::span<const Case> all_cases();
const Case* find_case(std::string_view name);

constexpr bool takes_receive(Operation operation) {
  return operation != Operation::write && operation != Operation::read;
}
constexpr bool carries_immediate(Operation operation) {
  return operation == Operation::send_imm || operation == Operation::write_imm;
}
ibv_wr_opcode opcode_of(Operation operation);

// The sizes of a case's messages, in the order they are sent.
std::vector<std::uint32_t> sizes_of(const Case& which, std::uint32_t mtu_bytes);

}  // namespace beeline::interop
