// Symptom, causes, next command, source. This table is what the pages in docs/symptoms are made of.
#include <array>

#include "doctor/log/kinds.h"

namespace beeline::doctor::log {
namespace {

using enum Kind;

constexpr CauseRule local_protection[] = {
    {"acs",
     "PCIe ACS sends GPUDirect traffic through the root complex: disable it on the switches between GPU and "
     "NIC",
     {fact_hint_acs, pcie_error}},
    {"bounds", "a buffer was freed, moved or registered with fewer bytes than are sent", {access_violation}},
    {"fork",
     "a child process (DataLoader) wrote to registered pages: set IBV_FORK_SAFE=1 or start workers with "
     "spawn"},
    {"relaxed-ordering",
     "relaxed ordering on a platform that does not keep it: NCCL_IB_PCI_RELAXED_ORDERING=0"},
};
constexpr CauseRule remote_request[] = {
    {"mtu-mismatch",
     "the two ends use different path MTUs, so the receiver sees more bytes than it expects",
     {mtu_mismatch}},
    {"version-mismatch",
     "the two ends run different versions of NCCL or of its plugin and disagree about the protocol",
     {version_mismatch, plugin_mismatch}},
    {"bounds",
     "the message is longer than the receive buffer, or the remote key was for another region",
     {access_violation}},
};
constexpr CauseRule remote_access[] = {
    {"stale-key",
     "the peer deregistered or freed the buffer (a rank that ended early, a cache of registrations)",
     {process_failed, process_killed, process_crashed}},
    {"bounds", "address, length or access rights do not match what the peer registered", {access_violation}},
    {"acs",
     "PCIe ACS or the IOMMU in the peer's host breaks access to GPU memory",
     {fact_hint_acs, pcie_error}},
};
constexpr CauseRule remote_operation[] = {
    {"device-fatal",
     "the peer's card could not finish the request: its firmware, its PCIe link or its memory",
     {device_fatal, pcie_error, gpu_error}},
    {"bounds", "the peer's receive buffer is too small or no longer valid", {access_violation}},
    {"acs", "PCIe ACS or the IOMMU in the peer's host breaks access to GPU memory", {fact_hint_acs}},
};
constexpr CauseRule retry_exceeded[] = {
    {"port-error", "a port went down", {port_error, port_down}},
    {"dead-peer",
     "the peer's process or host was already gone",
     {process_killed, process_crashed, gpu_error}},
    {"path",
     "UDP port 4791 does not get from GID to GID: routing, firewall, VLAN, or NICs of different rails"},
    {"packet-loss",
     "the fabric drops packets: PFC or ECN is missing on the way",
     {loss_without_pfc, packet_loss, link_errors}},
    {"device-fatal", "a card or its PCIe link failed", {device_fatal, pcie_error}},
    {"gid-link-local", "a link-local GID was chosen, which routers do not forward", {gid_link_local}},
    {"gid-zero", "an empty GID was chosen", {gid_zero}},
    {"gid-v1", "a RoCE v1 GID was chosen, which routers do not forward", {gid_v1}},
    {"gid-mismatch", "the two ends chose GIDs of different families or types", {gid_mismatch}},
    {"mtu-mismatch", "the two ends, or the switches between them, have different MTUs", {mtu_mismatch}},
    {"traffic-class", "the traffic class is not the one that the switches protect", {traffic_class}},
    {"timeout-short", "NCCL_IB_TIMEOUT is too short for a congested fabric", {fact_ib_timeout}},
};
constexpr CauseRule rnr_exceeded[] = {
    {"slow-receiver",
     "the receiver posts no buffers: its process hangs, was stopped or is overloaded",
     {watchdog_timeout, watchdog_stuck}},
    {"dead-peer", "the peer's process died while its card still answers", {process_killed, process_crashed}},
    {"collective-mismatch",
     "the ranks called different collectives, so nobody receives",
     {collective_mismatch}},
};
constexpr CauseRule flushed[] = {
    {"earlier-error",
     "another request of the same queue pair failed before, here or at the peer: its line has the "
     "status that matters"},
    {"dead-peer",
     "the peer closed the connection: its process ended",
     {process_killed, process_crashed, process_failed}},
    {"same-node", "NICs of one host cannot reach each other (rails without a route)"},
};
constexpr CauseRule other_completion[] = {
    {"earlier-error", "an earlier error in this or the peer's log explains it"},
    {"device-fatal", "card, driver or firmware", {device_fatal, pcie_error}},
};
constexpr CauseRule violation[] = {
    {"mtu-mismatch", "the two ends use different path MTUs", {mtu_mismatch}},
    {"bounds",
     "the peer wrote outside of what was registered: different versions or buffers",
     {version_mismatch}},
    {"acs", "PCIe ACS or the IOMMU breaks access to GPU memory", {fact_hint_acs}},
};
constexpr CauseRule qp_timeout[] = {
    {"gid-link-local",
     "a link-local GID was chosen: the peer's address cannot be resolved",
     {gid_link_local}},
    {"gid-zero", "an empty GID was chosen", {gid_zero}},
    {"gid-mismatch", "the two GIDs are of different families", {gid_mismatch}},
    {"port-down", "a port is down", {port_error, port_down}},
    {"rails",
     "ARP or neighbour discovery fails between these two NICs: rails that cannot reach each other "
     "(NCCL_CROSS_NIC=0), a VLAN, or several NICs in one subnet (ARP flux)"},
};
constexpr CauseRule qp_unreachable[] = {
    {"gid-link-local", "a link-local GID was chosen", {gid_link_local}},
    {"gid-mismatch", "the two GIDs are of different families", {gid_mismatch}},
    {"route",
     "the host has no route from this NIC to the peer's address: an interface without address or gateway"},
};
constexpr CauseRule qp_no_device[] = {
    {"gid-gone",
     "the GID's network device went away or is in another network namespace (the pod's)",
     {gid_zero}},
    {"gid-index", "NCCL_IB_GID_INDEX names an index that is empty on this card", {fact_gid_index}},
    {"port-down", "the port is down", {port_error, port_down}},
};
constexpr CauseRule qp_invalid[] = {
    {"gid-zero", "the GID at that index is empty", {gid_zero}},
    {"gid-mismatch", "local and remote GID are of different families or types", {gid_mismatch}},
    {"gid-link-local", "a link-local GID was chosen", {gid_link_local}},
    {"gid-index",
     "NCCL_IB_GID_INDEX does not fit this card: indexes differ between cards and pods",
     {fact_gid_index}},
    {"mtu-mismatch", "a path MTU that the port does not have", {mtu_mismatch}},
};
constexpr CauseRule qp_other[] = {
    {"gid-zero", "an empty GID was chosen", {gid_zero}},
    {"gid-link-local", "a link-local GID was chosen", {gid_link_local}},
    {"gid-mismatch", "the GIDs of the two ends do not fit", {gid_mismatch}},
    {"port-down", "the port is down", {port_error, port_down}},
};
constexpr CauseRule zero_gid[] = {
    {"gid-index", "the configured index is empty on this card", {fact_gid_index}},
    {"namespace",
     "the GID's address lives in another network namespace: the pod got the device but not its interface"},
    {"no-address", "the interface of the card has no IP address"},
};
constexpr CauseRule link_local_gid[] = {
    {"no-address", "the interface has no IP address, so only fe80 is left"},
    {"gid-index", "index 0 or 1 was configured; the routable one is mostly 3", {fact_gid_index}},
};
constexpr CauseRule v1_gid[] = {
    {"gid-index",
     "NCCL_IB_GID_INDEX (or -x) names a v1 entry; each address has one of each type",
     {fact_gid_index}},
    {"cma-mode", "the connection manager's default is v1: cma_roce_mode -d DEVICE -p 1 -m 2"},
};
constexpr CauseRule mismatched_gid[] = {
    {"gid-index", "one fixed index for hosts whose GID tables differ", {fact_gid_index}},
    {"no-address", "one end has no IPv4 address on the interface and fell back to IPv6"},
};
constexpr CauseRule unreadable_gid[] = {
    {"empty-slot",
     "empty slots answer EINVAL; NCCL before 2.24 gave up at the first one: name the index, or update"},
    {"namespace", "the slot belongs to another pod's network namespace"},
};
constexpr CauseRule no_memory[] = {
    {"memlock",
     "the limit of locked memory (ulimit -l) is too low in the process that runs, whatever the shell says",
     {fact_memlock}},
    {"uar",
     "the card is out of contexts (many ranks on a host): raise log_num_uar in firmware, or run fewer "
     "processes",
     {device_unopenable}},
    {"out-of-memory", "the host is out of memory", {process_killed}},
};
constexpr CauseRule bad_address[] = {
    {"peermem",
     "GPU memory was registered, but nvidia_peermem is not loaded or not registered, and DMA-BUF is not "
     "usable",
     {fact_peermem, no_gpudirect}},
    {"freed", "the address is not mapped (any more) in this process"},
};
constexpr CauseRule port_errors[] = {
    {"cable", "cable, transceiver or switch port: compare both ends", {link_errors}},
    {"switch", "the switch port was reset or shut, or the switch restarted"},
    {"firmware", "driver or firmware reset the port", {device_fatal}},
};
constexpr CauseRule ports_down[] = {
    {"cable", "no cable, or the switch port is shut"},
    {"admin", "the interface is administratively down: ip link set DEV up"},
};
constexpr CauseRule fatal_device[] = {
    {"pcie", "the PCIe link to the card failed", {pcie_error}},
    {"firmware", "firmware crashed: note the syndrome, update, or replace the card"},
};
constexpr CauseRule unopenable[] = {
    {"container", "the container lacks /dev/infiniband, or the rights to it"},
    {"namespace", "rdma system is in mode exclusive and the device is in another namespace"},
    {"memlock", "the limit of locked memory is too low", {fact_memlock}},
};
constexpr CauseRule no_device[] = {
    {"container", "the container lacks /dev/infiniband"},
    {"driver", "mlx5_ib (or bnxt_re, irdma) or ib_uverbs is not loaded"},
    {"filter", "NCCL_IB_HCA or UCX_NET_DEVICES names devices that do not exist"},
    {"port-down", "every port is down", {port_down, port_error}},
};
constexpr CauseRule fallback[] = {
    {"no-rdma-device",
     "no RDMA device was found or could be opened, and NCCL went on over TCP",
     {fact_no_device, device_unopenable, no_rdma_device}},
    {"ib-disabled", "NCCL_IB_DISABLE=1 is set", {fact_ib_disabled}},
    {"plugin", "the network plugin could not be used", {plugin_mismatch}},
};
constexpr CauseRule no_gdr[] = {
    {"peermem",
     "nvidia_peermem is not loaded or not registered, and DMA-BUF is not usable",
     {fact_gdr_disabled, fact_peermem}},
    {"distance", "GPU and NIC are too far apart (NCCL_NET_GDR_LEVEL)"},
    {"acs", "virtual machine or ACS settings forbid it"},
};
constexpr CauseRule mtus[] = {
    {"netdev-mtu", "the interfaces have different MTUs (RoCE needs 4200 for 4096; 1500 gives 1024)"},
    {"switch", "a switch on the way has a smaller MTU"},
};
constexpr CauseRule losses_no_pfc[] = {
    {"pfc-off",
     "PFC is not on for this priority, at the host or at a switch: nothing was paused while packets were "
     "lost"},
    {"trust", "the host does not trust DSCP, so traffic lands in an unprotected priority", {traffic_class}},
};
constexpr CauseRule losses[] = {
    {"congestion", "a receiver or switch is overloaded: check ECN and the buffers"},
    {"link", "a link corrupts packets", {link_errors}},
};
constexpr CauseRule cable_errors[] = {{"cable", "cable, transceiver or port: clean, reseat, replace"}};
constexpr CauseRule classes[] = {
    {"environment", "NCCL_IB_TC is not set alike on every host", {fact_traffic_class}},
};
constexpr CauseRule interfaces[] = {
    {"socket-ifname",
     "NCCL_SOCKET_IFNAME (GLOO_SOCKET_IFNAME) names no or the wrong interface",
     {fact_bootstrap}},
    {"bridge",
     "a bridge or loopback of this host was chosen, which the others cannot reach",
     {fact_bootstrap}},
};
constexpr CauseRule connects[] = {
    {"wrong-interface", "an interface was chosen that the others cannot reach", {wrong_interface}},
    {"dead-peer",
     "the process that should listen never started or has ended",
     {process_killed, process_crashed, process_failed}},
    {"firewall", "a firewall, or a route that is missing"},
    {"address", "MASTER_ADDR or MASTER_PORT is wrong or taken"},
};
constexpr CauseRule names[] = {
    {"dns", "the name is not known on this host: DNS, /etc/hosts, or a pod's headless service not ready yet"},
};
constexpr CauseRule closed[] = {
    {"dead-peer",
     "the peer's process ended: its own log, or its launcher's, says why",
     {process_killed, process_crashed, process_failed, job_cancelled}},
};
constexpr CauseRule stores[] = {
    {"missing-ranks",
     "some ranks never started or failed before they joined",
     {process_failed, process_crashed, process_killed, name_resolution}},
    {"address", "rank 0 listens elsewhere than the others look", {wrong_interface, bootstrap_connect}},
};
constexpr CauseRule watchdog[] = {
    {"preprocessing",
     "one rank (mostly rank 0) prepares data while the others wait in a barrier: prepare it before "
     "init_process_group, or give the group a longer timeout"},
    {"network", "the network failed first", {completion_12, port_error, device_fatal}},
    {"stuck-rank", "a rank is behind or silent: it computes, loads data, saves a checkpoint, or hangs"},
    {"dead-rank", "a rank is gone", {process_killed, process_crashed, gpu_error}},
    {"different-calls",
     "the ranks do not call the same collectives in the same order, or with the same sizes",
     {collective_mismatch}},
};
constexpr CauseRule stuck[] = {
    {"gil", "another thread holds the GIL, or a CUDA call blocks"},
    {"driver", "the driver hangs", {gpu_error, device_fatal}},
};
constexpr CauseRule mismatches[] = {
    {"control-flow",
     "a branch depends on the rank or its data: uneven batches, unused parameters, conditional saving"},
};
constexpr CauseRule barriers[] = {
    {"missing-ranks",
     "the named ranks did not come: look at what they were doing",
     {process_killed, process_crashed, process_failed}},
};
constexpr CauseRule killed[] = {
    {"out-of-memory", "the kernel or the container's limit killed it: out of memory", {process_killed}},
    {"operator", "somebody or the scheduler sent SIGKILL"},
};
constexpr CauseRule crashed[] = {
    {"bug", "a bug in native code: an extension, a library, a driver"},
    {"shm", "SIGBUS: /dev/shm is full", {shm_full}},
    {"gpu", "the GPU failed", {gpu_error}},
};
constexpr CauseRule failed[] = {
    {"exception", "the program raised an exception", {fact_exception}},
};
constexpr CauseRule cancelled[] = {
    {"limit", "time limit, preemption, or an operator"},
    {"node", "the scheduler lost a node"},
};
constexpr CauseRule gpu_memory[] = {
    {"batch", "batch, sequence length or fragmentation; another process may hold memory of the same GPU"},
};
constexpr CauseRule gpu_errors[] = {
    {"hardware", "the GPU, its NVLink or its PCIe link", {pcie_error}},
    {"program", "a kernel of the program accessed memory that is not its own"},
    {"fabric-manager", "error 802: nvidia-fabricmanager is not running or does not fit the driver"},
};
constexpr CauseRule duplicates[] = {
    {"local-rank",
     "two ranks of a host chose the same GPU: torch.cuda.set_device(LOCAL_RANK) before the first call"},
};
constexpr CauseRule shm[] = {
    {"container", "/dev/shm of the container is too small: --shm-size, or an emptyDir of medium Memory"},
};
constexpr CauseRule unreachable[] = {
    {"transports",
     "the processes have no transport in common: UCX or the BTLs see different interfaces",
     {no_rdma_device, port_down}},
};
constexpr CauseRule pcie[] = {
    {"hardware", "card, riser, slot or GPU: reseat, then replace"},
    {"acs", "a device behind a switch with unusual ACS or MPS settings"},
};
constexpr CauseRule plugins[] = {
    {"image", "the plugin in the image was built for another NCCL: aws-ofi-nccl, HPC-X, or FastSocket"},
};
constexpr CauseRule versions[] = {
    {"image",
     "the hosts run different images or LD_LIBRARY_PATH finds another library first",
     {fact_version}},
};

constexpr auto failure = Severity::failure;
constexpr auto warning = Severity::warning;

constexpr std::string_view ib_write_bw =
    "on the peer: ib_write_bw -d DEV -x INDEX -F; here: ib_write_bw -d DEV -x INDEX -F PEER (same GIDs as in "
    "the job)";
constexpr std::string_view status_source =
    "IBTA specification, completion statuses; libibverbs ibv_poll_cq(3)";
constexpr std::string_view elastic_source = "PyTorch documentation, torchrun and error propagation";

constexpr Rule table[] = {
#include "doctor/log/rules.inc"
};
static_assert(std::size(table) == symptom_count, "each symptom has a rule");

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(table); ++i)
    if (table[i].kind != static_cast<Kind>(i)) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const Rule> rules() { return table; }
const Rule& rule(Kind kind) { return table[static_cast<std::size_t>(kind)]; }
bool is_completion(Kind kind) { return kind <= completion_5; }
bool is_symptom(Kind kind) { return static_cast<std::size_t>(kind) < symptom_count; }

std::vector<std::string_view> kinds() {
  std::vector<std::string_view> ids;
  for (const Rule& row : table) ids.push_back(row.id);
  return ids;
}

}  // namespace beeline::doctor::log
