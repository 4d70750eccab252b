#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verify.h"

static struct ibv_context* open_named(const char* name) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = NULL;
  for (struct ibv_device** each = list; each != NULL && *each != NULL; ++each)
    if (strcmp(ibv_get_device_name(*each), name) == 0) context = ibv_open_device(*each);
  if (list != NULL) ibv_free_device_list(list);
  if (context == NULL) die("no device %s", name);
  return context;
}

void open_card(struct card* card, const char* device, int gid_index) {
  struct ibv_port_attr port;
  card->context = open_named(device);
  card->pd = ibv_alloc_pd(card->context);
  card->gid_index = (uint8_t)gid_index;
  if (card->pd == NULL || ibv_query_port(card->context, 1, &port) != 0 ||
      ibv_query_gid(card->context, 1, gid_index, &card->gid) != 0)
    die("%s: %s", device, strerror(errno));
  card->mtu = port.active_mtu;
  card->mtu_bytes = (size_t)128 << port.active_mtu;
}

static void create_queue_pair(struct end* end, const struct card* card, enum ibv_qp_type type) {
  struct ibv_qp_init_attr wanted = {.send_cq = end->cq,
                                    .recv_cq = end->cq,
                                    .qp_type = type,
                                    .cap = {.max_send_wr = DEPTH,
                                            .max_recv_wr = DEPTH,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 2,
                                            .max_inline_data = 64}};
  end->qp = ibv_create_qp(card->pd, &wanted);
  if (end->qp == NULL) die("ibv_create_qp: %s", strerror(errno));
  end->max_inline = wanted.cap.max_inline_data;
}

static void modify(struct end* end, struct ibv_qp_attr* attributes, int mask) {
  int error = ibv_modify_qp(end->qp, attributes, mask | IBV_QP_STATE);
  if (error != 0) die("ibv_modify_qp to state %d: %s", attributes->qp_state, strerror(error));
}

static void initialise(struct end* end, enum ibv_qp_type type) {
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qkey = 0x11111111,
      .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
                         (type == IBV_QPT_RC ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0)};
  modify(end, &init,
         IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

void open_end(struct end* end, const struct card* card, enum ibv_qp_type type, size_t bytes) {
  const int access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  memset(end, 0, sizeof *end);
  end->bytes = (bytes + 4095) / 4096 * 4096;
  end->memory = aligned_alloc(4096, end->bytes);
  end->cq = ibv_create_cq(card->context, 2 * DEPTH, NULL, NULL, 0);
  end->mr = end->memory == NULL ? NULL : ibv_reg_mr(card->pd, end->memory, end->bytes, access);
  if (end->cq == NULL || end->mr == NULL) die("no memory region or completion queue: %s", strerror(errno));
  create_queue_pair(end, card, type);
  initialise(end, type);
  end->mine.gid = card->gid;
  end->mine.address = (uintptr_t)end->memory;
  end->mine.rkey = end->mr->rkey;
  end->mine.qpn = end->qp->qp_num;
  end->mine.psn = (uint32_t)(0xFFFFF8 + lrand48() % 16) & 0xFFFFFF; /* around the wrap */
  end->mine.mtu = card->mtu;
}

void connect_end(struct end* end, const struct card* card) {
  const enum ibv_qp_type type = end->qp->qp_type;
  struct ibv_ah_attr path = {.is_global = 1, .port_num = 1};
  path.grh.dgid = end->theirs.gid;
  path.grh.sgid_index = card->gid_index;
  path.grh.hop_limit = 64;
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = end->theirs.mtu < end->mine.mtu ? end->theirs.mtu : end->mine.mtu,
                            .dest_qp_num = end->theirs.qpn,
                            .rq_psn = end->theirs.psn,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = 12,
                            .ah_attr = path};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = end->mine.psn,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .max_rd_atomic = 4};
  const int address = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const int reliable = type == IBV_QPT_RC;
  modify(
      end, &rtr,
      (type == IBV_QPT_UD ? 0 : address) | (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
  modify(end, &rts,
         IBV_QP_SQ_PSN |
             (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
  if (type == IBV_QPT_UD && (end->ah = ibv_create_ah(card->pd, &path)) == NULL)
    die("ibv_create_ah: %s", strerror(errno));
}

void close_end(struct end* end) {
  if ((end->ah != NULL && ibv_destroy_ah(end->ah) != 0) || ibv_destroy_qp(end->qp) != 0 ||
      ibv_dereg_mr(end->mr) != 0 || ibv_destroy_cq(end->cq) != 0)
    die("an object cannot be destroyed");
  free(end->memory);
}

bool next_completion(struct end* end, struct ibv_wc* wc, long until_ms) {
  int got;
  while ((got = ibv_poll_cq(end->cq, 1, wc)) == 0)
    if (now_ms() > until_ms) return false;
  if (got < 0) die("ibv_poll_cq fails");
  if (wc->status != IBV_WC_SUCCESS) die("a completion says %s", ibv_wc_status_str(wc->status));
  if (wc->qp_num != end->qp->qp_num) die("a completion of another queue pair");
  return true;
}
