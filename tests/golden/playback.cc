#include "playback.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "support/vector_memory.h"
#include "wire/printer.h"

namespace beeline::test {
namespace {

using proto::Access;

constexpr PdId domain{7};
constexpr std::uint32_t path_mtu_bytes = 1024;  // Ethernet's 1500 less all headers
constexpr std::uint8_t reads_at_once = 16;
constexpr std::uint32_t receive_bytes = 4096;
constexpr std::uint32_t grh_bytes = 40;
constexpr std::uint64_t local_base = 0x10'0000'0000, receive_base = 0x20'0000'0000;
constexpr std::uint64_t local_stride = 0x10000;
constexpr std::uint32_t local_key = 0x51000000, receive_key = 0x52000000;

Key nth_key(std::uint32_t base, std::size_t i) { return Key{base + static_cast<std::uint32_t>(i)}; }

proto::QpType type_of(const Session& session) {
  switch (session.events.front().view.info->service) {
    case wire::Service::uc:
      return proto::QpType::uc;
    case wire::Service::ud:
      return proto::QpType::ud;
    default:
      return proto::QpType::rc;
  }
}

proto::WrOpcode work_request_opcode(const wire::OpcodeInfo& row) {
  if (row.kind == wire::Kind::read_request) return proto::WrOpcode::read;
  if (row.opcode == wire::Opcode::rc_compare_swap) return proto::WrOpcode::compare_swap;
  if (row.opcode == wire::Opcode::rc_fetch_add) return proto::WrOpcode::fetch_add;
  return row.kind == wire::Kind::write ? proto::WrOpcode::write : proto::WrOpcode::send;
}

// What each modify needs, by type of queue pair.
struct Masks {
  std::uint32_t init, rtr, rts;
};
namespace attr = proto::attr;
constexpr std::uint32_t uc_init = attr::pkey_index | attr::port | attr::access_flags;
constexpr std::uint32_t uc_rtr = attr::address_vector | attr::path_mtu | attr::destination_qp | attr::rq_psn;
constexpr std::array<Masks, 3> connect_masks{
    {{uc_init, uc_rtr | attr::max_dest_rd_atomic | attr::min_rnr_timer,
      attr::sq_psn | attr::timeout | attr::retry_count | attr::rnr_retry | attr::max_rd_atomic},
     {uc_init, uc_rtr, attr::sq_psn},
     {attr::pkey_index | attr::port | attr::qkey, 0, attr::sq_psn}}};

class Player {
 public:
  Player(const Session& session, Side ours, Clock clock)
      : session_(session),
        ours_(ours),
        clock_(clock),
        our_messages_(messages(session, ours)),
        peer_messages_(messages(session, other(ours))),
        qp_(setup()) {
    prepare_memory();
    connect();
    post_receives();
  }

  Playback run() {
    std::size_t next_message = 0;
    for (std::size_t i = 0; i < session_.events.size(); ++i) {
      const Event& event = session_.events[i];
      if (clock_ == Clock::recorded) now_ = event.at;
      expire_timers();
      if (event.from != ours_)
        qp_.handle_packet(now_, event.view, {event.ip_udp.source, event.ip_udp.destination, 0, 64});
      else if (next_message < our_messages_.size() && our_messages_[next_message].first_event == i)
        post(next_message++);
      drain();
    }
    finish();
    return std::move(result_);
  }

 private:
  proto::QpSetup setup() {
    proto::QpSetup setup;
    setup.qpn = session_.events.front().view.headers.bth.destination;
    setup.domain = domain;
    setup.limits = {.send_depth = 64, .receive_depth = 64, .signal_all = true};
    setup.memory = &memory_;
    setup.window_bytes = 1 << 20;
    setup.type = type_of(session_);
    setup.datagram_mtu_bytes = path_mtu_bytes;
    return setup;
  }

  static Psn first_psn(const std::vector<Message>& list) {
    return list.empty() ? Psn{} : list.front().headers.bth.psn;
  }

  void connect() {
    proto::QpAttr a;
    a.path_mtu_bytes = path_mtu_bytes;
    a.access = Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;
    a.destination = qp_.qpn();  // session.h: both ends have the same number
    a.rq_psn = first_psn(peer_messages_);
    a.sq_psn = first_psn(our_messages_);
    a.max_rd_atomic = a.max_dest_rd_atomic = reads_at_once;
    a.timeout = 14;  // perftest's
    a.qkey = session_.events.front().view.headers.deth.qkey;
    const Masks& masks = connect_masks[static_cast<std::size_t>(type_of(session_))];
    modify(a, proto::QpState::init, masks.init);
    modify(a, proto::QpState::rtr, masks.rtr);
    modify(a, proto::QpState::rts, masks.rts);
  }

  void modify(proto::QpAttr attributes, proto::QpState state, std::uint32_t mask) {
    attributes.state = state;
    const auto done = qp_.modify(now_, attributes, mask | proto::attr::state);
    ASSERT_TRUE(done) << done.error().message;
  }

  // Our own buffers, and the peer's view of us: what it wrote to and what it read.
  void prepare_memory() {
    for (std::size_t i = 0; i < our_messages_.size(); ++i) {
      const Message& message = our_messages_[i];
      const bool read = brings_data(message);
      auto bytes = read ? std::vector<std::byte>(message.payload.size()) : message.payload;
      memory_.add({domain, nth_key(local_key, i), local_base + i * local_stride, std::move(bytes),
                   read ? Access::local_write : Access::none});
    }
    for (std::size_t i = 0; i < peer_messages_.size(); ++i)
      memory_.add({domain, nth_key(receive_key, i), receive_base + i * local_stride,
                   std::vector<std::byte>(receive_bytes), Access::local_write});
    for (const Message& message : peer_messages_)
      if (message.info->has_reth) expose(message);
    expose_cells();
  }

  // Every atomic of perftest goes to a cell of its own, of one region.
  void expose_cells() {
    std::uint64_t first = UINT64_MAX, last = 0;
    for (const Message& message : peer_messages_) {
      if (message.info->kind != wire::Kind::atomic_request) continue;
      first = std::min(first, message.headers.atomic.address);
      last = std::max(last, message.headers.atomic.address);
    }
    for (const Message& message : peer_messages_) {
      if (message.info->kind != wire::Kind::atomic_request) continue;
      const wire::AtomicEth& atomic = message.headers.atomic;
      if (memory_.find(atomic.rkey) == nullptr)
        memory_.add({domain, atomic.rkey, first,
                     std::vector<std::byte>(last - first + message.payload.size()),
                     Access::remote_atomic | Access::remote_write | Access::remote_read});
      ASSERT_EQ(memory_.write(domain, atomic.rkey, atomic.address, message.payload, Access::remote_write),
                proto::MemoryStatus::ok);
    }
  }

  void expose(const Message& message) {
    const wire::Reth& reth = message.headers.reth;
    if (memory_.find(reth.rkey) != nullptr) return;
    if (message.info->kind == wire::Kind::read_request)
      memory_.add({domain, reth.rkey, reth.address, message.payload, Access::remote_read});
    else
      memory_.add(
          {domain, reth.rkey, reth.address, std::vector<std::byte>(reth.length), Access::remote_write});
  }

  void post_receives() {
    for (std::size_t i = 0; i < peer_messages_.size(); ++i) {
      if (peer_messages_[i].info->kind != wire::Kind::send) continue;
      const proto::Sge sge{receive_base + i * local_stride, receive_bytes, nth_key(receive_key, i)};
      ASSERT_EQ(qp_.post_recv({.wr_id = i, .sges = {&sge, 1}}), proto::PostResult::ok);
    }
  }

  void post(std::size_t i) {
    const Message& message = our_messages_[i];
    const proto::Sge sge{local_base + i * local_stride,
                         static_cast<std::uint32_t>(memory_.find(nth_key(local_key, i))->bytes.size()),
                         nth_key(local_key, i)};
    proto::SendWr request;
    request.wr_id = i;
    request.opcode = work_request_opcode(*message.info);
    request.signaled = true;
    request.remote_address = message.headers.reth.address;
    request.rkey = message.headers.reth.rkey;
    request.sges = {&sge, 1};
    proto::DatagramTarget target;
    target.remote_qpn = message.headers.bth.destination;
    target.remote_qkey = message.headers.deth.qkey;
    request.target = &target;
    if (message.info->has_atomic_eth) {
      request.remote_address = message.headers.atomic.address;
      request.rkey = message.headers.atomic.rkey;
      request.compare = message.headers.atomic.compare;
      request.swap_or_add = message.headers.atomic.swap_or_add;
    }
    ASSERT_EQ(qp_.post_send(now_, request), proto::PostResult::ok);
  }

  void expire_timers() {
    while (qp_.next_timeout() <= now_) {
      qp_.handle_timeout(qp_.next_timeout());
      drain();
    }
  }

  void drain() {
    std::array<proto::TxDesc, 8> descriptors;
    while (const std::size_t count = qp_.poll_transmit(now_, descriptors))
      for (std::size_t i = 0; i < count; ++i) collect(descriptors[i]);
    std::array<proto::Completion, 8> completions;
    while (const std::size_t count = qp_.poll_completions(completions))
      for (std::size_t i = 0; i < count; ++i) collect(completions[i]);
  }

  void collect(const proto::TxDesc& descriptor) {
    SentPacket packet{descriptor.headers, {}};
    packet.payload.assign(descriptor.inline_payload.begin(), descriptor.inline_payload.end());
    for (std::size_t i = 0; i < descriptor.ref_count; ++i) {
      const proto::MemoryRef& ref = descriptor.refs[i];
      std::vector<std::byte> piece(ref.length);
      ASSERT_EQ(memory_.read(domain, ref.key, ref.address, piece, ref.need), proto::MemoryStatus::ok);
      packet.payload.insert(packet.payload.end(), piece.begin(), piece.end());
    }
    ASSERT_EQ(packet.payload.size(), descriptor.payload_bytes);
    const bool request = wire::info(descriptor.headers.bth.opcode).is_request();
    (request ? result_.requests : result_.responses).push_back(std::move(packet));
  }

  void collect(const proto::Completion& completion) {
    if (!completion.is_receive) {
      result_.send_completions.push_back(completion);
      return;
    }
    ASSERT_LT(completion.wr_id, peer_messages_.size());
    ASSERT_LE(completion.byte_length, receive_bytes);
    auto bytes = memory_.find(nth_key(receive_key, completion.wr_id))->bytes;
    bytes.resize(completion.byte_length);
    ASSERT_EQ(completion.has_grh, type_of(session_) == proto::QpType::ud);
    if (completion.has_grh) bytes.erase(bytes.begin(), bytes.begin() + grh_bytes);
    result_.receives.push_back({completion, std::move(bytes)});
  }

  void finish() {
    for (std::size_t i = 0; i < our_messages_.size(); ++i)
      if (brings_data(our_messages_[i]))
        result_.read_data.push_back(memory_.find(nth_key(local_key, i))->bytes);
    for (const Message& message : peer_messages_)
      if (message.info->kind == wire::Kind::write)
        result_.written_by_peer = memory_.find(message.headers.reth.rkey)->bytes;
    for (const Message& message : peer_messages_) {
      if (message.info->kind != wire::Kind::atomic_request) continue;
      std::array<std::byte, sizeof(std::uint64_t)> cell{};
      const wire::AtomicEth& atomic = message.headers.atomic;
      ASSERT_EQ(memory_.read(domain, atomic.rkey, atomic.address, cell, Access::remote_read),
                proto::MemoryStatus::ok);
      result_.cells.push_back(std::bit_cast<std::uint64_t>(cell));
    }
    result_.final_state = qp_.state();
    result_.counters = qp_.counters();
  }

  const Session& session_;
  const Side ours_;
  const Clock clock_;
  const std::vector<Message> our_messages_, peer_messages_;
  VectorMemory memory_;
  TimePoint now_;
  proto::QueuePair qp_;
  Playback result_;
};

std::vector<std::byte> datagram_of(const SentPacket& packet, const wire::IpUdp& ip_udp) {
  std::vector<std::byte> datagram(wire::max_header_bytes);
  datagram.resize(wire::emit(packet.headers, datagram));
  datagram.insert(datagram.end(), packet.payload.begin(), packet.payload.end());
  datagram.resize(datagram.size() + packet.headers.bth.pad_count);
  wire::IpUdp sized = ip_udp;
  sized.udp_payload_bytes = static_cast<std::uint16_t>(datagram.size() + wire::icrc_bytes);
  wire::Icrc icrc(sized);
  icrc.update_headers(datagram);
  datagram.resize(datagram.size() + wire::icrc_bytes);
  wire::store_icrc(datagram.data() + datagram.size() - wire::icrc_bytes, icrc.value());
  return datagram;
}

}  // namespace

Playback play(const Session& session, Side ours, Clock clock) { return Player(session, ours, clock).run(); }

std::vector<SentPacket> without_repetitions(const std::vector<SentPacket>& sent) {
  std::vector<SentPacket> result;
  std::set<std::uint32_t> seen;
  for (const SentPacket& packet : sent)
    if (seen.insert(packet.headers.bth.psn.value).second) result.push_back(packet);
  return result;
}

Comparison compare(const Session& session, const std::vector<std::size_t>& recorded,
                   const std::vector<SentPacket>& sent) {
  Comparison result;
  for (std::size_t i = 0; i < std::max(recorded.size(), sent.size()); ++i) {
    const Event* event = i < recorded.size() ? &session.events[recorded[i]] : nullptr;
    SentPacket ours = i < sent.size() ? sent[i] : SentPacket{};
    if (event != nullptr && i < sent.size()) {
      wire::Bth& bth = ours.headers.bth;
      const bool theirs = event->view.headers.bth.migration_request;
      result.migration_requests += bth.migration_request != theirs;
      bth.migration_request = theirs;
      if (datagram_of(ours, event->ip_udp) == event->datagram) continue;
    }
    result.differences.push_back(fmt::format(
        "packet {}: recorded {}, ours {}", i, event != nullptr ? wire::to_string(event->view) : "nothing",
        i < sent.size() ? wire::to_string(ours.headers, ours.payload.size()) : "nothing"));
  }
  return result;
}

}  // namespace beeline::test
