#include "port/udp/receive_batch.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace beeline::port {
namespace {

constexpr int ecn_mask = 3, ecn_ce = 3;  // RFC 3168, 5: the low bits of ToS or traffic class

bool carries_ce(msghdr& header) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS)
      return (*CMSG_DATA(item) & ecn_mask) == ecn_ce;
    if (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_TCLASS) {
      int traffic_class = 0;
      std::memcpy(&traffic_class, CMSG_DATA(item), sizeof traffic_class);
      return (traffic_class & ecn_mask) == ecn_ce;
    }
  }
  return false;
}

}  // namespace

ReceiveBatch::ReceiveBatch(std::size_t datagrams, std::size_t bytes_each)
    : bytes_each_(bytes_each),
      buffers_(datagrams * bytes_each),
      pieces_(datagrams),
      names_(datagrams),
      controls_(datagrams),
      headers_(datagrams) {
  for (std::size_t i = 0; i < datagrams; ++i) {
    pieces_[i] = {buffer(i).data(), bytes_each};
    msghdr& header = headers_[i].msg_hdr;
    header.msg_iov = &pieces_[i];
    header.msg_iovlen = 1;
    header.msg_name = &names_[i];
    header.msg_control = &controls_[i];
  }
  written_ = datagrams;  // nothing is set yet
}

MutableBytes ReceiveBatch::buffer(std::size_t index) const {
  return {buffers_.data() + index * bytes_each_, bytes_each_};
}

ReceiveBatch::Range ReceiveBatch::receive(int socket, std::size_t limit) {
  limit = std::min(limit, room());
  // The kernel overwrote these with what it delivered last time. Most calls find nothing to receive, so
  // only what was written is set again.
  const std::size_t overwritten = std::min(used_ + limit, written_);
  for (std::size_t i = used_; i < overwritten; ++i) {
    headers_[i].msg_hdr.msg_namelen = sizeof names_[i];
    headers_[i].msg_hdr.msg_controllen = sizeof controls_[i];
  }
  const int count =
      ::recvmmsg(socket, headers_.data() + used_, static_cast<unsigned>(limit), MSG_DONTWAIT, nullptr);
  const Range range{used_, count > 0 ? static_cast<std::size_t>(count) : 0};
  used_ += range.count;
  if (overwritten == written_) written_ = range.first;
  // And one more: a call that failed may have begun to write.
  written_ = std::max(written_, std::min(used_ + 1, headers_.size()));
  return range;
}

ReceiveBatch::Datagram ReceiveBatch::datagram(std::size_t index) const {
  mmsghdr& header = headers_[index];
  Datagram result;
  result.source = address_of(names_[index]);
  result.source_port = port_of(names_[index]);
  result.bytes = buffer(index).first(header.msg_len);
  result.congestion_experienced = carries_ce(header.msg_hdr);
  result.truncated = (header.msg_hdr.msg_flags & MSG_TRUNC) != 0;
  return result;
}

}  // namespace beeline::port
