// libibverbs as far as Beeline calls it, over the fake fabric. Names and signatures are those of
// <infiniband/verbs.h>; versions come from the map files.
#include "verbs/system/fake_library/fake_ibverbs.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#undef ibv_query_port
#undef ibv_reg_mr

namespace {

using beeline::verbs::FakeLibrarySettings;
using beeline::verbs::FakeProvider;

struct State {
  FakeLibrarySettings settings;
  std::unique_ptr<FakeProvider> provider = beeline::verbs::make_fake_provider(settings.fabric);
};

State& state() {
  static State the_state;
  return the_state;
}
FakeProvider& fake() { return *state().provider; }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT FakeLibrarySettings* fake_ibverbs_settings(bool new_fabric) {
  if (new_fabric) {
    state().settings = {};
    state().provider.reset();
  }
  return &state().settings;
}

EXPORT ibv_device** ibv_get_device_list(int* count) {
  FakeLibrarySettings& settings = state().settings;
  if (state().provider == nullptr) state().provider = beeline::verbs::make_fake_provider(settings.fabric);
  if (settings.prints_warnings)
    std::fprintf(stderr, "libibverbs: Warning: no driver for %s\nsomebody else's line\n", "fake0");
  if (settings.list_errno != 0) {
    errno = settings.list_errno;
    return nullptr;
  }
  return fake().get_device_list(count);
}
EXPORT void ibv_free_device_list(ibv_device** list) { fake().free_device_list(list); }
EXPORT const char* ibv_get_device_name(ibv_device* device) { return fake().get_device_name(device); }
EXPORT __be64 ibv_get_device_guid(ibv_device* device) { return fake().get_device_guid(device); }
EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  if (state().settings.open_errno != 0) {
    errno = state().settings.open_errno;
    return nullptr;
  }
  ibv_context* context = fake().open_device(device);
  if (context != nullptr && state().settings.old_contexts) verbs_get_ctx(context)->query_port = nullptr;
  return context;
}
EXPORT int ibv_close_device(ibv_context* context) { return fake().close_device(context); }
EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* out) {
  return fake().query_device(context, out);
}
EXPORT int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) {
  return context->ops._compat_query_port(context, port, out);
}
EXPORT int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                             ibv_gid_entry* out, std::uint32_t flags, std::size_t bytes) {
  if (flags != 0 || bytes != sizeof *out) return EINVAL;
  return fake().query_gid_ex(context, port, index, out);
}
EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) { return fake().alloc_pd(context); }
EXPORT int ibv_dealloc_pd(ibv_pd* pd) { return fake().dealloc_pd(pd); }
EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  if ((access & IBV_ACCESS_OPTIONAL_RANGE) != 0) {  // an old kernel refuses rights that it does not know
    errno = EINVAL;
    return nullptr;
  }
  return fake().reg_mr(pd, address, bytes, access);
}
EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                unsigned access) {
  if (iova != reinterpret_cast<std::uintptr_t>(address)) {
    errno = EINVAL;
    return nullptr;
  }
  ++state().settings.optional_registrations;
  return fake().reg_mr(pd, address, bytes, static_cast<int>(access));
}
EXPORT int ibv_dereg_mr(ibv_mr* mr) { return fake().dereg_mr(mr); }
EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return fake().create_comp_channel(context);
}
EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return fake().destroy_comp_channel(channel);
}
EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                             int vector) {
  return fake().create_cq(context, cqe, cq_context, channel, vector);
}
EXPORT int ibv_destroy_cq(ibv_cq* cq) { return fake().destroy_cq(cq); }
EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return fake().get_cq_event(channel, cq, cq_context);
}
EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned count) { fake().ack_cq_events(cq, count); }
EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) { return fake().create_qp(pd, attr); }
EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) { return fake().modify_qp(qp, attr, mask); }
EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return fake().query_qp(qp, attr, mask, init);
}
EXPORT int ibv_destroy_qp(ibv_qp* qp) { return fake().destroy_qp(qp); }
EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, std::uint32_t flags) {
  return fake().query_qp_data_in_order(qp, op, flags);
}
EXPORT int ibv_fork_init() {
  ++state().settings.forks_prepared;
  return 0;
}
