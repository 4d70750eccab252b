// The part of c10d that waits for its turn.
#include "backend.h"

namespace beeline::pytorch {

namespace {

[[noreturn]] void not_offered(const char* operation) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "beeline does not offer ", operation,
      " yet; it offers all_reduce, broadcast, all_gather, reduce_scatter and barrier");
}

}  // namespace

WorkPtr BackendBeeline::allreduce_sparse(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) {
  not_offered("all_reduce of sparse tensors");
}

WorkPtr BackendBeeline::allgather_coalesced(std::vector<std::vector<at::Tensor>>&, std::vector<at::Tensor>&,
                                            const c10d::AllgatherOptions&) {
  not_offered("all_gather_coalesced");
}

WorkPtr BackendBeeline::reduce(std::vector<at::Tensor>&, const c10d::ReduceOptions&) {
  not_offered("reduce");
}

WorkPtr BackendBeeline::gather(std::vector<std::vector<at::Tensor>>&, std::vector<at::Tensor>&,
                               const c10d::GatherOptions&) {
  not_offered("gather");
}

WorkPtr BackendBeeline::scatter(std::vector<at::Tensor>&, std::vector<std::vector<at::Tensor>>&,
                                const c10d::ScatterOptions&) {
  not_offered("scatter");
}

WorkPtr BackendBeeline::alltoall(std::vector<at::Tensor>&, std::vector<at::Tensor>&,
                                 const c10d::AllToAllOptions&) {
  not_offered("all_to_all");
}

WorkPtr BackendBeeline::alltoall_base(at::Tensor&, at::Tensor&, std::vector<std::int64_t>&,
                                      std::vector<std::int64_t>&, const c10d::AllToAllOptions&) {
  not_offered("all_to_all_single");
}

WorkPtr BackendBeeline::send(std::vector<at::Tensor>&, int, int) { not_offered("send"); }

WorkPtr BackendBeeline::recv(std::vector<at::Tensor>&, int, int) { not_offered("recv"); }

WorkPtr BackendBeeline::recvAnysource(std::vector<at::Tensor>&, int) { not_offered("recv from any rank"); }

void BackendBeeline::monitoredBarrier(const c10d::BarrierOptions&, bool) { not_offered("monitored_barrier"); }

}  // namespace beeline::pytorch
