// What a line can mean: symptoms, each with a page in docs/symptoms, and facts, which explain them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "doctor/log/diagnose.h"

namespace beeline::doctor::log {

enum class Kind : std::uint8_t {
  // Symptoms; rules.cc has a row for each, in this order.
  completion_4,
  completion_9,
  completion_10,
  completion_11,
  completion_12,
  completion_13,
  completion_error,
  completion_5,
  access_violation,
  modify_qp_110,
  modify_qp_101,
  modify_qp_19,
  modify_qp_22,
  modify_qp,
  gid_zero,
  gid_link_local,
  gid_v1,
  gid_mismatch,
  gid_unreadable,
  mr_no_memory,
  mr_bad_address,
  port_error,
  port_down,
  device_fatal,
  device_unopenable,
  no_rdma_device,
  socket_fallback,
  no_gpudirect,
  mtu_mismatch,
  loss_without_pfc,
  packet_loss,
  link_errors,
  traffic_class,
  wrong_interface,
  bootstrap_connect,
  name_resolution,
  connection_closed,
  store_timeout,
  watchdog_timeout,
  watchdog_stuck,
  collective_mismatch,
  barrier_timeout,
  process_killed,
  process_crashed,
  process_failed,
  job_cancelled,
  cuda_oom,
  gpu_error,
  duplicate_gpu,
  shm_full,
  mpi_unreachable,
  pcie_error,
  plugin_mismatch,
  version_mismatch,
  // Facts.
  fact_traffic,    // training or a benchmark moved data
  fact_connected,  // NCCL says that its rings stand
  fact_started,    // a program's first lines
  fact_rank,       // a process's rank, where one line says both
  fact_hint,       // NCCL's own hints
  fact_hint_acs,
  fact_gid_index,      // NCCL_IB_GID_INDEX
  fact_traffic_class,  // NCCL_IB_TC
  fact_ib_timeout,
  fact_ib_disabled,
  fact_socket_network,
  fact_wants_rdma,  // somebody configured it
  fact_no_device,
  fact_infiniband,
  fact_roce,
  fact_channel_socket,
  fact_channel_ib,
  fact_channel_ib_gdr,
  fact_channel_local,
  fact_gdr_disabled,
  fact_gdr_enabled,
  fact_peermem,
  fact_plugin_old,
  fact_plugin_loaded,
  fact_bootstrap,  // the interface that NCCL's bootstrap uses
  fact_version,
  fact_memlock,
  fact_sigterm,
  fact_forced_kill,
  fact_aborted,  // survivors that give up
  fact_last_work,
  fact_port_up,
  fact_exit,  // an exit status that mostly follows from something else
  fact_exception,
  fact_world,
  count_
};
constexpr std::size_t kind_count = static_cast<std::size_t>(Kind::count_);
constexpr std::size_t symptom_count = static_cast<std::size_t>(Kind::fact_traffic);

// Who goes first when the logs do not say who was first.
enum class Class : std::uint8_t {
  root,       // happens by itself: a link, a GPU, a process
  failure,    // of the network or the software, with a meaning of its own
  timeout,    // somebody waited
  secondary,  // follows from a failure elsewhere
  warning,    // slow, or about to fail
};

struct CauseRule {
  std::string_view id;
  std::string_view text;
  Kind evidence[4] = {Kind::count_, Kind::count_, Kind::count_,
                      Kind::count_};  // what shows it, if it is in the logs
};

struct Rule {
  Kind kind;
  std::string_view id;
  Class rank;
  Severity severity;
  std::string_view error;  // as programs write it: the title of the page
  std::string_view also;   // other texts for the same, one a line
  std::string_view meaning;
  std::span<const CauseRule> causes;
  std::string_view next;
  std::string_view source;
};

std::span<const Rule> rules();
const Rule& rule(Kind kind);  // of a symptom
bool is_symptom(Kind kind);
bool is_completion(Kind kind);  // a completion status

}  // namespace beeline::doctor::log
