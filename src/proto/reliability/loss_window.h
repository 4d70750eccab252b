// How much may be on its way where packets are lost.
//
// Going back repeats everything behind the packet that was lost, so what is on its way when a loss is noticed
// is lost with it: no more should be than keeps the path busy. The window is halved by each loss that the
// peer reports, and grows by a step per window that was acknowledged, as in RFC 5681; faster where it is
// large, because losses were rare then. Without loss it is as large as the card allows. Silence does not
// count: mostly the peer's process has no processor.
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
  // So much was acknowledged, of what a window of `in_use` had sent; the card allows `allowed`.
  void note_acknowledged(std::uint64_t charge, std::uint64_t in_use, std::uint64_t allowed) {
    if (bytes_ == unlimited || in_use < bytes_ / 2) return;
    pending_ += charge;
    if (pending_ < bytes_) return;
    pending_ = 0;
    bytes_ += std::max(step_, bytes_ / 16);
    if (bytes_ >= allowed) bytes_ = unlimited;
  }

 private:
  static constexpr std::uint64_t unlimited = 1ull << 30;
  static constexpr std::uint64_t least_packets = 4, least_bytes = 8192, step_bytes = 8192;

  std::uint64_t bytes_ = unlimited;
  std::uint64_t least_ = least_bytes, step_ = step_bytes;
  std::uint64_t pending_ = 0;  // acknowledged since the last step
};

}  // namespace beeline::proto
