// Two queue pairs that talk to each other in virtual time.
//
// OperationPair is what a test of operations sees, whichever lane carries them: WirePair joins
// QueuePairs by a lossy wire, DirectPair joins bare operations by the in-process lane.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "proto/local/lane.h"
#include "proto/ops/direct_lane.h"
#include "proto/ops/operations.h"
#include "proto/queue_pair.h"
#include "proto/testing/lossy_wire.h"
#include "proto/testing/test_memory.h"
#include "proto/testing/trace.h"
#include "wire/packet.h"

namespace beeline::proto::testing {

inline constexpr PdId test_domain{7};
inline constexpr std::uint32_t init_mask = attr::state | attr::pkey_index | attr::port | attr::access_flags;
inline constexpr std::uint32_t rtr_mask = attr::state | attr::address_vector | attr::path_mtu |
                                          attr::destination_qp | attr::rq_psn | attr::max_dest_rd_atomic |
                                          attr::min_rnr_timer;
inline constexpr std::uint32_t rts_mask =
    attr::state | attr::timeout | attr::retry_count | attr::rnr_retry | attr::sq_psn | attr::max_rd_atomic;

// What a modify to INIT, RTR and RTS needs, by type (manual page of ibv_modify_qp).
struct ConnectMasks {
  std::uint32_t init, rtr, rts;
};
inline constexpr std::array<ConnectMasks, 3> connect_masks = {{
    {init_mask, rtr_mask, rts_mask},
    {init_mask, attr::state | attr::address_vector | attr::path_mtu | attr::destination_qp | attr::rq_psn,
     attr::state | attr::sq_psn},
    {attr::state | attr::pkey_index | attr::port | attr::qkey, attr::state, attr::state | attr::sq_psn},
}};

struct PairOptions {
  QpLimits limits{
      .send_depth = 16, .receive_depth = 16, .send_sges = 4, .receive_sges = 4, .inline_bytes = 64};
  std::uint32_t window_bytes = 64 * 1024;
  QpAttr attributes{
      .path_mtu_bytes = 1024,
      .access = Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic,
      .max_rd_atomic = 4,
      .max_dest_rd_atomic = 4};
  std::array<Psn, 2> first_psn{Psn{0xFFFFF0}, Psn{100}};  // of what each side sends
  Faults faults;
  bool vary_window = false;   // the card changes the window while running
  bool hold_acks = false;     // an ACK may wait for a request, and leaves behind it
  double socket_refusal = 0;  // probability that a batch is only partly sent
  std::uint64_t seed = 1;
  QpType type = QpType::rc;
  std::array<SharedReceiveQueue*, 2> shared_receives{};  // of each side
};

inline Qpn qpn_of(int side) { return Qpn{static_cast<std::uint32_t>(0x11 + side)}; }

inline QpAttr attributes_of(const PairOptions& options, int side) {
  QpAttr attributes = options.attributes;
  attributes.destination = qpn_of(1 - side);
  attributes.sq_psn = options.first_psn[static_cast<std::size_t>(side)];
  attributes.rq_psn = options.first_psn[static_cast<std::size_t>(1 - side)];
  return attributes;
}

// RESET -> INIT -> RTR -> RTS; `modify(attributes, mask)` returns a Result.
template <class Modify>
void connect(QpAttr attributes, QpState upto, Modify modify, QpType type = QpType::rc) {
  const ConnectMasks& masks = connect_masks[static_cast<std::size_t>(type)];
  const std::array<std::pair<QpState, std::uint32_t>, 3> steps = {
      {{QpState::init, masks.init}, {QpState::rtr, masks.rtr}, {QpState::rts, masks.rts}}};
  for (const auto& [state, mask] : steps) {
    if (state > upto) return;
    attributes.state = state;
    const Result<void> result = modify(attributes, mask);
    ASSERT_TRUE(result) << result.error().message;
  }
}

class OperationPair {
 public:
  virtual ~OperationPair() = default;
  virtual PostResult post_send(int side, const SendWr& wr) = 0;
  virtual PostResult post_recv(int side, const RecvWr& wr) = 0;
  virtual std::size_t poll(int side, std::span<Completion> out) = 0;
  virtual QpState state(int side) const = 0;
  virtual Result<void> modify(int side, const QpAttr& attributes, std::uint32_t mask) = 0;
  virtual QpEvent take_events(int side) = 0;
  // Does what can be done now; else jumps to the next event. False: nothing will ever happen.
  virtual bool step() = 0;

  TimePoint now() const { return now_; }
  TestMemory& memory(int side) { return memory_[static_cast<std::size_t>(side)]; }
  Trace& trace() { return trace_; }

  // Steps until `done`, at most to `deadline` of virtual time.
  template <class Done>
  bool run_until(Done done, Duration limit = 60s) {
    const TimePoint deadline = now_ + limit;
    while (!done())
      if (!step() || now_ > deadline) return done();
    return true;
  }
  // Lets everything that is under way happen.
  void settle(Duration limit = 60s) {
    run_until([] { return false; }, limit);
  }
  std::vector<Completion> poll_all(int side) {
    std::vector<Completion> all;
    std::array<Completion, 8> some;
    while (const std::size_t count = poll(side, some))
      all.insert(all.end(), some.begin(), some.begin() + count);
    return all;
  }

 protected:
  TimePoint now_{1'000'000};
  std::array<TestMemory, 2> memory_;
  Trace trace_;
};

// A packet as bytes, as a card would put it on the wire; nothing when memory cannot be read.
inline bool serialize(TestMemory& memory, const TxDesc& desc, std::vector<std::byte>& out) {
  std::array<std::byte, wire::max_header_bytes> headers;
  const std::size_t header_bytes = wire::emit(desc.headers, headers);
  out.assign(headers.begin(), headers.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  if (desc.ref_count == 0) out.insert(out.end(), desc.inline_payload.begin(), desc.inline_payload.end());
  for (const MemoryRef& ref : std::span(desc.refs).first(desc.ref_count)) {
    const std::size_t start = out.size();
    out.resize(start + ref.length);
    if (memory.read(test_domain, ref.key, ref.address, std::span(out).subspan(start), ref.need) !=
        MemoryStatus::ok)
      return false;
  }
  EXPECT_EQ(out.size(), header_bytes + desc.payload_bytes);
  EXPECT_EQ((desc.payload_bytes + desc.headers.bth.pad_count) % 4, 0u);
  out.resize(out.size() + desc.headers.bth.pad_count + wire::icrc_bytes);
  return true;
}

class WirePair final : public OperationPair {
 public:
  explicit WirePair(const PairOptions& options, QpState upto = QpState::rts)
      : options_(options), random_(options.seed), wire_(random_, options.faults) {
    for (int side = 0; side < 2; ++side) {
      const QpSetup setup{qpn_of(side),
                          test_domain,
                          options.limits,
                          &memory(side),
                          options.window_bytes,
                          options.type,
                          options.shared_receives[static_cast<std::size_t>(side)]};
      qps_[static_cast<std::size_t>(side)] = std::make_unique<QueuePair>(setup);
      connect(
          attributes_of(options, side), upto,
          [&](const QpAttr& attributes, std::uint32_t mask) {
            return qp(side).modify(now_, attributes, mask);
          },
          options.type);
      qp(side).allow_ack_hold(options.hold_acks);
      qp(side).set_ack_last(options.hold_acks);
    }
  }

  QueuePair& qp(int side) { return *qps_[static_cast<std::size_t>(side)]; }
  const QueuePair& qp(int side) const { return *qps_[static_cast<std::size_t>(side)]; }
  LossyWire& wire() { return wire_; }

  PostResult post_send(int side, const SendWr& wr) override { return qp(side).post_send(now_, wr); }
  PostResult post_recv(int side, const RecvWr& wr) override { return qp(side).post_recv(wr); }
  std::size_t poll(int side, std::span<Completion> out) override { return qp(side).poll_completions(out); }
  QpState state(int side) const override { return qp(side).state(); }
  Result<void> modify(int side, const QpAttr& attributes, std::uint32_t mask) override {
    return qp(side).modify(now_, attributes, mask);
  }
  QpEvent take_events(int side) override { return qp(side).take_events(); }

  bool step() override {
    bool any = deliver();
    for (int side = 0; side < 2; ++side) any |= transmit(side);
    if (any) return true;
    TimePoint next = wire_.next_arrival();
    for (const auto& qp : qps_) next = std::min(next, qp->next_timeout());
    if (next == TimePoint::never()) return false;
    now_ = std::max(now_, next);
    for (const auto& qp : qps_)
      if (qp->next_timeout() <= now_) qp->handle_timeout(now_);
    return true;
  }

 private:
  // All that has arrived, at once: what a batch means.
  bool deliver() {
    bool any = false;
    while (wire_.next_arrival() <= now_) {
      any = true;
      const Datagram datagram = wire_.receive();
      if (const auto packet = wire::parse(datagram.bytes)) {
        trace_.add(static_cast<std::uint64_t>(now_.ns));
        trace_.add(datagram.bytes);
        qp(datagram.to).handle_packet(now_, *packet);
      }
    }
    return any;
  }

  bool transmit(int side) {
    std::array<TxDesc, 16> descs;
    const std::size_t room = 1 + random_.below(descs.size());
    if (options_.vary_window && random_.chance(0.1))
      qp(side).set_window(
          static_cast<std::uint32_t>(random_.below(std::uint64_t{2} * options_.window_bytes)));
    const bool wanted = qp(side).wants_transmit(now_);
    const std::size_t count = qp(side).poll_transmit(now_, std::span(descs).first(room));
    EXPECT_TRUE(wanted || count == 0) << "packets that wants_transmit did not announce";
    std::size_t accepted = count;
    if (count != 0 && random_.chance(options_.socket_refusal)) accepted = random_.below(count);
    for (std::size_t i = 0; i < accepted; ++i) {
      std::vector<std::byte> bytes;
      if (serialize(memory(side), descs[i], bytes)) {
        wire_.send(now_, 1 - side, std::move(bytes));
      } else {
        qp(side).transmit_fault(now_, descs[i]);
      }
    }
    if (accepted != count)
      qp(side).transmit_refused(now_, std::span(descs).subspan(accepted, count - accepted));
    if (accepted == 0 && count != 0) now_ = now_ + 1us;  // the socket has room again a little later
    return count != 0;
  }

  PairOptions options_;
  Prng random_;
  LossyWire wire_;
  std::array<std::unique_ptr<QueuePair>, 2> qps_;
};

class DirectPair final : public OperationPair {
 public:
  explicit DirectPair(const PairOptions& options) {
    for (int side = 0; side < 2; ++side) {
      const QpSetup setup{qpn_of(side), test_domain, options.limits, &memory(side), options.window_bytes};
      auto& operations = operations_[static_cast<std::size_t>(side)];
      operations = std::make_unique<Operations>(setup);
      connect(attributes_of(options, side), QpState::rts, [&](const QpAttr& attributes, std::uint32_t mask) {
        return operations->modify(attributes, mask);
      });
    }
    lane_ = std::make_unique<DirectLane>(*operations_[0], *operations_[1]);
  }

  PostResult post_send(int side, const SendWr& wr) override { return of(side).post_send(wr); }
  PostResult post_recv(int side, const RecvWr& wr) override { return of(side).post_recv(wr); }
  std::size_t poll(int side, std::span<Completion> out) override { return of(side).completions().poll(out); }
  QpState state(int side) const override { return operations_[static_cast<std::size_t>(side)]->state(); }
  Result<void> modify(int side, const QpAttr& attributes, std::uint32_t mask) override {
    return of(side).modify(attributes, mask);
  }
  QpEvent take_events(int side) override { return of(side).take_events(); }
  bool step() override {
    if (lane_->run(now_)) return true;
    const TimePoint next = lane_->next_timeout();
    if (next == TimePoint::never()) return false;
    now_ = std::max(now_, next);
    return true;
  }

 private:
  Operations& of(int side) { return *operations_[static_cast<std::size_t>(side)]; }

  std::array<std::unique_ptr<Operations>, 2> operations_;
  std::unique_ptr<DirectLane> lane_;
};

// The memory of the other side's process, in the same one.
class OwnMemory final : public local::PeerMemory {
 public:
  local::Reach reach() const override { return reaches; }
  Copied read(std::uint64_t address, MutableBytes to) override {
    if (to.empty()) return Copied::ok;
    std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    copied_bytes += to.size();
    return Copied::ok;
  }
  local::Reach reaches;
  std::uint64_t copied_bytes = 0;
};

// Two queue pairs that share memory. `reach`: whether they can copy from each other directly.
class SharedMemoryPair final : public OperationPair {
 public:
  // More than that goes directly: less than a card would take, so that workloads need not be large.
  static constexpr std::uint32_t some_bytes = 4 * local::piece_bytes;

  explicit SharedMemoryPair(const PairOptions& options, local::Reach reach = {true, true, some_bytes})
      : random_(options.seed), shared_(std::make_unique<local::SharedPair>()) {
    for (int side = 0; side < 2; ++side) {
      const auto i = static_cast<std::size_t>(side);
      QpSetup setup{qpn_of(side), test_domain, options.limits, &memory(side), options.window_bytes};
      setup.lane = LaneRule::automatic;
      qps_[i] = std::make_unique<QueuePair>(setup);
      connect(attributes_of(options, side), QpState::rts, [&](const QpAttr& attributes, std::uint32_t mask) {
        return qp(side).modify(now_, attributes, mask);
      });
      peers_[i].reaches = reach;
      qp(side).take_local(*shared_, side, peers_[i]);
    }
  }

  PostResult post_send(int side, const SendWr& wr) override { return qp(side).post_send(now_, wr); }
  PostResult post_recv(int side, const RecvWr& wr) override { return qp(side).post_recv(wr); }
  std::size_t poll(int side, std::span<Completion> out) override { return qp(side).poll_completions(out); }
  QpState state(int side) const override { return qps_[static_cast<std::size_t>(side)]->state(); }
  Result<void> modify(int side, const QpAttr& attributes, std::uint32_t mask) override {
    return qp(side).modify(now_, attributes, mask);
  }
  QpEvent take_events(int side) override { return qp(side).take_events(); }
  // As a card does it: only those are looked at that the hints or a timer speak for.
  bool step() override {
    const int first = static_cast<int>(random_.below(2));
    bool any = false;
    for (const int side : {first, 1 - first}) {
      const bool due = qp(side).next_local_timeout() <= now_;
      if (!qp(side).has_local_work() && !due && !more_[static_cast<std::size_t>(side)]) continue;
      const QueuePair::Step step = qp(side).step_local(now_);
      more_[static_cast<std::size_t>(side)] = step.more;
      any = true;
      if (random_.chance(0.5)) break;
    }
    if (any) return true;
    const TimePoint next = std::min(qp(0).next_local_timeout(), qp(1).next_local_timeout());
    if (next == TimePoint::never()) return false;
    now_ = std::max(now_, next);
    return true;
  }

  QueuePair& qp(int side) { return *qps_[static_cast<std::size_t>(side)]; }
  local::SharedPair& shared() { return *shared_; }
  std::uint64_t copied_bytes() const { return peers_[0].copied_bytes + peers_[1].copied_bytes; }

 private:
  Prng random_;
  std::unique_ptr<local::SharedPair> shared_;
  std::array<OwnMemory, 2> peers_;
  std::array<std::unique_ptr<QueuePair>, 2> qps_;
  std::array<bool, 2> more_{};
};

}  // namespace beeline::proto::testing
