// What is fuzzed. Each function takes any bytes at all, and aborts when an invariant breaks.
#pragma once

#include "base/bytes.h"

namespace beeline::fuzz {

// Addresses and a datagram: parse, emit, print, ICRC.
void fuzz_wire(Bytes input);
// A capture file.
void fuzz_pcap(Bytes input);
// A script of packets, posts, time steps and faults against one small queue pair.
void fuzz_queue_pair(Bytes input);

}  // namespace beeline::fuzz
