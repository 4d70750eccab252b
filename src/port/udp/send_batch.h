// Packets of one flow, and trains of them, on their way into sendmmsg(2).
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "port/port.h"
#include "port/udp/socket_address.h"

namespace beeline::port {

class SendBatch {
 public:
  static constexpr std::size_t packets_max = 64;  // per call

  enum class Outcome : std::uint8_t {
    through,        // all was tried
    no_room,        // the socket has no room: what was not sent has that status
    train_refused,  // likewise
  };
  struct Result {
    Outcome outcome = Outcome::through;
    // The kernel, or a device, takes no trains at all (in contrast to this one).
    bool takes_no_trains = false;
  };

  SendBatch();

  // `run`: packets of one source address and port, at most packets_max. Fills in every status but
  // that of what stays unsent behind the run.
  Result send(int descriptor, std::uint32_t scope_id, std::span<OutPacket> run, PortCounters& counters);

 private:
  // One message: `count` packets from `first` on, more than one: a train.
  struct Message {
    std::size_t first = 0, count = 0;
  };
  union Control {
    cmsghdr aligned;
    std::byte bytes[CMSG_SPACE(sizeof(std::uint16_t))];
  };
  std::size_t lay_out(std::uint32_t scope_id, std::span<OutPacket> run);
  void lay_out_train(std::size_t index, std::span<OutPacket> train);
  void note_sent(const Message& message, std::span<OutPacket> run, PortCounters& counters);

  std::array<Message, packets_max> messages_;
  std::array<mmsghdr, packets_max> headers_;
  std::array<SocketAddress, packets_max> names_;
  std::array<Control, packets_max> controls_;
  std::vector<iovec> pieces_;  // of trains, one behind the other
  std::size_t pieces_used_ = 0;
};

}  // namespace beeline::port
