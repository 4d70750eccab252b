#include "perf/latency.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "perf/work_id.h"

namespace beeline::perf {
namespace {

constexpr unsigned polls_before_yield = 256;
constexpr std::uint32_t receives_ahead = 16;

// The last byte of message `iteration` where memory is polled: never that of its predecessor.
std::byte marker(std::uint64_t iteration) { return static_cast<std::byte>(1 + iteration % 250); }

}  // namespace

LatencyRound::LatencyRound(Endpoint& end, const Round& round, bool is_server, Agreement::Arrival arrival)
    : end_(end),
      round_(round),
      is_server_(is_server),
      operation_(end.plan().test->operation),
      polls_memory_(operation_ == Operation::write && arrival == Agreement::Arrival::memory),
      signal_every_(std::clamp<std::uint32_t>(end.plan().tx_depth / 2, 1, 64)) {}

Result<void> LatencyRound::prepare() {
  Lane& lane = end_.lanes().front();
  if (polls_memory_) {
    std::atomic_ref(lane.sink[round_.size_bytes - 1]).store(std::byte{0}, std::memory_order_release);
  } else if (operation_ != Operation::read) {
    const std::uint32_t wanted = std::min(receives_ahead, end_.receive_depth());
    while (lane.receives_outstanding < wanted) BEELINE_TRY_VOID(post_receive(end_, 0, 0));
  }
  if (end_.plan().check) {
    if (operation_ == Operation::read && is_server_) fill(0);
    fill_poison(MutableBytes(lane.sink, checked_bytes()), {0, 0, !is_server_});
  }
  return {};
}

Result<void> LatencyRound::run(Channel& channel, Watch& watch) {
  if (!is_server_) return initiate(channel, watch);
  if (operation_ == Operation::read) return {};  // the card answers
  return respond(watch);
}

Result<void> LatencyRound::initiate(Channel& channel, Watch& watch) {
  const TimePoint start = monotonic_now();
  TimePoint now = start;
  while (round_.iterations > 0 ? done_ < round_.iterations : now - start < round_.duration) {
    if (end_.plan().check) fill(done_);
    const TimePoint posted_at = monotonic_now();
    BEELINE_TRY_VOID(post(done_, watch));
    BEELINE_TRY(const bool came, wait_arrival(done_, watch));
    if (!came) return fail(Errc::protocol, "{} finished before this end did", channel.peer());
    now = monotonic_now();
    histogram_.add(static_cast<std::uint64_t>((now - posted_at).count()));
    if (end_.plan().check) verify(done_);
    ++done_;
    BEELINE_TRY_VOID(watch.turn(done_));
  }
  Finished finished;
  finished.messages = done_;
  finished.elapsed_ns = (now - start).count();
  finished.per_queue_pair = {done_};
  return channel.send(encode(finished));
}

Result<void> LatencyRound::respond(Watch& watch) {
  while (round_.iterations == 0 || done_ < round_.iterations) {
    BEELINE_TRY(const bool came, wait_arrival(done_, watch));
    if (!came) break;
    if (end_.plan().check) {
      verify(done_);
      fill(done_);
    }
    BEELINE_TRY_VOID(post(done_, watch));
    ++done_;
    BEELINE_TRY_VOID(watch.turn(done_));
  }
  // What was posted last must be out before this end does anything else.
  while (completed_ + signal_every_ <= posted_) {
    BEELINE_TRY_VOID(poll());
    BEELINE_TRY_VOID(watch.turn(done_));
  }
  return {};
}

// Bytes that --check may compare: the marker is not part of the pattern.
std::uint64_t LatencyRound::checked_bytes() const { return round_.size_bytes - (polls_memory_ ? 1 : 0); }

void LatencyRound::fill(std::uint64_t iteration) {
  Lane& lane = end_.lanes().front();
  const std::uint64_t key_iteration = operation_ == Operation::read ? 0 : iteration;
  fill_pattern(MutableBytes(lane.source, checked_bytes()), {key_iteration, 0, is_server_});
  const std::uint64_t next = is_server_ ? iteration + 1 : key_iteration;
  fill_poison(MutableBytes(lane.sink, checked_bytes()), {next, 0, !is_server_});
}

void LatencyRound::verify(std::uint64_t iteration) {
  const std::uint64_t key_iteration = operation_ == Operation::read ? 0 : iteration;
  verify_message(verdict_, Bytes(end_.lanes().front().sink, checked_bytes()),
                 {key_iteration, 0, !is_server_});
}

Result<void> LatencyRound::post(std::uint64_t iteration, Watch& watch) {
  Lane& lane = end_.lanes().front();
  while (posted_ - completed_ >= end_.plan().tx_depth) {
    BEELINE_TRY_VOID(poll());
    BEELINE_TRY_VOID(watch.turn(done_));
  }
  const bool read = operation_ == Operation::read;
  if (polls_memory_) lane.source[round_.size_bytes - 1] = marker(iteration);
  ibv_sge piece{reinterpret_cast<std::uint64_t>(read ? lane.sink : lane.source),
                static_cast<std::uint32_t>(round_.size_bytes), end_.lkey()};
  const std::uint64_t next = posted_ + 1;
  ibv_send_wr wr{};
  wr.wr_id = WorkId{false, 0, next}.pack();
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = wr_opcode(operation_);
  if (wr.opcode == IBV_WR_RDMA_WRITE && !polls_memory_) wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  if (read || next % signal_every_ == 0) wr.send_flags |= IBV_SEND_SIGNALED;
  if (!read && round_.size_bytes <= end_.inline_bytes()) wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = read ? lane.peer.source : lane.peer.sink;
  wr.wr.rdma.rkey = lane.peer.rkey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(lane.qp.get(), &wr, &bad); error != 0)
    return fail_errno(error, fmt::format("posting {} {}", name_of(operation_), next));
  posted_ = next;
  return {};
}

bool LatencyRound::arrived(std::uint64_t iteration) const {
  if (operation_ == Operation::read) return completed_ > iteration;
  if (!polls_memory_) return received_ > iteration;
  std::byte& last = end_.lanes().front().sink[round_.size_bytes - 1];
  return std::atomic_ref(last).load(std::memory_order_acquire) == marker(iteration);
}

Result<bool> LatencyRound::wait_arrival(std::uint64_t iteration, Watch& watch) {
  for (unsigned polls = 0; !arrived(iteration); ++polls) {
    BEELINE_TRY_VOID(poll());  // errors come this way too, and polling drives a card in software
    if (arrived(iteration)) break;
    BEELINE_TRY_VOID(watch.turn(done_));
    if (watch.finished() && watch.finished()->messages <= iteration) return false;
    if (polls > polls_before_yield) std::this_thread::yield();
  }
  // A byte in memory orders nothing but itself; the card does.
  if (polls_memory_) BEELINE_TRY_VOID(poll());
  return true;
}

Result<void> LatencyRound::poll() {
  std::array<ibv_wc, 4> completions;
  const int got = ibv_poll_cq(end_.cq(), static_cast<int>(completions.size()), completions.data());
  if (got < 0) return fail(Errc::internal, "the completion queue of {} overran", end_.device().name);
  for (int i = 0; i < got; ++i) {
    const ibv_wc& wc = completions[static_cast<std::size_t>(i)];
    const WorkId id = WorkId::unpack(wc.wr_id);
    if (wc.status != IBV_WC_SUCCESS)
      return tl::unexpected(end_.failed(0, id.receive ? "a receive" : name_of(operation_), wc.status));
    if (!id.receive) {
      completed_ = id.count;
      continue;
    }
    if (wc.byte_len != round_.size_bytes)
      return fail(Errc::protocol, "a message of {} bytes arrived as {}", round_.size_bytes, wc.byte_len);
    ++received_;
    --end_.lanes().front().receives_outstanding;
    BEELINE_TRY_VOID(post_receive(end_, 0, 0));
  }
  return {};
}

}  // namespace beeline::perf
