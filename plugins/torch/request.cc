#include "request.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <utility>

#include "tensors.h"

namespace beeline::pytorch {

namespace {

// Whether the library may be handed both: the same place, or no byte in common.
bool overlaps_wrongly(const at::Tensor& input, const at::Tensor& output, const void* in_place) {
  const auto* input_begin = static_cast<const char*>(input.data_ptr());
  const auto* output_begin = static_cast<const char*>(output.data_ptr());
  const std::less<> before;
  const bool apart = !before(input_begin, output_begin + output.nbytes()) ||
                     !before(output_begin, input_begin + input.nbytes());
  return !apart && input_begin != in_place;
}

char* advance(void* start, std::size_t bytes) { return static_cast<char*>(start) + bytes; }

}  // namespace

beeline_status submit(beeline_comm* comm, const Call& call, beeline_work** work) {
  switch (call.operation) {
    case Operation::all_reduce:
      return beeline_all_reduce(comm, call.send, call.receive, call.count, call.dtype, call.redop, work);
    case Operation::reduce_scatter:
      return beeline_reduce_scatter(comm, call.send, call.receive, call.count, call.dtype, call.redop, work);
    case Operation::all_gather:
      return beeline_all_gather(comm, call.send, call.receive, call.count, call.dtype, work);
    case Operation::broadcast:
      return beeline_broadcast(comm, call.send, call.receive, call.count, call.dtype, call.root, work);
    case Operation::barrier:
      return beeline_barrier(comm, work);
  }
  return BEELINE_INTERNAL;
}

at::Tensor Request::hold(at::Tensor memory) {
  memory_.push_back(memory);
  return memory;
}

at::Tensor Request::read(const at::Tensor& tensor) {
  require_usable(tensor, name_);
  sources_.push_back(tensor);
  const at::NoGradGuard no_grad;
  return hold(tensor.contiguous());
}

at::Tensor Request::write(const at::Tensor& tensor) {
  require_usable(tensor, name_);
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "beeline: ", name_,
                    " cannot write into a tensor several of whose elements share one place in memory (sizes ",
                    tensor.sizes(), ", strides ", tensor.strides(), "); pass a clone() of it");
  if (tensor.is_contiguous()) {
    return hold(tensor);
  }
  at::Tensor scratch = hold(at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
  copy_at_end(scratch, tensor);
  return scratch;
}

at::Tensor Request::update(const at::Tensor& tensor) {
  sources_.push_back(tensor);
  at::Tensor memory = write(tensor);
  if (!memory.is_same(tensor)) {
    const at::NoGradGuard no_grad;
    memory.copy_(tensor);
  }
  return memory;
}

void Request::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const beeline_redop redop = reduce_operation(op, name_);
  const at::Tensor memory = update(tensor);
  const Elements elements = reducible_elements(memory, name_);
  calls_.push_back({.operation = Operation::all_reduce,
                    .send = memory.data_ptr(),
                    .receive = memory.data_ptr(),
                    .count = elements.count,
                    .dtype = elements.dtype,
                    .redop = redop});
}

void Request::broadcast(const at::Tensor& tensor, std::int64_t root) {
  const at::Tensor memory = update(tensor);
  const Elements elements = movable_elements(memory);
  calls_.push_back({.operation = Operation::broadcast,
                    .send = memory.data_ptr(),
                    .receive = memory.data_ptr(),
                    .count = elements.count,
                    .dtype = elements.dtype,
                    .root = static_cast<std::int32_t>(root)});
}

void Request::all_gather(const at::Tensor& output, const at::Tensor& input, int rank, int size) {
  require_same_type(output, input, name_);
  TORCH_CHECK_VALUE(output.numel() == input.numel() * size, "beeline: ", name_, " gathers ", input.numel(),
                    " elements from each of ", size, " ranks, but the output has room for ", output.numel());
  const at::Tensor to = write(output);
  at::Tensor from = read(input);
  if (overlaps_wrongly(from, to, advance(to.data_ptr(), from.nbytes() * static_cast<std::size_t>(rank)))) {
    from = hold(from.clone());
  }
  const Elements elements = movable_elements(from);
  calls_.push_back({.operation = Operation::all_gather,
                    .send = from.data_ptr(),
                    .receive = to.data_ptr(),
                    .count = elements.count,
                    .dtype = elements.dtype});
}

void Request::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
                             int rank, int size) {
  const beeline_redop redop = reduce_operation(op, name_);
  require_same_type(output, input, name_);
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size, "beeline: ", name_, " scatters ", input.numel(),
                    " elements over ", size, " ranks, but the output has room for ", output.numel());
  const at::Tensor to = write(output);
  at::Tensor from = read(input);
  if (overlaps_wrongly(to, from, advance(from.data_ptr(), to.nbytes() * static_cast<std::size_t>(rank)))) {
    from = hold(from.clone());
  }
  const Elements elements = reducible_elements(to, name_);
  calls_.push_back({.operation = Operation::reduce_scatter,
                    .send = from.data_ptr(),
                    .receive = to.data_ptr(),
                    .count = elements.count,
                    .dtype = elements.dtype,
                    .redop = redop});
}

void Request::barrier() { calls_.push_back({.operation = Operation::barrier}); }

}  // namespace beeline::pytorch
