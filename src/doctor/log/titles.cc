#include <fmt/format.h>

#include <array>

#include "doctor/log/conclude.h"
#include "doctor/log/recognise.h"

namespace beeline::doctor::log {
namespace {

struct Title {
  Kind kind;
  std::string_view words;
};

using enum Kind;
constexpr Title titles[] = {
    {access_violation, "the card refused an access of the peer to this host's memory"},
    {modify_qp_110, "a queue pair could not be connected: nobody answered at the peer's GID (errno 110)"},
    {modify_qp_101, "a queue pair could not be connected: no route to the peer's GID (errno 101)"},
    {modify_qp_19, "a queue pair could not be connected: the local GID has no network device (errno 19)"},
    {modify_qp_22, "a queue pair could not be connected: an argument was refused, mostly the GID (errno 22)"},
    {modify_qp, "a queue pair could not be connected"},
    {gid_zero, "the GID in use is empty"},
    {gid_link_local, "the GID in use is link-local"},
    {gid_v1, "the GID in use is of type RoCE v1"},
    {gid_mismatch, "the two ends use GIDs of different families"},
    {gid_unreadable, "a slot of the GID table could not be read"},
    {mr_no_memory, "memory could not be registered: the limit of locked memory, or of the card"},
    {mr_bad_address, "memory could not be registered: the driver does not know the address (GPU memory?)"},
    {port_error, "a port lost its link"},
    {port_down, "a port has no link"},
    {device_fatal, "the card failed and was reset"},
    {device_unopenable, "an RDMA device could not be opened"},
    {no_rdma_device, "no RDMA device was found"},
    {socket_fallback, "NCCL uses TCP sockets between hosts instead of RDMA"},
    {no_gpudirect, "NCCL moves data through host memory: no GPUDirect RDMA on this path"},
    {mtu_mismatch, "MTUs differ"},
    {loss_without_pfc, "packets are lost, and nothing was paused"},
    {packet_loss, "packets are lost"},
    {link_errors, "a link corrupts data or goes down"},
    {traffic_class, "the traffic class differs between hosts"},
    {wrong_interface, "the job's TCP connections use an interface that cannot work"},
    {bootstrap_connect, "a TCP connection for setting up the job failed"},
    {name_resolution, "a host name could not be resolved"},
    {connection_closed, "a peer closed the connection (this follows from an error elsewhere)"},
    {store_timeout, "ranks did not find each other at the start"},
    {watchdog_timeout, "a collective timed out"},
    {watchdog_stuck, "PyTorch's watchdog thread hung"},
    {collective_mismatch, "ranks called different collectives"},
    {barrier_timeout, "ranks did not reach a barrier"},
    {process_killed, "a process was killed (SIGKILL)"},
    {process_crashed, "a process crashed"},
    {process_failed, "a process ended with an error of its own"},
    {job_cancelled, "the scheduler ended the job"},
    {cuda_oom, "a GPU ran out of memory"},
    {gpu_error, "a GPU, or a kernel on it, failed"},
    {duplicate_gpu, "two ranks use the same GPU"},
    {shm_full, "shared memory (/dev/shm) is full"},
    {mpi_unreachable, "MPI found no way between two processes"},
    {pcie_error, "a PCIe link reported an uncorrectable error"},
    {plugin_mismatch, "the network plugin does not fit this NCCL and is not used"},
    {version_mismatch, "versions of libraries do not fit together"},
};

}  // namespace

std::string what_happened(const Event& event) {
  if (const auto words = status_in_words(event.code); is_completion(event.kind) && !words.empty())
    return fmt::format("completion status {}: {}", event.code, words);
  for (const Title& title : titles) {
    if (title.kind != event.kind) continue;
    const bool detail_says_more = event.kind == process_failed || event.kind == mtu_mismatch ||
                                  event.kind == loss_without_pfc || event.kind == packet_loss ||
                                  event.kind == link_errors || event.kind == traffic_class ||
                                  event.kind == version_mismatch || event.kind == wrong_interface ||
                                  event.kind == barrier_timeout || event.kind == gid_zero;
    std::string text(title.words);
    if (detail_says_more && !event.detail.empty() && event.detail != "root cause")
      text += ": " + event.detail;
    if (event.kind == gpu_error && event.code > 0) text += fmt::format(" (code {})", event.code);
    return text;
  }
  return std::string(rule(event.kind).error);
}

}  // namespace beeline::doctor::log
