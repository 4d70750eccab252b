#include <string.h>

#include "verify.h"

enum { BLANK = 0xEE };

size_t slot_bytes(size_t size) { return (2 * GUARD_BYTES + GRH_BYTES + size + 7) / 8 * 8; }

static unsigned char* slot_of(const struct round* round, int pair, int message) {
  return round->ends[pair].memory + (size_t)message * slot_bytes(round->size);
}

unsigned char* payload_of(const struct round* round, int pair, int message) {
  return slot_of(round, pair, message) + GUARD_BYTES + GRH_BYTES;
}

/* Tells its place, the message, the queue pair and the round: what is swapped or shifted shows. */
static unsigned char byte_at(const struct round* round, int pair, int message, size_t at) {
  uint32_t mixed =
      (uint32_t)at * 2654435761u + round->number * 97u + (uint32_t)pair * 31u + (uint32_t)message * 7u;
  mixed ^= mixed >> 15;
  mixed *= 2246822519u;
  return (unsigned char)(mixed >> 24);
}

void fill_slot(const struct round* round, int pair, int message) {
  blank_slot(round, pair, message);
  unsigned char* payload = payload_of(round, pair, message);
  for (size_t at = 0; at < round->size; ++at) payload[at] = byte_at(round, pair, message, at);
}

void blank_slot(const struct round* round, int pair, int message) {
  memset(slot_of(round, pair, message), BLANK, slot_bytes(round->size));
}

static void check_blank(const struct round* round, const unsigned char* from, size_t bytes,
                        const char* where) {
  for (size_t at = 0; at < bytes; ++at)
    if (from[at] != BLANK)
      die("%s of %zu bytes: byte %zu %s the message was written: 0x%02x", round->operation->name, round->size,
          at, where, from[at]);
}

bool slot_is_whole(const struct round* round, int pair, int message) {
  const unsigned char* payload = payload_of(round, pair, message);
  const size_t header = round->operation->type == IBV_QPT_UD ? 0 : GRH_BYTES; /* there the GRH is written */
  bool whole = true;
  for (size_t at = 0; at < round->size; ++at) {
    const unsigned char want = byte_at(round, pair, message, at),
                        got = ((const volatile unsigned char*)payload)[at];
    if (got == want) continue;
    if (got != BLANK)
      die("%s of %zu bytes, queue pair %d, message %d: byte %zu is 0x%02x, not 0x%02x",
          round->operation->name, round->size, pair, message, at, got, want);
    whole = false;
  }
  check_blank(round, slot_of(round, pair, message), GUARD_BYTES + header, "before");
  check_blank(round, payload + round->size, GUARD_BYTES, "behind");
  return whole;
}
