#include <stdlib.h>

#include "verify.h"

/* Fetch-and-add: all queue pairs add to one word, and what they get back is every value on the way, once.
 * Compare-and-swap: each has a word of its own and climbs it, with a wrong guess in between. */
enum { START = 1000, STEP = 3, REQUESTS = 16 };

static bool is_add(const struct round* round) {
  return round->operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
static uint64_t* words(const struct round* round, int pair) { return (uint64_t*)round->ends[pair].memory; }
static bool is_wrong_guess(int request) { return request % 4 == 3; }

static void post(struct round* round, int pair, int request, uint64_t expected) {
  struct end* end = &round->ends[pair];
  const struct end* target = is_add(round) ? &round->ends[0] : end;
  struct ibv_sge result = {(uintptr_t)&words(round, pair)[1 + request], 8, end->mr->lkey};
  struct ibv_send_wr wr = {.wr_id = (uint64_t)request,
                           .sg_list = &result,
                           .num_sge = 1,
                           .opcode = round->operation->opcode,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  wr.wr.atomic.remote_addr = target->theirs.address;
  wr.wr.atomic.rkey = target->theirs.rkey;
  wr.wr.atomic.compare_add = is_add(round) ? STEP : expected + (is_wrong_guess(request) ? 1 : 0);
  wr.wr.atomic.swap = expected * 0x9E3779B97F4A7C15u + 1;
  if (ibv_post_send(end->qp, &wr, &bad) != 0) die("ibv_post_send refuses an atomic");
}

/* What the word holds after so many requests. */
static uint64_t climbed(int requests) {
  uint64_t value = START;
  for (int request = 0; request < requests; ++request)
    if (!is_wrong_guess(request)) value = value * 0x9E3779B97F4A7C15u + 1;
  return value;
}

static void await(struct round* round, int pair) {
  const enum ibv_wc_opcode opcode = is_add(round) ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP;
  struct ibv_wc wc;
  for (int request = 0; request < REQUESTS; ++request) {
    if (!next_completion(&round->ends[pair], &wc, now_ms() + PATIENCE_MS)) die("an atomic does not complete");
    if (wc.wr_id != (uint64_t)request || wc.opcode != opcode || wc.byte_len != 8)
      die("atomic %d completes as %d, opcode %d, %u bytes", request, (int)wc.wr_id, wc.opcode, wc.byte_len);
  }
}

static int ascending(const void* a, const void* b) {
  const uint64_t left = *(const uint64_t*)a, right = *(const uint64_t*)b;
  return (left > right) - (left < right);
}

static void check_added(const struct round* round) {
  uint64_t all[MAX_PAIRS * REQUESTS];
  const int count = round->pairs * REQUESTS;
  for (int at = 0; at < count; ++at) all[at] = words(round, at / REQUESTS)[1 + at % REQUESTS];
  qsort(all, (size_t)count, sizeof all[0], ascending);
  for (int at = 0; at < count; ++at)
    if (all[at] != (uint64_t)(START + STEP * at)) die("fetched %d is %llu", at, (unsigned long long)all[at]);
}

static void check_swapped(const struct round* round) {
  for (int pair = 0; pair < round->pairs; ++pair)
    for (int request = 0; request < REQUESTS; ++request)
      if (words(round, pair)[1 + request] != climbed(request)) die("swap %d returned another value", request);
}

static void check_words(const struct round* round) {
  for (int pair = 0; pair < round->pairs; ++pair) {
    uint64_t want = is_add(round) ? START + (pair == 0 ? (uint64_t)(STEP * round->pairs * REQUESTS) : 0)
                                  : climbed(REQUESTS);
    if (words(round, pair)[0] != want) die("the word of queue pair %d holds another value", pair);
    if (words(round, pair)[1] != 0) die("something was written behind the word");
  }
}

bool play_atomics(struct round* round) {
  for (int pair = 0; pair < round->pairs; ++pair)
    for (int at = 0; at < 1 + REQUESTS; ++at) words(round, pair)[at] = at == 0 ? START : 0;
  barrier(round->wire);
  if (round->client) {
    for (int request = 0; request < REQUESTS; ++request)
      for (int pair = 0; pair < round->pairs; ++pair) post(round, pair, request, climbed(request));
    for (int pair = 0; pair < round->pairs; ++pair) await(round, pair);
    if (is_add(round))
      check_added(round);
    else
      check_swapped(round);
  }
  barrier(round->wire);
  if (!round->client) check_words(round);
  barrier(round->wire);
  return true;
}
