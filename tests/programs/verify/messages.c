#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#include "verify.h"

static bool takes_receive(enum ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static bool has_immediate(enum ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static bool writes(enum ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static uint32_t immediate_of(const struct round* round, int pair, int message) {
  return round->number << 16 | (uint32_t)pair << 8 | (uint32_t)message;
}

/* The payload in two unequal pieces; `before` bytes in front belong to the first. */
static void two_pieces(const struct round* round, int pair, int message, size_t before,
                       struct ibv_sge pieces[2]) {
  const uintptr_t start = (uintptr_t)payload_of(round, pair, message);
  const uint32_t first = (uint32_t)(round->size / 3), lkey = round->ends[pair].mr->lkey;
  pieces[0] = (struct ibv_sge){start - before, (uint32_t)before + first, lkey};
  pieces[1] = (struct ibv_sge){start + first, (uint32_t)round->size - first, lkey};
}

static void post_receive(struct round* round, int pair, int message) {
  struct ibv_sge pieces[2];
  struct ibv_recv_wr request = {.wr_id = (uint64_t)message, .sg_list = pieces, .num_sge = 2}, *bad;
  two_pieces(round, pair, message, round->operation->type == IBV_QPT_UD ? GRH_BYTES : 0, pieces);
  if (writes(round->operation->opcode)) request.num_sge = 0; /* the data goes elsewhere */
  if (ibv_post_recv(round->ends[pair].qp, &request, &bad) != 0) die("ibv_post_recv refuses");
}

static void post_send(struct round* round, int pair, int message) {
  struct end* end = &round->ends[pair];
  const enum ibv_wr_opcode opcode = round->operation->opcode;
  struct ibv_sge pieces[2];
  struct ibv_send_wr request = {.wr_id = (uint64_t)message,
                                .sg_list = pieces,
                                .num_sge = round->size == 0 ? 0 : 2,
                                .opcode = opcode,
                                .send_flags = IBV_SEND_SIGNALED,
                                .imm_data = htonl(immediate_of(round, pair, message))},
                     *bad;
  two_pieces(round, pair, message, 0, pieces);
  if (opcode != IBV_WR_RDMA_READ && round->size <= end->max_inline && message % 2 == 1)
    request.send_flags |= IBV_SEND_INLINE;
  if (round->operation->type == IBV_QPT_UD) {
    request.wr.ud.ah = end->ah;
    request.wr.ud.remote_qpn = end->theirs.qpn;
    request.wr.ud.remote_qkey = 0x11111111;
  } else {
    request.wr.rdma.remote_addr =
        end->theirs.address + (uint64_t)(payload_of(round, pair, message) - end->memory);
    request.wr.rdma.rkey = end->theirs.rkey;
  }
  if (ibv_post_send(end->qp, &request, &bad) != 0) die("ibv_post_send refuses");
  if (request.send_flags & IBV_SEND_INLINE) /* what was copied may change */
    memset(payload_of(round, pair, message), 0, round->size);
}

static enum ibv_wc_opcode completes_as(enum ibv_wr_opcode opcode) {
  if (opcode == IBV_WR_RDMA_READ) return IBV_WC_RDMA_READ;
  return writes(opcode) ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
}

static void await_sends(struct round* round, int pair) {
  struct ibv_wc wc;
  for (int message = 0; message < round->messages; ++message) {
    if (!next_completion(&round->ends[pair], &wc, now_ms() + PATIENCE_MS)) die("a request does not complete");
    if (wc.wr_id != (uint64_t)message || wc.opcode != completes_as(round->operation->opcode))
      die("request %d completes as %d, opcode %d", message, (int)wc.wr_id, wc.opcode);
  }
}

/* What a receive's completion says: the length, the immediate, where a datagram came from. */
static void check_receive(const struct round* round, int pair, int message, const struct ibv_wc* wc) {
  const enum ibv_wr_opcode opcode = round->operation->opcode;
  const bool datagram = round->operation->type == IBV_QPT_UD;
  if (wc->opcode != (writes(opcode) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
    die("a receive's opcode is %d", wc->opcode);
  if (wc->byte_len != round->size + (datagram ? GRH_BYTES : 0))
    die("byte_len is %u for %zu bytes", wc->byte_len, round->size);
  if (!(wc->wc_flags & IBV_WC_WITH_IMM) != !has_immediate(opcode))
    die("immediate: flags are %x", wc->wc_flags);
  if (has_immediate(opcode) && ntohl(wc->imm_data) != immediate_of(round, pair, message))
    die("the immediate is %08x, not %08x", ntohl(wc->imm_data), immediate_of(round, pair, message));
  if (datagram && (!(wc->wc_flags & IBV_WC_GRH) || wc->src_qp != round->ends[pair].theirs.qpn))
    die("a datagram of queue pair %06x, flags %x", wc->src_qp, wc->wc_flags);
}

/* A lost message leaves its receive to the next one, so nothing is looked at before all are there. */
static bool await_receives(struct round* round, int pair, long until_ms) {
  struct ibv_wc wc[MESSAGES];
  for (int message = 0; message < round->messages; ++message)
    if (!next_completion(&round->ends[pair], &wc[message], until_ms)) {
      if (is_reliable(round->operation)) die("%s: a message does not come", round->operation->name);
      return false;
    }
  for (int message = 0; message < round->messages; ++message) {
    if (wc[message].wr_id != (uint64_t)message)
      die("receive %d completes as %d", message, (int)wc[message].wr_id);
    check_receive(round, pair, message, &wc[message]);
  }
  return true;
}

static bool await_memory(struct round* round, int pair, long until_ms) {
  for (int message = 0; message < round->messages; ++message)
    while (!slot_is_whole(round, pair, message)) {
      if (is_reliable(round->operation) || now_ms() > until_ms) return false;
      usleep(1000);
    }
  return true;
}

static bool receive_all(struct round* round) {
  const enum ibv_wr_opcode opcode = round->operation->opcode;
  const long until_ms = now_ms() + (is_reliable(round->operation) ? PATIENCE_MS : LOSS_AFTER_MS);
  for (int pair = 0; pair < round->pairs; ++pair) {
    if (takes_receive(opcode) && !await_receives(round, pair, until_ms)) return false;
    if (!await_memory(round, pair, until_ms)) {
      if (is_reliable(round->operation))
        die("%s of %zu bytes: bytes are missing", round->operation->name, round->size);
      return false;
    }
  }
  return true;
}

static void prepare(struct round* round) {
  const bool source = round->client == (round->operation->opcode != IBV_WR_RDMA_READ);
  for (int pair = 0; pair < round->pairs; ++pair)
    for (int message = 0; message < round->messages; ++message) {
      if (source)
        fill_slot(round, pair, message);
      else
        blank_slot(round, pair, message);
      if (!round->client && takes_receive(round->operation->opcode)) post_receive(round, pair, message);
    }
}

static void move(struct round* round) {
  for (int message = 0; message < round->messages; ++message)
    for (int pair = 0; pair < round->pairs; ++pair) post_send(round, pair, message);
  for (int pair = 0; pair < round->pairs; ++pair) await_sends(round, pair);
}

bool play_messages(struct round* round) {
  char mine = 1, theirs = 0;
  const bool receiver = round->client == (round->operation->opcode == IBV_WR_RDMA_READ);
  prepare(round);
  barrier(round->wire);
  if (round->client) move(round);
  barrier(round->wire);
  if (receiver) mine = (char)receive_all(round);
  swap(round->wire, &mine, &theirs, 1);
  return mine && theirs;
}
