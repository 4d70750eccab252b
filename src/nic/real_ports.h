// For tests over real UDP sockets: addresses of our own, ports that lose, waiting with a deadline.
// (Only *_test.cc may name the UDP port itself.)
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>

#include "base/random.h"
#include "port/port.h"

namespace beeline::nic::test {

inline constexpr auto patience = std::chrono::seconds(60);

// All of 127/8 is this host: an address that only this process of the test uses.
inline IpAddress own_address(std::uint8_t number, pid_t pid = ::getpid()) {
  const auto n = static_cast<std::uint32_t>(pid);
  return IpAddress::v4(127, static_cast<std::uint8_t>(16 + n / 65536 % 64),
                       static_cast<std::uint8_t>(n / 256), static_cast<std::uint8_t>(number + n % 16 * 16));
}

// Steps until done; false when patience ends.
inline bool until(const std::function<bool()>& done, const std::function<void()>& step) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    step();
  }
  return true;
}

// Another port that loses some of what it sends.
class LossyPort final : public port::Port {
 public:
  LossyPort(std::unique_ptr<port::Port> inner, double loss, std::uint64_t seed)
      : inner_(std::move(inner)), loss_(loss), random_(seed) {}

  port::Slot slot() const override { return inner_->slot(); }
  Result<void> open_address(const IpAddress& address) override { return inner_->open_address(address); }
  Result<std::uint16_t> source_port(const IpAddress& address, std::uint32_t flow_hash,
                                    port::IpMarks marks) override {
    return inner_->source_port(address, flow_hash, marks);
  }
  std::size_t receive_buffer_bytes() const override { return inner_->receive_buffer_bytes(); }
  std::size_t send(std::span<port::OutPacket> packets) override {
    std::size_t sent = 0;
    for (port::OutPacket& packet : packets) {
      if (random_.chance(loss_)) {
        packet.status = port::SendStatus::sent;
        ++sent;
      } else {
        sent += inner_->send({&packet, 1});
      }
    }
    return sent;
  }
  std::size_t receive(std::span<port::InPacket> out) override { return inner_->receive(out); }
  int wait_descriptor() const override { return inner_->wait_descriptor(); }
  void wait(TimePoint deadline) override { inner_->wait(deadline); }
  void wake() override { inner_->wake(); }
  TimePoint now() const override { return inner_->now(); }
  const port::PortCounters& counters() const override { return inner_->counters(); }
  bool sees_ip_headers() const override { return inner_->sees_ip_headers(); }
  void note_silence() override { inner_->note_silence(); }
  void abandon_after_fork() override { inner_->abandon_after_fork(); }

 private:
  std::unique_ptr<port::Port> inner_;
  const double loss_;
  Prng random_;
};

}  // namespace beeline::nic::test
