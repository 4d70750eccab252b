// What processes that share an address tell each other: datagrams that are probes or are not,
// hand-over messages, and the learning of indices from their answers. And trains: cutting those whose cuts
// the kernel tells, and finding where those are to be cut that a raw socket shows. The input is a script.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "nic/train_cut.h"
#include "port/udp/handover.h"
#include "port/udp/raw_socket.h"
#include "port/udp/receive_batch.h"
#include "port/udp/steering.h"
#include "targets.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace beeline::fuzz {
namespace {

constexpr int index_count = 256;  // also of slots
constexpr std::uint64_t our_nonce = 0x0102030405060708;
constexpr std::size_t max_program = 4096;  // BPF_MAXINSNS: the kernel takes no longer one

enum class Command : std::uint8_t { datagram, hand_over, answer, begin, probe, pass_time, cut, train, count };

class Harness {
 public:
  explicit Harness(Bytes bytes) : input_(bytes) {}

  void run() {
    while (!input_.empty()) {
      step(static_cast<Command>(input_.u8() % static_cast<unsigned>(Command::count)));
      BEELINE_CHECK(asked_ <= index_count);
    }
    check_table();
  }

 private:
  void step(Command command) {
    switch (command) {
      case Command::datagram:
        return check_probe(input_.take(input_.u8()));
      case Command::hand_over:
        return receive(input_.take(input_.u8()));
      case Command::answer: {
        const std::uint8_t index = input_.u8();
        return record(our_nonce, index, port::Slot{input_.u8()});
      }
      case Command::begin:
        learner_.begin(our_nonce, now_);
        asked_ = 0;
        BEELINE_CHECK(learner_.active() && learner_.nonce() == our_nonce && learner_.deadline() > now_);
        return;
      case Command::probe:
        return send_probes();
      case Command::pass_time:
        return pass_time();
      case Command::cut: {
        const std::uint16_t segment_bytes = input_.u16();
        return cut(segment_bytes, input_.take(input_.u16() % 4096));
      }
      case Command::train: {
        const std::size_t first_bytes = std::size_t{input_.u8()} * 4;
        const std::size_t likely = std::size_t{input_.u8()} * 4;
        return find_cut(first_bytes, likely, input_.take(input_.u16() % 4096));
      }
      case Command::count:
        break;
    }
  }

  // A probe is no RoCE packet, and comes out as it came in.
  static void check_probe(Bytes datagram) {
    const auto probe = port::parse_probe(datagram);
    if (!probe) return;
    const auto emitted = port::encode(*probe);
    BEELINE_CHECK(std::equal(emitted.begin(), emitted.end(), datagram.begin(), datagram.end()));
    BEELINE_CHECK(!wire::parse(datagram));
  }

  void receive(Bytes bytes) {
    const auto message = port::decode_handover(bytes);
    if (!message) return;
    const auto emitted = port::encode(*message);
    BEELINE_CHECK(bytes.size() >= emitted.size());
    BEELINE_CHECK(std::equal(emitted.begin(), emitted.end(), bytes.begin()));
    const Bytes payload = bytes.subspan(emitted.size());
    if (message->kind == port::HandOverMessage::Kind::packet) return check_probe(payload);
    if (payload.size() == 8) record(load_be64(payload.data()), message->index, message->sender);
  }

  // Only an answer to what we asked changes what we know.
  void record(std::uint64_t nonce, std::uint8_t index, port::Slot holder) {
    const bool was_active = learner_.active();
    const port::SteeringTable before = learner_.table();
    const bool attach = learner_.record(nonce, index, holder);
    const bool asked = nonce == learner_.nonce() && index < asked_;
    BEELINE_CHECK(asked || (!attach && learner_.table() == before));
    BEELINE_CHECK(learner_.active() ? was_active && !attach : true);
    if (was_active && !learner_.active()) BEELINE_CHECK(attach);
    if (asked) BEELINE_CHECK(learner_.table().index_of_slot[holder.value] >= 0);
  }

  void send_probes() {
    const auto due = learner_.take_probes();
    BEELINE_CHECK(due.count >= 0 && (learner_.active() || due.count == 0));
    if (due.count > 0) BEELINE_CHECK(due.first == asked_);
    asked_ += due.count;
    BEELINE_CHECK(learner_.take_probes().count == 0);
    for (int i = 0; i < due.count; ++i) {
      const port::Probe probe{static_cast<std::uint8_t>(due.first + i), port::Slot{7}, our_nonce};
      const auto parsed = port::parse_probe(port::encode(probe));
      BEELINE_CHECK(parsed && parsed->index == probe.index && parsed->nonce == our_nonce);
    }
  }

  void pass_time() {
    now_ = now_ + Duration{std::int64_t{1} << input_.u8() % 32};
    const bool late = learner_.active() && now_ >= learner_.deadline();
    BEELINE_CHECK(learner_.give_up_if_late(now_) == late);
    BEELINE_CHECK(!learner_.give_up_if_late(now_));
  }

  // The pieces are what was given, in order, none longer than said, and none but the last shorter.
  static void cut(std::uint16_t segment_bytes, Bytes bytes) {
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    port::ReceiveBatch::Datagram datagram;
    datagram.bytes = copy;
    datagram.segment_bytes = segment_bytes;
    const std::size_t count = datagram.segments();
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const MutableBytes piece = datagram.segment(i);
      BEELINE_CHECK(piece.data() == copy.data() + at);
      BEELINE_CHECK(count == 1 ||
                    (i + 1 < count ? piece.size() == segment_bytes : piece.size() <= segment_bytes));
      at += piece.size();
    }
    BEELINE_CHECK(at == copy.size() && count >= 1);
    const auto packet = port::parse_ip_datagram(copy);
    if (packet) BEELINE_CHECK(packet->bytes.data() + packet->bytes.size() == copy.data() + copy.size());
  }

  // With the right ICRC behind so many bytes, a cut may be found; it is never elsewhere than where one is
  // right.
  static void find_cut(std::size_t first_bytes, std::size_t likely, Bytes bytes) {
    std::vector<std::byte> train(bytes.begin(), bytes.end());
    wire::IpUdp ip_udp{IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2)};
    const bool sealed = first_bytes >= wire::bth_bytes + wire::icrc_bytes && first_bytes <= train.size();
    if (sealed) {
      ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(first_bytes);
      wire::Icrc icrc(ip_udp);
      icrc.update_headers(Bytes(train).first(first_bytes - wire::icrc_bytes));
      wire::store_icrc(train.data() + first_bytes - wire::icrc_bytes, icrc.value());
    }
    const std::size_t found = nic::find_train_cut(train, ip_udp, likely);
    if (found == 0) return;
    BEELINE_CHECK(found % 4 == 0 && found <= nic::packet_bytes_max && found < train.size());
    ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(found);
    BEELINE_CHECK(wire::check_icrc(ip_udp, Bytes(train).first(found), true) == wire::IcrcVerdict::good_exact);
  }

  void check_table() const {
    const port::SteeringTable table = learner_.table();
    for (const std::int16_t index : table.index_of_slot) BEELINE_CHECK(index >= -1 && index < asked_);
    BEELINE_CHECK(port::steering_program(table).size() <= max_program);
  }

  Input input_;
  port::IndexLearner learner_;
  TimePoint now_;
  int asked_ = 0;  // indices 0 … asked_-1
};

}  // namespace

void fuzz_port(Bytes input) { Harness(input).run(); }

}  // namespace beeline::fuzz
