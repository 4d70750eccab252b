#include "port/udp/send_batch.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace beeline::port {
namespace {

std::size_t bytes_of(const OutPacket& packet) {
  std::size_t bytes = 0;
  for (const iovec& piece : packet.pieces) bytes += piece.iov_len;
  return bytes;
}

// Packets of the train that begins the span.
std::size_t train_length(std::span<const OutPacket> packets) {
  std::size_t length = 1;
  while (length < packets.size() && packets[length].place == length && length < train_packets_max) ++length;
  return length;
}

// Not of this train only: a device without checksum offload (older kernels), IPsec, or no such option.
bool says_no_trains(int error) { return error == EIO || error == EOPNOTSUPP || error == ENOPROTOOPT; }

void set_all(std::span<OutPacket> packets, SendStatus status) {
  for (OutPacket& packet : packets) packet.status = status;
}

}  // namespace

SendBatch::SendBatch() : pieces_(packets_max * packet_pieces_max) {}

// Returns the number of messages.
std::size_t SendBatch::lay_out(std::uint32_t scope_id, std::span<OutPacket> run) {
  std::size_t count = 0;
  pieces_used_ = 0;
  for (std::size_t i = 0; i < run.size(); ++count) {
    const std::size_t length = train_length(run.subspan(i));
    messages_[count] = {i, length};
    msghdr& header = headers_[count].msg_hdr;
    header = {};
    header.msg_name = &names_[count];
    header.msg_namelen = fill(names_[count], run[i].destination, roce_port, scope_id);
    header.msg_iov = const_cast<iovec*>(run[i].pieces.data());
    header.msg_iovlen = run[i].pieces.size();
    if (length > 1) lay_out_train(count, run.subspan(i, length));
    i += length;
  }
  return count;
}

// What goes in one piece is gathered from one list.
void SendBatch::lay_out_train(std::size_t index, std::span<OutPacket> train) {
  msghdr& header = headers_[index].msg_hdr;
  header.msg_iov = pieces_.data() + pieces_used_;
  header.msg_iovlen = 0;
  for (const OutPacket& packet : train) {
    BEELINE_CHECK(pieces_used_ + packet.pieces.size() <= pieces_.size());
    std::copy(packet.pieces.begin(), packet.pieces.end(),
              pieces_.begin() + static_cast<std::ptrdiff_t>(pieces_used_));
    pieces_used_ += packet.pieces.size();
    header.msg_iovlen += packet.pieces.size();
  }
  header.msg_control = &controls_[index];
  header.msg_controllen = sizeof controls_[index];
  cmsghdr* const item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = IPPROTO_UDP;
  item->cmsg_type = UDP_SEGMENT;
  item->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto size = static_cast<std::uint16_t>(bytes_of(train[0]));
  std::memcpy(CMSG_DATA(item), &size, sizeof size);
}

void SendBatch::note_sent(const Message& message, std::span<OutPacket> run, PortCounters& counters) {
  set_all(run.subspan(message.first, message.count), SendStatus::sent);
  counters.datagrams_sent += message.count;
  if (message.count == 1) return;
  ++counters.trains_sent;
  counters.packets_in_trains += message.count;
}

SendBatch::Result SendBatch::send(int descriptor, std::uint32_t scope_id, std::span<OutPacket> run,
                                  PortCounters& counters) {
  const std::size_t count = lay_out(scope_id, run);
  for (std::size_t i = 0; i < count;) {
    const int sent = ::sendmmsg(descriptor, headers_.data() + i, static_cast<unsigned>(count - i),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    const int error = errno;
    if (sent > 0) {
      for (const std::size_t end = i + static_cast<std::size_t>(sent); i < end; ++i)
        note_sent(messages_[i], run, counters);
      continue;
    }
    const Message& refused = messages_[i];
    if (error == EINTR) continue;
    if (error == EAGAIN || error == ENOBUFS) {
      set_all(run.subspan(refused.first), SendStatus::no_room);
      return {Outcome::no_room};
    }
    if (refused.count > 1) {  // whichever of its packets it was
      set_all(run.subspan(refused.first), SendStatus::train_refused);
      ++counters.trains_refused;
      return {Outcome::train_refused, says_no_trains(error)};
    }
    run[refused.first].status = error == EFAULT ? SendStatus::fault : SendStatus::failed;
    counters.send_failures += error == EFAULT ? 0 : 1;
    ++i;
  }
  return {};
}

}  // namespace beeline::port
