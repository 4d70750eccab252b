#include <algorithm>

#include "doctor/log/recognise.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

bool always(const Line&, std::string_view, Event&) { return true; }

bool of_nccl(const Line& line, std::string_view, Event&) { return line.nccl; }

bool no_device(const Line& line, std::string_view, Event&) { return has(line.body, "NET/IB"); }

bool unable_to_open(const Line& line, std::string_view rest, Event& event) {
  event.device = word(rest);
  return has(line.body, "NET/IB") || has(line.body, "mlx5") || has(line.body, "uverbs") ||
         has(line.body, "rdma");
}

bool open_failed(const Line& line, std::string_view, Event&) {
  return has(line.body, "fail") || has(line.body, "denied") || has(line.body, "couldn't");
}

// "Using network Socket", "Assigned NET plugin Socket to comm", "Initialized NET plugin Socket".
bool network(const Line& line, std::string_view rest, Event& event) {
  event.detail = word(rest);
  (void)line;
  return equal_ignoring_case(event.detail, "Socket");
}

bool channel(const Line& line, std::string_view rest, Event& event) {
  // "[receive] via NET/IB/0/GDRDMA", "[send] via NET/Socket/0", "via P2P/IPC/read", "via SHM/direct/direct".
  event.detail = has(line.body, "[receive]") ? "receive" : "send";
  if (starts(rest, "NET/Socket")) {
    event.kind = Kind::fact_channel_socket;
  } else if (starts(rest, "NET/IB")) {
    event.kind = has(rest, "GDR") ? Kind::fact_channel_ib_gdr : Kind::fact_channel_ib;
    return !line.cut || event.kind == Kind::fact_channel_ib_gdr;
  } else if (starts(rest, "P2P") || starts(rest, "SHM") || starts(rest, "direct")) {
    event.kind = Kind::fact_channel_local;
  } else {
    return false;
  }
  return true;
}

bool gpu_direct(const Line& line, std::string_view rest, Event& event) {
  if (has(line.body, "Socket")) return false;
  event.device = word(rest.substr(0, rest.size()));
  if (const auto quoted = after(rest, "'")) event.device = word(*quoted);
  return true;
}

bool environment(const Line& line, std::string_view rest, Event& event) {
  if (has(line.body, "HINT")) return false;
  event.detail = word(rest);
  while (!event.detail.empty() && event.detail.back() == '.') event.detail.pop_back();
  return !event.detail.empty();
}

bool set_to_one(const Line& line, std::string_view rest, Event& event) {
  return environment(line, rest, event) && event.detail == "1";
}

bool rank_of_comm(const Line& line, std::string_view, Event& event) {
  if (line.pid.empty()) return false;
  const auto rank = number_after(line.body, " rank ");
  const auto ranks = number_after(line.body, "nranks ");
  if (!rank || !ranks || *rank < 0 || *ranks < 1) return false;
  event.rank = std::to_string(*rank);
  event.code = *ranks;
  return true;
}

// nccl-tests: "#  Rank  1 Group  0 Pid   4940 on ai-worker03 device  0".
bool rank_of_test(const Line& line, std::string_view rest, Event& event) {
  const auto rank = number(rest);
  const auto pid = number_after(rest, "Pid");
  if (!rank || !pid || !starts(trimmed(line.body), "#")) return false;
  event.rank = std::to_string(*rank);
  event.pid = std::to_string(*pid);
  event.host = word_after(rest, " on ");
  event.code = 0;
  return !event.host.empty();
}

bool is_bridge(std::string_view name) {
  for (const std::string_view prefix :
       {"docker", "virbr", "veth", "br-", "cni", "cali", "flannel", "tunl", "vxlan", "kube-"})
    if (starts(name, prefix)) return true;
  return name == "lo";
}

// "Bootstrap : Using eth0:172.16.121.86<0>", "Bootstrap : Using [0]docker0:172.17.0.1<0>".
bool bootstrap(const Line&, std::string_view rest, Event& event) {
  rest = trimmed(rest);
  if (starts(rest, ":")) rest = trimmed(rest.substr(1));
  if (!starts(rest, "Using ")) return false;
  std::string_view name = trimmed(rest.substr(6));
  if (starts(name, "[")) name = name.substr(std::min(name.find(']'), name.size() - 1) + 1);
  event.detail = name.substr(0, name.find(':'));
  event.code = is_bridge(event.detail) ? 1 : 0;
  return !event.detail.empty();
}

bool no_interface(const Line& line, std::string_view, Event&) { return has(line.body, "interface"); }

bool plugin_old(const Line& line, std::string_view, Event&) {
  return has(line.body, "ncclNetPlugin symbol") && has(line.body, "not supported");
}

bool loaded_plugin(const Line& line, std::string_view, Event&) { return !has(line.body, "coll plugin"); }

// "NCCL version 2.21.5+cuda12.4"; the part behind the plus may differ without harm.
bool version(const Line& line, std::string_view rest, Event& event) {
  std::string_view number = word(rest);
  number = number.substr(0, number.find('+'));
  const bool like = std::count(number.begin(), number.end(), '.') == 2 && is_digit(number.front());
  if (!like || has(line.body, "mismatch") || has(line.body, "require")) return false;
  event.detail = number;
  return true;
}

// NCCL tries symbols of newer libraries with dlvsym and goes on without them.
bool undefined_symbol(const Line& line, std::string_view rest, Event&) {
  if (has(line.body, "dlvsym") || has(line.body, "NCCL INFO")) return false;
  const auto symbol = word(rest);
  for (const std::string_view prefix : {"nccl", "ibv_", "mlx5", "rdma_", "_ZN4c10d", "fi_"})
    if (starts(symbol, prefix)) return true;
  return false;
}

bool library_version(const Line& line, std::string_view, Event&) {
  if (!has(line.body, "not found") && !has(line.body, "not defined")) return false;
  for (const std::string_view about :
       {"IBVERBS", "MLX5", "RDMACM", "NCCL", "GLIBC", "libibverbs", "libnccl", "libmlx5"})
    if (has(line.body, about)) return true;
  return false;
}

bool plugin_version(const Line& line, std::string_view, Event&) {
  return has(line.body, "NET/OFI") || has(line.body, "plugin");
}

// perftest: "Port number 1 state is Down".
bool port_number(const Line&, std::string_view rest, Event&) {
  return has(rest, "state is") && !has(rest, "Active");
}

bool ucx_device(const Line& line, std::string_view rest, Event& event) {
  event.device = word(rest);
  if (const auto quoted = after(rest, "'")) event.device = word(*quoted);
  return has(line.body, "is not available");
}

bool failing(const Line& line, std::string_view, Event&) {
  return has(line.body, "fail") || has(line.body, "error") || has(line.body, "refused") ||
         has(line.body, "timed out");
}

constexpr Recogniser table[] = {
    {"No device found", Kind::fact_no_device, no_device},
    {"Unable to open device", Kind::device_unopenable, unable_to_open},
    {"/dev/infiniband/", Kind::device_unopenable, open_failed},
    {"Failed to open device", Kind::device_unopenable, unable_to_open},
    {"no userspace device-specific driver found", Kind::device_unopenable, always},
    {"No IB devices found", Kind::no_rdma_device, always},
    {"No RDMA devices", Kind::no_rdma_device, always},
    {"IB device not found", Kind::no_rdma_device, always},
    {"Failed to get IB devices list", Kind::no_rdma_device, always},
    {"Unable to get the list of IB devices", Kind::no_rdma_device, always},
    {"Unable to find the Infiniband/RoCE device", Kind::no_rdma_device, always},
    {"Did not detect devices", Kind::no_rdma_device, always},
    {"IB device not", Kind::no_rdma_device, always},
    {"network device", Kind::no_rdma_device, ucx_device},
    {"Using network ", Kind::fact_socket_network, network},
    {"NET plugin ", Kind::fact_socket_network, network},
    {" via ", Kind::count_, channel},
    {"GPU Direct RDMA Disabled for", Kind::fact_gdr_disabled, gpu_direct},
    {"GPU Direct RDMA Enabled for", Kind::fact_gdr_enabled, gpu_direct},
    {":1/IB", Kind::fact_infiniband, of_nccl},
    {"/RoCE", Kind::fact_roce, of_nccl},
    {"NCCL_IB_GID_INDEX set by environment to ", Kind::fact_gid_index, environment},
    {"NCCL_IB_HCA set ", Kind::fact_wants_rdma, always},
    {"NCCL_NET set by environment to IB", Kind::fact_wants_rdma, always},
    {"NCCL_IB_TC set by environment to ", Kind::fact_traffic_class, environment},
    {"NCCL_IB_TC=", Kind::fact_traffic_class, environment},
    {"NCCL_IB_GID_INDEX=", Kind::fact_gid_index, environment},
    {"NCCL_IB_TIMEOUT set by environment to ", Kind::fact_ib_timeout, environment},
    {"NCCL_IB_DISABLE set by environment to ", Kind::fact_ib_disabled, set_to_one},
    {" nranks ", Kind::fact_rank, rank_of_comm},
    {" Rank ", Kind::fact_rank, rank_of_test},
    {"Connected all ", Kind::fact_connected, always},
    {"Init COMPLETE", Kind::fact_connected, always},
    {"Init START", Kind::fact_started, always},
    {"Setting OMP_NUM_THREADS environment variable for each process", Kind::fact_started, always},
    {"# nThread ", Kind::fact_started, always},
    {"Dual-port", Kind::fact_started, always},
    {"Bootstrap ", Kind::fact_bootstrap, bootstrap},
    {"Bootstrap:", Kind::fact_bootstrap, bootstrap},
    {"no socket interface found", Kind::wrong_interface, always},
    {"no NCCL_SOCKET_IFNAME interface", Kind::wrong_interface, always},
    {"No interface found", Kind::wrong_interface, always},
    {"Unable to find interface for", Kind::wrong_interface, always},
    {"Unable to find address for", Kind::wrong_interface, no_interface},
    {"is neither AF_INET", Kind::wrong_interface, always},
    {"Failed to find ncclNetPlugin symbol", Kind::fact_plugin_old, plugin_old},
    {"Loaded net plugin", Kind::fact_plugin_loaded, loaded_plugin},
    {"NCCL version ", Kind::fact_version, version},
    {"Mismatched NCCL version", Kind::version_mismatch, always},
    {"undefined symbol: ", Kind::version_mismatch, undefined_symbol},
    {"CUDA driver version is insufficient", Kind::version_mismatch, always},
    {"version `", Kind::version_mismatch, library_version},
    {"version mismatch", Kind::plugin_mismatch, plugin_version},
    {"Port number ", Kind::port_down, port_number},
    {"HINT:", Kind::fact_hint, always},
    {"ACS is enabled", Kind::fact_hint_acs, always},
    {"Requested mtu is higher", Kind::mtu_mismatch, always},
    {"mtu mismatch", Kind::mtu_mismatch, always},
    {"Frag needed", Kind::mtu_mismatch, always},
    {"message too long, mtu", Kind::mtu_mismatch, always},
    {"Duplicate GPU detected", Kind::duplicate_gpu, always},
    {"creating shared memory segment", Kind::shm_full, failing},
    {"unable to reach each other for", Kind::mpi_unreachable, always},
    {"PML ucx cannot be selected", Kind::mpi_unreachable, always},
    {"no usable transports", Kind::mpi_unreachable, always},
};

}  // namespace

std::span<const Recogniser> set_up_recognisers() { return table; }

}  // namespace beeline::doctor::log
