#include "port/udp/udp_port.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "port/udp/address_sockets.h"
#include "port/udp/handover.h"
#include "port/udp/receive_batch.h"
#include "port/udp/socket_address.h"

namespace beeline::port {
namespace {

constexpr std::size_t addresses_max = 64;
constexpr std::size_t batch_max = 64;         // datagrams per recvmmsg or sendmmsg, and per receive()
constexpr std::size_t slot_offset = 5;        // BTH: DestQP[23:16]
constexpr Duration handover_interval = 20us;  // a busy poller looks there so often

bool is_unicast(const IpAddress& address) {
  if (address.is_zero() || address == IpAddress::v4(0, 0, 0, 0)) return false;
  return address.is_v4() ? address.bytes[12] < 224 : address.bytes[0] != 0xFF;
}

class UdpPort final : public Port {
 public:
  UdpPort(std::unique_ptr<HandOver> hand_over, Descriptor epoll, Descriptor wake_event)
      : hand_over_(std::move(hand_over)),
        epoll_(std::move(epoll)),
        wake_event_(std::move(wake_event)),
        receive_buffer_bytes_(granted_receive_buffer() / 4),
        batch_(batch_max, datagram_bytes_max) {
    addresses_.reserve(addresses_max);
  }

  bool watch(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  }

  Slot slot() const override { return hand_over_->slot(); }
  Result<void> open_address(const IpAddress& address) override;
  Result<std::uint16_t> source_port(const IpAddress& address, std::uint32_t flow_hash) override;
  std::size_t receive_buffer_bytes() const override { return receive_buffer_bytes_; }
  std::size_t send(std::span<OutPacket> packets) override;
  std::size_t receive(std::span<InPacket> out) override;
  int wait_descriptor() const override { return epoll_.get(); }
  void wait(TimePoint deadline) override;
  void wake() override;
  TimePoint now() const override;
  const PortCounters& counters() const override { return counters_; }
  void abandon_after_fork() override;

 private:
  struct Sink;  // where received packets go, and how many there are

  AddressSockets* find(const IpAddress& address);
  int flow_descriptor(const OutPacket& packet);
  bool send_run(int descriptor, std::span<OutPacket> run, std::size_t& sent);
  void receive_handed_over(Sink& sink, TimePoint time);
  void take_over(const HandOver::Received& received, Sink& sink);
  void receive_from(AddressSockets& sockets, Sink& sink, TimePoint time);
  void sort_in(AddressSockets& sockets, const ReceiveBatch::Datagram& datagram, Sink& sink, TimePoint time);
  bool handle_probe(AddressSockets& sockets, const ReceiveBatch::Datagram& datagram, TimePoint time);
  void count_passed(HandOver::Outcome outcome);
  void plan_next_tick();

  std::mutex mutex_;  // addresses_ and all sockets in it, hand_over_; not the counters
  std::unique_ptr<HandOver> hand_over_;
  std::vector<std::unique_ptr<AddressSockets>> addresses_;
  Descriptor epoll_, wake_event_;
  std::atomic<bool> wake_pending_ = false;
  std::atomic<bool> look_at_handover_ = true;  // wait() ended: whatever woke it may be there
  TimePoint next_handover_look_{};
  // While this process learns its index (steering.h) it must not sleep on: as long as packets
  // go to a process that is stopped, none would wake it.
  std::atomic<std::int64_t> next_tick_ns_ = TimePoint::never().ns;
  std::size_t first_address_ = 0;  // rotates, so that no address starves another
  std::size_t receive_buffer_bytes_;
  ReceiveBatch batch_;
  std::array<HandOver::Received, HandOver::batch_max> handed_over_;
  PortCounters counters_;
};

struct UdpPort::Sink {
  std::span<InPacket> out;
  std::size_t filled = 0;

  std::size_t room() const { return out.size() - filled; }
  InPacket& next() { return out[filled++]; }
};

AddressSockets* UdpPort::find(const IpAddress& address) {
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
  BEELINE_TRY(auto sockets, AddressSockets::open(address));
  if (!watch(sockets->data())) return fail_errno(errno, "cannot watch a UDP socket");
  sockets->tick(slot(), now());
  addresses_.push_back(std::move(sockets));
  plan_next_tick();
  return {};
}

Result<std::uint16_t> UdpPort::source_port(const IpAddress& address, std::uint32_t flow_hash) {
  const std::lock_guard lock(mutex_);
  AddressSockets* sockets = find(address);
  if (sockets == nullptr)
    return fail(Errc::not_found, "address {} is not open on this port", to_string(address));
  return sockets->flows().port_for(flow_hash);
}

// --- sending ---

int UdpPort::flow_descriptor(const OutPacket& packet) {
  AddressSockets* sockets = find(packet.source);
  return sockets == nullptr ? -1 : sockets->flows().descriptor(packet.source_port);
}

std::size_t UdpPort::send(std::span<OutPacket> packets) {
  const std::lock_guard lock(mutex_);
  std::size_t sent = 0;
  while (!packets.empty()) {
    // A run of packets that leave through one socket is one system call.
    std::size_t length = 1;
    while (length < std::min(packets.size(), batch_max) && packets[length].source == packets[0].source &&
           packets[length].source_port == packets[0].source_port)
      ++length;
    const bool room = send_run(flow_descriptor(packets[0]), packets.first(length), sent);
    packets = packets.subspan(length);
    if (room) continue;
    for (OutPacket& packet : packets) packet.status = SendStatus::no_room;
    break;
  }
  counters_.datagrams_sent += sent;
  return sent;
}

// False when the socket has no room for the rest.
bool UdpPort::send_run(int descriptor, std::span<OutPacket> run, std::size_t& sent) {
  std::array<mmsghdr, batch_max> headers;
  std::array<SocketAddress, batch_max> names;
  const AddressSockets* sockets = find(run[0].source);
  for (std::size_t i = 0; i < run.size(); ++i) {
    msghdr& header = headers[i].msg_hdr;
    header = {};
    header.msg_name = &names[i];
    header.msg_namelen =
        fill(names[i], run[i].destination, roce_port, sockets == nullptr ? 0 : sockets->scope_id());
    header.msg_iov = const_cast<iovec*>(run[i].pieces.data());
    header.msg_iovlen = run[i].pieces.size();
  }
  for (std::size_t i = 0; i < run.size();) {
    const int count = ::sendmmsg(descriptor, headers.data() + i, static_cast<unsigned>(run.size() - i),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    const int error = errno;
    if (count > 0) {
      for (const std::size_t end = i + static_cast<std::size_t>(count); i < end; ++i, ++sent)
        run[i].status = SendStatus::sent;
    } else if (error == EAGAIN || error == ENOBUFS) {
      for (; i < run.size(); ++i) run[i].status = SendStatus::no_room;
      return false;
    } else if (error == EFAULT) {
      run[i++].status = SendStatus::fault;
    } else if (error != EINTR) {
      run[i++].status = SendStatus::failed;
      ++counters_.send_failures;
    }
  }
  return true;
}

// --- receiving ---

std::size_t UdpPort::receive(std::span<InPacket> out) {
  const std::lock_guard lock(mutex_);
  const TimePoint time = now();
  Sink sink{out};
  batch_.clear();
  receive_handed_over(sink, time);  // first: a full data socket must not starve it
  for (std::size_t i = 0; i < addresses_.size(); ++i)
    receive_from(*addresses_[(first_address_ + i) % addresses_.size()], sink, time);
  if (!addresses_.empty()) first_address_ = (first_address_ + 1) % addresses_.size();
  plan_next_tick();
  return sink.filled;
}

void UdpPort::receive_handed_over(Sink& sink, TimePoint time) {
  if (!look_at_handover_.load(std::memory_order_relaxed) && time < next_handover_look_) return;
  look_at_handover_.store(false, std::memory_order_relaxed);
  next_handover_look_ = time + handover_interval;
  const std::size_t limit = std::min(sink.room(), handed_over_.size());
  const std::size_t count =
      hand_over_->receive(std::span(handed_over_).first(limit), counters_.hand_over_refused);
  for (std::size_t i = 0; i < count; ++i) take_over(handed_over_[i], sink);
}

void UdpPort::take_over(const HandOver::Received& received, Sink& sink) {
  const HandOverMessage& message = received.message;
  AddressSockets* sockets = find(message.destination);
  const Bytes payload = received.payload;
  if (sockets != nullptr && message.kind == HandOverMessage::Kind::answer && payload.size() == 8) {
    sockets->learn(load_be64(payload.data()), message.index, message.sender, slot());
    return;
  }
  if (sockets == nullptr || message.kind != HandOverMessage::Kind::packet || payload.size() <= slot_offset ||
      load_u8(payload.data() + slot_offset) != slot().value) {
    ++counters_.hand_over_refused;
    return;
  }
  ++counters_.taken_over;
  sockets->want_learning();
  sink.next() = {message.source, message.destination, message.source_port, received.payload,
                 message.congestion_experienced};
}

void UdpPort::receive_from(AddressSockets& sockets, Sink& sink, TimePoint time) {
  sockets.tick(slot(), time);
  const std::size_t limit = std::min(sink.room(), batch_.room());
  if (limit == 0) return;
  const ReceiveBatch::Range range = batch_.receive(sockets.data(), limit);
  for (std::size_t i = 0; i < range.count; ++i)
    sort_in(sockets, batch_.datagram(range.first + i), sink, time);
}

// Ours go up, also those too short to belong to anybody: the card counts what is malformed.
void UdpPort::sort_in(AddressSockets& sockets, const ReceiveBatch::Datagram& datagram, Sink& sink,
                      TimePoint time) {
  if (handle_probe(sockets, datagram, time)) return;
  ++counters_.datagrams_received;
  if (datagram.truncated) {
    ++counters_.truncated;
    return;
  }
  const std::uint8_t owner =
      datagram.bytes.size() > slot_offset ? load_u8(datagram.bytes.data() + slot_offset) : slot().value;
  if (owner == slot().value) {
    sink.next() = {datagram.source, sockets.address(), datagram.source_port, datagram.bytes,
                   datagram.congestion_experienced};
    return;
  }
  HandOverMessage message;
  message.sender = slot();
  message.congestion_experienced = datagram.congestion_experienced;
  message.source_port = datagram.source_port;
  message.source = datagram.source;
  message.destination = sockets.address();
  count_passed(hand_over_->pass(Slot{owner}, message, datagram.bytes, time));
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
bool UdpPort::handle_probe(AddressSockets& sockets, const ReceiveBatch::Datagram& datagram, TimePoint time) {
  if (datagram.bytes.size() != probe_bytes || datagram.source != sockets.address() ||
      datagram.source_port != roce_port)
    return false;
  const auto probe = parse_probe(datagram.bytes);
  if (!probe) return false;
  if (probe->prober.value == slot().value) {
    sockets.learn(probe->nonce, probe->index, slot(), slot());
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

TimePoint UdpPort::now() const {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return {std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

void UdpPort::wait(TimePoint deadline) {
  const std::int64_t until_ns = std::min(deadline.ns, next_tick_ns_.load(std::memory_order_relaxed));
  const std::int64_t left_ns = std::max<std::int64_t>(0, until_ns - now().ns);
  const timespec timeout{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
  pollfd ready{epoll_.get(), POLLIN, 0};
  ::ppoll(&ready, 1, &timeout, nullptr);
  look_at_handover_.store(true, std::memory_order_relaxed);
  if (ready.revents == 0) return;
  // Read before the flag is lowered: a wake() in between is answered by our return.
  std::uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_event_.get(), &wakes, sizeof wakes);
  wake_pending_.exchange(false);
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
}

}  // namespace

Result<std::unique_ptr<Port>> make_udp_port() {
  BEELINE_TRY(auto hand_over, HandOver::create());
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "cannot make an epoll descriptor");
  Descriptor wake_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_event) return fail_errno(errno, "cannot make an event descriptor");
  const int channel = hand_over->descriptor(), event = wake_event.get();
  auto port = std::make_unique<UdpPort>(std::move(hand_over), std::move(epoll), std::move(wake_event));
  if (!port->watch(channel) || !port->watch(event)) return fail_errno(errno, "cannot watch a descriptor");
  return port;
}

}  // namespace beeline::port
