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
// The same against one of the UC or UD type.
void fuzz_unreliable(Bytes input);
// Management datagrams, and a connection manager that hears them.
void fuzz_cm(Bytes input);
// A control connection of a group: its frames, a link, what stores and entries hold.
void fuzz_bootstrap(Bytes input);
// A rank's greeting, and its messages during calls.
void fuzz_exec(Bytes input);
// Probes, hand-over messages, and what is learned from answers.
void fuzz_port(Bytes input);
// Messages of the local lane, and a queue pair whose peer is mad.
void fuzz_local(Bytes input);
// The connection between the two ends of `beeline perf`.
void fuzz_perf(Bytes input);
// A log, as `beeline doctor --log` reads it.
void fuzz_doctor_log(Bytes input);

}  // namespace beeline::fuzz
