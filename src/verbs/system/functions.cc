#include "verbs/system/functions.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

namespace beeline::verbs::system {
namespace {

enum class Need : bool { optional, required };

struct Row {
  const char* name;
  const char* version;
  std::size_t offset;  // of the pointer in Functions
  Need need = Need::required;
};

// Names and versions as in libibverbs.map of rdma-core.
#define BEELINE_ROW(name, version, member) \
  Row { name, version, offsetof(Functions, member) }
constexpr Row rows[] = {
    BEELINE_ROW("ibv_get_device_list", "IBVERBS_1.1", get_device_list),
    BEELINE_ROW("ibv_free_device_list", "IBVERBS_1.1", free_device_list),
    BEELINE_ROW("ibv_get_device_name", "IBVERBS_1.1", get_device_name),
    BEELINE_ROW("ibv_get_device_guid", "IBVERBS_1.1", get_device_guid),
    BEELINE_ROW("ibv_open_device", "IBVERBS_1.1", open_device),
    BEELINE_ROW("ibv_close_device", "IBVERBS_1.1", close_device),
    BEELINE_ROW("ibv_query_device", "IBVERBS_1.1", query_device),
    BEELINE_ROW("ibv_query_port", "IBVERBS_1.1", query_port),
    BEELINE_ROW("_ibv_query_gid_ex", "IBVERBS_1.11", query_gid_ex),
    BEELINE_ROW("ibv_alloc_pd", "IBVERBS_1.1", alloc_pd),
    BEELINE_ROW("ibv_dealloc_pd", "IBVERBS_1.1", dealloc_pd),
    BEELINE_ROW("ibv_reg_mr", "IBVERBS_1.1", reg_mr),
    {"ibv_reg_mr_iova2", "IBVERBS_1.8", offsetof(Functions, reg_mr_iova2), Need::optional},
    BEELINE_ROW("ibv_dereg_mr", "IBVERBS_1.1", dereg_mr),
    BEELINE_ROW("ibv_create_comp_channel", "IBVERBS_1.0", create_comp_channel),
    BEELINE_ROW("ibv_destroy_comp_channel", "IBVERBS_1.0", destroy_comp_channel),
    BEELINE_ROW("ibv_create_cq", "IBVERBS_1.1", create_cq),
    BEELINE_ROW("ibv_destroy_cq", "IBVERBS_1.1", destroy_cq),
    BEELINE_ROW("ibv_get_cq_event", "IBVERBS_1.1", get_cq_event),
    BEELINE_ROW("ibv_ack_cq_events", "IBVERBS_1.1", ack_cq_events),
    BEELINE_ROW("ibv_create_qp", "IBVERBS_1.1", create_qp),
    BEELINE_ROW("ibv_modify_qp", "IBVERBS_1.1", modify_qp),
    BEELINE_ROW("ibv_query_qp", "IBVERBS_1.1", query_qp),
    BEELINE_ROW("ibv_destroy_qp", "IBVERBS_1.1", destroy_qp),
    {"ibv_query_qp_data_in_order", "IBVERBS_1.14", offsetof(Functions, query_qp_data_in_order),
     Need::optional},
    BEELINE_ROW("ibv_fork_init", "IBVERBS_1.1", fork_init),
};
#undef BEELINE_ROW
static_assert(std::size(rows) * sizeof(void*) == sizeof(Functions), "a row for every function");

}  // namespace

Result<std::unique_ptr<Library>> Library::load(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr)
    return fail(Errc::not_found, "{} cannot be loaded ({}): install libibverbs (rdma-core)", path, dlerror());
  auto library = std::make_unique<Library>();
  for (const Row& row : rows) {
    void* symbol = dlvsym(handle, row.name, row.version);
    if (symbol == nullptr && row.need == Need::required)
      return fail(Errc::unsupported, "{} is too old, it has no {}@{}: install rdma-core 32 or newer", path,
                  row.name, row.version);
    std::memcpy(reinterpret_cast<std::byte*>(&library->functions_) + row.offset, &symbol, sizeof symbol);
  }
  return library;
}

}  // namespace beeline::verbs::system
