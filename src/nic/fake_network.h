// For tests: a network in memory that loses, doubles, swaps and spoils datagrams as a seed
// says, in real or in virtual time, and ports on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"
#include "nic/guarded.h"
#include "port/port.h"

namespace beeline::nic::test {

struct Faults {
  double loss = 0, duplicate = 0, reorder = 0, corrupt = 0, no_room = 0;
};

class FakePort;

class FakeNetwork {
 public:
  enum class Clock { real, manual };
  explicit FakeNetwork(Clock clock = Clock::manual, std::uint64_t seed = 1) : clock_(clock), random_(seed) {}

  std::unique_ptr<FakePort> make_port(std::uint8_t slot);
  FakePort* port_of(std::uint8_t slot) {
    const std::lock_guard lock(mutex_);
    const auto found = ports_.find(slot);
    return found == ports_.end() ? nullptr : found->second;
  }
  void set_faults(const Faults& faults) {
    const std::lock_guard lock(mutex_);
    faults_ = faults;
  }
  void advance(Duration by) { manual_ns_ += by.count(); }
  TimePoint now() const {
    if (clock_ == Clock::manual) return {manual_ns_};
    return {std::chrono::steady_clock::now().time_since_epoch().count()};
  }
  std::uint64_t carried() const { return carried_; }  // datagrams that were handed to the network
  // Trains: how long they may be; whether they are refused; whether they arrive uncut, as at a raw socket.
  // With trains, ports see the IP identification.
  std::size_t train_max = 1;
  bool refuse_trains = false, deliver_whole = false;
  std::uint64_t trains = 0, trains_refused = 0;  // gone out, and not
  // Called when the headers and the ICRC of a packet are done, before its payload is gathered.
  std::function<void(const port::OutPacket&)> before_gather;

  // A datagram from anywhere.
  // With `ip_id` the port sees it, as a raw socket does.
  void inject(const IpAddress& source, const IpAddress& destination, std::uint16_t source_port, Bytes bytes,
              std::optional<std::uint16_t> ip_id = {}) {
    const std::lock_guard lock(mutex_);
    deliver({source, destination, source_port, {bytes.begin(), bytes.end()}, ip_id});
  }

 private:
  friend class FakePort;
  struct Datagram {
    IpAddress source, destination;
    std::uint16_t source_port = 0;
    std::vector<std::byte> bytes;
    std::optional<std::uint16_t> ip_id = {};
    bool may_be_train = false;
    port::IpMarks marks = {};
  };

  void carry(Datagram datagram);
  void deliver(Datagram datagram);

  const Clock clock_;
  std::atomic<std::int64_t> manual_ns_{1'000'000};
  std::atomic<std::uint64_t> carried_{0};
  std::mutex mutex_;
  Prng random_;
  Faults faults_;
  std::map<std::uint8_t, FakePort*> ports_;  // by slot
};

class FakePort final : public port::Port {
 public:
  FakePort(FakeNetwork& network, std::uint8_t slot) : network_(network), slot_{slot} {}
  ~FakePort() override {
    const std::lock_guard lock(network_.mutex_);
    network_.ports_.erase(slot_.value);
  }

  port::Slot slot() const override { return slot_; }
  Result<void> open_address(const IpAddress& address) override {
    const std::lock_guard lock(network_.mutex_);
    if (address == unusable) return fail(Errc::not_found, "{} is not on this host", to_string(address));
    addresses_.insert(address);
    return {};
  }
  Result<std::uint16_t> source_port(const IpAddress&, std::uint32_t flow_hash, port::IpMarks marks) override {
    const auto port = static_cast<std::uint16_t>(0xC000 | (flow_hash & 0x3FFF));
    marks_[port] = marks;
    return port;
  }
  std::size_t receive_buffer_bytes() const override { return std::size_t{256} * 1024; }

  std::size_t train_max(const IpAddress&) const override { return network_.train_max; }

  std::size_t send(std::span<port::OutPacket> packets) override {
    const std::lock_guard lock(network_.mutex_);
    std::size_t sent = 0;
    bool full = false;
    for (std::size_t i = 0; i < packets.size();) {
      std::size_t length = 1;
      while (i + length < packets.size() && packets[i + length].place == length) ++length;
      full = full || network_.random_.chance(network_.faults_.no_room);
      if (full || !send_message(packets.subspan(i, length))) {
        for (port::OutPacket& packet : packets.subspan(i))
          packet.status = full ? port::SendStatus::no_room : port::SendStatus::train_refused;
        break;
      }
      for (const port::OutPacket& packet : packets.subspan(i, length))
        sent += packet.status == port::SendStatus::sent ? 1u : 0u;
      i += length;
    }
    counters_.datagrams_sent += sent;
    return sent;
  }

  std::size_t receive(std::span<port::InPacket> out) override {
    const std::lock_guard lock(network_.mutex_);
    handed_out_.clear();
    while (handed_out_.size() < out.size() && !arrived_.empty()) {
      handed_out_.push_back(std::move(arrived_.front()));
      arrived_.pop_front();
      auto& datagram = handed_out_.back();
      out[handed_out_.size() - 1] = {datagram.source, datagram.destination, datagram.source_port,
                                     datagram.bytes, false};
      out[handed_out_.size() - 1].ip_header_seen = datagram.ip_id.has_value();
      out[handed_out_.size() - 1].ip_id = datagram.ip_id.value_or(0);
      out[handed_out_.size() - 1].may_be_train = datagram.may_be_train;
      out[handed_out_.size() - 1].marks = datagram.marks;
    }
    counters_.datagrams_received += handed_out_.size();
    return handed_out_.size();
  }

  int wait_descriptor() const override { return -1; }
  void wait(TimePoint deadline) override {
    std::unique_lock lock(network_.mutex_);
    ++waits;
    asleep = true;
    const auto ready = [&] { return woken_ || !arrived_.empty(); };
    if (deadline == TimePoint::never())
      something_.wait(lock, ready);
    else
      something_.wait_for(lock, std::clamp<Duration>(deadline - now(), 0ns, 10s), ready);
    woken_ = false;
    asleep = false;
  }
  void wake() override {
    const std::lock_guard lock(network_.mutex_);
    woken_ = true;
    something_.notify_all();
  }
  TimePoint now() const override { return network_.now(); }
  const port::PortCounters& counters() const override { return counters_; }
  void note_silence() override { ++silences; }
  bool take_interface_change(bool) override { return interfaces_changed.exchange(false); }
  Result<std::vector<port::Interface>> interfaces() const override {
    const std::lock_guard lock(network_.mutex_);
    return interfaces_;
  }
  // The host's interfaces are these now, and the kernel says so.
  void set_interfaces(std::vector<port::Interface> interfaces) {
    {
      const std::lock_guard lock(network_.mutex_);
      interfaces_ = std::move(interfaces);
    }
    interfaces_changed = true;
    wake();
  }
  void abandon_after_fork() override {}

  static constexpr IpAddress unusable = IpAddress::v4(192, 0, 2, 66);
  std::atomic<bool> asleep{false};  // in wait()
  std::atomic<int> waits{0};        // how often somebody went to sleep here
  std::atomic<int> silences{0};     // answers that did not come
  std::atomic<bool> interfaces_changed{false};

 private:
  friend class FakeNetwork;

  // One packet, or a train. False: a train, and it does not go.
  bool send_message(std::span<port::OutPacket> packets) {
    std::vector<FakeNetwork::Datagram> datagrams;
    for (port::OutPacket& packet : packets) {
      datagrams.push_back({packet.source, packet.destination, packet.source_port, {}});
      if (network_.train_max > 1) datagrams.back().ip_id = packet.place;
      datagrams.back().marks = marks_[packet.source_port];
      packet.status = gather(packet, datagrams.back().bytes);
    }
    const bool faulty = std::any_of(packets.begin(), packets.end(), [](const port::OutPacket& packet) {
      return packet.status == port::SendStatus::fault;
    });
    const bool train = packets.size() > 1;
    if (train && (faulty || network_.refuse_trains)) {
      ++network_.trains_refused;
      return false;
    }
    if (faulty) return true;
    network_.trains += train ? 1 : 0;
    if (train && network_.deliver_whole) {
      for (std::size_t i = 1; i < datagrams.size(); ++i)
        datagrams[0].bytes.insert(datagrams[0].bytes.end(), datagrams[i].bytes.begin(),
                                  datagrams[i].bytes.end());
      datagrams.resize(1);
    }
    for (FakeNetwork::Datagram& datagram : datagrams) {
      datagram.may_be_train = network_.deliver_whole;
      network_.carry(std::move(datagram));
    }
    return true;
  }

  // As the kernel does: memory that is not there is an error, not a crash.
  port::SendStatus gather(const port::OutPacket& packet, std::vector<std::byte>& bytes) {
    if (network_.before_gather) network_.before_gather(packet);
    for (const iovec& piece : packet.pieces) {
      const std::size_t before = bytes.size();
      bytes.resize(before + piece.iov_len);
      if (!copy_guarded(bytes.data() + before, static_cast<const std::byte*>(piece.iov_base), piece.iov_len))
        return port::SendStatus::fault;
    }
    return port::SendStatus::sent;
  }

  FakeNetwork& network_;
  const port::Slot slot_;
  std::set<IpAddress> addresses_;
  std::map<std::uint16_t, port::IpMarks> marks_;  // of a source port
  std::deque<FakeNetwork::Datagram> arrived_;
  std::vector<FakeNetwork::Datagram> handed_out_;
  std::condition_variable something_;
  bool woken_ = false;
  port::PortCounters counters_;
  std::vector<port::Interface> interfaces_;
};

inline std::unique_ptr<FakePort> FakeNetwork::make_port(std::uint8_t slot) {
  auto made = std::make_unique<FakePort>(*this, slot);
  const std::lock_guard lock(mutex_);
  ports_[slot] = made.get();
  return made;
}

inline void FakeNetwork::carry(Datagram datagram) {
  ++carried_;
  if (random_.chance(faults_.loss)) return;
  if (random_.chance(faults_.duplicate)) deliver(datagram);
  if (random_.chance(faults_.corrupt))
    datagram.bytes[random_.below(datagram.bytes.size())] ^= static_cast<std::byte>(1 + random_.below(255));
  deliver(std::move(datagram));
}

inline void FakeNetwork::deliver(Datagram datagram) {
  const std::uint8_t slot = datagram.bytes.size() > 5 ? load_u8(datagram.bytes.data() + 5) : 0;
  auto found = ports_.find(slot);
  // What is for nobody's slot goes to whoever has the address, as in the kernel.
  if (found == ports_.end())
    found = std::find_if(ports_.begin(), ports_.end(), [&](const auto& entry) {
      return entry.second->addresses_.contains(datagram.destination);
    });
  FakePort* const to = found == ports_.end() ? nullptr : found->second;
  if (to == nullptr || !to->addresses_.contains(datagram.destination)) return;
  to->arrived_.push_back(std::move(datagram));
  if (to->arrived_.size() > 1 && random_.chance(faults_.reorder))
    std::swap(to->arrived_.back(), to->arrived_[to->arrived_.size() - 2]);
  to->something_.notify_all();
}

}  // namespace beeline::nic::test
