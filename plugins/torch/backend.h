// The c10d backend: what init_process_group("beeline") gives to PyTorch.
#pragma once

#include <beeline/beeline.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "completer.h"
#include "request.h"

namespace beeline::pytorch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class BackendBeeline : public c10d::Backend {
 public:
  // Blocks until all ranks are connected. `timeout` is that of every operation.
  static c10::intrusive_ptr<BackendBeeline> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                   int size, std::chrono::milliseconds timeout,
                                                   const std::string& group);
  BackendBeeline(beeline_comm* comm, int rank, int size, std::chrono::milliseconds timeout,
                 const std::string& group);
  // Without shutdown(): what is still under way is aborted, here and on the other ranks.
  ~BackendBeeline() override;
  BackendBeeline(const BackendBeeline&) = delete;
  BackendBeeline& operator=(const BackendBeeline&) = delete;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;

  // Not there yet; each says so by name.
  WorkPtr allreduce_sparse(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  const std::string getBackendName() const override { return "beeline"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  // For the wait() of operations called from now on; the library's own limit stays.
  void setTimeout(std::chrono::milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }

  // Ends everything under way with an error, here and on all other ranks.
  void abort() override;
  // Waits for what is under way, says goodbye to the other ranks, frees everything.
  void shutdown() override;
  // The same, but does not wait: for the end of the process.
  void close();
  bool is_closed();

 private:
  std::chrono::milliseconds limit(std::chrono::milliseconds asked) const;
  WorkPtr launch(Request request);
  void end(bool abort_first);

  const std::string place_;  // "rank 0 of group 'x'", for messages
  const pid_t process_;
  c10::intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> sequence_{0};  // of requests, as PyTorch counts them
  std::atomic<std::chrono::milliseconds> wait_timeout_{kNoTimeout};
  std::mutex mutex_;  // guards comm_ and next_call_, and keeps the calls of one request together
  beeline_comm* comm_;
  std::uint64_t next_call_ = 1;  // as the library counts
  Completer completer_;
};

}  // namespace beeline::pytorch
