// Exported verbs: domains, memory, completion queues, shared receive queues and queue pairs.
#include "preload/export.h"
#include "preload/verbs/route.h"

using beeline::verbs::FullProvider;
using Real = beeline::preload::RealFunctions;
using namespace beeline::preload;

extern "C" {

BEELINE_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return route<&FullProvider::alloc_pd, &Real::ibv_alloc_pd>(context);
}
BEELINE_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return route<&FullProvider::dealloc_pd, &Real::ibv_dealloc_pd>(pd);
}

// Memory. Flags of the optional range may be dropped, and are (ibv_reg_mr(3)).

BEELINE_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  return route<&FullProvider::reg_mr, &Real::ibv_reg_mr>(pd, address, bytes, access);
}
BEELINE_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                       int access) {
  if (auto* provider = owner_of(pd))
    return provider->reg_mr_iova(pd, address, bytes, iova, static_cast<unsigned>(access));
  return only_real<&Real::ibv_reg_mr_iova>(pd, address, bytes, iova, access);
}
BEELINE_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                        unsigned access) {
  return route<&FullProvider::reg_mr_iova, &Real::ibv_reg_mr_iova2>(pd, address, bytes, iova, access);
}
BEELINE_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t bytes,
                                int access) {
  if (owner_of(mr) == nullptr && !is_real(mr)) return errno = EINVAL, IBV_REREG_MR_ERR_INPUT;
  return route<&FullProvider::rereg_mr, &Real::ibv_rereg_mr>(mr, flags, pd, address, bytes, access);
}
BEELINE_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return route<&FullProvider::dereg_mr, &Real::ibv_dereg_mr>(mr);
}
BEELINE_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                                         std::uint64_t iova, int fd, int access) {
  return only_real<&Real::ibv_reg_dmabuf_mr>(pd, offset, bytes, iova, fd, access);
}

// Completion queues.

BEELINE_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return route<&FullProvider::create_comp_channel, &Real::ibv_create_comp_channel>(context);
}
BEELINE_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return route<&FullProvider::destroy_comp_channel, &Real::ibv_destroy_comp_channel>(channel);
}
BEELINE_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                     ibv_comp_channel* channel, int vector) {
  return route<&FullProvider::create_cq, &Real::ibv_create_cq>(context, cqe, cq_context, channel, vector);
}
BEELINE_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return route<&FullProvider::resize_cq, &Real::ibv_resize_cq>(cq, cqe);
}
BEELINE_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return route<&FullProvider::destroy_cq, &Real::ibv_destroy_cq>(cq);
}
BEELINE_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return route<&FullProvider::get_cq_event, &Real::ibv_get_cq_event, Refusal::minus_one>(channel, cq,
                                                                                         cq_context);
}
BEELINE_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  route<&FullProvider::ack_cq_events, &Real::ibv_ack_cq_events>(cq, count);
}

// Shared receive queues.

BEELINE_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return route<&FullProvider::create_srq, &Real::ibv_create_srq>(pd, attr);
}
BEELINE_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return route<&FullProvider::modify_srq, &Real::ibv_modify_srq>(srq, attr, mask);
}
BEELINE_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return route<&FullProvider::query_srq, &Real::ibv_query_srq>(srq, attr);
}
BEELINE_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return route<&FullProvider::destroy_srq, &Real::ibv_destroy_srq>(srq);
}

// Queue pairs.

BEELINE_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return route<&FullProvider::create_qp, &Real::ibv_create_qp>(pd, attr);
}
BEELINE_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return route<&FullProvider::modify_qp, &Real::ibv_modify_qp>(qp, attr, mask);
}
BEELINE_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return route<&FullProvider::query_qp, &Real::ibv_query_qp>(qp, attr, mask, init);
}
BEELINE_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return route<&FullProvider::destroy_qp, &Real::ibv_destroy_qp>(qp);
}
// 1 or 0: there is no error to report.
BEELINE_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, std::uint32_t flags) {
  if (owner_of(qp) == nullptr && (!is_real(qp) || real_functions().ibv_query_qp_data_in_order == nullptr))
    return 0;
  return route<&FullProvider::query_qp_data_in_order, &Real::ibv_query_qp_data_in_order>(qp, op, flags);
}
BEELINE_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return route<&FullProvider::qp_to_qp_ex, &Real::ibv_qp_to_qp_ex>(qp);
}

// What the card does not offer.

BEELINE_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return only_real<&Real::ibv_query_ece>(qp, ece);
}
BEELINE_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) { return only_real<&Real::ibv_set_ece>(qp, ece); }
BEELINE_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return only_real<&Real::ibv_attach_mcast>(qp, gid, lid);
}
BEELINE_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return only_real<&Real::ibv_detach_mcast>(qp, gid, lid);
}
BEELINE_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  return only_real<&Real::ibv_import_pd>(context, handle);
}
BEELINE_EXPORT void ibv_unimport_pd(ibv_pd* pd) { only_real<&Real::ibv_unimport_pd>(pd); }
BEELINE_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  return only_real<&Real::ibv_import_mr>(pd, handle);
}
BEELINE_EXPORT void ibv_unimport_mr(ibv_mr* mr) { only_real<&Real::ibv_unimport_mr>(mr); }
BEELINE_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
  return only_real<&Real::ibv_import_dm>(context, handle);
}
BEELINE_EXPORT void ibv_unimport_dm(ibv_dm* dm) { only_real<&Real::ibv_unimport_dm>(dm); }

}  // extern "C"
