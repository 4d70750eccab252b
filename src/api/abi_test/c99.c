/* beeline.h as a C program sees it: a group of one, every function once. */
#include <beeline/beeline.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(condition)                                                                             \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "line %d: %s does not hold; %s\n", __LINE__, #condition, beeline_last_error()); \
      return 1;                                                                                       \
    }                                                                                                 \
  } while (0)

static void note_done(void* user, beeline_status status, const char* message) {
  *(int*)user = status == BEELINE_OK && strcmp(message, "") == 0 ? 1 : -1;
}

int main(void) {
  beeline_comm_options options;
  beeline_comm* comm = NULL;
  beeline_work* work = NULL;
  beeline_comm_stats stats;
  float in[4] = {1, 2, 3, 4}, out[4] = {0, 0, 0, 0};
  int done = 0, noted = 0;

  EXPECT(strcmp(beeline_version(), "0.1.0") == 0);
  EXPECT(beeline_dtype_bytes(BEELINE_BFLOAT16) == 2);
  EXPECT(beeline_comm_create(NULL, &comm) == BEELINE_INVALID_ARGUMENT);
  EXPECT(strlen(beeline_last_error()) > 0);

  beeline_comm_options_init(&options);
  options.rendezvous = "127.0.0.1:1"; /* a group of one needs no meeting */
  EXPECT(beeline_comm_create(&options, &comm) == BEELINE_OK);
  EXPECT(beeline_comm_rank(comm) == 0 && beeline_comm_size(comm) == 1);
  EXPECT(beeline_all_reduce(comm, in, out, 4, BEELINE_FLOAT32, BEELINE_SUM, NULL) == BEELINE_OK);
  EXPECT(memcmp(in, out, sizeof in) == 0);
  EXPECT(beeline_reduce_scatter(comm, in, out, 4, BEELINE_FLOAT32, BEELINE_MAX, NULL) == BEELINE_OK);
  EXPECT(beeline_all_gather(comm, in, out, 4, BEELINE_FLOAT32, NULL) == BEELINE_OK);
  EXPECT(beeline_broadcast(comm, in, in, 4, BEELINE_FLOAT32, 0, NULL) == BEELINE_OK);
  EXPECT(beeline_barrier(comm, &work) == BEELINE_OK);
  EXPECT(beeline_work_wait(work, 10) == BEELINE_OK);
  EXPECT(beeline_work_test(work, &done) == BEELINE_OK && done == 1);
  EXPECT(beeline_work_on_done(work, note_done, &noted) == BEELINE_OK && noted == 1);
  beeline_work_free(work);
  memset(&stats, 0, sizeof stats);
  stats.struct_bytes = sizeof stats;
  EXPECT(beeline_comm_get_stats(comm, &stats) == BEELINE_OK);
  EXPECT(stats.operations == 5);
  beeline_comm_abort(comm, "the test is over");
  beeline_comm_destroy(comm);
  beeline_comm_destroy(NULL);
  beeline_work_free(NULL);
  return 0;
}
