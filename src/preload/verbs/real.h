// The machine's own libibverbs below us: where every call goes that is about one of its devices.
#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include "preload/verbs/names.h"

namespace beeline::preload {

// Name and symbol version, as in libibverbs.map of rdma-core. An older library lacks the last ones.
#define BEELINE_REAL_FUNCTIONS(X)               \
  X(ibv_get_device_list, "IBVERBS_1.1")         \
  X(ibv_free_device_list, "IBVERBS_1.1")        \
  X(ibv_get_device_name, "IBVERBS_1.1")         \
  X(ibv_get_device_guid, "IBVERBS_1.1")         \
  X(ibv_get_device_index, "IBVERBS_1.9")        \
  X(ibv_open_device, "IBVERBS_1.1")             \
  X(ibv_close_device, "IBVERBS_1.1")            \
  X(ibv_import_device, "IBVERBS_1.10")          \
  X(ibv_query_device, "IBVERBS_1.1")            \
  X(ibv_query_port, "IBVERBS_1.1")              \
  X(ibv_query_gid, "IBVERBS_1.1")               \
  X(_ibv_query_gid_ex, "IBVERBS_1.11")          \
  X(_ibv_query_gid_table, "IBVERBS_1.11")       \
  X(ibv_query_gid_type, nullptr)                \
  X(ibv_query_pkey, "IBVERBS_1.1")              \
  X(ibv_get_pkey_index, "IBVERBS_1.5")          \
  X(ibv_get_async_event, "IBVERBS_1.1")         \
  X(ibv_ack_async_event, "IBVERBS_1.1")         \
  X(ibv_alloc_pd, "IBVERBS_1.1")                \
  X(ibv_dealloc_pd, "IBVERBS_1.1")              \
  X(ibv_import_pd, "IBVERBS_1.10")              \
  X(ibv_unimport_pd, "IBVERBS_1.10")            \
  X(ibv_reg_mr, "IBVERBS_1.1")                  \
  X(ibv_reg_mr_iova, "IBVERBS_1.7")             \
  X(ibv_reg_mr_iova2, "IBVERBS_1.8")            \
  X(ibv_reg_dmabuf_mr, "IBVERBS_1.12")          \
  X(ibv_rereg_mr, "IBVERBS_1.1")                \
  X(ibv_dereg_mr, "IBVERBS_1.1")                \
  X(ibv_import_mr, "IBVERBS_1.10")              \
  X(ibv_unimport_mr, "IBVERBS_1.10")            \
  X(ibv_import_dm, "IBVERBS_1.13")              \
  X(ibv_unimport_dm, "IBVERBS_1.13")            \
  X(ibv_create_comp_channel, "IBVERBS_1.0")     \
  X(ibv_destroy_comp_channel, "IBVERBS_1.0")    \
  X(ibv_create_cq, "IBVERBS_1.1")               \
  X(ibv_resize_cq, "IBVERBS_1.1")               \
  X(ibv_destroy_cq, "IBVERBS_1.1")              \
  X(ibv_get_cq_event, "IBVERBS_1.1")            \
  X(ibv_ack_cq_events, "IBVERBS_1.1")           \
  X(ibv_create_srq, "IBVERBS_1.1")              \
  X(ibv_modify_srq, "IBVERBS_1.1")              \
  X(ibv_query_srq, "IBVERBS_1.1")               \
  X(ibv_destroy_srq, "IBVERBS_1.1")             \
  X(ibv_create_qp, "IBVERBS_1.1")               \
  X(ibv_modify_qp, "IBVERBS_1.1")               \
  X(ibv_query_qp, "IBVERBS_1.1")                \
  X(ibv_query_qp_data_in_order, "IBVERBS_1.14") \
  X(ibv_destroy_qp, "IBVERBS_1.1")              \
  X(ibv_qp_to_qp_ex, "IBVERBS_1.6")             \
  X(ibv_query_ece, "IBVERBS_1.10")              \
  X(ibv_set_ece, "IBVERBS_1.10")                \
  X(ibv_create_ah, "IBVERBS_1.1")               \
  X(ibv_init_ah_from_wc, "IBVERBS_1.1")         \
  X(ibv_create_ah_from_wc, "IBVERBS_1.1")       \
  X(ibv_destroy_ah, "IBVERBS_1.1")              \
  X(ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1") \
  X(ibv_attach_mcast, "IBVERBS_1.1")            \
  X(ibv_detach_mcast, "IBVERBS_1.1")

struct RealFunctions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration stands in no parentheses.
#define BEELINE_MEMBER(name, version) decltype(&::name) name = nullptr;
  BEELINE_REAL_FUNCTIONS(BEELINE_MEMBER)
#undef BEELINE_MEMBER
};

// The functions; those that the installed library lacks are null.
const RealFunctions& real_functions();

// The devices that the real library has listed. Only what hangs on one of them is handed to it: it would
// follow pointers that a stranger's object does not have.
class RealDevices {
 public:
  void add(const ibv_device* device);
  bool any() const { return any_.load(std::memory_order_acquire); }
  bool has(const ibv_device* device) const;

 private:
  std::atomic<bool> any_{false};
  mutable std::mutex lock_;
  std::set<const ibv_device*> devices_;
};
RealDevices& real_devices();

}  // namespace beeline::preload
