// The objects of the fake fabric: what applications hold as struct ibv_*.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "verbs/common/context_shell.h"
#include "verbs/common/device_shell.h"
#include "verbs/common/events.h"
#include "verbs/fake/fake_provider.h"

namespace beeline::verbs::fake {

class Fabric;
struct Qp;

struct Device : DeviceShell {
  FakeDevice options;
};

struct Context : ContextShell {
  using ContextShell::ContextShell;
  Fabric* fabric = nullptr;
  Device* home = nullptr;
  int max_reads = 16;
  int max_cqe = 0;
  int objects = 0;  // domains, channels and completion queues that still use it
};

struct Pd : ibv_pd {
  int users = 0;  // regions and queue pairs
};

struct Mr : ibv_mr {
  int access = 0;
};

struct CqEntry {
  ibv_wc wc{};
  Qp* qp = nullptr;
  std::uint64_t send_sequence = 0;  // frees the send slots up to here when polled
  bool is_send = false;
};

struct Cq : EventedCq {
  enum class Armed : std::uint8_t { no, solicited, any };
  std::deque<CqEntry> entries;
  Armed armed = Armed::no;
  bool overrun = false;
  int users = 0;  // queue pairs
};

struct SendOp {
  std::uint64_t wr_id = 0;
  std::uint64_t sequence = 0;
  ibv_wr_opcode opcode{};
  unsigned flags = 0;
  __be32 immediate = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t bytes = 0;
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_data;
};

struct RecvOp {
  std::uint64_t wr_id = 0;
  std::vector<ibv_sge> sges;
};

struct Qp : ibv_qp {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  std::deque<SendOp> sends;
  std::deque<RecvOp> receives;
  std::uint64_t posted = 0;   // send work requests so far
  std::uint64_t retired = 0;  // of these, slots that polled completions freed
  std::optional<ibv_wc_status> fail_next;
  bool corrupt_next = false;
  bool reachable = true;
  bool scheduled = false;
};

}  // namespace beeline::verbs::fake
