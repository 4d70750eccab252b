// What of PyTorch's tensors and reductions libbeeline can take. Everything else is an
// exception that says so before anything is sent.
#pragma once

#include <ATen/ATen.h>
#include <beeline/beeline.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace beeline::pytorch {

struct Elements {
  std::size_t count = 0;
  beeline_dtype dtype = BEELINE_UINT8;
};

// Dense, in this machine's memory.
void require_usable(const at::Tensor& tensor, const char* operation);
void require_same_type(const at::Tensor& output, const at::Tensor& input, const char* operation);
// c10d passes lists for the sake of several devices in one process; beeline has one.
const at::Tensor& only_one(const std::vector<at::Tensor>& tensors, const char* operation);

// For reductions: the dtypes that libbeeline computes with.
Elements reducible_elements(const at::Tensor& tensor, const char* operation);
// For operations that only move data: any dtype, those that libbeeline has no name for as bytes.
Elements movable_elements(const at::Tensor& tensor);

beeline_redop reduce_operation(const c10d::ReduceOp& op, const char* operation);

}  // namespace beeline::pytorch
