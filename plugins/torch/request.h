// What one c10d call asks of libbeeline: the calls, the memory they use, and what is
// copied where once they are done.
#pragma once

#include <ATen/ATen.h>
#include <beeline/beeline.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace beeline::pytorch {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };

// One call of beeline.h. Counts are elements.
struct Call {
  Operation operation = Operation::barrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  beeline_dtype dtype = BEELINE_UINT8;
  beeline_redop redop = BEELINE_SUM;
  std::int32_t root = 0;
};

inline double seconds(std::chrono::milliseconds span) { return std::chrono::duration<double>(span).count(); }

beeline_status submit(beeline_comm* comm, const Call& call, beeline_work** work);

// Where results do not lie in the caller's memory yet.
struct CopyOut {
  at::Tensor from;
  at::Tensor to;
};

// The library reads and writes dense memory in logical order. A contiguous tensor is that
// already and is used in place, without a copy; any other goes through a scratch tensor.
class Request {
 public:
  Request(const char* name, c10d::OpType type, std::chrono::milliseconds timeout)
      : name_(name), type_(type), timeout_(timeout) {}

  // Memory that holds the elements of `tensor`.
  at::Tensor read(const at::Tensor& tensor);
  // Memory whose content becomes the elements of `tensor` at the end.
  at::Tensor write(const at::Tensor& tensor);
  // Both: for operations in place.
  at::Tensor update(const at::Tensor& tensor);

  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op);
  void broadcast(const at::Tensor& tensor, std::int64_t root);
  // `output` has the elements of all ranks, in the order of the ranks.
  void all_gather(const at::Tensor& output, const at::Tensor& input, int rank, int size);
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op, int rank,
                      int size);
  void barrier();

  // What Work::result() returns.
  void returns(const std::vector<at::Tensor>& tensors) { results_ = tensors; }
  void copy_at_end(const at::Tensor& from, const at::Tensor& to) { copies_.push_back({from, to}); }

  const char* name() const { return name_; }
  c10d::OpType type() const { return type_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::vector<Call>& calls() const { return calls_; }
  const std::vector<CopyOut>& copies() const { return copies_; }
  const std::vector<at::Tensor>& results() const { return results_; }
  const std::vector<at::Tensor>& sources() const { return sources_; }

 private:
  at::Tensor hold(at::Tensor memory);

  const char* name_;
  c10d::OpType type_;
  std::chrono::milliseconds timeout_;
  std::vector<Call> calls_;
  std::vector<CopyOut> copies_;
  std::vector<at::Tensor> results_;
  std::vector<at::Tensor> sources_;  // the caller's inputs
  std::vector<at::Tensor> memory_;   // kept alive until the request is done
};

}  // namespace beeline::pytorch
