/* Beeline's public API in C: the only stable ABI. The C++ header over it is beeline.hpp.
 *
 * A communicator is a group of processes (ranks 0 … size-1) that call the same
 * collectives in the same order. Calls that differ between ranks (operation, count,
 * dtype, reduce operation, root, order) are an error on every rank that names both calls.
 *
 * Every function returns BEELINE_OK or an error; beeline_last_error() then says, for the
 * calling thread, what happened, where, and what to do. After the first error of a
 * communicator every later call on it fails with the same cause; no memory of the
 * caller is touched any more once an error has been returned.
 *
 * Thread-safety: a communicator may be used from several threads, but the order of calls
 * is then the caller's business. A work object may be tested and waited for from any thread.
 */
#ifndef BEELINE_BEELINE_H
#define BEELINE_BEELINE_H

#include <stddef.h>
#include <stdint.h>

#if defined(BEELINE_BUILDING)
#define BEELINE_API __attribute__((visibility("default")))
#else
#define BEELINE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BEELINE_VERSION_MAJOR 0
#define BEELINE_VERSION_MINOR 1

typedef enum beeline_status {
  BEELINE_OK = 0,
  BEELINE_INVALID_ARGUMENT = 1,
  BEELINE_NOT_FOUND = 2,     /* no such device, host, … */
  BEELINE_IN_USE = 3,
  BEELINE_PERMISSION = 4,
  BEELINE_IO = 5,
  BEELINE_PROTOCOL = 6,      /* a peer spoke nonsense */
  BEELINE_MISMATCH = 7,      /* ranks called different operations */
  BEELINE_TIMED_OUT = 8,
  BEELINE_PEER_LOST = 9,     /* a rank's process or connection is gone */
  BEELINE_ABORTED = 10,
  BEELINE_UNSUPPORTED = 11,
  BEELINE_RESOURCE_EXHAUSTED = 12,
  BEELINE_INTERNAL = 13
} beeline_status;

typedef enum beeline_dtype {
  BEELINE_FLOAT32 = 0,
  BEELINE_BFLOAT16 = 1,
  BEELINE_INT32 = 2,
  BEELINE_INT64 = 3,
  BEELINE_UINT8 = 4
} beeline_dtype;

/* AVG is the sum divided by the group's size; integers round toward zero. */
typedef enum beeline_redop { BEELINE_SUM = 0, BEELINE_MAX = 1, BEELINE_AVG = 2 } beeline_redop;

typedef struct beeline_comm beeline_comm;
typedef struct beeline_work beeline_work;

/* What went wrong in this thread's last failed call; never NULL. Valid until its next call. */
BEELINE_API const char* beeline_last_error(void);
BEELINE_API const char* beeline_version(void);
/* Bytes of one element; 0 for a value that is no dtype. */
BEELINE_API size_t beeline_dtype_bytes(beeline_dtype dtype);

/* A key-value store that all ranks share, if the caller has one (PyTorch's c10d store).
 * set and get return 0 on success. get blocks until the key is there or timeout_ms passed;
 * it writes at most `capacity` bytes to `out` and the value's size to *bytes. Called only
 * during beeline_comm_create, from the calling thread. */
typedef struct beeline_store {
  void* user;
  int (*set)(void* user, const char* key, const void* value, size_t bytes);
  int (*get)(void* user, const char* key, void* out, size_t capacity, size_t* bytes, uint64_t timeout_ms);
} beeline_store;

/* How a group meets. Initialise with beeline_comm_options_init.
 * With `store` set, through the store; else with `rendezvous` "host:port", where rank 0
 * listens; else by the environment that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), `rank` and `size` then being ignored. */
typedef struct beeline_comm_options {
  uint32_t struct_bytes;        /* sizeof(beeline_comm_options), for later versions */
  int32_t rank;
  int32_t size;
  const char* rendezvous;
  const beeline_store* store;
  const char* name;             /* of the group, for messages and store keys; NULL: "default" */
  const char* device;           /* NULL: BEELINE_DEVICE, or the first usable one */
  double timeout_seconds;       /* of every operation; 0: BEELINE_TIMEOUT, or 30 minutes */
  double connect_timeout_seconds; /* of the creation itself; 0: 60 s */
} beeline_comm_options;

BEELINE_API void beeline_comm_options_init(beeline_comm_options* options);
/* Blocks until all ranks are connected. */
BEELINE_API beeline_status beeline_comm_create(const beeline_comm_options* options, beeline_comm** comm);
/* Waits for operations under way (errors end them), then frees. NULL is fine. */
BEELINE_API void beeline_comm_destroy(beeline_comm* comm);
/* Ends everything under way, here and on all other ranks, with BEELINE_ABORTED and this reason. */
BEELINE_API void beeline_comm_abort(beeline_comm* comm, const char* reason);
BEELINE_API int32_t beeline_comm_rank(const beeline_comm* comm);
BEELINE_API int32_t beeline_comm_size(const beeline_comm* comm);

typedef struct beeline_comm_stats {
  uint32_t struct_bytes;
  uint64_t operations;           /* completed */
  uint64_t bytes_sent;           /* payload handed to the card */
  uint64_t bytes_received;
  uint64_t busy_ns;              /* time during which at least one operation was under way */
  char device[32];
} beeline_comm_stats;
BEELINE_API beeline_status beeline_comm_get_stats(const beeline_comm* comm, beeline_comm_stats* stats);

/* Collectives. Buffers must not overlap except send == receive (in place; for
 * reduce_scatter send + rank * count == receive, for all_gather receive + rank * count == send).
 * `work` NULL: blocks until done. Else *work is a handle to wait for, and to free; the
 * buffers belong to Beeline until it is complete. Operations run in the order of the calls. */
BEELINE_API beeline_status beeline_all_reduce(beeline_comm* comm, const void* send, void* receive, size_t count,
                                              beeline_dtype dtype, beeline_redop op, beeline_work** work);
/* Block r of size `count` of the reduced vector of size*count elements goes to rank r. */
BEELINE_API beeline_status beeline_reduce_scatter(beeline_comm* comm, const void* send, void* receive, size_t count,
                                                  beeline_dtype dtype, beeline_redop op, beeline_work** work);
/* `receive` has room for size*count elements. */
BEELINE_API beeline_status beeline_all_gather(beeline_comm* comm, const void* send, void* receive, size_t count,
                                              beeline_dtype dtype, beeline_work** work);
/* `send` is read on the root only. */
BEELINE_API beeline_status beeline_broadcast(beeline_comm* comm, const void* send, void* receive, size_t count,
                                             beeline_dtype dtype, int32_t root, beeline_work** work);
BEELINE_API beeline_status beeline_barrier(beeline_comm* comm, beeline_work** work);

/* *done becomes 1 when the work is complete, in success or error; the status is its outcome then. */
BEELINE_API beeline_status beeline_work_test(beeline_work* work, int* done);
/* timeout_seconds <= 0: as long as the operation may take. BEELINE_TIMED_OUT leaves the work running. */
BEELINE_API beeline_status beeline_work_wait(beeline_work* work, double timeout_seconds);
/* Calls `done` exactly once when the work is complete: from a thread that waits for any work of the
 * communicator, or that makes a blocking call on it, from the progress thread, or at once if the work is
 * complete already. `message` is the error's text, or "" on success; it must not block. One per work. */
typedef void (*beeline_done_fn)(void* user, beeline_status status, const char* message);
BEELINE_API beeline_status beeline_work_on_done(beeline_work* work, beeline_done_fn done, void* user);
/* Frees the handle, not the operation, which runs on. NULL is fine. */
BEELINE_API void beeline_work_free(beeline_work* work);

#ifdef __cplusplus
}
#endif
#endif
