// Buffers and headers for recvmmsg(2), made once.
//
// A message may be many datagrams: a train that a process of this host sent and nobody has cut, or what the
// kernel merged (UDP_GRO). So every buffer has room for the largest message. The memory of those that
// never get one is never touched. How many messages are taken at a time follows from how large
// they have been lately, so that what is taken is still in the cache when it is looked at.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "port/port.h"
#include "port/udp/socket_address.h"

namespace beeline::port {

class ReceiveBatch {
 public:
  struct Datagram {
    IpAddress source;
    std::uint16_t source_port = 0;
    MutableBytes bytes;
    bool congestion_experienced = false;
    IpMarks marks;
    bool truncated = false;           // was longer than its buffer
    std::uint16_t segment_bytes = 0;  // of each of several datagrams, but the last; 0: it is one

    std::size_t segments() const;
    MutableBytes segment(std::size_t index) const;
  };

  explicit ReceiveBatch(std::size_t messages);

  void clear() { used_ = 0; }  // what was received is no longer needed
  std::size_t room() const { return headers_.size() - used_; }
  // Takes what waits at `socket`, no more messages than room() nor, as far as can be foreseen, more
  // datagrams than `wanted`. Returns the index of the first new message and how many there are.
  struct Range {
    std::size_t first = 0, count = 0;
  };
  Range receive(int socket, std::size_t wanted);
  Datagram datagram(std::size_t index) const;

 private:
  union Control {
    cmsghdr aligned;
    std::byte bytes[CMSG_SPACE(sizeof(int)) * 3];  // traffic class, hop limit, segment size
  };
  MutableBytes buffer(std::size_t index) const;
  std::size_t limit_for(std::size_t wanted) const;
  void note_sizes(Range range);

  std::size_t used_ = 0;
  std::size_t written_ = 0;  // headers below this may have been written by the kernel
  std::size_t typical_bytes_ = 0, typical_segments_ = 1;  // per message, of the last that came
  std::unique_ptr<std::byte[]> buffers_;
  std::vector<iovec> pieces_;
  std::vector<SocketAddress> names_;
  std::vector<Control> controls_;
  mutable std::vector<mmsghdr> headers_;
};

}  // namespace beeline::port
