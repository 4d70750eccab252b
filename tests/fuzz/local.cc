// The local lane: what processes of one host say to each other, and a queue pair whose peer writes
// whatever it likes into the memory that both share. The input is a script.
#include <memory>

#include "base/check.h"
#include "input.h"
#include "nic/local/messages.h"
#include "proto/queue_pair.h"
#include "proto/testing/test_memory.h"
#include "targets.h"

namespace beeline::fuzz {
namespace {

using namespace proto;  // NOLINT(google-build-using-namespace): the vocabulary of every line below

constexpr PdId domain{7};
constexpr Key local_key{1}, remote_key{2};
constexpr std::uint64_t base = 0x1000;
constexpr std::uint32_t region_bytes = 64 * 1024;

enum class Command : std::uint8_t {
  message,
  side,
  slot,
  payload,
  slot_of_ours,
  post_send,
  post_recv,
  step,
  time,
  count
};

// The other process's memory: readable or not as the script says, and never what it was.
class MadMemory final : public local::PeerMemory {
 public:
  local::Reach reach() const override { return {true, true, 4 * local::piece_bytes}; }
  Copied read(std::uint64_t address, MutableBytes to) override {
    if (address % 5 == 0) return Copied::there;
    if (address % 7 == 0) return Copied::here;
    std::fill(to.begin(), to.end(), std::byte{static_cast<std::uint8_t>(address)});
    return Copied::ok;
  }
};

class Harness {
 public:
  explicit Harness(Bytes bytes)
      : input_(bytes), shared_(std::make_unique<local::SharedPair>()), qp_(setup()) {
    constexpr Access all =
        Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;
    memory_.add(local_key, domain, base, region_bytes, Access::local_write);
    memory_.add(remote_key, domain, base, region_bytes, all);
    QpAttr a;
    a.access = all;
    a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    a.timeout = 8;
    for (const auto& [state, mask] :
         {std::pair{QpState::init, init}, {QpState::rtr, rtr}, {QpState::rts, rts}}) {
      a.state = state;
      BEELINE_CHECK(qp_.modify(now_, a, mask).has_value());
    }
    qp_.take_local(*shared_, 0, peer_);
  }

  void run() {
    while (!input_.empty()) {
      act(static_cast<Command>(input_.u8() % static_cast<unsigned>(Command::count)));
      collect();
    }
    // However mad the peer: once it is gone, everything that was posted ends.
    qp_.lose_local_peer(now_);
    now_ = now_ + Duration{std::int64_t{1} << 40};
    for (int i = 0; i < 1000 && qp_.step_local(now_).more; ++i) collect();
    collect();
    BEELINE_CHECK(completed_ == posted_);
  }

 private:
  static constexpr std::uint32_t init = attr::state | attr::pkey_index | attr::port | attr::access_flags;
  static constexpr std::uint32_t rtr = attr::state | attr::address_vector | attr::path_mtu |
                                       attr::destination_qp | attr::rq_psn | attr::max_dest_rd_atomic |
                                       attr::min_rnr_timer;
  static constexpr std::uint32_t rts =
      attr::state | attr::timeout | attr::retry_count | attr::rnr_retry | attr::sq_psn | attr::max_rd_atomic;

  QpSetup setup() {
    QpSetup s;
    s.qpn = Qpn{0x11};
    s.domain = domain;
    s.limits = {.send_depth = 16, .receive_depth = 16, .send_sges = 3, .receive_sges = 3, .inline_bytes = 64};
    s.memory = &memory_;
    s.lane = LaneRule::automatic;
    return s;
  }

  void act(Command command) {
    switch (command) {
      case Command::message:
        return check_message(input_.take(nic::local::message_bytes));
      case Command::side:
        return scribble_side(shared_->sides[1]);
      case Command::slot:
        return scribble_slot(1);
      case Command::slot_of_ours:
        return scribble_slot(0);
      case Command::payload: {
        auto& payload = shared_->directions[input_.u8() % 2].payloads[input_.u8() % local::slot_count];
        const Bytes bytes = input_.take(input_.u8());
        std::copy(bytes.begin(), bytes.end(), payload.begin());
        return;
      }
      case Command::post_send:
        return post_send();
      case Command::post_recv: {
        const Sge sge{base + input_.u8() * 64u, input_.u16(), local_key};
        if (qp_.post_recv({1, std::span(&sge, 1)}) == PostResult::ok) ++receives_;
        return;
      }
      case Command::step:
        (void)qp_.has_local_work();
        (void)qp_.step_local(now_);
        return;
      case Command::time:
        now_ = now_ + Duration{std::int64_t{1} << input_.u8() % 40};
        return;
      case Command::count:
        break;
    }
  }

  static void check_message(Bytes bytes) {
    const auto message = nic::local::decode(bytes);
    if (!message) return;
    const auto emitted = nic::local::decode(nic::local::encode(*message));
    BEELINE_CHECK(emitted && emitted->id == message->id && emitted->kind == message->kind);
  }

  void scribble_side(local::SideLine& side) {
    const std::uint64_t value = std::uint64_t{input_.u24()} << 8 | input_.u8();
    switch (input_.u8() % 6) {
      case 0:
        return side.executed.store(value);
      case 1:
        return side.offered.store(value);
      case 2:
        return side.fetched.store(value);
      case 3:
        return side.heartbeat.store(static_cast<std::uint32_t>(value));
      case 4:
        return side.waits.store(static_cast<std::uint32_t>(value));
      default:
        return side.closed.store(static_cast<std::uint32_t>(value));
    }
  }

  void scribble_slot(std::size_t direction) {
    local::Slot& slot = shared_->directions[direction].slots[input_.u8() % local::slot_count];
    slot.opcode = static_cast<WrOpcode>(input_.u8());
    slot.flags = input_.u8();
    slot.carry = static_cast<local::Carry>(input_.u8());
    slot.rnr_retry = input_.u8();
    slot.length = input_.u8() % 2 == 0 ? input_.u16() : input_.u24() << 8;
    slot.bytes = input_.u8() % 2 == 0 ? slot.length : input_.u24();
    slot.remote_address = base + input_.u16();
    slot.rkey = Key{input_.u8()};
    const Bytes bytes = input_.take(local::header_payload);
    std::copy(bytes.begin(), bytes.end(), slot.payload.begin());
    slot.turn.store(1 + input_.u8() % 3);
  }

  void post_send() {
    const auto opcode = static_cast<WrOpcode>(input_.u8() % 9);
    const std::uint32_t length = opcode == WrOpcode::compare_swap || opcode == WrOpcode::fetch_add ? 8u
                                 : opcode == WrOpcode::local_inv                                   ? 0u
                                                                 : input_.u16();
    const Sge sge{base, length, local_key};
    SendWr wr;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.remote_address = base;
    wr.rkey = remote_key;
    wr.sges = std::span(&sge, opcode == WrOpcode::local_inv ? 0 : 1);
    if (qp_.post_send(now_, wr) == PostResult::ok) ++posted_;
  }

  void collect() {
    std::array<Completion, 8> some;
    while (const std::size_t count = qp_.poll_completions(some))
      for (const Completion& completion : std::span(some).first(count))
        ++(completion.is_receive ? received_ : completed_);
    BEELINE_CHECK(completed_ <= posted_ && received_ <= receives_);
  }

  Input input_;
  testing::TestMemory memory_;
  MadMemory peer_;
  std::unique_ptr<local::SharedPair> shared_;
  QueuePair qp_;
  TimePoint now_{1'000'000};
  std::uint64_t posted_ = 0, completed_ = 0, receives_ = 0, received_ = 0;
};

}  // namespace

void fuzz_local(Bytes input) { Harness(input).run(); }

}  // namespace beeline::fuzz
