// Element-wise reductions, with the widest vectors that this processor has (Highway chooses
// at run time). What they compute is the same on every processor, bit for bit, except for
// the payload of a NaN.
//
//   sum, avg   float32: IEEE addition. bfloat16: added as float32, rounded to nearest even.
//              Integers wrap around (two's complement).
//   max        if either operand is NaN, so is the result (a's if both are); of two equal
//              operands (-0 and +0) the second. bfloat16 likewise.
#pragma once

#include <cstddef>

#include "exec/communicator.h"

namespace beeline::exec {

// out[i] = a[i] op b[i], for avg the sum. `out` may be `a` or `b`, or overlap neither. Any alignment.
void reduce(DType dtype, RedOp op, const void* a, const void* b, void* out, std::size_t count);

// data[i] /= divisor: float32 and bfloat16 rounded to nearest even, integers toward zero. divisor >= 1.
void divide(DType dtype, void* data, std::size_t count, int divisor);

}  // namespace beeline::exec
