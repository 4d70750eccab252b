#include "exec/communicator.h"

namespace beeline::exec {

std::size_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 4;
    case DType::bfloat16:
      return 2;
    case DType::int32:
      return 4;
    case DType::int64:
      return 8;
    case DType::uint8:
      return 1;
  }
  return 0;
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "unknown dtype";
}

std::string_view name(RedOp op) {
  switch (op) {
    case RedOp::sum:
      return "sum";
    case RedOp::max:
      return "max";
    case RedOp::avg:
      return "avg";
  }
  return "unknown reduction";
}

}  // namespace beeline::exec
