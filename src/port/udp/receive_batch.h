// Buffers and headers for recvmmsg(2), made once.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "port/udp/socket_address.h"

namespace beeline::port {

class ReceiveBatch {
 public:
  struct Datagram {
    IpAddress source;
    std::uint16_t source_port = 0;
    MutableBytes bytes;
    bool congestion_experienced = false;
    bool truncated = false;  // was longer than its buffer
  };

  ReceiveBatch(std::size_t datagrams, std::size_t bytes_each);

  void clear() { used_ = 0; }  // what was received is no longer needed
  std::size_t room() const { return headers_.size() - used_; }
  // Takes what waits at `socket`, at most `limit` and room(). Returns the index of the
  // first new datagram and how many there are.
  struct Range {
    std::size_t first = 0, count = 0;
  };
  Range receive(int socket, std::size_t limit);
  Datagram datagram(std::size_t index) const;

 private:
  union Control {
    cmsghdr aligned;
    std::byte bytes[CMSG_SPACE(sizeof(int)) * 2];
  };
  MutableBytes buffer(std::size_t index) const;

  std::size_t bytes_each_;
  std::size_t used_ = 0;
  std::size_t written_ = 0;  // headers below this may have been written by the kernel
  mutable std::vector<std::byte> buffers_;
  std::vector<iovec> pieces_;
  std::vector<SocketAddress> names_;
  std::vector<Control> controls_;
  mutable std::vector<mmsghdr> headers_;
};

}  // namespace beeline::port
