// The functions of struct ibv_qp_ex: each hands its arguments to the queue pair's builder.

#include <arpa/inet.h>

#include <array>

#include "verbs/soft/work_builder.h"

namespace beeline::verbs::soft {
namespace {

WorkBuilder& builder(ibv_qp_ex* qp) { return *static_cast<Qp*>(qp)->builder; }

proto::SendWr& begin_remote(ibv_qp_ex* qp, proto::WrOpcode opcode, std::uint64_t operation,
                            std::uint32_t rkey, std::uint64_t address) {
  proto::SendWr& wr = builder(qp).begin(opcode, operation);
  wr.rkey = Key{rkey};
  wr.remote_address = address;
  return wr;
}

void compare_swap(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                  std::uint64_t swap) {
  proto::SendWr& wr =
      begin_remote(qp, proto::WrOpcode::compare_swap, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, address);
  wr.compare = compare;
  wr.swap_or_add = swap;
}

void fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  begin_remote(qp, proto::WrOpcode::fetch_add, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey, address)
      .swap_or_add = add;
}

void read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, proto::WrOpcode::read, IBV_QP_EX_WITH_RDMA_READ, rkey, address);
}

void write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, proto::WrOpcode::write, IBV_QP_EX_WITH_RDMA_WRITE, rkey, address);
}

void write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  begin_remote(qp, proto::WrOpcode::write_imm, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, address).immediate =
      ntohl(immediate);
}

void send(ibv_qp_ex* qp) { builder(qp).begin(proto::WrOpcode::send, IBV_QP_EX_WITH_SEND); }

void send_imm(ibv_qp_ex* qp, __be32 immediate) {
  builder(qp).begin(proto::WrOpcode::send_imm, IBV_QP_EX_WITH_SEND_WITH_IMM).immediate = ntohl(immediate);
}

void send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  builder(qp).begin(proto::WrOpcode::send_inv, IBV_QP_EX_WITH_SEND_WITH_INV).invalidate = Key{rkey};
}

void local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  builder(qp).begin(proto::WrOpcode::local_inv, IBV_QP_EX_WITH_LOCAL_INV).invalidate = Key{rkey};
}

void bind_window(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  builder(qp).bind(mw, rkey, *info);
}

void set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
  builder(qp).set_target(ah, remote_qpn, remote_qkey);
}

void set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  builder(qp).set_pieces(std::array{ibv_sge{address, length, lkey}});
}

void set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  builder(qp).set_pieces(std::span(list, count));
}

void set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  builder(qp).set_inline(std::array{ibv_data_buf{address, length}});
}

void set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  builder(qp).set_inline(std::span(list, count));
}

}  // namespace

// What the card does not have is never among `operations`, and its builders report that like any other that
// was not asked for.
WorkBuilder::WorkBuilder(Qp& qp, std::uint64_t operations)
    : qp_(qp),
      operations_(operations),
      longest_message_(qp.service == proto::QpType::ud ? qp.owner->device().active_mtu_bytes
                                                       : proto::max_message_bytes) {
  qp.wr_atomic_cmp_swp = compare_swap;
  qp.wr_atomic_fetch_add = fetch_add;
  qp.wr_bind_mw = bind_window;
  qp.wr_local_inv = local_inv;
  qp.wr_rdma_read = read;
  qp.wr_rdma_write = write;
  qp.wr_rdma_write_imm = write_imm;
  qp.wr_send = send;
  qp.wr_send_imm = send_imm;
  qp.wr_send_inv = send_inv;
  qp.wr_send_tso = [](ibv_qp_ex* self, void*, std::uint16_t, std::uint16_t) { builder(self).refuse(); };
  qp.wr_set_ud_addr = set_ud_addr;
  qp.wr_set_xrc_srqn = [](ibv_qp_ex* self, std::uint32_t) { builder(self).refuse(); };
  qp.wr_set_inline_data = set_inline_data;
  qp.wr_set_inline_data_list = set_inline_data_list;
  qp.wr_set_sge = set_sge;
  qp.wr_set_sge_list = set_sge_list;
  qp.wr_start = [](ibv_qp_ex* self) { builder(self).start(); };
  qp.wr_complete = [](ibv_qp_ex* self) { return builder(self).complete(); };
  qp.wr_abort = [](ibv_qp_ex* self) { builder(self).abort(); };
  qp.wr_atomic_write = [](ibv_qp_ex* self, std::uint32_t, std::uint64_t, const void*) {
    builder(self).refuse();
  };
}

}  // namespace beeline::verbs::soft
