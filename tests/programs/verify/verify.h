/* A program of nobody's in particular: stock verbs, no header of Beeline. Client and server move messages of
 * many sizes over several queue pairs, with every operation of one service, and look at every byte, also at
 * those around. Each round (operation, size) has queue pairs of its own, so nothing late reaches the next. */
#ifndef VERIFY_H
#define VERIFY_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  MAX_PAIRS = 16,
  MESSAGES = 4, /* of a queue pair at once, unless they are large */
  SHORT_BYTES = 8192,
  GRH_BYTES = 40,
  GUARD_BYTES = 64,
  DEPTH = 64,
  PATIENCE_MS = 60000,  /* for what must come */
  LOSS_AFTER_MS = 3000, /* for what may be lost */
  ATTEMPTS = 20
};

struct card {
  struct ibv_context* context;
  struct ibv_pd* pd;
  union ibv_gid gid;
  uint8_t gid_index;
  enum ibv_mtu mtu;
  size_t mtu_bytes;
};

/* What the other side has to know of an end. */
struct hello {
  union ibv_gid gid;
  uint64_t address;
  uint32_t rkey, qpn, psn, mtu;
};

/* One queue pair with its memory: slots of [guard][GRH][payload][guard]. */
struct end {
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  struct ibv_ah* ah; /* UD */
  unsigned char* memory;
  size_t bytes;
  uint32_t max_inline;
  struct hello mine, theirs;
};

struct operation {
  const char* name;
  enum ibv_qp_type type;
  enum ibv_wr_opcode opcode;
};

struct round {
  const struct operation* operation;
  size_t size;
  uint32_t number; /* seeds the pattern */
  int pairs, messages;
  bool client;
  int wire; /* the TCP connection beside the card */
  struct end ends[MAX_PAIRS];
};

struct moved {
  unsigned long long out, in; /* payload bytes */
};

_Noreturn void die(const char* format, ...) __attribute__((format(printf, 1, 2)));
long now_ms(void);

/* exchange.c: a TCP connection, and both sides' bytes across it. */
int meet(const char* server, const char* port);
void swap(int wire, const void* mine, void* theirs, size_t bytes);
void barrier(int wire);

/* ends.c */
void open_card(struct card* card, const char* device, int gid_index);
void open_end(struct end* end, const struct card* card, enum ibv_qp_type type, size_t bytes);
void connect_end(struct end* end, const struct card* card);
void close_end(struct end* end);
bool next_completion(struct end* end, struct ibv_wc* wc, long until_ms);

/* pattern.c */
size_t slot_bytes(size_t size);
unsigned char* payload_of(const struct round* round, int pair, int message);
void fill_slot(const struct round* round, int pair, int message);
void blank_slot(const struct round* round, int pair, int message);
/* False while bytes are missing that may still come; whatever else is wrong ends the program. */
bool slot_is_whole(const struct round* round, int pair, int message);

/* messages.c: SEND, WRITE and READ. atomics.c: the others. Both: false when something was lost. */
bool play_messages(struct round* round);
bool play_atomics(struct round* round);

static inline bool is_atomic(const struct operation* operation) {
  return operation->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
static inline bool is_reliable(const struct operation* operation) { return operation->type == IBV_QPT_RC; }

#endif
