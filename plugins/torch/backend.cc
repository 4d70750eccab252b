#include "backend.h"

#include <pybind11/gil.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "errors.h"
#include "store.h"
#include "tensors.h"
#include "work.h"

namespace beeline::pytorch {

namespace {

using c10d::OpType;

// Ranks may come late to a new group, but not for as long as to a collective: this is
// the time that c10d's store waits for a key by default.
constexpr std::chrono::milliseconds kConnectTimeout = c10d::Store::kDefaultTimeout;

std::string name_place(int rank, const std::string& group) {
  return "rank " + std::to_string(rank) + " of group '" + group + "'";
}

void require_group_size(std::size_t tensors, int size, const char* operation) {
  TORCH_CHECK_VALUE(tensors == static_cast<std::size_t>(size), "beeline: ", operation,
                    " takes a list of one tensor per rank, that is ", size, ", not ", tensors);
}

void require_same_length(std::size_t outputs, std::size_t inputs, const char* operation) {
  TORCH_CHECK_VALUE(outputs == inputs, "beeline: ", operation, " was given ", inputs, " inputs but ", outputs,
                    " outputs");
}

// One tensor with a row for each of `parts`, which all look like `model`.
at::Tensor rows_for(const std::vector<at::Tensor>& parts, const at::Tensor& model, const char* operation) {
  require_usable(model, operation);
  for (const at::Tensor& part : parts) {
    require_same_type(part, model, operation);
    TORCH_CHECK_VALUE(part.numel() == model.numel(), "beeline: ", operation,
                      " takes tensors of one size on all ranks; one here has ", part.numel(),
                      " elements, another ", model.numel());
  }
  return at::empty({static_cast<std::int64_t>(parts.size()), model.numel()},
                   model.options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace

c10::intrusive_ptr<BackendBeeline> BackendBeeline::create(const c10::intrusive_ptr<c10d::Store>& store,
                                                          int rank, int size,
                                                          std::chrono::milliseconds timeout,
                                                          const std::string& group) {
  StoreAdapter adapter(store);
  beeline_comm_options options;
  beeline_comm_options_init(&options);
  options.rank = rank;
  options.size = size;
  options.store = adapter.callbacks();
  options.name = group.c_str();
  options.timeout_seconds = seconds(timeout);
  options.connect_timeout_seconds = seconds(std::min(timeout, kConnectTimeout));
  beeline_comm* comm = nullptr;
  const beeline_status status = beeline_comm_create(&options, &comm);
  if (status != BEELINE_OK) {
    std::string message = "beeline: " + name_place(rank, group) + " could not join: " + beeline_last_error();
    if (!adapter.failure().empty()) {
      message += " (" + adapter.failure() + ")";
    }
    std::rethrow_exception(as_exception(status, message));
  }
  return c10::make_intrusive<BackendBeeline>(comm, rank, size, timeout, group);
}

BackendBeeline::BackendBeeline(beeline_comm* comm, int rank, int size, std::chrono::milliseconds timeout,
                               const std::string& group)
    : Backend(rank, size),
      place_(name_place(rank, group)),
      process_(getpid()),
      options_(c10::make_intrusive<Options>("beeline", timeout)),
      comm_(comm) {
  options_->group_name = group;
}

BackendBeeline::~BackendBeeline() {
  // close() joins a thread that may be waiting for the GIL.
  std::optional<pybind11::gil_scoped_release> without_gil;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    without_gil.emplace();
  }
  close();
}

void BackendBeeline::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  wait_timeout_ = timeout;
}

std::chrono::milliseconds BackendBeeline::limit(std::chrono::milliseconds asked) const {
  return asked > kNoTimeout ? asked : wait_timeout_.load();
}

WorkPtr BackendBeeline::launch(Request request) {
  completer_.await_room();
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, comm_ != nullptr, "beeline: ", request.name(), " on ", place_,
                   ", which has been shut down");
  auto work = c10::make_intrusive<WorkBeeline>(std::move(request), rank_, sequence_.fetch_add(1), next_call_,
                                               place_, completer_);
  next_call_ += WorkBeeline::start(work, comm_);
  return work;
}

void BackendBeeline::abort() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) {
    beeline_comm_abort(comm_, (place_ + " called abort()").c_str());
  }
}

void BackendBeeline::shutdown() { end(false); }

void BackendBeeline::close() { end(true); }

bool BackendBeeline::is_closed() {
  const std::lock_guard lock(mutex_);
  return comm_ == nullptr;
}

void BackendBeeline::end(bool abort_first) {
  // In a forked child the connections and threads are the parent's, and locks may be held
  // by threads that do not exist here.
  if (process_ != getpid()) {
    completer_.forget();
    return;
  }
  beeline_comm* comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm == nullptr) {
    return;
  }
  if (abort_first && completer_.expecting()) {
    beeline_comm_abort(comm, (place_ + " ended while operations were under way").c_str());
  }
  beeline_comm_destroy(comm);  // after this no callback comes any more
  completer_.stop();
}

WorkPtr BackendBeeline::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) {
  Request request("all_reduce", OpType::ALLREDUCE, limit(opts.timeout));
  request.all_reduce(only_one(tensors, request.name()), opts.reduceOp);
  request.returns(tensors);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                            const c10d::AllreduceCoalescedOptions& opts) {
  Request request("all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, limit(opts.timeout));
  for (const at::Tensor& tensor : tensors) {
    request.all_reduce(tensor, opts.reduceOp);
  }
  request.returns(tensors);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) {
  Request request("broadcast", OpType::BROADCAST, limit(opts.timeout));
  TORCH_CHECK_VALUE(opts.rootRank >= 0 && opts.rootRank < size_, "beeline: broadcast from rank ",
                    opts.rootRank, " in a group of ", size_);
  request.broadcast(only_one(tensors, request.name()), opts.rootRank);
  request.returns(tensors);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                  std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions& opts) {
  Request request("all_gather", OpType::ALLGATHER, limit(opts.timeout));
  const at::Tensor& input = only_one(inputs, request.name());
  require_same_length(outputs.size(), inputs.size(), request.name());
  const std::vector<at::Tensor>& parts = outputs.front();
  require_group_size(parts.size(), size_, request.name());
  const at::Tensor rows = rows_for(parts, input, request.name());
  request.all_gather(rows, input, rank_, size_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    request.copy_at_end(rows[static_cast<std::int64_t>(i)].view(parts[i].sizes()), parts[i]);
  }
  request.returns(parts);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::_allgather_base(at::Tensor& output, at::Tensor& input,
                                        const c10d::AllgatherOptions& opts) {
  Request request("all_gather_into_tensor", OpType::_ALLGATHER_BASE, limit(opts.timeout));
  request.all_gather(output, input, rank_, size_);
  request.returns({output});
  return launch(std::move(request));
}

WorkPtr BackendBeeline::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                        std::vector<at::Tensor>& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  Request request("all_gather_into_tensor_coalesced", OpType::ALLGATHER_INTO_TENSOR_COALESCED,
                  limit(opts.timeout));
  require_same_length(outputs.size(), inputs.size(), request.name());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    request.all_gather(outputs[i], inputs[i], rank_, size_);
  }
  request.returns(outputs);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::reduce_scatter(std::vector<at::Tensor>& outputs,
                                       std::vector<std::vector<at::Tensor>>& inputs,
                                       const c10d::ReduceScatterOptions& opts) {
  Request request("reduce_scatter", OpType::REDUCE_SCATTER, limit(opts.timeout));
  const at::Tensor& output = only_one(outputs, request.name());
  require_same_length(outputs.size(), inputs.size(), request.name());
  const std::vector<at::Tensor>& parts = inputs.front();
  require_group_size(parts.size(), size_, request.name());
  const at::Tensor rows = rows_for(parts, output, request.name());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    rows[static_cast<std::int64_t>(i)].view(parts[i].sizes()).copy_(parts[i]);
  }
  request.reduce_scatter(output, rows, opts.reduceOp, rank_, size_);
  request.returns(outputs);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::ReduceScatterOptions& opts) {
  Request request("reduce_scatter_tensor", OpType::_REDUCE_SCATTER_BASE, limit(opts.timeout));
  request.reduce_scatter(output, input, opts.reduceOp, rank_, size_);
  request.returns({output});
  return launch(std::move(request));
}

WorkPtr BackendBeeline::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                        std::vector<at::Tensor>& inputs,
                                                        const c10d::ReduceScatterOptions& opts) {
  Request request("reduce_scatter_tensor_coalesced", OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                  limit(opts.timeout));
  require_same_length(outputs.size(), inputs.size(), request.name());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    request.reduce_scatter(outputs[i], inputs[i], opts.reduceOp, rank_, size_);
  }
  request.returns(outputs);
  return launch(std::move(request));
}

WorkPtr BackendBeeline::barrier(const c10d::BarrierOptions& opts) {
  Request request("barrier", OpType::BARRIER, limit(opts.timeout));
  request.barrier();
  return launch(std::move(request));
}

}  // namespace beeline::pytorch
