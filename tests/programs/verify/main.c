#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "verify.h"

static const struct operation operations[] = {
    {"RC WRITE", IBV_QPT_RC, IBV_WR_RDMA_WRITE},
    {"RC WRITE with immediate", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM},
    {"RC READ", IBV_QPT_RC, IBV_WR_RDMA_READ},
    {"RC SEND", IBV_QPT_RC, IBV_WR_SEND},
    {"RC SEND with immediate", IBV_QPT_RC, IBV_WR_SEND_WITH_IMM},
    {"RC fetch and add", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD},
    {"RC compare and swap", IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP},
    {"UC WRITE", IBV_QPT_UC, IBV_WR_RDMA_WRITE},
    {"UC WRITE with immediate", IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM},
    {"UC SEND", IBV_QPT_UC, IBV_WR_SEND},
    {"UC SEND with immediate", IBV_QPT_UC, IBV_WR_SEND_WITH_IMM},
    {"UD SEND", IBV_QPT_UD, IBV_WR_SEND},
    {"UD SEND with immediate", IBV_QPT_UD, IBV_WR_SEND_WITH_IMM},
};

/* Around packets and around a megabyte; a datagram is one packet. */
static size_t size_of(const struct operation* operation, int at, size_t mtu, size_t largest) {
  const size_t sizes[] = {0, 1, mtu - 1, mtu, mtu + 1, 7 * mtu + 3, 1 << 20, (4 << 20) + 3};
  const int count = operation->type == IBV_QPT_UD ? 4 : (int)(sizeof sizes / sizeof sizes[0]);
  if (is_atomic(operation)) return at == 0 ? 8 : SIZE_MAX;
  return at < count && sizes[at] <= largest ? sizes[at] : SIZE_MAX;
}

static void connect_all(struct round* round, const struct card* card, size_t bytes) {
  struct hello mine[MAX_PAIRS], theirs[MAX_PAIRS];
  for (int pair = 0; pair < round->pairs; ++pair) {
    open_end(&round->ends[pair], card, round->operation->type, bytes);
    mine[pair] = round->ends[pair].mine;
  }
  swap(round->wire, mine, theirs, sizeof mine[0] * (size_t)round->pairs);
  for (int pair = 0; pair < round->pairs; ++pair) {
    round->ends[pair].theirs = theirs[pair];
    connect_end(&round->ends[pair], card);
  }
}

static bool play(struct round* round, const struct card* card) {
  round->messages = round->size <= SHORT_BYTES ? MESSAGES : 1;
  connect_all(round, card,
              is_atomic(round->operation) ? 4096 : (size_t)round->messages * slot_bytes(round->size));
  const bool whole = is_atomic(round->operation) ? play_atomics(round) : play_messages(round);
  for (int pair = 0; pair < round->pairs; ++pair) close_end(&round->ends[pair]);
  return whole;
}

/* Answers of atomics are in headers, not in payload. */
static void count(struct moved* moved, const struct round* round) {
  const unsigned long long bytes =
      (unsigned long long)round->size * (unsigned)(round->pairs * round->messages);
  if (is_atomic(round->operation)) return;
  if (round->client == (round->operation->opcode != IBV_WR_RDMA_READ))
    moved->out += bytes;
  else
    moved->in += bytes;
}

static void play_until_whole(struct round* round, const struct card* card, struct moved* moved) {
  for (int attempt = 1; !play(round, card); ++attempt)
    if (attempt == ATTEMPTS)
      die("%s of %zu bytes: lost %d times", round->operation->name, round->size, attempt);
  count(moved, round);
}

static enum ibv_qp_type type_named(const char* name) {
  if (strcmp(name, "rc") == 0) return IBV_QPT_RC;
  if (strcmp(name, "uc") == 0) return IBV_QPT_UC;
  if (strcmp(name, "ud") == 0) return IBV_QPT_UD;
  die("%s: which service? rc, uc or ud", name);
}

int main(int argc, char** argv) {
  const char *device = "bee0", *port = "18600", *service = "rc";
  int gid_index = 0, option;
  size_t largest = SIZE_MAX;
  struct round round = {.pairs = 3};
  while ((option = getopt(argc, argv, "d:p:g:q:c:m:")) != -1) {
    if (option == 'd') device = optarg;
    if (option == 'p') port = optarg;
    if (option == 'g') gid_index = atoi(optarg);
    if (option == 'q') round.pairs = atoi(optarg);
    if (option == 'c') service = optarg;
    if (option == 'm') largest = strtoul(optarg, NULL, 10);
    if (option == '?')
      die("usage: verify [-d DEVICE] [-g GID] [-p PORT] [-q PAIRS] [-c rc|uc|ud] [-m LARGEST] [SERVER]");
  }
  if (round.pairs < 1 || round.pairs > MAX_PAIRS) die("-q: 1 to %d queue pairs", MAX_PAIRS);
  const enum ibv_qp_type type = type_named(service);
  struct card card;
  struct moved moved = {0, 0};
  srand48(time(NULL) ^ getpid());
  open_card(&card, device, gid_index);
  round.client = optind < argc;
  round.wire = meet(round.client ? argv[optind] : NULL, port);
  for (size_t at = 0; at < sizeof operations / sizeof operations[0]; ++at) {
    round.operation = &operations[at];
    if (round.operation->type != type) continue;
    for (int which = 0; (round.size = size_of(round.operation, which, card.mtu_bytes, largest)) != SIZE_MAX;
         ++which) {
      ++round.number;
      play_until_whole(&round, &card, &moved);
      printf("%s, %zu bytes: good\n", round.operation->name, round.size);
    }
  }
  if (ibv_dealloc_pd(card.pd) != 0 || ibv_close_device(card.context) != 0) die("the device cannot be closed");
  printf("payload out %llu in %llu\n", moved.out, moved.in);
  return 0;
}
