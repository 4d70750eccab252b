#include "perf/bandwidth.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "perf/work_id.h"

namespace beeline::perf {
namespace {

constexpr std::uint64_t endless = UINT64_MAX;
constexpr std::uint32_t max_signal_interval = 100;  // as perftest's --cq-mod
constexpr unsigned polls_before_yield = 32;

}  // namespace

BandwidthRound::BandwidthRound(Endpoint& end, const Round& round, bool sends, bool receives)
    : end_(end),
      round_(round),
      sends_(sends),
      receives_(receives),
      slots_(end.plan().slots()),
      signal_every_(std::clamp<std::uint32_t>(end.plan().tx_depth / 2, 1, max_signal_interval)),
      lanes_(end.lanes().size()) {
  for (Progress& lane : lanes_) lane.target = !sends ? 0 : round.iterations > 0 ? round.iterations : endless;
}

Result<void> BandwidthRound::prepare() {
  if (!receives_) return {};
  for (std::size_t i = 0; i < lanes_.size(); ++i) BEELINE_TRY_VOID(post_receives(i));
  return {};
}

Result<void> BandwidthRound::run(Channel& channel, Watch& watch) {
  const TimePoint start = monotonic_now();
  TimePoint now = start;
  PeakMeter meter(start.ns);
  bool told = false;
  unsigned idle = 0;
  while (!told || !all_received(watch)) {
    BEELINE_TRY_VOID(send_some());
    const std::uint64_t before = total_completed_ + total_received_;
    BEELINE_TRY_VOID(poll());
    BEELINE_TRY_VOID(watch.turn(total_completed_ + total_received_));
    const bool moved = total_completed_ + total_received_ != before;
    now = monotonic_now();
    if (moved) meter.add(now.ns, total_completed_ * round_.size_bytes);
    if (round_.iterations == 0 && now - start >= round_.duration) end_of_time();
    if (!told && all_sent()) {
      told = true;
      finished_.elapsed_ns = (now - start).count();
      finished_.messages = total_completed_;
      for (const Progress& lane : lanes_) finished_.per_queue_pair.push_back(lane.posted);
      BEELINE_TRY_VOID(channel.send(encode(finished_)));
    }
    idle = moved ? 0 : idle + 1;
    if (idle > polls_before_yield) std::this_thread::yield();
  }
  peak_ = meter.peak_bytes_per_s(0);
  return {};
}

// Nothing new is started. Completions are asked for now and then only, so a last message
// without one gets a successor that has one.
void BandwidthRound::end_of_time() {
  for (Progress& lane : lanes_)
    if (lane.target == endless) lane.target = lane.last_signaled ? lane.posted : lane.posted + 1;
}

bool BandwidthRound::all_sent() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Progress& lane) { return lane.completed == lane.target; });
}

bool BandwidthRound::all_received(const Watch& watch) const {
  if (!receives_) return true;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    std::uint64_t expected = round_.iterations;
    if (expected == 0) {
      // Only the peer knows how many there were.
      if (!watch.finished() || watch.finished()->per_queue_pair.size() != lanes_.size()) return false;
      expected = watch.finished()->per_queue_pair[i];
    }
    if (lanes_[i].received < expected) return false;
  }
  return true;
}

Result<void> BandwidthRound::send_some() {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Progress& lane = lanes_[i];
    while (lane.posted < lane.target && lane.posted - lane.completed < end_.plan().tx_depth)
      BEELINE_TRY_VOID(post(i));
  }
  return {};
}

Result<void> BandwidthRound::post(std::size_t index) {
  Progress& progress = lanes_[index];
  Lane& lane = end_.lanes()[index];
  const Operation operation = end_.plan().test->operation;
  const std::uint64_t offset = (progress.posted % slots_) * end_.plan().size_bytes;
  std::byte* local = (operation == Operation::read ? lane.sink : lane.source) + offset;
  ibv_sge piece{reinterpret_cast<std::uint64_t>(local), static_cast<std::uint32_t>(round_.size_bytes),
                end_.lkey()};

  const std::uint64_t next = progress.posted + 1;
  progress.last_signaled = next % signal_every_ == 0 || next == progress.target ||
                           next - progress.completed == end_.plan().tx_depth;
  ibv_send_wr wr{};
  wr.wr_id = WorkId{false, index, next}.pack();
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = wr_opcode(operation);
  wr.send_flags = progress.last_signaled ? unsigned{IBV_SEND_SIGNALED} : 0u;
  wr.wr.rdma.remote_addr = (operation == Operation::read ? lane.peer.source : lane.peer.sink) + offset;
  wr.wr.rdma.rkey = lane.peer.rkey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(lane.qp.get(), &wr, &bad); error != 0)
    return fail_errno(error, fmt::format("posting {} {} on queue pair {}", name_of(operation), next, index));
  progress.posted = next;
  return {};
}

Result<void> BandwidthRound::post_receives(std::size_t index) {
  Lane& lane = end_.lanes()[index];
  const Progress& progress = lanes_[index];
  while (lane.receives_outstanding < end_.receive_depth()) {
    const std::uint64_t number = progress.received + lane.receives_outstanding;
    if (round_.iterations != 0 && number >= round_.iterations) break;
    const std::uint64_t offset = (number % slots_) * end_.plan().size_bytes;
    BEELINE_TRY_VOID(post_receive(end_, index, offset));
  }
  return {};
}

Result<void> BandwidthRound::poll() {
  std::array<ibv_wc, 16> completions;
  const int got = ibv_poll_cq(end_.cq(), static_cast<int>(completions.size()), completions.data());
  if (got < 0) return fail(Errc::internal, "the completion queue of {} overran", end_.device().name);
  for (int i = 0; i < got; ++i) BEELINE_TRY_VOID(take(completions[static_cast<std::size_t>(i)]));
  return {};
}

Result<void> BandwidthRound::take(const ibv_wc& wc) {
  const WorkId id = WorkId::unpack(wc.wr_id);
  if (wc.status != IBV_WC_SUCCESS)
    return tl::unexpected(
        end_.failed(id.lane, id.receive ? "a receive" : name_of(end_.plan().test->operation), wc.status));
  Progress& progress = lanes_[id.lane];
  if (!id.receive) {
    total_completed_ += id.count - progress.completed;
    progress.completed = id.count;
    return {};
  }
  if (wc.byte_len != round_.size_bytes)
    return fail(Errc::protocol, "a message of {} bytes arrived as {}", round_.size_bytes, wc.byte_len);
  --end_.lanes()[id.lane].receives_outstanding;
  ++progress.received;
  ++total_received_;
  return post_receives(id.lane);
}

}  // namespace beeline::perf
