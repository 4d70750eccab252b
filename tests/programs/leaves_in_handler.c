/* Ends in a signal handler that interrupts a poll, as no program should and some do (data_test.py). */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

static void leave(int number) {
  (void)number;
  exit(0);
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list == NULL || list[0] == NULL ? NULL : ibv_open_device(list[0]);
  struct ibv_cq* queue = context == NULL ? NULL : ibv_create_cq(context, 16, NULL, NULL, 0);
  const struct itimerval soon = {{0, 0}, {0, 30000}};
  struct ibv_wc completion;
  if (queue == NULL) return 1;
  signal(SIGALRM, leave);
  setitimer(ITIMER_REAL, &soon, NULL);
  for (;;) ibv_poll_cq(queue, 1, &completion);
}
