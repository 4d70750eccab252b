// The functions of libibverbs that Beeline uses, by name and symbol version. Nothing is
// linked: a machine without libibverbs runs the same program.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "base/result.h"

// The header wraps these names in macros for programs that link the library.
#undef ibv_query_port
#undef ibv_reg_mr

namespace beeline::verbs::system {

struct Functions {
  ibv_device** (*get_device_list)(int*);
  void (*free_device_list)(ibv_device**);
  const char* (*get_device_name)(ibv_device*);
  __be64 (*get_device_guid)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*close_device)(ibv_context*);
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*);
  int (*query_gid_ex)(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t, std::size_t);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int);
  ibv_mr* (*reg_mr_iova2)(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned);  // may be absent
  int (*dereg_mr)(ibv_mr*);
  ibv_comp_channel* (*create_comp_channel)(ibv_context*);
  int (*destroy_comp_channel)(ibv_comp_channel*);
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int);
  int (*destroy_cq)(ibv_cq*);
  int (*get_cq_event)(ibv_comp_channel*, ibv_cq**, void**);
  void (*ack_cq_events)(ibv_cq*, unsigned);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*);
  int (*destroy_qp)(ibv_qp*);
  int (*query_qp_data_in_order)(ibv_qp*, ibv_wr_opcode, std::uint32_t);  // may be absent
  int (*fork_init)();
};

// The library, loaded. It stays loaded until the process ends: its providers have threads and
// fork handlers of their own.
class Library {
 public:
  // `path` as for dlopen. The error says what to install.
  static Result<std::unique_ptr<Library>> load(const std::string& path);
  const Functions& functions() const { return functions_; }

 private:
  Functions functions_{};
};

}  // namespace beeline::verbs::system
