// An unreliable queue pair, UC or UD, against a hostile peer. The input is a script: four bytes of set-up,
// then commands (enum Command) with their operands. Corpus seeds: make_corpus.py.
#include <array>
#include <optional>
#include <vector>

#include "input.h"
#include "proto/queue_pair.h"
#include "proto/shared_receive_queue.h"
#include "support/vector_memory.h"
#include "targets.h"
#include "work_log.h"

namespace beeline::fuzz {
namespace {

using proto::Access;
using proto::QpState;
using proto::QpType;
using test::VectorMemory;

enum class Command : std::uint8_t {
  packet,      // put together from fields near the sequence number in use
  raw_packet,  // any bytes that parse
  post_send,
  post_recv,
  transmit,
  poll,
  modify,
  toggle_region,
  count
};

constexpr PdId domain{1};
constexpr Qpn our_qpn{0x11}, peer_qpn{0x22};
constexpr std::uint32_t mtu = 256, our_qkey = 0x77;
constexpr Key local_key{1}, open_key{2}, read_only_key{3};
constexpr std::uint64_t local_address = 0x1000, open_address = 0xFFFF'FFFF'FFFF'F800,
                        read_only_address = 0x20000;
constexpr std::uint32_t region_bytes = 2048;
constexpr std::uint32_t grh_bytes = 40;

class Harness {
 public:
  explicit Harness(Bytes bytes) : input_(bytes) {
    const std::vector<std::byte> blank(region_bytes);
    read_only_.resize(region_bytes, std::byte{0x3C});
    memory_.add({domain, local_key, local_address, blank, Access::local_write});
    memory_.add({domain, open_key, open_address, blank, open_access});
    memory_.add({domain, read_only_key, read_only_address, read_only_, Access::remote_read});
    flags_ = input_.u8();
    peer_psn_ = Psn{input_.u24()};
    qp_.emplace(setup());
    connect();
  }

  void run() {
    while (!input_.empty()) {
      step(static_cast<Command>(input_.u8() % static_cast<unsigned>(Command::count)));
      BEELINE_CHECK(memory_.find(read_only_key)->bytes == read_only_);
      BEELINE_CHECK(qp_->next_timeout() == TimePoint::never());
    }
    enter(QpState::err);
    poll();
    sends_.check_flushed();
    if (!shares()) receives_.check_flushed();
  }

 private:
  static constexpr Access open_access = Access::local_write | Access::remote_write | Access::remote_read;

  bool is_ud() const { return (flags_ & 1) != 0; }
  bool shares() const { return (flags_ & 2) != 0; }

  proto::QpSetup setup() {
    proto::QpSetup setup;
    setup.qpn = our_qpn;
    setup.domain = domain;
    setup.limits = {
        .send_depth = 8, .receive_depth = 8, .send_sges = 3, .receive_sges = 3, .inline_bytes = 64};
    setup.memory = &memory_;
    setup.type = is_ud() ? QpType::ud : QpType::uc;
    setup.shared_receives = shares() ? &shared_ : nullptr;
    setup.datagram_mtu_bytes = mtu;
    return setup;
  }

  void step(Command command) {
    switch (command) {
      case Command::packet:
        return receive_made_up_packet();
      case Command::raw_packet:
        return receive(input_.take(input_.u8() * 4u));
      case Command::post_send:
        return post_send();
      case Command::post_recv:
        return post_recv();
      case Command::transmit:
        return transmit();
      case Command::poll:
        return poll();
      case Command::modify:
        return modify();
      case Command::toggle_region:
        return toggle_region();
      case Command::count:
        break;
    }
  }

  // --- Packets in

  // A packet changes memory only where its kind may, and only when its length is legal. Nothing is answered.
  void receive(Bytes datagram) {
    const auto view = wire::parse(datagram);
    if (!view) return;
    const auto open = memory_.find(open_key)->bytes, local = memory_.find(local_key)->bytes;
    const bool wanted = qp_->wants_transmit(now_);
    proto::Arrival arrival;
    arrival.source = IpAddress::v4(10, 0, 0, 1);
    arrival.destination = (flags_ & 4) != 0 ? IpAddress{} : IpAddress::v4(10, 0, 0, 2);
    qp_->handle_packet(now_, *view, arrival);
    BEELINE_CHECK(!qp_->wants_transmit(now_) || wanted);
    const bool ours = view->info->service == (is_ud() ? wire::Service::ud : wire::Service::uc) &&
                      wire::payload_fits(*view->info, view->payload.size(), mtu);
    const bool may_write = ours && view->info->kind == wire::Kind::write;
    const bool may_deliver = ours && view->info->kind == wire::Kind::send && receives_.has_any();
    BEELINE_CHECK(may_write || memory_.find(open_key)->bytes == open);
    BEELINE_CHECK(may_deliver || memory_.find(local_key)->bytes == local);
  }

  // Operands: opcode, PSN difference (signed), flags, payload size, and the RETH of a WRITE.
  void receive_made_up_packet() {
    const auto table = wire::opcode_table();
    const wire::OpcodeInfo& row = table[input_.u8() % table.size()];
    const auto difference = static_cast<std::int8_t>(input_.u8());
    const std::uint8_t bits = input_.u8();
    constexpr std::array<std::size_t, 5> edges{0, mtu, mtu - 1, mtu + 1, 2 * mtu};
    const std::uint8_t size = input_.u8();
    const std::size_t payload = row.payload == wire::PayloadRule::none ? 0
                                : size < edges.size()                  ? edges[size]
                                                                       : size;
    wire::Headers headers;
    headers.bth.opcode = row.opcode;
    headers.bth.destination = our_qpn;
    headers.bth.pad_count = wire::pad_for(payload);
    headers.bth.solicited = (bits & 1) != 0;
    headers.bth.psn = peer_psn_ + static_cast<std::uint32_t>(difference);
    headers.deth = {(bits & 2) != 0 ? 0x99 : our_qkey, peer_qpn};
    headers.immediate = 0xABCD;
    if (row.has_reth) {
      const bool bad_key = (bits & 4) != 0;
      headers.reth = {open_address + input_.u16() % (2 * region_bytes), bad_key ? read_only_key : open_key,
                      input_.u16() % 4096u};
    }
    if (difference == 0) ++peer_psn_;
    std::vector<std::byte> datagram(wire::max_header_bytes);
    datagram.resize(wire::emit(headers, datagram));
    datagram.resize(datagram.size() + payload, std::byte{0xEE});
    datagram.resize(datagram.size() + headers.bth.pad_count + wire::icrc_bytes);
    receive(datagram);
  }

  // --- Work requests

  // Pieces of our region; the last one may go beyond it, or name a key that does not exist.
  std::vector<proto::Sge> made_up_sges(std::uint32_t length, bool bad_key, bool beyond) {
    std::vector<proto::Sge> sges;
    const std::size_t pieces = 1 + length % 3;
    for (std::size_t i = 0; i < pieces; ++i) {
      const auto share = static_cast<std::uint32_t>(length / pieces + (i == 0 ? length % pieces : 0));
      sges.push_back({local_address + i * 512 % region_bytes, share, local_key});
    }
    if (bad_key) sges.back().lkey = Key{77};
    if (beyond) sges.back().address = local_address + region_bytes - 1;
    return sges;
  }

  void post_send() {
    const std::uint8_t opcode = input_.u8(), bits = input_.u8();
    const std::uint32_t length = input_.u16() % 1500;
    proto::DatagramTarget target;
    target.remote_qpn = peer_qpn;
    target.remote_qkey = (bits & 2) != 0 ? 0x8000'0000 : 5;
    proto::SendWr request;
    request.opcode = static_cast<proto::WrOpcode>(opcode % 12);
    request.signaled = (bits & 1) != 0;
    request.inline_data = (bits & 4) != 0;
    request.solicited = (bits & 8) != 0;
    request.target = (bits & 64) != 0 ? nullptr : &target;
    std::vector<std::byte> inline_bytes(length + 1);
    std::vector<proto::Sge> sges = made_up_sges(length, (bits & 16) != 0, (bits & 32) != 0);
    if (request.inline_data)  // an address of this process
      sges = {{reinterpret_cast<std::uintptr_t>(inline_bytes.data()), length, Key{}}};
    request.sges = sges;
    request.wr_id = sends_.posted(request.signaled);
    const proto::PostResult result = qp_->post_send(now_, request);
    if (result != proto::PostResult::ok) return sends_.take_back();
    BEELINE_CHECK(request.opcode <= (is_ud() ? proto::WrOpcode::send_imm : proto::WrOpcode::write_imm));
    BEELINE_CHECK(!is_ud() || (length <= mtu && request.target != nullptr));
  }

  void post_recv() {
    const std::uint8_t bits = input_.u8();
    const auto sges = made_up_sges((bits & 63) * 16u, (bits & 64) != 0, (bits & 128) != 0);
    const proto::RecvWr request{receives_.posted(true), sges};
    const auto result = shares() ? shared_.post(request) : qp_->post_recv(request);
    if (result != proto::PostResult::ok) receives_.take_back();
  }

  // --- Packets out

  enum class Socket : std::uint8_t { takes_all, refuses_tail, faults };

  // Operands: how many packets at most, what the socket does with them.
  void transmit() {
    const std::size_t most = 1 + input_.u8() % 8;
    const auto socket = static_cast<Socket>(input_.u8() % 3);
    std::array<proto::TxDesc, 8> descriptors;
    const bool wanted = qp_->wants_transmit(now_);
    const std::size_t count = qp_->poll_transmit(now_, std::span(descriptors).first(most));
    BEELINE_CHECK(count <= most);
    BEELINE_CHECK(wanted || count == 0);
    if (count == 0) BEELINE_CHECK(!qp_->wants_transmit(now_));
    for (std::size_t i = 0; i < count; ++i) check(descriptors[i]);
    if (count == 0 || socket == Socket::takes_all) return;
    if (socket == Socket::faults) return qp_->transmit_fault(now_, descriptors[count / 2]);
    next_psn_ = descriptors[count / 2].headers.bth.psn;
    qp_->transmit_refused(now_, std::span(descriptors).first(count).subspan(count / 2));
    BEELINE_CHECK(qp_->wants_transmit(now_));
  }

  // What we send is well formed, and follows on what was sent before.
  void check(const proto::TxDesc& descriptor) {
    const wire::Headers& headers = descriptor.headers;
    const wire::OpcodeInfo& row = wire::info(headers.bth.opcode);
    BEELINE_CHECK(row.service == (is_ud() ? wire::Service::ud : wire::Service::uc));
    BEELINE_CHECK(headers.bth.destination == peer_qpn);
    BEELINE_CHECK(!next_psn_ || headers.bth.psn == *next_psn_);
    next_psn_ = headers.bth.psn + 1;
    BEELINE_CHECK(headers.bth.pad_count == wire::pad_for(descriptor.payload_bytes));
    BEELINE_CHECK(wire::payload_fits(row, descriptor.payload_bytes, mtu));
    BEELINE_CHECK((descriptor.path != nullptr) == is_ud());
    std::size_t bytes = descriptor.inline_payload.size();
    for (std::size_t i = 0; i < descriptor.ref_count; ++i) bytes += descriptor.refs[i].length;
    BEELINE_CHECK(bytes == descriptor.payload_bytes);
  }

  // --- Completions

  void poll() {
    std::array<proto::Completion, 4> completions;
    for (;;) {
      const bool some = qp_->has_completions();
      const std::size_t count = qp_->poll_completions(completions);
      BEELINE_CHECK(some == (count > 0));
      if (count == 0) return;
      for (std::size_t i = 0; i < count; ++i) account(completions[i]);
    }
  }

  void account(const proto::Completion& completion) {
    BEELINE_CHECK(completion.qpn == our_qpn);
    if (completion.is_receive && completion.status == proto::WcStatus::success) {
      BEELINE_CHECK(completion.has_grh == is_ud());
      BEELINE_CHECK(!is_ud() || completion.byte_length >= grh_bytes);
      BEELINE_CHECK(completion.opcode == proto::WcOpcode::receive_write_imm ||
                    completion.byte_length <= 63 * 16);
    }
    (completion.is_receive ? receives_ : sends_).completed(completion);
  }

  // --- States

  void modify() {
    constexpr std::array states{QpState::rts, QpState::sqd, QpState::err, QpState::reset};
    const QpState state = states[input_.u8() % states.size()];
    if (state != QpState::reset) return enter(state);
    enter(QpState::err);
    poll();
    sends_.check_flushed();
    if (!shares()) receives_.check_flushed();
    enter(QpState::reset);
    sends_.clear();
    if (!shares()) receives_.clear();
    connect();
  }

  void enter(QpState state) {
    proto::QpAttr attributes;
    attributes.state = state;
    const bool done = qp_->modify(now_, attributes, proto::attr::state).has_value();
    BEELINE_CHECK(done || state == QpState::rts || state == QpState::sqd);
  }

  void connect() {
    namespace attr = proto::attr;
    proto::QpAttr a;
    a.path_mtu_bytes = mtu;
    a.access = open_access;
    a.destination = peer_qpn;
    a.rq_psn = a.sq_psn = peer_psn_;
    a.qkey = our_qkey;
    next_psn_.reset();
    a.state = QpState::init;
    must(a, attr::pkey_index | attr::port | (is_ud() ? attr::qkey : attr::access_flags));
    a.state = QpState::rtr;
    must(a, is_ud() ? 0 : attr::address_vector | attr::path_mtu | attr::destination_qp | attr::rq_psn);
    a.state = QpState::rts;
    must(a, attr::sq_psn);
  }

  void must(const proto::QpAttr& attributes, std::uint32_t mask) {
    BEELINE_CHECK(qp_->modify(now_, attributes, mask | proto::attr::state).has_value());
  }

  // The region that is open to the peer comes and goes.
  void toggle_region() {
    Access& access = memory_.find(open_key)->access;
    access = access == open_access ? Access::none : open_access;
  }

  static void ignore_limit(void*) {}

  Input input_;
  VectorMemory memory_;
  std::vector<std::byte> read_only_;
  std::uint8_t flags_ = 0;
  Psn peer_psn_;
  std::optional<Psn> next_psn_;  // of our next packet, once one has been sent
  TimePoint now_{1'000'000};
  WorkLog sends_, receives_;
  proto::SharedReceiveQueue shared_{8, 3, ignore_limit, nullptr};
  std::optional<proto::QueuePair> qp_;
};

}  // namespace

void fuzz_unreliable(Bytes input) { Harness(input).run(); }

}  // namespace beeline::fuzz
