#include "tensors.h"

#include <array>
#include <optional>

namespace beeline::pytorch {

namespace {

struct DTypeRow {
  at::ScalarType torch;
  beeline_dtype ours;
};
constexpr std::array<DTypeRow, 5> kDTypes{{{at::kFloat, BEELINE_FLOAT32},
                                           {at::kBFloat16, BEELINE_BFLOAT16},
                                           {at::kInt, BEELINE_INT32},
                                           {at::kLong, BEELINE_INT64},
                                           {at::kByte, BEELINE_UINT8}}};

struct RedOpRow {
  c10d::ReduceOp::RedOpType torch;
  const char* name;
  std::optional<beeline_redop> ours;
};
constexpr std::array<RedOpRow, 9> kRedOps{{{c10d::ReduceOp::SUM, "SUM", BEELINE_SUM},
                                           {c10d::ReduceOp::AVG, "AVG", BEELINE_AVG},
                                           {c10d::ReduceOp::MAX, "MAX", BEELINE_MAX},
                                           {c10d::ReduceOp::MIN, "MIN", std::nullopt},
                                           {c10d::ReduceOp::PRODUCT, "PRODUCT", std::nullopt},
                                           {c10d::ReduceOp::BAND, "BAND", std::nullopt},
                                           {c10d::ReduceOp::BOR, "BOR", std::nullopt},
                                           {c10d::ReduceOp::BXOR, "BXOR", std::nullopt},
                                           {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", std::nullopt}}};

std::optional<beeline_dtype> our_dtype(at::ScalarType type) {
  for (const DTypeRow& row : kDTypes) {
    if (row.torch == type) {
      return row.ours;
    }
  }
  return std::nullopt;
}

}  // namespace

void require_usable(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined(), "beeline: ", operation, " was given an undefined tensor");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "beeline: ", operation,
                    " takes dense tensors, this one is ", tensor.layout(), "; pass its to_dense()");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "beeline: ", operation, " takes CPU tensors, this one is on ",
                    tensor.device(), "; pass its cpu()");
  TORCH_CHECK_VALUE(
      !tensor.is_conj() && !tensor.is_neg(), "beeline: ", operation,
      " takes no lazily conjugated or negated tensor; pass its resolve_conj() or resolve_neg()");
}

void require_same_type(const at::Tensor& output, const at::Tensor& input, const char* operation) {
  require_usable(output, operation);
  require_usable(input, operation);
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "beeline: ", operation, " was given ",
                   input.scalar_type(), " to read but ", output.scalar_type(), " to write");
}

const at::Tensor& only_one(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "beeline: ", operation, " takes one tensor per rank, not ",
                    tensors.size());
  return tensors.front();
}

Elements reducible_elements(const at::Tensor& tensor, const char* operation) {
  const std::optional<beeline_dtype> dtype = our_dtype(tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(dtype.has_value(), "beeline does not offer ", operation, " of ",
                              tensor.scalar_type(),
                              " yet; it reduces float32, bfloat16, int32, int64 and uint8");
  return {static_cast<std::size_t>(tensor.numel()), *dtype};
}

Elements movable_elements(const at::Tensor& tensor) {
  if (const std::optional<beeline_dtype> dtype = our_dtype(tensor.scalar_type())) {
    return {static_cast<std::size_t>(tensor.numel()), *dtype};
  }
  return {tensor.nbytes(), BEELINE_UINT8};
}

beeline_redop reduce_operation(const c10d::ReduceOp& op, const char* operation) {
  for (const RedOpRow& row : kRedOps) {
    if (row.torch == op.op_) {
      TORCH_CHECK_NOT_IMPLEMENTED(row.ours.has_value(), "beeline does not offer ReduceOp.", row.name, " in ",
                                  operation, " yet; it offers SUM, AVG and MAX");
      return *row.ours;
    }
  }
  TORCH_CHECK_VALUE(false, "beeline: ", operation, " was given an unknown reduce operation ", int{op.op_});
}

}  // namespace beeline::pytorch
