// A queue pair against a hostile peer. The input is a script: six bytes of set-up, then
// commands (enum Command) with their operands. Corpus seeds: make_corpus.py.
#include "proto/queue_pair.h"

#include <array>
#include <optional>
#include <vector>

#include "input.h"
#include "support/vector_memory.h"
#include "targets.h"
#include "wire/printer.h"
#include "work_log.h"

namespace beeline::fuzz {
namespace {

using proto::Access;
using proto::QpState;
using test::VectorMemory;

enum class Command : std::uint8_t {
  packet,      // put together from fields near the sequence numbers in use
  raw_packet,  // any bytes that parse
  pass_time,
  post_send,
  post_recv,
  transmit,
  poll,
  modify,
  toggle_region,
  set_window,
  count
};

constexpr PdId domain{1};
constexpr Qpn our_qpn{0x11}, peer_qpn{0x22};
constexpr std::uint32_t mtu = 256;
constexpr Key local_key{1}, open_key{2}, read_only_key{3}, foreign_key{4}, window_key{5};
constexpr std::uint64_t local_address = 0x1000, open_address = 0xFFFF'FFFF'FFFF'F800,
                        read_only_address = 0x20000;
constexpr std::uint32_t region_bytes = 2048;
constexpr int livelock_limit = 100'000;
constexpr std::byte peer_fill{0xEE};  // in every payload that we make up; memory begins as zeros

class Harness {
 public:
  explicit Harness(Bytes bytes) : input_(bytes) {
    read_only_.resize(region_bytes, std::byte{0x3C});
    const std::vector<std::byte> blank(region_bytes);
    memory_.add({domain, local_key, local_address, blank, Access::local_write});
    memory_.add({domain, open_key, open_address, blank, open_access});
    memory_.add({domain, read_only_key, read_only_address, read_only_, Access::remote_read});
    memory_.add({PdId{2}, foreign_key, 0, blank, open_access});
    memory_.add({domain, window_key, 0, {}, Access::none, true});
    flags_ = input_.u8();
    peer_psn_ = Psn{input_.u24()};
    our_psn_ = Psn{input_.u16() * 256u};
    connect();
  }

  void run() {
    while (!input_.empty()) {
      step(static_cast<Command>(input_.u8() % static_cast<unsigned>(Command::count)));
      BEELINE_CHECK(memory_.find(read_only_key)->bytes == read_only_);
    }
    flush();
  }

 private:
  static constexpr Access open_access =
      Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;

  proto::QpSetup setup() {
    proto::QpSetup setup;
    setup.qpn = our_qpn;
    setup.domain = domain;
    setup.limits = {
        .send_depth = 8, .receive_depth = 8, .send_sges = 3, .receive_sges = 3, .inline_bytes = 64};
    setup.memory = &memory_;
    setup.window_bytes = 4 * mtu;
    return setup;
  }

  void step(Command command) {
    switch (command) {
      case Command::packet:
        return receive_made_up_packet();
      case Command::raw_packet:
        return receive(input_.take(input_.u8() * 4u));
      case Command::pass_time:
        return pass_time();
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
      case Command::set_window:
        return qp_.set_window(input_.u8() * 64u);
      case Command::count:
        break;
    }
  }

  // --- Packets in

  // A packet changes memory only where its kind may, and only when its length is legal.
  void receive(Bytes datagram) {
    const auto view = wire::parse(datagram);
    if (!view) return;
    const std::vector<std::byte> open = bytes_of(open_key), local = bytes_of(local_key);
    qp_.handle_packet(now_, *view);
    const wire::Kind kind = view->info->kind;
    const bool fits = wire::payload_fits(*view->info, view->payload.size(), mtu);
    const bool may_write = fits && (kind == wire::Kind::write || kind == wire::Kind::atomic_request);
    const bool may_deliver = fits && ((kind == wire::Kind::send && receives_.has_any()) ||
                                      (kind == wire::Kind::read_response && sends_.has_read()) ||
                                      (kind == wire::Kind::atomic_acknowledge && sends_.has_read()));
    BEELINE_CHECK(may_write || bytes_of(open_key) == open);
    BEELINE_CHECK(may_deliver || bytes_of(local_key) == local);
  }

  const std::vector<std::byte>& bytes_of(Key key) { return memory_.find(key)->bytes; }

  void receive_raw_packet() {
    watched_read_.reset();  // its payload may be anything
    receive(input_.take(input_.u8() * 4u));
  }

  std::size_t made_up_payload_bytes() {
    const std::uint8_t code = input_.u8();
    constexpr std::array<std::size_t, 6> edges{0, 1, mtu, mtu - 1, mtu + 1, 2 * mtu};
    return code < edges.size() ? edges[code] : code;
  }

  wire::Reth made_up_reth() {
    constexpr std::array keys{open_key, open_key, read_only_key, foreign_key, local_key, Key{99}};
    const std::uint8_t choice = input_.u8();
    const Key key = keys[choice % keys.size()];
    const std::uint64_t base = key == read_only_key ? read_only_address : open_address;
    const std::uint16_t offset = input_.u16();
    const std::uint16_t length = input_.u16();
    return {base + (offset % (2 * region_bytes)), key,
            (length & 0x8000) != 0 ? std::uint32_t{length} << 16 : length % 4096u};
  }

  // Operands: opcode, PSN difference (signed), flags, payload size, then those of its headers.
  void receive_made_up_packet() {
    const auto table = wire::opcode_table();
    const wire::OpcodeInfo& row = table[input_.u8() % table.size()];
    const auto difference = static_cast<std::int8_t>(input_.u8());
    const std::uint8_t bits = input_.u8();
    const std::size_t payload_bytes = row.payload == wire::PayloadRule::none ? 0 : made_up_payload_bytes();

    wire::Headers headers;
    headers.bth.opcode = row.opcode;
    headers.bth.destination = our_qpn;
    headers.bth.pad_count = wire::pad_for(payload_bytes);
    headers.bth.ack_request = (bits & 1) != 0;
    headers.bth.solicited = (bits & 2) != 0;
    headers.bth.psn = (row.is_request() ? peer_psn_ : our_psn_) + static_cast<std::uint32_t>(difference);
    if (row.has_reth) headers.reth = made_up_reth();
    if (row.has_atomic_eth) {
      const wire::Reth place = made_up_reth();
      headers.atomic = {place.address, place.rkey, place.length, input_.u8()};
    }
    if (row.has_aeth) headers.aeth = {input_.u8(), input_.u8()};
    if (row.has_atomic_ack_eth) headers.atomic_before = UINT64_MAX;
    if (row.has_ieth) headers.invalidate = input_.u8() % 2 == 0 ? window_key : open_key;
    if (row.has_immediate) headers.immediate = 0xABCD;
    if (row.is_request() && difference == 0) advance_peer(row, headers.reth.length);

    std::vector<std::byte> datagram(wire::max_header_bytes);
    datagram.resize(wire::emit(headers, datagram));
    datagram.resize(datagram.size() + payload_bytes, peer_fill);
    datagram.resize(datagram.size() + headers.bth.pad_count + wire::icrc_bytes);
    receive(datagram);
  }

  void advance_peer(const wire::OpcodeInfo& row, std::uint32_t length) {
    const bool read = row.kind == wire::Kind::read_request;
    peer_psn_ = peer_psn_ + (read && length > mtu ? (length + mtu - 1) / mtu : 1);
  }

  // --- Time

  void pass_time() {
    now_ = now_ + Duration{std::int64_t{1000} << input_.u8() % 24};
    for (int rounds = 0; qp_.next_timeout() <= now_; ++rounds) {
      BEELINE_CHECK(rounds < livelock_limit);
      qp_.handle_timeout(now_);
    }
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
    std::uint32_t length = input_.u16() % 2048;
    proto::SendWr request;
    request.opcode = static_cast<proto::WrOpcode>(opcode % 10);
    const bool is_atomic =
        request.opcode == proto::WrOpcode::compare_swap || request.opcode == proto::WrOpcode::fetch_add;
    const bool is_local =
        request.opcode == proto::WrOpcode::local_inv || request.opcode == proto::WrOpcode::bind_mw;
    if (is_atomic && (bits & 64) == 0) length = 8;
    request.signaled = (bits & 1) != 0;
    request.fence = (bits & 2) != 0;
    request.inline_data = (bits & 4) != 0;
    request.solicited = (bits & 8) != 0;
    request.immediate = 7;
    request.remote_address = 0x5000;
    request.rkey = Key{9};
    std::vector<std::byte> inline_bytes(length + 1);
    std::vector<proto::Sge> sges = made_up_sges(length, (bits & 16) != 0, (bits & 32) != 0);
    if (request.inline_data) {  // addresses of this process
      const auto address = reinterpret_cast<std::uintptr_t>(inline_bytes.data());
      sges = {{address, length, Key{}}};
    }
    const proto::WindowBind bind;  // of no window that there is
    if (!is_local || (bits & 64) != 0) request.sges = sges;
    if ((bits & 128) == 0) request.bind = &bind;
    request.invalidate = window_key;
    const bool is_read = request.opcode == proto::WrOpcode::read;
    const bool watch = is_read && !sends_.has_read();
    request.wr_id = sends_.posted(request.signaled, is_read || is_atomic);
    if (qp_.post_send(now_, request) != proto::PostResult::ok) return sends_.take_back();
    if (watch) watch_read(request.wr_id, sges);
  }

  // A READ that succeeds has brought every byte: ours starts with zeros, the peer sends none.
  void watch_read(std::uint64_t wr_id, const std::vector<proto::Sge>& sges) {
    watched_read_.reset();
    for (const proto::Sge& sge : sges) {
      const std::vector<std::byte> zeros(sge.length);
      if (memory_.write(domain, sge.lkey, sge.address, zeros, Access::none) != proto::MemoryStatus::ok)
        return;
    }
    watched_read_ = WatchedRead{wr_id, sges};
  }

  void check_watched_read(const proto::Completion& completion) {
    if (!watched_read_ || completion.wr_id != watched_read_->wr_id) return;
    if (completion.status == proto::WcStatus::success) {
      for (const proto::Sge& sge : watched_read_->sges) {
        std::vector<std::byte> bytes(sge.length);
        BEELINE_CHECK(memory_.read(domain, sge.lkey, sge.address, bytes, Access::none) ==
                      proto::MemoryStatus::ok);
        for (const std::byte b : bytes) BEELINE_CHECK(b == peer_fill);
      }
    }
    watched_read_.reset();
  }

  void post_recv() {
    const std::uint8_t bits = input_.u8();
    const auto sges = made_up_sges((bits & 63) * 32u, (bits & 64) != 0, (bits & 128) != 0);
    proto::RecvWr request;
    request.sges = sges;
    request.wr_id = receives_.posted(true);
    if (qp_.post_recv(request) != proto::PostResult::ok) receives_.take_back();
  }

  // --- Packets out

  enum class Socket : std::uint8_t { takes_all, refuses_tail, faults };

  // Operands: how many packets at most, what the socket does with them.
  void transmit() {
    const std::size_t most = 1 + input_.u8() % 8;
    const auto socket = static_cast<Socket>(input_.u8() % 3);
    std::array<proto::TxDesc, 8> descriptors;
    const bool wanted = qp_.wants_transmit(now_);
    const std::size_t room = socket == Socket::faults ? 1 : most;
    const std::size_t count = qp_.poll_transmit(now_, std::span(descriptors).first(room));
    BEELINE_CHECK(count <= room);
    // A request that turns out to be unsendable is wanted, and gives a completion instead.
    BEELINE_CHECK(wanted || count == 0);
    if (count == 0) BEELINE_CHECK(!qp_.wants_transmit(now_));
    for (std::size_t i = 0; i < count; ++i) check(descriptors[i]);
    if (count == 0) return;
    if (socket == Socket::faults) return qp_.transmit_fault(now_, descriptors[0]);
    const std::size_t sent = socket == Socket::refuses_tail ? count / 2 : count;
    for (std::size_t i = 0; i < sent; ++i) note_sent(descriptors[i]);
    if (sent < count) qp_.transmit_refused(now_, std::span(descriptors).first(count).subspan(sent));
  }

  // What we send is well formed, whatever came in.
  void check(const proto::TxDesc& descriptor) {
    const wire::Headers& headers = descriptor.headers;
    const wire::OpcodeInfo& row = wire::info(headers.bth.opcode);
    BEELINE_CHECK(headers.bth.destination == peer_qpn);
    BEELINE_CHECK(headers.bth.psn.value <= Psn::mask);
    BEELINE_CHECK(headers.bth.pad_count == wire::pad_for(descriptor.payload_bytes));
    BEELINE_CHECK(wire::payload_fits(row, descriptor.payload_bytes, mtu));
    std::size_t bytes = descriptor.inline_payload.size();
    BEELINE_CHECK(bytes == 0 || descriptor.ref_count == 0);
    for (std::size_t i = 0; i < descriptor.ref_count; ++i) {
      bytes += descriptor.refs[i].length;
      // A READ response leaks nothing that the peer may not read.
      if (row.kind == wire::Kind::read_response)
        BEELINE_CHECK(proto::allows(descriptor.refs[i].need, Access::remote_read));
    }
    BEELINE_CHECK(bytes == descriptor.payload_bytes);
  }

  void note_sent(const proto::TxDesc& descriptor) {
    if (wire::info(descriptor.headers.bth.opcode).is_request()) our_psn_ = descriptor.headers.bth.psn;
  }

  // --- Completions

  void poll() {
    std::array<proto::Completion, 4> completions;
    for (int rounds = 0;; ++rounds) {
      BEELINE_CHECK(rounds < livelock_limit);
      const bool some = qp_.has_completions();
      const std::size_t count = qp_.poll_completions(completions);
      BEELINE_CHECK(some == (count > 0));
      if (count == 0) return;
      for (std::size_t i = 0; i < count; ++i) account(completions[i]);
    }
  }

  void account(const proto::Completion& completion) {
    BEELINE_CHECK(completion.qpn == our_qpn);
    if (completion.is_receive && completion.status == proto::WcStatus::success)
      BEELINE_CHECK(completion.has_immediate || completion.byte_length <= 63 * 32);
    if (!completion.is_receive) check_watched_read(completion);
    (completion.is_receive ? receives_ : sends_).completed(completion);
  }

  // --- States

  void modify() {
    const std::uint8_t choice = input_.u8();
    if (choice >= 0xF0) return enter(choice % 2 == 0 ? QpState::sqd : QpState::rts);
    if (choice % 2 == 0) return enter(QpState::err);
    enter(QpState::err);
    poll();
    sends_.check_flushed();
    receives_.check_flushed();
    enter(QpState::reset);
    sends_.clear();
    receives_.clear();
    watched_read_.reset();
    if (choice % 4 == 3) connect();
  }

  void enter(QpState state) {
    proto::QpAttr attributes;
    attributes.state = state;
    BEELINE_CHECK(qp_.modify(now_, attributes, proto::attr::state).has_value() || state != QpState::err ||
                  qp_.state() == QpState::reset);
  }

  void connect() {
    namespace attr = proto::attr;
    proto::QpAttr a;
    a.path_mtu_bytes = mtu;
    a.access = (flags_ & 1) != 0 ? Access::local_write : open_access;
    a.destination = peer_qpn;
    a.rq_psn = peer_psn_;
    a.sq_psn = our_psn_;
    a.max_rd_atomic = a.max_dest_rd_atomic = (flags_ & 2) != 0 ? 1 : 4;
    a.timeout = (flags_ & 4) != 0 ? 0 : 8;
    a.retry_count = (flags_ & 8) != 0 ? 1 : 7;
    a.rnr_retry = (flags_ & 16) != 0 ? 1 : 7;
    a.state = QpState::init;
    must(a, attr::pkey_index | attr::port | attr::access_flags);
    a.state = QpState::rtr;
    must(a, attr::address_vector | attr::path_mtu | attr::destination_qp | attr::rq_psn |
                attr::max_dest_rd_atomic | attr::min_rnr_timer);
    if ((flags_ & 32) != 0) return;  // stays a responder
    a.state = QpState::rts;
    must(a, attr::sq_psn | attr::timeout | attr::retry_count | attr::rnr_retry | attr::max_rd_atomic);
  }

  void must(const proto::QpAttr& attributes, std::uint32_t mask) {
    BEELINE_CHECK(qp_.modify(now_, attributes, mask | proto::attr::state).has_value());
  }

  // The region that the peer uses comes and goes.
  void toggle_region() {
    Access& access = memory_.find(open_key)->access;
    access = access == Access::none ? open_access : Access::none;
    memory_.find(window_key)->invalid = false;
  }

  // In the end everything that was posted is accounted for.
  void flush() {
    poll();
    if (qp_.state() == QpState::reset) return;
    enter(QpState::err);
    poll();
    sends_.check_flushed();
    receives_.check_flushed();
    BEELINE_CHECK(!qp_.has_completions());
  }

  struct WatchedRead {
    std::uint64_t wr_id;
    std::vector<proto::Sge> sges;
  };

  Input input_;
  VectorMemory memory_;
  std::vector<std::byte> read_only_;
  std::uint8_t flags_ = 0;
  Psn peer_psn_;  // what the peer's next request should carry
  Psn our_psn_;   // what our last request carried
  TimePoint now_;
  WorkLog sends_, receives_;
  std::optional<WatchedRead> watched_read_;
  proto::QueuePair qp_{setup()};
};

}  // namespace

void fuzz_queue_pair(Bytes input) { Harness(input).run(); }

}  // namespace beeline::fuzz
