#include "perf/work_id.h"

namespace beeline::perf {

ibv_wr_opcode wr_opcode(Operation operation) {
  switch (operation) {
    case Operation::write:
      return IBV_WR_RDMA_WRITE;
    case Operation::read:
      return IBV_WR_RDMA_READ;
    case Operation::send:
      break;
  }
  return IBV_WR_SEND;
}

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::write:
      return "RDMA WRITE";
    case Operation::read:
      return "RDMA READ";
    case Operation::send:
      break;
  }
  return "SEND";
}

Result<void> post_receive(Endpoint& end, std::size_t index, std::uint64_t offset) {
  Lane& lane = end.lanes()[index];
  ibv_sge piece{reinterpret_cast<std::uint64_t>(lane.sink + offset),
                static_cast<std::uint32_t>(end.plan().size_bytes), end.lkey()};
  ibv_recv_wr wr{};
  wr.wr_id = WorkId{true, index, 0}.pack();
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(lane.qp.get(), &wr, &bad); error != 0)
    return fail_errno(error, fmt::format("posting a receive on queue pair {}", index));
  ++lane.receives_outstanding;
  return {};
}

}  // namespace beeline::perf
