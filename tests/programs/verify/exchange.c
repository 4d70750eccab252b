#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "verify.h"

void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "verify: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(1);
}

long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int listen_and_accept(const struct addrinfo* address) {
  int listener = socket(address->ai_family, SOCK_STREAM, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, address->ai_addr, address->ai_addrlen) != 0 || listen(listener, 1) != 0)
    die("cannot listen: %s", strerror(errno));
  int wire = accept(listener, NULL, NULL);
  close(listener);
  return wire;
}

static int reach(const struct addrinfo* address) {
  int wire = socket(address->ai_family, SOCK_STREAM, 0);
  return connect(wire, address->ai_addr, address->ai_addrlen) == 0 ? wire : -1;
}

int meet(const char* server, const char* port) {
  const struct addrinfo hints = {
      .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = server == NULL ? AI_PASSIVE : 0};
  struct addrinfo* address = NULL;
  if (getaddrinfo(server, port, &hints, &address) != 0) die("no address for %s", server ? server : port);
  int wire = server == NULL ? listen_and_accept(address) : reach(address);
  freeaddrinfo(address);
  if (wire < 0) die("no connection: %s", strerror(errno));
  const struct timeval patience = {.tv_sec = 2 * PATIENCE_MS / 1000};
  setsockopt(wire, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return wire;
}

void swap(int wire, const void* mine, void* theirs, size_t bytes) {
  if (send(wire, mine, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) die("the other side is gone");
  if (recv(wire, theirs, bytes, MSG_WAITALL) != (ssize_t)bytes) die("the other side has given up");
}

void barrier(int wire) {
  char here = 'b', there = 0;
  swap(wire, &here, &there, 1);
  if (there != here) die("the two sides are out of step");
}
