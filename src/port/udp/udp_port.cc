#include "port/udp/udp_port.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/clock.h"
#include "port/udp/address_sockets.h"
#include "port/udp/handover.h"
#include "port/udp/interface_watch.h"
#include "port/udp/raw_socket.h"
#include "port/udp/receive_batch.h"
#include "port/udp/send_batch.h"
#include "port/udp/service.h"
#include "port/udp/socket_address.h"

namespace beeline::port {
namespace {

constexpr std::size_t addresses_max = 64;
constexpr std::size_t batch_max = 64;      // messages per recvmmsg, and per receive()
constexpr std::size_t slot_offset = 5;     // BTH: DestQP[23:16]
constexpr Duration rare_interval = 20us;   // a busy poller looks so often where seldom something comes
constexpr Duration silence_interval = 2s;  // missing answers are often the network's fault: no more

// To queue pair 1: no slot's, and any process may have it.
bool is_management(Bytes datagram) {
  return datagram.size() >= slot_offset + 3 && load_be24(datagram.data() + slot_offset) == 1;
}

// Whose it is; ours when it is too short to say.
std::uint8_t slot_of(Bytes datagram, Slot own) {
  return datagram.size() > slot_offset ? load_u8(datagram.data() + slot_offset) : own.value;
}

bool is_unicast(const IpAddress& address) {
  if (address.is_zero() || address == IpAddress::v4(0, 0, 0, 0)) return false;
  return address.is_v4() ? address.bytes[12] < 224 : address.bytes[0] != 0xFF;
}

class UdpPort final : public Port {
 public:
  UdpPort(std::unique_ptr<HandOver> hand_over, Descriptor epoll, Descriptor wake_event, bool see_ip_headers,
          Segmentation segmentation)
      : see_ip_headers_(see_ip_headers),
        segmentation_(segmentation),
        hand_over_(std::move(hand_over)),
        epoll_(std::move(epoll)),
        wake_event_(std::move(wake_event)),
        receive_buffer_bytes_(granted_receive_buffer() / 4),
        batch_(batch_max) {
    addresses_.reserve(addresses_max);
  }

  bool watch(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  }

  void meet_others() { hand_over_->meet_others(now()); }

  Slot slot() const override { return hand_over_->slot(); }
  Result<void> open_address(const IpAddress& address) override;
  Result<std::uint16_t> source_port(const IpAddress& address, std::uint32_t flow_hash,
                                    IpMarks marks) override;
  void show_hop_limits(const IpAddress& address) override;
  std::size_t receive_buffer_bytes() const override { return receive_buffer_bytes_; }
  std::size_t train_max(const IpAddress& source) const override;
  std::size_t send(std::span<OutPacket> packets) override;
  std::size_t receive(std::span<InPacket> out) override;
  int wait_descriptor() const override { return epoll_.get(); }
  void wait(TimePoint deadline) override;
  void wake() override;
  TimePoint now() const override;
  const PortCounters& counters() const override { return counters_; }
  bool owns_its_slot() const override { return true; }
  bool sees_ip_headers() const override { return see_ip_headers_; }
  int pass_on(const InPacket& packet, std::optional<Slot> to) override;
  bool is_served(std::uint64_t service_id) const override { return service_is_served(service_id); }
  void note_silence() override { silence_.store(true, std::memory_order_relaxed); }
  bool take_interface_change(bool look) override;
  Result<std::vector<Interface>> interfaces() const override { return list_all_interfaces(); }
  void abandon_after_fork() override;

 private:
  struct Sink;  // where received packets go, and how many there are
  // Messages that were received, but whose datagrams the caller had no room for.
  struct Backlog {
    AddressSockets* sockets = nullptr;
    ReceiveBatch::Range messages;  // in batch_
    std::size_t segment = 0;       // of the first of them: those before are delivered
    bool empty() const { return messages.count == 0; }
  };

  AddressSockets* find(const IpAddress& address) const;
  SendBatch::Outcome send_run(std::span<OutPacket> run);
  void want_learning();
  bool time_for_rare_things(TimePoint time);
  void receive_handed_over(Sink& sink, TimePoint time);
  void take_over(const HandOver::Received& received, Sink& sink, TimePoint time);
  void receive_from(AddressSockets& sockets, Sink& sink, TimePoint time, bool rare_too);
  void receive_raw(AddressSockets& sockets, Sink& sink);
  void sort_in_backlog(Sink& sink, TimePoint time);
  bool sort_in(AddressSockets& sockets, const ReceiveBatch::Datagram& message, Sink& sink, TimePoint time);
  void sort_in_one(AddressSockets& sockets, const ReceiveBatch::Datagram& message, std::size_t segment,
                   Sink& sink, TimePoint time);
  bool handle_probe(AddressSockets& sockets, const ReceiveBatch::Datagram& message, Bytes datagram,
                    TimePoint time);
  void count_passed(HandOver::Outcome outcome);
  void plan_next_tick();

  const bool see_ip_headers_;
  const Segmentation segmentation_;
  mutable std::mutex mutex_;  // addresses_ and all sockets in it, hand_over_; not the counters
  std::unique_ptr<HandOver> hand_over_;
  std::vector<std::unique_ptr<AddressSockets>> addresses_;
  Descriptor epoll_, wake_event_;
  InterfaceWatch interface_watch_;  // this and the next are of the thread that waits
  bool interfaces_changed_ = false;
  std::atomic<bool> wake_pending_ = false;
  std::atomic<bool> look_everywhere_ = true;  // wait() ended: whatever woke it may be anywhere
  TimePoint next_rare_look_{};
  std::atomic<bool> silence_ = false;
  TimePoint next_silence_look_{};
  // While this process learns its index (steering.h) it must not sleep on: as long as packets
  // go to a process that is stopped, none would wake it.
  std::atomic<std::int64_t> next_tick_ns_ = TimePoint::never().ns;
  std::size_t first_address_ = 0;  // rotates, so that no address starves another
  std::size_t receive_buffer_bytes_;
  SendBatch outgoing_;
  ReceiveBatch batch_;
  Backlog backlog_;
  std::atomic<bool> has_backlog_ = false;
  std::array<HandOver::Received, HandOver::batch_max> handed_over_;
  PortCounters counters_;
};

struct UdpPort::Sink {
  std::span<InPacket> out;
  std::size_t filled = 0;

  std::size_t room() const { return out.size() - filled; }
  InPacket& next() { return out[filled++]; }
};

AddressSockets* UdpPort::find(const IpAddress& address) const {
  for (const auto& sockets : addresses_)
    if (sockets->address() == address) return sockets.get();
  return nullptr;
}

Result<void> UdpPort::open_address(const IpAddress& address) {
  if (!is_unicast(address))
    return fail(Errc::invalid_argument, "{} is not the address of an interface", to_string(address));
  const std::lock_guard lock(mutex_);
  if (find(address) != nullptr) return {};
  if (addresses_.size() == addresses_max)
    return fail(Errc::resource_exhausted, "cannot open {}: {} addresses are open already", to_string(address),
                addresses_max);
  BEELINE_TRY(auto sockets, AddressSockets::open(address, slot(), see_ip_headers_, segmentation_));
  if (!watch(sockets->data()) || (sockets->raw() >= 0 && !watch(sockets->raw())))
    return fail_errno(errno, "cannot watch a UDP socket");
  (void)sockets->tick(slot(), now(), hand_over_->peers());
  addresses_.push_back(std::move(sockets));
  plan_next_tick();
  return {};
}

void UdpPort::show_hop_limits(const IpAddress& address) {
  const std::lock_guard lock(mutex_);
  if (AddressSockets* sockets = find(address)) sockets->show_hop_limits();
}

Result<std::uint16_t> UdpPort::source_port(const IpAddress& address, std::uint32_t flow_hash, IpMarks marks) {
  const std::lock_guard lock(mutex_);
  AddressSockets* sockets = find(address);
  if (sockets == nullptr)
    return fail(Errc::not_found, "address {} is not open on this port", to_string(address));
  return sockets->flows().port_for(flow_hash, marks);
}

// --- sending ---

std::size_t UdpPort::train_max(const IpAddress& source) const {
  const std::lock_guard lock(mutex_);
  const AddressSockets* sockets = find(source);
  return sockets != nullptr && sockets->takes_trains() ? train_packets_max : 1;
}

// Packets that leave through one socket, as many as one call takes; no train is cut in two.
std::size_t run_length(std::span<const OutPacket> packets) {
  std::size_t length = 1;
  while (length < std::min(packets.size(), SendBatch::packets_max) &&
         packets[length].source == packets[0].source && packets[length].source_port == packets[0].source_port)
    ++length;
  if (length == packets.size() || packets[length].place == 0) return length;
  std::size_t whole = length;
  while (whole > 0 && packets[whole].place != 0) --whole;
  return whole > 0 ? whole : length;
}

std::size_t UdpPort::send(std::span<OutPacket> packets) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before = counters_.datagrams_sent;
  while (!packets.empty()) {
    const std::size_t length = run_length(packets);
    const SendBatch::Outcome outcome = send_run(packets.first(length));
    packets = packets.subspan(length);
    if (outcome == SendBatch::Outcome::through) continue;
    const bool no_room = outcome == SendBatch::Outcome::no_room;
    for (OutPacket& packet : packets)
      packet.status = no_room ? SendStatus::no_room : SendStatus::train_refused;
    break;
  }
  return counters_.datagrams_sent - before;
}

SendBatch::Outcome UdpPort::send_run(std::span<OutPacket> run) {
  AddressSockets* sockets = find(run[0].source);
  const int descriptor = sockets == nullptr ? -1 : sockets->flows().descriptor(run[0].source_port);
  const auto result =
      outgoing_.send(descriptor, sockets == nullptr ? 0 : sockets->scope_id(), run, counters_);
  if (result.takes_no_trains && sockets != nullptr) sockets->stop_trains();
  return result.outcome;
}

// --- receiving ---

std::size_t UdpPort::receive(std::span<InPacket> out) {
  const std::lock_guard lock(mutex_);
  const TimePoint time = now();
  Sink sink{out};
  // What is handed out from the backlog lies in the batch's buffers, which must stay until the next call.
  if (backlog_.empty()) batch_.clear();
  sort_in_backlog(sink, time);
  if (silence_.load(std::memory_order_relaxed) && time >= next_silence_look_) {
    silence_.store(false, std::memory_order_relaxed);
    next_silence_look_ = time + silence_interval;
    want_learning();
  }
  const bool rare_too = time_for_rare_things(time);
  if (rare_too) receive_handed_over(sink, time);  // first: a full data socket must not starve it
  for (std::size_t i = 0; i < addresses_.size(); ++i)
    receive_from(*addresses_[(first_address_ + i) % addresses_.size()], sink, time, rare_too);
  if (!addresses_.empty()) first_address_ = (first_address_ + 1) % addresses_.size();
  plan_next_tick();
  // No socket is readable for it.
  has_backlog_.store(!backlog_.empty(), std::memory_order_relaxed);
  if (!backlog_.empty()) wake();
  return sink.filled;
}

// Whether to look where seldom something comes: a system call each that a busy poller saves.
bool UdpPort::time_for_rare_things(TimePoint time) {
  if (!look_everywhere_.load(std::memory_order_relaxed) && time < next_rare_look_) return false;
  look_everywhere_.store(false, std::memory_order_relaxed);
  next_rare_look_ = time + rare_interval;
  return true;
}

void UdpPort::receive_handed_over(Sink& sink, TimePoint time) {
  const std::size_t limit = std::min(sink.room(), handed_over_.size());
  const std::size_t count =
      hand_over_->receive(std::span(handed_over_).first(limit), counters_.hand_over_refused);
  if (hand_over_->take_departure()) want_learning();
  for (std::size_t i = 0; i < count; ++i) take_over(handed_over_[i], sink, time);
}

void UdpPort::want_learning() {
  for (const auto& sockets : addresses_) sockets->want_learning();
}

void UdpPort::take_over(const HandOver::Received& received, Sink& sink, TimePoint time) {
  const HandOverMessage& message = received.message;
  AddressSockets* sockets = find(message.destination);
  const Bytes payload = received.payload;
  if (sockets != nullptr && message.kind == HandOverMessage::Kind::answer && payload.size() == 8) {
    sockets->learn(load_be64(payload.data()), message.index, message.sender, slot(), time);
    return;
  }
  const bool management = is_management(payload);
  if (sockets == nullptr || message.kind != HandOverMessage::Kind::packet || payload.size() <= slot_offset ||
      (!management && load_u8(payload.data() + slot_offset) != slot().value)) {
    ++counters_.hand_over_refused;
    return;
  }
  if (management) {
    ++counters_.taken_over;
    InPacket& packet = sink.next();
    packet = packet_of(message, received.payload);
    packet.handed_over = true;
    return;
  }
  sockets->want_learning();
  if (sockets->raw() >= 0 && load_u8(payload.data()) != probe_marker && !message.behind_another) {
    ++counters_.handed_over_twice;  // whoever sent it got the datagram, and our raw socket its copy
    return;
  }
  ++counters_.taken_over;
  sink.next() = packet_of(message, received.payload);
}

void UdpPort::receive_from(AddressSockets& sockets, Sink& sink, TimePoint time, bool rare_too) {
  if (sockets.tick(slot(), time, hand_over_->peers())) ++counters_.learning_rounds;
  if (sockets.raw() >= 0) {
    receive_raw(sockets, sink);
    if (!rare_too) return;
  }
  if (sink.room() == 0) return;  // there may be a backlog
  backlog_ = {&sockets, batch_.receive(sockets.data(), sink.room()), 0};
  sort_in_backlog(sink, time);
}

void UdpPort::sort_in_backlog(Sink& sink, TimePoint time) {
  for (; !backlog_.empty(); ++backlog_.messages.first, --backlog_.messages.count, backlog_.segment = 0)
    if (!sort_in(*backlog_.sockets, batch_.datagram(backlog_.messages.first), sink, time)) return;
}

// The filter of the socket has looked at the slot. What is sent on this host comes before it is cut.
void UdpPort::receive_raw(AddressSockets& sockets, Sink& sink) {
  const ReceiveBatch::Range range = batch_.receive(sockets.raw(), sink.room());
  for (std::size_t i = range.first; i < range.first + range.count; ++i) {
    ++counters_.datagrams_received;
    const ReceiveBatch::Datagram datagram = batch_.datagram(i);
    if (datagram.truncated) {
      ++counters_.truncated;
    } else if (const auto packet = parse_ip_datagram(datagram.bytes)) {
      sink.next() = *packet;
    } else {
      ++counters_.ip_header_odd;
    }
  }
}

// A message, which the kernel may have merged or not cut: from segment backlog_.segment on. False when the
// sink is full before its end.
bool UdpPort::sort_in(AddressSockets& sockets, const ReceiveBatch::Datagram& message, Sink& sink,
                      TimePoint time) {
  const std::size_t segments = message.segments();
  if (segments > 1 && backlog_.segment == 0) ++counters_.trains_received;
  for (std::size_t& i = backlog_.segment; i < segments; ++i) {
    if (sink.room() == 0) return false;
    sort_in_one(sockets, message, i, sink, time);
  }
  return true;
}

// Ours go up, also those too short to belong to anybody: the card counts what is malformed.
void UdpPort::sort_in_one(AddressSockets& sockets, const ReceiveBatch::Datagram& message, std::size_t segment,
                          Sink& sink, TimePoint time) {
  const MutableBytes bytes = message.segment(segment);
  if (handle_probe(sockets, message, bytes, time)) return;
  ++counters_.datagrams_received;
  if (message.truncated || bytes.size() > datagram_bytes_max) {
    ++counters_.truncated;
    return;
  }
  InPacket packet{message.source, sockets.address(), message.source_port, bytes,
                  message.congestion_experienced};
  packet.marks = message.marks;
  packet.ip_id = static_cast<std::uint16_t>(segment);
  const std::uint8_t owner = slot_of(bytes, slot());
  if (owner == slot().value || is_management(bytes)) {
    sink.next() = packet;
    return;
  }
  HandOverMessage hand_over = message_about(packet, slot());
  hand_over.behind_another = slot_of(message.segment(0), slot()) != owner;
  count_passed(hand_over_->pass(Slot{owner}, hand_over, bytes, time));
}

int UdpPort::pass_on(const InPacket& packet, std::optional<Slot> to) {
  const std::lock_guard lock(mutex_);
  if (packet.handed_over) return 0;  // once is enough
  const HandOverMessage message = message_about(packet, slot());
  int passed = 0;
  if (!to)
    passed = hand_over_->pass_to_all(message, packet.bytes, now());
  else if (to->value != slot().value)
    passed = hand_over_->pass(*to, message, packet.bytes, now()) == HandOver::Outcome::passed ? 1 : 0;
  counters_.passed_on += static_cast<std::uint64_t>(passed);
  return passed;
}

void UdpPort::plan_next_tick() {
  TimePoint next = TimePoint::never();
  for (const auto& sockets : addresses_) next = std::min(next, sockets->next_tick());
  next_tick_ns_.store(next.ns, std::memory_order_relaxed);
}

void UdpPort::count_passed(HandOver::Outcome outcome) {
  switch (outcome) {
    case HandOver::Outcome::passed:
      ++counters_.handed_over;
      break;
    case HandOver::Outcome::refused:
      ++counters_.hand_over_refused;
      break;
    case HandOver::Outcome::full:
      ++counters_.hand_over_dropped;
      break;
  }
}

// Probes come from the data socket of this very address; anything else that looks like one is garbage.
bool UdpPort::handle_probe(AddressSockets& sockets, const ReceiveBatch::Datagram& message, Bytes datagram,
                           TimePoint time) {
  if (datagram.size() != probe_bytes || message.source != sockets.address() ||
      message.source_port != roce_port)
    return false;
  const auto probe = parse_probe(datagram);
  if (!probe) return false;
  if (probe->prober.value == slot().value) {
    sockets.learn(probe->nonce, probe->index, slot(), slot(), time);
    return true;
  }
  HandOverMessage answer;
  answer.kind = HandOverMessage::Kind::answer;
  answer.sender = slot();
  answer.index = probe->index;
  answer.destination = sockets.address();
  std::array<std::byte, 8> nonce;
  store_be64(nonce.data(), probe->nonce);
  hand_over_->pass(probe->prober, answer, nonce, time);
  return true;
}

// --- waiting ---

TimePoint UdpPort::now() const { return monotonic_now(); }

void UdpPort::wait(TimePoint deadline) {
  if (has_backlog_.load(std::memory_order_relaxed)) deadline = {};
  const std::int64_t until_ns = std::min(deadline.ns, next_tick_ns_.load(std::memory_order_relaxed));
  const std::int64_t left_ns = std::max<std::int64_t>(0, until_ns - now().ns);
  const timespec timeout{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
  pollfd ready[] = {{epoll_.get(), POLLIN, 0}, {interface_watch_.descriptor(), POLLIN, 0}};
  ::ppoll(ready, std::size(ready), &timeout, nullptr);
  look_everywhere_.store(true, std::memory_order_relaxed);
  if (ready[1].revents != 0 && interface_watch_.take_change()) interfaces_changed_ = true;
  if (ready[0].revents == 0) return;
  // Read before the flag is lowered: a wake() in between is answered by our return.
  std::uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_event_.get(), &wakes, sizeof wakes);
  wake_pending_.exchange(false);
}

bool UdpPort::take_interface_change(bool look) {
  if (look && interface_watch_.take_change()) interfaces_changed_ = true;
  return std::exchange(interfaces_changed_, false);
}

void UdpPort::wake() {
  if (wake_pending_.exchange(true)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_event_.get(), &one, sizeof one);
}

// Without the lock, which another thread of the parent may have held at the fork; and
// without epoll_ctl or shutdown, which would reach the parent's sockets.
void UdpPort::abandon_after_fork() {
  hand_over_->close_all();
  for (const auto& sockets : addresses_) sockets->close_all();
  epoll_.reset();
  wake_event_.reset();
  interface_watch_.close();
}

}  // namespace

Result<std::unique_ptr<Port>> make_udp_port(IcrcCheck icrc, Segmentation segmentation) {
  const bool see_ip_headers = icrc != IcrcCheck::plain && may_see_ip_headers();
  if (icrc == IcrcCheck::strict && !see_ip_headers)
    return fail(
        Errc::permission,
        "BEELINE_ICRC=strict: seeing the IP headers of packets takes a raw socket, which this process "
        "may not open; run as root, with CAP_NET_RAW (setpriv --inh-caps +net_raw --ambient-caps +net_raw "
        "does so for any program), or set BEELINE_ICRC=auto");
  BEELINE_TRY(auto hand_over, HandOver::create());
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "cannot make an epoll descriptor");
  Descriptor wake_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_event) return fail_errno(errno, "cannot make an event descriptor");
  const int channel = hand_over->descriptor(), event = wake_event.get();
  auto port = std::make_unique<UdpPort>(std::move(hand_over), std::move(epoll), std::move(wake_event),
                                        see_ip_headers, segmentation);
  port->meet_others();
  if (!port->watch(channel) || !port->watch(event)) return fail_errno(errno, "cannot watch a descriptor");
  return port;
}

}  // namespace beeline::port
