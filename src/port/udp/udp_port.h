// The port over plain UDP sockets, and what a host's interfaces are.
#pragma once

#include "base/config.h"
#include "port/port.h"

namespace beeline::port {

// Interfaces with at least one address; those that are up come first, then by index;
// loopback is last. From getifaddrs(3).
Result<std::vector<Interface>> list_interfaces();
// Those without an address, too.
Result<std::vector<Interface>> list_all_interfaces();

// Takes a free slot (abstract socket "@beeline.4791.<slot>").
//
// Threads: send(), receive(), counters() and abandon_after_fork() are for one thread at a
// time, wait() for one thread at a time, which may be another. open_address(),
// source_port(), wake() and now() are for all threads at any time.
//
// wait_descriptor() also polls readable after wake(), until the next wait().
//
// receive_buffer_bytes() is a quarter of what the kernel granted (SO_RCVBUF as it reads
// back): the kernel charges a datagram with the memory that its buffer takes, about
// twice the payload at 1 KiB and above, 768 bytes and more however small it is, and
// gives memory back only when a quarter of the limit has been read. So whoever budgets
// bytes in flight counts a packet as at least 512.
//
// `icrc`: whether IPv4 packets are received with their headers (raw_socket.h). automatic: if this process
// may; strict is an error (not_permitted) if it may not.
//
// `segmentation`: whether trains leave in one piece (trains.h), and whether merged datagrams are taken.
Result<std::unique_ptr<Port>> make_udp_port(IcrcCheck icrc = IcrcCheck::automatic,
                                            Segmentation segmentation = Segmentation::automatic);

}  // namespace beeline::port
