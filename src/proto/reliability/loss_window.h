// How much may be on its way where packets are lost.
//
// Going back repeats everything behind the packet that was lost, so what is on its way when a loss is noticed
// is lost with it: no more should be than keeps the path busy. The window is halved by each loss, and grows
// by a fixed step per window that was acknowledged (additive increase, multiplicative decrease, as in RFC
// 5681). Without loss it is as large as the card allows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace beeline::proto {

class LossWindow {
 public:
  // `packet_charge`: of a full packet.
  void configure(std::uint64_t packet_charge) {
    *this = {};
    least_ = std::max(least_packets * packet_charge, least_bytes);
    step_ = std::max(2 * packet_charge, step_bytes);
  }

  std::uint64_t bytes() const { return bytes_; }
  // A packet was lost when so much was on its way.
  void note_loss(std::uint64_t in_flight) { bytes_ = std::max(std::min(bytes_, in_flight) / 2, least_); }
  // So much was acknowledged, of what a window of `in_use` had sent.
  void note_acknowledged(std::uint64_t charge, std::uint64_t in_use) {
    if (bytes_ >= unlimited || in_use < bytes_ / 2) return;
    pending_ += charge;
    if (pending_ < bytes_) return;
    pending_ = 0;
    bytes_ += step_;
  }

 private:
  static constexpr std::uint64_t unlimited = 1ull << 30;
  static constexpr std::uint64_t least_packets = 4, least_bytes = 8192, step_bytes = 8192;

  std::uint64_t bytes_ = unlimited;
  std::uint64_t least_ = least_bytes, step_ = step_bytes;
  std::uint64_t pending_ = 0;  // acknowledged since the last step
};

}  // namespace beeline::proto
