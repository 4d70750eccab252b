// The data that a measurement sends, and what must come out.
//
// Every element depends on its rank, its index and the iteration. Operations that only
// move data carry random bits. Reductions carry whole numbers, so small that every partial sum,
// in any order, is exact in the type (bfloat16 holds whole numbers to 256): the expected result
// is computed in 64-bit integers, by none of the code under test, and must be met exactly. The
// one exception is the average of floats over a number of ranks that is no power of two: there
// the last bit depends on how one divides, and may differ.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "bench/job.h"

namespace beeline::bench {

// Fails when no data for this job makes every sum exact: then only -c 0 is possible.
Result<void> check_is_possible(const Job& job);

// What `rank` contributes: elements `first` … of the operation's whole vector.
void fill(const Job& job, int rank, std::uint64_t iteration, std::size_t first, MutableBytes out);
// Bits that are no result of any reduction of this data but a small part of uint8's.
void poison(MutableBytes out);

// How many elements differ from what they must be. For reductions `output` is elements `first` …
// of the reduced vector; for the others, of what `source` contributed.
std::uint64_t count_wrong(const Job& job, int source, std::uint64_t iteration, std::size_t first,
                          Bytes output);

}  // namespace beeline::bench
