// Communicators and collectives of beeline.h.
#include <algorithm>
#include <cstring>

#include "api/arguments.h"
#include "api/handles.h"
#include "api/process.h"
#include "api/status.h"
#include "base/log.h"
#include "nic/describe.h"

namespace beeline::api {

Result<void> check_comm(const beeline_comm* comm) {
  if (comm == nullptr) return fail(Errc::invalid_argument, "the communicator is NULL");
  if (comm->generation != generation())
    return fail(Errc::invalid_argument,
                "this communicator belongs to the process that forked this one; create another "
                "here");
  return {};
}

namespace {

Result<void> run(beeline_comm* comm, const exec::Call& call, beeline_work** out) {
  BEELINE_TRY_VOID(check_call(call, comm->rank, comm->size));
  if (out == nullptr) return comm->executor->run(call);
  auto handle = std::make_unique<beeline_work>();
  std::shared_ptr<exec::Work> work;
  {
    const std::lock_guard lock(comm->last_mutex);
    BEELINE_TRY(work, comm->executor->submit(call));
    comm->last = work;
  }
  handle->generation = comm->generation;
  handle->work = std::move(work);
  *out = handle.release();
  return {};
}

struct Request {
  coll::Operation operation = coll::Operation::barrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  beeline_dtype dtype = BEELINE_UINT8;
  beeline_redop op = BEELINE_SUM;
  std::int32_t root = 0;
};

beeline_status collective(beeline_comm* comm, const Request& request, beeline_work** work) {
  if (work != nullptr) *work = nullptr;
  return guarded([&]() -> Result<void> {
    BEELINE_TRY_VOID(check_comm(comm));
    exec::Call call;
    call.operation = request.operation;
    call.send = request.send;
    call.receive = request.receive;
    call.count = request.count;
    call.root = Rank{request.root};
    BEELINE_TRY(call.dtype, checked_dtype(request.dtype));
    BEELINE_TRY(call.redop, checked_redop(request.op));
    return run(comm, call, work);
  });
}

// The card serves the whole process and outlives every group.
void log_end(const beeline_comm& comm) {
  const auto process = this_process();
  if (!process || (*process)->card == nullptr) return;
  logger()->debug("rank {} left its group; the process's card so far: {}", comm.rank.value,
                  nic::describe((*process)->card->counters()));
}

void destroy(beeline_comm* comm) {
  if (comm->generation != generation()) {
    // The parent's: its threads do not exist here, and its connections are closed already.
    (void)comm->executor.release();
    (void)comm->context.release();
    (void)comm->control.release();
    (void)comm->group.release();
    delete comm;
    return;
  }
  if (comm->last) (void)comm->last->wait(for_ever);  // its outcome was for whoever holds the work
  comm->executor.reset();
  strike_off(comm->group.get());
  log_end(*comm);
  delete comm;
}

}  // namespace
}  // namespace beeline::api

using beeline::api::collective;
using beeline::coll::Operation;

beeline_status beeline_all_reduce(beeline_comm* comm, const void* send, void* receive, size_t count,
                                  beeline_dtype dtype, beeline_redop op, beeline_work** work) {
  return collective(comm, {Operation::all_reduce, send, receive, count, dtype, op, 0}, work);
}

beeline_status beeline_reduce_scatter(beeline_comm* comm, const void* send, void* receive, size_t count,
                                      beeline_dtype dtype, beeline_redop op, beeline_work** work) {
  return collective(comm, {Operation::reduce_scatter, send, receive, count, dtype, op, 0}, work);
}

beeline_status beeline_all_gather(beeline_comm* comm, const void* send, void* receive, size_t count,
                                  beeline_dtype dtype, beeline_work** work) {
  return collective(comm, {Operation::all_gather, send, receive, count, dtype, BEELINE_SUM, 0}, work);
}

beeline_status beeline_broadcast(beeline_comm* comm, const void* send, void* receive, size_t count,
                                 beeline_dtype dtype, int32_t root, beeline_work** work) {
  return collective(comm, {Operation::broadcast, send, receive, count, dtype, BEELINE_SUM, root}, work);
}

beeline_status beeline_barrier(beeline_comm* comm, beeline_work** work) { return collective(comm, {}, work); }

void beeline_comm_destroy(beeline_comm* comm) {
  if (comm == nullptr) return;
  (void)beeline::api::guarded([&]() -> beeline::Result<void> {
    beeline::api::destroy(comm);
    return {};
  });
}

void beeline_comm_abort(beeline_comm* comm, const char* reason) {
  (void)beeline::api::guarded([&]() -> beeline::Result<void> {
    BEELINE_TRY_VOID(beeline::api::check_comm(comm));
    comm->executor->abort(reason != nullptr ? reason : "the caller gave no reason");
    return {};
  });
}

int32_t beeline_comm_rank(const beeline_comm* comm) { return comm == nullptr ? -1 : comm->rank.value; }

int32_t beeline_comm_size(const beeline_comm* comm) { return comm == nullptr ? 0 : comm->size; }

beeline_status beeline_comm_get_stats(const beeline_comm* comm, beeline_comm_stats* stats) {
  return beeline::api::guarded([&]() -> beeline::Result<void> {
    BEELINE_TRY_VOID(beeline::api::check_comm(comm));
    if (stats == nullptr || stats->struct_bytes < sizeof *stats)
      return beeline::fail(beeline::Errc::invalid_argument,
                           "stats is NULL, or its struct_bytes is not set to its size");
    const auto now = comm->executor->stats();
    stats->operations = now.operations;
    stats->bytes_sent = now.bytes_sent;
    stats->bytes_received = now.bytes_received;
    stats->busy_ns = static_cast<std::uint64_t>(now.busy.count());
    const std::size_t length = std::min(comm->device.size(), sizeof stats->device - 1);
    std::memcpy(stats->device, comm->device.data(), length);
    stats->device[length] = '\0';
    return {};
  });
}

size_t beeline_dtype_bytes(beeline_dtype dtype) {
  const auto checked = beeline::api::checked_dtype(dtype);
  return checked ? beeline::exec::element_bytes(*checked) : 0;
}
