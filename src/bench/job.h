// What is measured: one operation over one type, and how sizes translate into counts.
// Names, sizes and formulas are those of nccl-tests, so that numbers can be compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "beeline/beeline.h"

namespace beeline::bench {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

struct Job {
  Operation operation = Operation::all_reduce;
  beeline_dtype dtype = BEELINE_FLOAT32;
  beeline_redop redop = BEELINE_SUM;
  int root = 0;
  int ranks = 1;

  bool reduces() const {
    return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
  }
};

std::string_view name(Operation operation);
std::string_view name(beeline_dtype dtype);  // as nccl-tests prints them: "float", "bfloat16", …
std::string_view name(beeline_redop redop);
Result<Operation> parse_operation(std::string_view text);
Result<beeline_dtype> parse_dtype(std::string_view text);  // also "float32" and "bf16"
Result<beeline_redop> parse_redop(std::string_view text);
std::vector<std::string> operation_names();

// "1024", "8K", "64M", "1G": multiples of 1024, as nccl-tests reads them.
Result<std::size_t> parse_size(std::string_view text);
// min, min*factor, … up to max. Errors: min > max, factor < 2 where more than one size is asked for.
Result<std::vector<std::size_t>> size_steps(std::size_t min, std::size_t max, std::size_t factor);

// Elements at one size. The size is that of the larger buffer: for reduce_scatter and all_gather
// it is split among the ranks (rounded down), and `count` is one rank's part.
struct Shape {
  std::size_t count = 0;  // the operation's argument
  std::size_t send_elements = 0, receive_elements = 0;
  std::size_t bytes = 0;  // what the size column says
};
Shape shape_for(const Job& job, std::size_t bytes);

// Bus bandwidth / algorithm bandwidth: 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter and
// all_gather, 1 for broadcast.
double bus_factor(Operation operation, int ranks);

struct Bandwidth {
  double algbw_GBps = 0, busbw_GBps = 0;  // GB is 10^9 bytes
};
Bandwidth bandwidth(const Job& job, std::size_t bytes, double time_us);

}  // namespace beeline::bench
