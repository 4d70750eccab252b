#include "cases.h"

namespace beeline::interop {
namespace {

constexpr std::array remote_access = {static_cast<int>(IBV_WC_REM_ACCESS_ERR),
                                      static_cast<int>(IBV_WC_REM_ACCESS_ERR)};
constexpr std::array invalid_request = {static_cast<int>(IBV_WC_REM_INV_REQ_ERR),
                                        static_cast<int>(IBV_WC_REM_INV_REQ_ERR)};
constexpr std::array retries_exhausted = {static_cast<int>(IBV_WC_RETRY_EXC_ERR),
                                          static_cast<int>(IBV_WC_RETRY_EXC_ERR)};
constexpr std::array receiver_not_ready = {static_cast<int>(IBV_WC_RNR_RETRY_EXC_ERR),
                                           static_cast<int>(IBV_WC_RNR_RETRY_EXC_ERR)};
constexpr std::array local_protection = {static_cast<int>(IBV_WC_LOC_PROT_ERR),
                                         static_cast<int>(IBV_WC_LOC_PROT_ERR)};
// A card that pins registered pages (the kernel's) goes on using them; one that cannot
// must say what failed. Never wrong data.
constexpr std::array pinned_or_operation = {static_cast<int>(IBV_WC_SUCCESS),
                                            static_cast<int>(IBV_WC_REM_OP_ERR)};
constexpr std::array pinned_or_protection = {static_cast<int>(IBV_WC_SUCCESS),
                                             static_cast<int>(IBV_WC_LOC_PROT_ERR)};

constexpr std::array table = {
    Case{"send", Operation::send},
    Case{"send_imm", Operation::send_imm},
    Case{"write", Operation::write},
    Case{"write_imm", Operation::write_imm},
    Case{"read", Operation::read},
    Case{"send_many_qps", Operation::send, Fault::none, 16},
    Case{"write_imm_many_qps", Operation::write_imm, Fault::none, 16},
    Case{"read_many_qps", Operation::read, Fault::none, 16},
    Case{"send_rnr", Operation::send, Fault::late_receive},
    Case{"write_imm_rnr", Operation::write_imm, Fault::late_receive},
    Case{"send_rnr_exhausted", Operation::send, Fault::no_receive, 1, receiver_not_ready},
    Case{"write_bad_rkey", Operation::write, Fault::bad_rkey, 1, remote_access},
    Case{"read_bad_rkey", Operation::read, Fault::bad_rkey, 1, remote_access},
    Case{"write_out_of_bounds", Operation::write, Fault::out_of_bounds, 1, remote_access},
    Case{"read_out_of_bounds", Operation::read, Fault::out_of_bounds, 1, remote_access},
    Case{"write_no_permission", Operation::write, Fault::no_permission, 1, remote_access},
    Case{"read_no_permission", Operation::read, Fault::no_permission, 1, remote_access},
    Case{"send_short_receive", Operation::send, Fault::short_receive, 1, invalid_request, IBV_WC_LOC_LEN_ERR},
    Case{"send_bad_lkey", Operation::send, Fault::bad_lkey, 1, local_protection},
    Case{"write_bad_lkey", Operation::write, Fault::bad_lkey, 1, local_protection},
    Case{"read_bad_lkey", Operation::read, Fault::bad_lkey, 1, local_protection},
    Case{"write_responder_unmapped", Operation::write, Fault::responder_unmapped, 1, pinned_or_operation},
    Case{"read_responder_unmapped", Operation::read, Fault::responder_unmapped, 1, pinned_or_operation},
    Case{"write_requester_unmapped", Operation::write, Fault::requester_unmapped, 1, pinned_or_protection},
    Case{"send_wrong_psn", Operation::send, Fault::wrong_psn, 1, retries_exhausted},
    Case{"write_wrong_psn", Operation::write, Fault::wrong_psn, 1, retries_exhausted},
    Case{"write_destroyed", Operation::write, Fault::destroyed, 1, retries_exhausted},
    Case{"send_destroyed", Operation::send, Fault::destroyed, 1, retries_exhausted},
};

}  // namespace

std::span<const Case> all_cases() { return table; }

const Case* find_case(std::string_view name) {
  for (const Case& each : table)
    if (each.name == name) return &each;
  return nullptr;
}

ibv_wr_opcode opcode_of(Operation operation) {
  constexpr std::array opcodes = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                  IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
  return opcodes[static_cast<std::size_t>(operation)];
}

std::vector<std::uint32_t> sizes_of(const Case& which, std::uint32_t mtu) {
  if (which.fault == Fault::destroyed) return {1u << 16};
  if (which.fault != Fault::none && which.fault != Fault::late_receive) return {mtu + 1};
  if (which.queue_pairs > 1) return {mtu + 1, 0, 3 * mtu + 3, 1};
  return {0, 1, mtu - 1, mtu, mtu + 1, 1u << 20, 3 * mtu + 3};
}

}  // namespace beeline::interop
