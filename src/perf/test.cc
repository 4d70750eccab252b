#include "perf/test.h"

namespace beeline::perf {
namespace {

constexpr Test tests[] = {
    {"write_bw", "RDMA_Write BW Test", "bandwidth of RDMA WRITE", Operation::write, false},
    {"read_bw", "RDMA_Read BW Test", "bandwidth of RDMA READ", Operation::read, false},
    {"send_bw", "Send BW Test", "bandwidth of SEND", Operation::send, false},
    {"write_lat", "RDMA_Write Latency Test", "latency of RDMA WRITE, half a round trip", Operation::write,
     true},
    {"read_lat", "RDMA_Read Latency Test", "latency of RDMA READ, a whole round trip", Operation::read, true},
    {"send_lat", "Send Latency Test", "latency of SEND, half a round trip", Operation::send, true},
};

}  // namespace

std::span<const Test> all_tests() { return tests; }

const Test* find_test(std::string_view name) {
  for (const Test& test : tests)
    if (test.name == name) return &test;
  return nullptr;
}

}  // namespace beeline::perf
